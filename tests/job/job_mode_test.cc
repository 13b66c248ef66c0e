#include "job/job_mode.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Refused(const std::string& transport, JobMode mode) {
  const JobResult job =
      ParseJob(MinimalJob() + "weight_sync: {transport: " + transport + "}\n", "job.yaml");
  EXPECT_THAT(job.errors, IsEmpty());
  std::vector<std::string> lines;
  for (const ConfigError& error : CheckMode(job.spec, job.places, mode)) {
    lines.push_back(FormatConfigError(error));
  }
  return lines;
}

TEST(JobMode, OneProcessHasNobodyToSendWeightsTo) {
  EXPECT_THAT(Refused("auto", JobMode::kLocal), IsEmpty());
  EXPECT_THAT(Refused("inprocess", JobMode::kLocal), IsEmpty());
  for (const char* transport : {"shm", "cuda_ipc", "grpc_relay", "nccl", "gloo"}) {
    EXPECT_THAT(Refused(transport, JobMode::kLocal),
                ElementsAre(StrCat("job.yaml:9: weight_sync.transport: ", transport,
                                   " joins processes, but freshet local is one process; use auto "
                                   "or inprocess, or submit the job to a cluster")));
  }
}

TEST(JobMode, SeparateServicesShareNoProcess) {
  for (const char* transport : {"auto", "shm", "cuda_ipc", "grpc_relay", "nccl", "gloo"}) {
    EXPECT_THAT(Refused(transport, JobMode::kCluster), IsEmpty());
  }
  EXPECT_THAT(Refused("inprocess", JobMode::kCluster),
              ElementsAre("job.yaml:9: weight_sync.transport: inprocess works within one process "
                          "only; use auto, shm, grpc_relay or nccl, or freshet local"));
}

TEST(JobMode, AnInferenceServerNeedsACluster) {
  const JobResult job = ParseJob(MinimalJob(), "job.yaml");
  JobSpec spec = job.spec;
  spec.mutable_rollout()->set_engine("vllm");
  EXPECT_THAT(CheckMode(spec, job.places, JobMode::kCluster), IsEmpty());
  const std::vector<ConfigError> errors = CheckMode(spec, job.places, JobMode::kLocal);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_THAT(FormatConfigError(errors[0]),
              testing::HasSubstr("rollout.engine: vllm needs a server of its own"));
}

}  // namespace
}  // namespace freshet
