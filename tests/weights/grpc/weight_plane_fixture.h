#ifndef FRESHET_TESTS_WEIGHTS_GRPC_WEIGHT_PLANE_FIXTURE_H_
#define FRESHET_TESTS_WEIGHTS_GRPC_WEIGHT_PLANE_FIXTURE_H_

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/testing/loopback_server.h"
#include "tests/weights/grpc/weight_sync_counters.h"
#include "weights/grpc/weight_service.h"
#include "weights/weight_member.h"

namespace freshet {

inline constexpr char kJob[] = "job-1";
inline constexpr char kHost[] = "this-host";

// Creates a channel with its own connection, so that a test's server does not inherit the backoff
// of an earlier one. Channels live until the process ends, see ChannelSource.
inline std::shared_ptr<grpc::Channel> TestChannel(const std::string& address) {
  static Mutex mu;
  static auto* const kept = new std::vector<std::shared_ptr<grpc::Channel>>();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  MutexLock lock(mu);
  kept->push_back(channel);
  return channel;
}

// A member of the weight plane: its service and its server.
class TestMember {
 public:
  TestMember(std::string worker, WeightEndpoint endpoint, const std::string& host = kHost,
             const std::string& address = "127.0.0.1:0", ChannelSource channels = TestChannel,
             OpenCommunicatorBackend open_backend = {})
      : worker_(std::move(worker)),
        subscriber_(endpoint.subscriber),
        service_({.host = host, .open_backend = std::move(open_backend)}, std::move(channels),
                 SystemClock::Get(), &counters_) {
    service_.Serve(kJob, std::move(endpoint));
    server_ = std::make_unique<LoopbackServer>(&service_, address);
  }
  ~TestMember() { server_.reset(); }

  WeightMember member() const { return {worker_, server_->address()}; }
  WeightSubscriber& subscriber() { return *subscriber_; }
  GrpcWeightService& service() { return service_; }
  WeightSyncCounters& counters() { return counters_; }
  std::unique_ptr<weights::v1::WeightService::Stub> Stub() const {
    return weights::v1::WeightService::NewStub(TestChannel(server_->address()));
  }

 private:
  const std::string worker_;
  const std::shared_ptr<WeightSubscriber> subscriber_;
  WeightSyncCounters counters_;
  GrpcWeightService service_;
  std::unique_ptr<LoopbackServer> server_;
};

inline std::unique_ptr<TestMember> MakeEngine(const std::string& worker,
                                              const std::string& host = kHost) {
  return std::make_unique<TestMember>(
      worker, WeightEndpoint{std::make_shared<WeightSubscriber>(), {}, {}}, host);
}

// A proxy between a member and its callers that corrupts Prepare streams.
class PrepareProxy final : public weights::v1::WeightService::Service {
 public:
  enum class Error {
    kNone,
    kFlipBit,   // in chunk number `at`
    kTear,      // cancels both sides at message number `at`
    kSwallow,   // reads all messages and never answers
    kNoHeader,  // drops the first message
    kReplace,   // the first `at` calls end like those that another one has replaced
  };
  PrepareProxy(Error error, int at, const std::string& backend)
      : error_(error), at_(at), stub_(weights::v1::WeightService::NewStub(TestChannel(backend))) {}

  grpc::Status Prepare(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<weights::v1::PrepareReply,
                                                weights::v1::PrepareRequest>* caller) override {
    ++calls_;
    weights::v1::PrepareRequest request;
    if (error_ == Error::kReplace && calls_ <= at_) return {grpc::StatusCode::ABORTED, "replaced"};
    if (error_ == Error::kSwallow) {
      while (caller->Read(&request)) {
      }
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::CANCELLED;
    }
    grpc::ClientContext backend_context;
    backend_context.set_deadline(context->deadline());
    auto backend = stub_->Prepare(&backend_context);
    std::jthread replies([&] {
      weights::v1::PrepareReply reply;
      while (backend->Read(&reply)) caller->Write(reply);
      // The backend ended the call; cancel the caller's reads, too.
      context->TryCancel();
    });
    for (int i = 0; caller->Read(&request); ++i) {
      if (error_ == Error::kNoHeader && i == 0) continue;
      if (error_ == Error::kTear && i == at_) {
        backend_context.TryCancel();
        break;
      }
      if (error_ == Error::kFlipBit && i == at_) {
        (*request.mutable_chunk()->mutable_data())[0] ^= 1;
      }
      if (!backend->Write(request)) break;
    }
    backend->WritesDone();
    replies.join();
    return backend->Finish();
  }
  grpc::Status Activate(grpc::ServerContext*, const weights::v1::ActivateRequest* request,
                        weights::v1::ActivateReply* reply) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return stub_->Activate(&context, *request, reply);
  }
  int calls() const { return calls_; }

 private:
  const Error error_;
  const int at_;
  const std::unique_ptr<weights::v1::WeightService::Stub> stub_;
  std::atomic<int> calls_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_WEIGHTS_GRPC_WEIGHT_PLANE_FIXTURE_H_
