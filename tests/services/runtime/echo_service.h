#ifndef FRESHET_TESTS_SERVICES_RUNTIME_ECHO_SERVICE_H_
#define FRESHET_TESTS_SERVICES_RUNTIME_ECHO_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "freshet/env/v1/env_service.grpc.pb.h"
#include "services/runtime/bidi_reactor.h"
#include "services/runtime/executor.h"
#include "services/runtime/unary.h"

namespace freshet {

// A test service. The unary method calls a function; the stream echoes each action as an
// observation and ends at "close".
class EchoService final : public env::v1::EnvService::CallbackService {
 public:
  using Reply = env::v1::ListEnvironmentsReply;
  using Handler = std::function<absl::StatusOr<Reply>(const runtime::CallContext&)>;

  explicit EchoService(Handler handler = [](const runtime::CallContext&) { return Reply(); })
      : handler_(std::move(handler)) {}
  void Stop() { executor_.Stop(); }

  grpc::ServerUnaryReactor* ListEnvironments(grpc::CallbackServerContext* context,
                                             const env::v1::ListEnvironmentsRequest* request,
                                             Reply* reply) override {
    return runtime::RunUnary(executor_, context, request, reply,
                             [this](const env::v1::ListEnvironmentsRequest&,
                                    const runtime::CallContext& call) { return handler_(call); });
  }

  grpc::ServerBidiReactor<env::v1::EpisodeRequest, env::v1::EpisodeReply>* Episode(
      grpc::CallbackServerContext*) override {
    return Echo::Open(std::make_shared<Echo>());
  }

 private:
  class Echo final : public runtime::BidiReactor<env::v1::EpisodeRequest, env::v1::EpisodeReply> {
   public:
    Echo() : BidiReactor(16) {}

   private:
    Reading OnMessage(const env::v1::EpisodeRequest& message) override {
      if (message.has_close()) {
        Finish(absl::OkStatus());
        return Reading::kContinue;
      }
      env::v1::EpisodeReply reply;
      reply.set_observation(message.step().action());
      Send(std::move(reply));
      return Reading::kContinue;
    }
  };

  const Handler handler_;
  runtime::Executor executor_{2, 4};
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_RUNTIME_ECHO_SERVICE_H_
