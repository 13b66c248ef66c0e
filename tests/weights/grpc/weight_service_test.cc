#include "weights/grpc/weight_service.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/testing/fake_clock.h"
#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/shm/memory_file.h"

namespace freshet {
namespace {

using weights::v1::PrepareReply;
using weights::v1::PrepareRequest;

void SetTestDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
}

PrepareRequest Header(const VersionForTest& version, const std::string& job = kJob) {
  PrepareRequest request;
  request.mutable_header()->set_job(job);
  ManifestToProto(version.manifest, *request.mutable_header()->mutable_manifest());
  return request;
}
PrepareRequest Chunk(const VersionForTest& version, int64_t offset, int64_t size) {
  PrepareRequest request;
  request.mutable_chunk()->set_offset(offset);
  request.mutable_chunk()->set_data(version.bytes->data() + offset, static_cast<size_t>(size));
  return request;
}

class WeightServiceTest : public testing::Test {
 protected:
  struct Outcome {
    grpc::StatusCode status = grpc::StatusCode::OK;  // of the call
    bool prepared = false;
    int code = 0;  // of the receiver's result, if any
    std::string error;
  };
  // Sends messages and half-closes the stream, once the service takes another call.
  Outcome Send(const std::vector<PrepareRequest>& messages, bool with_deadline = true) {
    AwaitRoom();
    return SendNow(messages, with_deadline);
  }
  Outcome SendNow(const std::vector<PrepareRequest>& messages, bool with_deadline = true) {
    grpc::ClientContext context;
    if (with_deadline) SetTestDeadline(context);
    const auto stream = stub_->Prepare(&context);
    for (const PrepareRequest& message : messages) {
      if (!stream->Write(message)) break;
    }
    stream->WritesDone();
    Outcome outcome;
    PrepareReply reply;
    while (stream->Read(&reply)) {
      for (const auto& member : reply.members()) {
        EXPECT_EQ(member.worker(), "");
        outcome.prepared = member.prepared();
        outcome.code = member.code();
        outcome.error = member.error();
      }
    }
    outcome.status = stream->Finish().error_code();
    return outcome;
  }
  // A call counts as open for a moment after its client has got the status.
  void AwaitRoom() const {
    while (engine_->service().open_prepares() >= engine_->service().max_streams()) {
      std::this_thread::yield();
    }
  }
  grpc::Status SendShared(const VersionForTest& version, const std::string& path,
                          const std::string& host = kHost) {
    grpc::ClientContext context;
    SetTestDeadline(context);
    weights::v1::PrepareSharedRequest request;
    request.set_job(kJob);
    ManifestToProto(version.manifest, *request.mutable_manifest());
    request.set_path(path);
    request.set_host(host);
    PrepareReply reply;
    return stub_->PrepareShared(&context, request, &reply);
  }
  grpc::Status Activate(const CommitReceipt& receipt, const std::string& job = kJob) {
    grpc::ClientContext context;
    SetTestDeadline(context);
    weights::v1::ActivateRequest request;
    request.set_job(job);
    ReceiptToProto(receipt, *request.mutable_receipt());
    weights::v1::ActivateReply reply;
    return stub_->Activate(&context, request, &reply);
  }
  // Whether the engine holds `version` as prepared.
  bool Prepared(const VersionForTest& version) { return Activate(version.receipt).ok(); }

  std::unique_ptr<TestMember> engine_ = MakeEngine("engine");
  std::unique_ptr<weights::v1::WeightService::Stub> stub_ = engine_->Stub();
  const VersionForTest version_ = MakeVersion({0, 1}, 1, 1000, 64);
};

TEST_F(WeightServiceTest, TakesAVersionInChunksOfAnySize) {
  int64_t number = 0;
  for (const int64_t chunk : {1, 7, 64, 999, 1000}) {
    const VersionForTest version = MakeVersion({0, ++number}, 1, 1000, 64);
    std::vector<PrepareRequest> messages = {Header(version)};
    for (int64_t at = 0; at < 1000; at += chunk) {
      messages.push_back(Chunk(version, at, std::min(chunk, 1000 - at)));
    }
    const Outcome outcome = Send(messages);
    EXPECT_EQ(outcome.status, grpc::StatusCode::OK) << chunk;
    EXPECT_TRUE(outcome.prepared) << outcome.error;
    EXPECT_TRUE(Prepared(version));
  }
}

TEST_F(WeightServiceTest, RefusesABadHeader) {
  PrepareRequest no_job = Header(version_, "another job");
  PrepareRequest no_manifest;
  no_manifest.mutable_header()->set_job(kJob);
  PrepareRequest large = Header(version_);
  large.mutable_header()->mutable_manifest()->set_total_bytes(int64_t{1} << 50);
  PrepareRequest nameless = Header(version_);
  nameless.mutable_header()->add_chain()->set_address("127.0.0.1:1");
  PrepareRequest long_chain = Header(version_);
  for (int i = 0; i < 1025; ++i) {
    long_chain.mutable_header()->add_chain()->set_worker("w");
    long_chain.mutable_header()->mutable_chain(i)->set_address("127.0.0.1:1");
  }
  EXPECT_EQ(Send({no_job}).status, grpc::StatusCode::NOT_FOUND);
  const std::vector<PrepareRequest> cases = {
      no_manifest, large, nameless, long_chain, Chunk(version_, 0, 10), PrepareRequest()};
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(Send({cases[i]}).status, grpc::StatusCode::INVALID_ARGUMENT) << i;
  }
  EXPECT_EQ(Send({}).status, grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(WeightServiceTest, RefusesACallWithoutADeadline) {
  EXPECT_EQ(Send({Header(version_)}, false).status, grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(WeightServiceTest, KeepsNothingOfChunksOutOfPlace) {
  const std::vector<std::vector<PrepareRequest>> cases = {
      {Chunk(version_, 10, 990)},                            // a gap at the start
      {Chunk(version_, 0, 500), Chunk(version_, 501, 499)},  // a gap
      {Chunk(version_, 0, 500), Chunk(version_, 499, 501)},  // an overlap
      {Chunk(version_, 500, 500), Chunk(version_, 0, 500)},  // the wrong way round
      {Chunk(version_, 0, 500), Header(version_)},           // a second header
      {Chunk(version_, 0, 500), PrepareRequest()}};          // nothing
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<PrepareRequest> messages = {Header(version_)};
    messages.insert(messages.end(), cases[i].begin(), cases[i].end());
    const Outcome outcome = Send(messages);
    EXPECT_FALSE(outcome.prepared) << i;
    EXPECT_EQ(outcome.code, grpc::StatusCode::INVALID_ARGUMENT) << i;
    EXPECT_FALSE(Prepared(version_)) << i;
  }
}

TEST_F(WeightServiceTest, KeepsNothingBeyondTheEnd) {
  const VersionForTest longer = MakeVersion({0, 1}, 1, 1064, 64);
  const Outcome outcome = Send({Header(version_), Chunk(longer, 0, 1064)});
  EXPECT_EQ(outcome.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(Prepared(version_));
}

TEST_F(WeightServiceTest, RefusesAChunkAboveItsBound) {
  const VersionForTest large = MakeVersion({0, 1}, 1, (2 << 20), 64);
  const Outcome outcome = Send({Header(large), Chunk(large, 0, (1 << 20) + 1)});
  EXPECT_EQ(outcome.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(Prepared(large));
}

TEST_F(WeightServiceTest, KeepsNothingOfBytesThatDiffer) {
  VersionForTest torn = version_;
  torn.bytes = Torn(version_.bytes, 999);
  const Outcome outcome = Send({Header(torn), Chunk(torn, 0, 1000)});
  EXPECT_EQ(outcome.code, grpc::StatusCode::DATA_LOSS);
  EXPECT_FALSE(Prepared(version_));
}

TEST_F(WeightServiceTest, KeepsNothingOfAStreamThatEndsEarly) {
  const Outcome outcome = Send({Header(version_), Chunk(version_, 0, 999)});
  EXPECT_EQ(outcome.code, grpc::StatusCode::DATA_LOSS);
  EXPECT_FALSE(Prepared(version_));
}

TEST_F(WeightServiceTest, ATornCallLeavesTheVersionPreparedBefore) {
  ASSERT_TRUE(Send({Header(version_), Chunk(version_, 0, 1000)}).prepared);
  const VersionForTest next = MakeVersion({0, 2}, 1, 1000, 64);
  EXPECT_FALSE(Send({Header(next), Chunk(next, 0, 500)}).prepared);
  EXPECT_TRUE(Prepared(version_));
}

TEST_F(WeightServiceTest, AHeldVersionIsAcknowledgedWithoutItsBytes) {
  ASSERT_TRUE(Send({Header(version_), Chunk(version_, 0, 1000)}).prepared);
  EXPECT_TRUE(Send({Header(version_)}).prepared);
  ASSERT_TRUE(Activate(version_.receipt).ok());
  EXPECT_TRUE(Send({Header(version_)}).prepared);
  EXPECT_TRUE(Activate(version_.receipt).ok());
}

// The buffers of a slow link may hold bytes for longer than the sender waits in silence.
TEST_F(WeightServiceTest, ShowsThatItIsAliveWhileBytesArrive) {
  FakeClock clock;
  GrpcWeightService service({.host = kHost}, TestChannel, clock, nullptr);
  service.Serve(kJob, {std::make_shared<WeightSubscriber>(), {}, {}});
  LoopbackServer server(&service);
  const auto stub = weights::v1::WeightService::NewStub(TestChannel(server.address()));
  grpc::ClientContext context;
  SetTestDeadline(context);
  const auto stream = stub->Prepare(&context);
  PrepareRequest header = Header(version_);
  header.mutable_header()->mutable_silence_timeout()->set_seconds(9);
  ASSERT_TRUE(stream->Write(header));
  PrepareReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  for (int64_t offset = 0; offset < 900; offset += 100) {
    clock.Advance(absl::Seconds(3));
    ASSERT_TRUE(stream->Write(Chunk(version_, offset, 100)));
    ASSERT_TRUE(stream->Read(&reply));
    EXPECT_EQ(reply.members_size(), 0) << offset;
  }
  clock.Advance(absl::Seconds(2));
  ASSERT_TRUE(stream->Write(Chunk(version_, 900, 100)));
  ASSERT_TRUE(stream->Read(&reply));
  ASSERT_EQ(reply.members_size(), 1);
  EXPECT_TRUE(reply.members(0).prepared());
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(WeightServiceTest, ACallTakesOverFromOneThatHangs) {
  grpc::ClientContext context;
  SetTestDeadline(context);
  const auto hanging = stub_->Prepare(&context);
  ASSERT_TRUE(hanging->Write(Header(version_)));
  PrepareReply accepted;
  ASSERT_TRUE(hanging->Read(&accepted));
  EXPECT_TRUE(Send({Header(version_), Chunk(version_, 0, 1000)}).prepared);
  EXPECT_EQ(hanging->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(Prepared(version_));
}

// Any engine may call Prepare with arbitrary claims.
TEST_F(WeightServiceTest, NoCallOfPrepareKeepsTheNextPublicationOut) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  const VersionForTest first = MakeVersion({0, 1}, 1, 1000, 64);
  ASSERT_TRUE(Send({Header(first), Chunk(first, 0, 1000)}).prepared);
  ASSERT_TRUE(Activate(first.receipt).ok());
  int64_t version = 1;
  const auto publish = [&] {
    const VersionForTest next = MakeVersion({0, ++version}, 1, 1000, 64);
    const Outcome sent = Send({Header(next), Chunk(next, 0, 1000)});
    EXPECT_TRUE(sent.prepared) << sent.error << sent.status;
    return sent.prepared && Activate(next.receipt).ok();
  };
  for (const VersionForTest& claimed :
       {MakeVersion({0, 50}, kHuge, 1000, 64), MakeVersion({0, kHuge}, 1, 1000, 64),
        MakeVersion({kHuge, kHuge}, kHuge, 1000, 64)}) {
    const std::string what =
        StrCat("epoch ", claimed.manifest.epoch, " version ", claimed.manifest.policy.version);
    Send({Header(claimed)});
    EXPECT_TRUE(publish()) << what << ", a header alone";
    Send({Header(claimed), Chunk(first, 0, 1000)});
    EXPECT_TRUE(publish()) << what << ", garbage";
    EXPECT_TRUE(Send({Header(claimed), Chunk(claimed, 0, 1000)}).prepared);
    EXPECT_TRUE(publish()) << what << ", whole";
    AwaitRoom();
    grpc::ClientContext context;
    SetTestDeadline(context);
    const auto hanging = stub_->Prepare(&context);
    ASSERT_TRUE(hanging->Write(Header(claimed)));
    PrepareReply accepted;
    ASSERT_TRUE(hanging->Read(&accepted));
    EXPECT_TRUE(publish()) << what << ", a call that hangs";
    context.TryCancel();
    hanging->Finish();
  }
}

TEST_F(WeightServiceTest, AForgottenJobEndsItsCalls) {
  grpc::ClientContext context;
  SetTestDeadline(context);
  const auto stream = stub_->Prepare(&context);
  ASSERT_TRUE(stream->Write(Header(version_)));
  PrepareReply accepted;
  ASSERT_TRUE(stream->Read(&accepted));
  engine_->service().Forget(kJob);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Activate(version_.receipt).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(WeightServiceTest, TakesOnlySoManyStreams) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<PrepareRequest, PrepareReply>>> streams;
  for (int i = 0; i < 8; ++i) {
    engine_->service().Serve(StrCat("job-of-", i), {std::make_shared<WeightSubscriber>(), {}, {}});
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    SetTestDeadline(*contexts.back());
    streams.push_back(stub_->Prepare(contexts.back().get()));
    ASSERT_TRUE(streams.back()->Write(Header(version_, StrCat("job-of-", i))));
    PrepareReply accepted;
    ASSERT_TRUE(streams.back()->Read(&accepted));
  }
  EXPECT_EQ(engine_->service().open_prepares(), engine_->service().max_streams());
  EXPECT_EQ(engine_->service().open_pulls(), 0);
  EXPECT_EQ(SendNow({Header(version_)}).status, grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& stream : streams) stream->Finish();
}

TEST_F(WeightServiceTest, MapsAVersionThatIsShared) {
  MemoryFileStager stager;
  WeightManifest manifest;
  auto file = stager.Stage(*version_.bytes, version_.manifest.bucket_bytes, manifest);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(SendShared(version_, MemoryFilePath(**file)).ok());
  EXPECT_TRUE(Prepared(version_));
  // The engine keeps the file although the trainer stages more versions.
  file->reset();
  const VersionForTest next = MakeVersion({0, 2}, 1, 1000, 64);
  file = stager.Stage(*next.bytes, 64, manifest);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*engine_->subscriber().Take()->bytes, *version_.bytes);
  EXPECT_EQ(SendShared(MakeVersion({0, 3}, 1, 1000, 64), MemoryFilePath(**file)).error_code(),
            grpc::StatusCode::DATA_LOSS);
}

TEST_F(WeightServiceTest, RefusesSharedMemoryThatIsNotAsAnnounced) {
  const auto torn = InMemoryFile(Torn(version_.bytes, 5));
  const auto good = InMemoryFile(version_.bytes);
  const auto other_size = InMemoryFile(PatternBytes(1001, 1));
  ASSERT_TRUE(torn.ok() && good.ok() && other_size.ok());
  EXPECT_EQ(SendShared(version_, MemoryFilePath(**torn)).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(SendShared(version_, MemoryFilePath(**other_size)).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(SendShared(version_, MemoryFilePath(**good), "another-host").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(SendShared(version_, "/etc/passwd").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(Prepared(version_));
}

TEST_F(WeightServiceTest, FencesAnOlderTrainerInEveryCall) {
  const VersionForTest current = MakeVersion({0, 1}, 5, 1000, 64);
  ASSERT_TRUE(Send({Header(current), Chunk(current, 0, 1000)}).prepared);
  ASSERT_TRUE(Activate(current.receipt).ok());
  const VersionForTest zombie = MakeVersion({0, 2}, 4, 1000, 64);
  const auto file = InMemoryFile(zombie.bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(Send({Header(zombie)}).code, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SendShared(zombie, MemoryFilePath(**file)).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Activate(zombie.receipt).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(Activate(current.receipt).ok());
}

TEST_F(WeightServiceTest, ATrainersServiceTakesNoWeights) {
  TestMember trainer("trainer", WeightEndpoint{});
  stub_ = trainer.Stub();
  const auto file = InMemoryFile(version_.bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(Send({Header(version_)}).status, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SendShared(version_, MemoryFilePath(**file)).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Activate(version_.receipt).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace freshet
