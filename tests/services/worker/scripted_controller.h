#ifndef FRESHET_TESTS_SERVICES_WORKER_SCRIPTED_CONTROLLER_H_
#define FRESHET_TESTS_SERVICES_WORKER_SCRIPTED_CONTROLLER_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "freshet/cluster/v1/worker_service.grpc.pb.h"
#include "services/runtime/bidi_reactor.h"
#include "services/runtime/executor.h"
#include "services/runtime/server.h"
#include "services/runtime/unary.h"

namespace freshet {

// A list that tests can wait on. Thread-safe.
template <typename T>
class Seen {
 public:
  void Add(T value) {
    MutexLock lock(mu_);
    values_.push_back(std::move(value));
    cv_.NotifyAll();
  }
  size_t size() const {
    MutexLock lock(mu_);
    return values_.size();
  }
  // Waits for entry `index` (from 0); fails the test after 20 s.
  T At(size_t index) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(mu_);
    while (values_.size() <= index && absl::Now() < deadline) cv_.WaitFor(mu_, absl::Seconds(1));
    if (values_.size() > index) return values_[index];
    ADD_FAILURE() << "only " << values_.size() << " entries after 20 s";
    return T();
  }
  // Waits for the next new entry.
  T Next() { return At(size()); }

 private:
  mutable Mutex mu_;
  CondVar cv_;
  std::vector<T> values_ ABSL_GUARDED_BY(mu_);
};

// A scripted controller that listens on loopback. Thread-safe.
class ScriptedController final : public cluster::v1::WorkerService::CallbackService {
 public:
  using Status = cluster::v1::WorkerStatus;
  using Directive = cluster::v1::Directive;

  class Stream final : public runtime::BidiReactor<Status, Directive> {
   public:
    explicit Stream(ScriptedController& owner) : BidiReactor(1024), owner_(owner) {}
    Notification ended;

   private:
    Reading OnMessage(const Status& status) override {
      owner_.statuses.Add(status);
      return Reading::kContinue;
    }
    void OnEnd() override { ended.Notify(); }
    ScriptedController& owner_;
  };

  explicit ScriptedController(const std::string& listen = "127.0.0.1:0") {
    // Default: each registration gets the next epoch, a status every 10 ms, no worker is lost.
    on_register = [this](const cluster::v1::RegisterRequest&) {
      cluster::v1::RegisterReply reply;
      reply.set_epoch(++epoch_);
      reply.mutable_heartbeat_interval()->set_nanos(10'000'000);
      reply.mutable_lost_after()->set_seconds(600);
      return reply;
    };
    runtime::EndpointOptions options;
    options.listen = listen;
    auto server = runtime::Server::Start(options, {this}, nullptr);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~ScriptedController() override { End(); }
  // Stops the server. No handler runs after it returns. Idempotent.
  void End() {
    Down();
    executor_.Stop();
  }
  const std::string& address() const { return server_->address(); }
  void Down() { server_->Shutdown(absl::Now()); }

  // Must be set before the worker connects.
  std::function<absl::StatusOr<cluster::v1::RegisterReply>(const cluster::v1::RegisterRequest&)>
      on_register;
  std::function<absl::StatusOr<cluster::v1::FetchRowsReply>(const cluster::v1::FetchRowsRequest&)>
      on_fetch_rows;

  Seen<cluster::v1::RegisterRequest> registrations;
  Seen<std::shared_ptr<Stream>> streams;
  Seen<Status> statuses;
  Seen<cluster::v1::DeregisterRequest> deregistrations;

 private:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* Register(Context* context, const cluster::v1::RegisterRequest* request,
                  cluster::v1::RegisterReply* reply) override {
    return runtime::RunUnary(executor_, context, request, reply,
                             [this](const auto& asked, const runtime::CallContext&) {
                               registrations.Add(asked);
                               return on_register(asked);
                             });
  }
  grpc::ServerBidiReactor<Status, Directive>* Heartbeat(Context*) override {
    auto stream = std::make_shared<Stream>(*this);
    streams.Add(stream);
    return Stream::Open(stream);
  }
  Unary* Deregister(Context* context, const cluster::v1::DeregisterRequest* request,
                    cluster::v1::DeregisterReply* reply) override {
    using Reply = cluster::v1::DeregisterReply;
    return runtime::RunUnary(
        executor_, context, request, reply,
        [this](const auto& asked, const runtime::CallContext&) -> absl::StatusOr<Reply> {
          deregistrations.Add(asked);
          return Reply();
        });
  }
  Unary* FetchRows(Context* context, const cluster::v1::FetchRowsRequest* request,
                   cluster::v1::FetchRowsReply* reply) override {
    return runtime::RunUnary(
        executor_, context, request, reply,
        [this](const auto& asked, const runtime::CallContext&) { return on_fetch_rows(asked); });
  }

  runtime::Executor executor_{2, 16};
  std::atomic<int64_t> epoch_{0};
  std::unique_ptr<runtime::Server> server_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_WORKER_SCRIPTED_CONTROLLER_H_
