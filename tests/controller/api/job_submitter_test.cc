// Submit and Validate over gRPC.

#include <atomic>
#include <thread>

#include "tests/controller/api/job_service_fixture.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_PENDING;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class JobSubmitterTest : public JobServiceTest {
 protected:
  // Submits the job "a" and gives the call up once a thread of the server is held by `gate`.
  void GiveUpSubmitAt(Gate& gate) {
    const auto context = runtime::CallWithin(kGuard);
    std::thread submit([&] {
      job::v1::SubmitRequest request;
      request.set_job_id("a");
      request.set_yaml(TinyClusterJob());
      job::v1::Job job;
      EXPECT_EQ(stub().Submit(context.get(), request, &job).error_code(),
                grpc::StatusCode::CANCELLED);
    });
    EXPECT_TRUE(gate.AwaitThread());
    context->TryCancel();
    submit.join();
  }
};

TEST_F(JobSubmitterTest, ARetriedSubmitIsOneJob) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(job_.id(), "a");
  EXPECT_EQ(job_.name(), "tiny");
  EXPECT_EQ(job_.state(), JOB_STATE_PENDING);
  EXPECT_EQ(job_.spec().group_size(), 2);
  EXPECT_EQ(job_.spec().reward().timeout_ms(), 1000);  // filled-in default
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(job_.id(), "a");
  EXPECT_EQ(List()->jobs_size(), 1);
}

TEST_F(JobSubmitterTest, SubmitsAtTheSameTimeAreOneJob) {
  Serve();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      job::v1::SubmitRequest request;
      request.set_job_id("a");
      request.set_yaml(TinyClusterJob());
      job::v1::Job job;
      if (Call(&Stub::Submit, request, job).ok() && job.id() == "a") ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(List()->jobs_size(), 1);
}

TEST_F(JobSubmitterTest, AnIdBelongsToOneSpec) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  const absl::Status other = Submit("a", TinyClusterJob() + "seed: 7\n");
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(runtime::DetailsOf(other).reason, "ALREADY_EXISTS");
  EXPECT_EQ(runtime::DetailsOf(other).metadata.at("job"), "a");
  EXPECT_EQ(Submit("a", TinyClusterJob(), 5).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobSubmitterTest, TheServerChoosesIdsThatDiffer) {
  Serve();
  ASSERT_TRUE(Submit("").ok());
  const std::string first = job_.id();
  EXPECT_THAT(first, testing::StartsWith("tiny-"));
  ASSERT_TRUE(Submit("").ok());
  EXPECT_NE(job_.id(), first);
  EXPECT_EQ(List()->jobs_size(), 2);
}

TEST_F(JobSubmitterTest, EveryFaultOfASpecIsAViolation) {
  Serve();
  const absl::Status status = Submit("a", TinyClusterJob() +
                                              "staleness: {max: -1}\n"
                                              "nonsense: 1\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runtime::DetailsOf(status).reason, "INVALID_JOB");
  EXPECT_THAT(Fields(status), Contains("staleness.max"));
  EXPECT_THAT(Fields(status), Contains("nonsense"));
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobSubmitterTest, WhatAClusterCannotDoIsRefusedWithTheField) {
  Serve();
  const std::string yaml = TinyClusterJob() + "weight_sync: {transport: inprocess}\n";
  const absl::Status submitted = Submit("a", yaml);
  EXPECT_EQ(submitted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(submitted), ElementsAre("weight_sync.transport"));
  job::v1::ValidateRequest request;
  request.set_yaml(yaml);
  job::v1::ValidateReply reply;
  EXPECT_THAT(Fields(Call(&Stub::Validate, request, reply)), ElementsAre("weight_sync.transport"));
}

TEST_F(JobSubmitterTest, OptionsThatNobodyHasAreRefusedWithTheirFields) {
  Serve();
  const std::string yaml =
      TinyClusterJob() + "environment: {type: guess_number, options: {low: \"0\"}}\n";
  const absl::Status submitted = Submit("a", yaml);
  EXPECT_EQ(submitted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runtime::DetailsOf(submitted).reason, "INVALID_JOB");
  EXPECT_THAT(Fields(submitted), ElementsAre("environment.options.low"));
  job::v1::ValidateRequest request;
  request.set_yaml(TinyClusterJob());
  request.add_overrides("reward.components.bad={type: regex, pattern: \"[\"}");
  job::v1::ValidateReply reply;
  const absl::Status validated = Call(&Stub::Validate, request, reply);
  EXPECT_EQ(validated.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(validated), ElementsAre("reward.components.bad.pattern"));
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobSubmitterTest, FilesThatJobsMayNotNameAreRefusedBySubmitAndValidate) {
  const ScratchFolder scratch;
  scratch.Write("users.jsonl", "{\"q\": \"1\", \"answer\": \"1\"}\n");
  cluster_.roots = DataRoots();
  Serve();
  job::v1::ValidateRequest request;
  request.set_yaml(TinyClusterJob());
  request.add_overrides("dataset={type: jsonl, path: " + scratch.File("users.jsonl") +
                        ", prompt: \"{q}\", answer: answer}");
  job::v1::ValidateReply reply;
  const absl::Status validated = Call(&Stub::Validate, request, reply);
  EXPECT_EQ(validated.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(validated), HasSubstr("--data-root"));
  job::v1::SubmitRequest submit;
  submit.set_yaml(request.yaml());
  *submit.mutable_overrides() = request.overrides();
  job::v1::Job job;
  const absl::Status submitted = Call(&Stub::Submit, submit, job);
  EXPECT_EQ(submitted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(submitted), HasSubstr("--data-root"));
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobSubmitterTest, FieldsOfASubmitAreChecked) {
  Serve();
  EXPECT_THAT(Fields(Submit("no spaces")), ElementsAre("job_id"));
  EXPECT_THAT(Fields(Submit("a", TinyClusterJob(), 101)), ElementsAre("priority"));
  EXPECT_THAT(Fields(Submit("a", "")), Not(IsEmpty()));
}

TEST_F(JobSubmitterTest, TooManyJobsAreRefusedForAWhile) {
  JobServiceOptions options;
  options.max_jobs = 2;
  Serve(options);
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(Submit("b").ok());
  const absl::Status full = Submit("c");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(runtime::DetailsOf(full).reason, "FULL");
  EXPECT_TRUE(runtime::DetailsOf(full).retry_after.has_value());
  EXPECT_TRUE(Submit("b").ok());  // already exists
  ASSERT_TRUE(Cancel("a").ok());
  EXPECT_TRUE(Submit("c").ok());
}

TEST_F(JobSubmitterTest, ValidateResolvesAndStoresNothing) {
  Serve();
  job::v1::ValidateRequest request;
  request.set_yaml(TinyClusterJob());
  request.add_overrides("trainer.steps=9");
  job::v1::ValidateReply reply;
  ASSERT_TRUE(Call(&Stub::Validate, request, reply).ok());
  EXPECT_EQ(reply.spec().trainer().steps(), 9);
  EXPECT_THAT(reply.yaml(), HasSubstr("timeout_ms: 1000"));
  EXPECT_EQ(List()->jobs_size(), 0);
  // The resolved spec is a valid job.
  request.Clear();
  *request.mutable_spec() = reply.spec();
  job::v1::ValidateReply again;
  ASSERT_TRUE(Call(&Stub::Validate, request, again).ok());
  EXPECT_EQ(again.yaml(), reply.yaml());
}

TEST_F(JobSubmitterTest, AJobWithRaisedCallsIsStillThatOfItsFile) {
  Serve();
  const auto submit = [this](int max_calls) {
    job::v1::SubmitRequest request;
    request.set_job_id("a");
    request.set_yaml(TinyClusterJob());
    request.add_overrides(
        StrCat("reward.components.judge={type: judge, model: m, text: \"{response}\", max_calls: ",
               max_calls, "}"));
    return Call(&Stub::Submit, request, job_);
  };
  ASSERT_EQ(submit(10), absl::OkStatus());
  ASSERT_TRUE(Cancel("a").ok());
  job::v1::ResumeRequest resume;
  resume.set_job_id("a");
  (*resume.mutable_max_calls())["judge"] = 20;
  ASSERT_EQ(Call(&Stub::Resume, resume, job_), absl::OkStatus());
  EXPECT_EQ(submit(10), absl::OkStatus());
  EXPECT_EQ(submit(20), absl::OkStatus());
  EXPECT_EQ(submit(30).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobSubmitterTest, ASubmitThatWasGivenUpBeforeItsJobIsStoredCreatesNone) {
  Serve();
  Gate gate;
  cluster_.records.reading = &gate;
  GiveUpSubmitAt(gate);
  EXPECT_EQ(Cancel("a").code(), absl::StatusCode::kNotFound);
  gate.Open();
  served_ = nullptr;  // returns when the submit has
  EXPECT_EQ(cluster_.records.Get("job/a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobSubmitterTest, ACancelFindsTheJobThatASubmitIsStoring) {
  Serve();
  Gate gate;
  cluster_.records.creating = &gate;
  GiveUpSubmitAt(gate);
  std::thread cancel([this] { EXPECT_EQ(Cancel("a"), absl::OkStatus()); });
  gate.Open();
  cancel.join();
  EXPECT_EQ(job_.state(), JOB_STATE_CANCELLED);
  served_ = nullptr;  // before the gate
}

}  // namespace
}  // namespace freshet
