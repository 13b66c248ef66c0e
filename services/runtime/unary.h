#ifndef FRESHET_SERVICES_RUNTIME_UNARY_H_
#define FRESHET_SERVICES_RUNTIME_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/str_cat.h"
#include "services/runtime/error_details.h"
#include "services/runtime/executor.h"
#include "services/runtime/status.h"

namespace freshet::runtime {

// Context of a call for its handler.
struct CallContext {
  absl::Time deadline;              // InfiniteFuture if the client set none
  std::function<bool()> cancelled;  // by the client, or by server shutdown
  std::string peer;                 // "ipv4:127.0.0.1:40000"
};

// Deadline of a call as real time.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

// Handles a unary call on `executor`: `fn` is StatusOr<Response>(const Request&, const
// CallContext&) and may block. RESOURCE_EXHAUSTED if the executor's queue is full; exceptions
// become INTERNAL. Return the reactor from a CallbackService method.
template <typename Request, typename Response, typename Fn>
grpc::ServerUnaryReactor* RunUnary(Executor& executor, grpc::CallbackServerContext* context,
                                   const Request* request, Response* response, Fn fn) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto work = [context, request, response, reactor, fn = std::move(fn)]() mutable {
    const CallContext call{DeadlineOf(*context), [context] { return context->IsCancelled(); },
                           context->peer()};
    absl::StatusOr<Response> result = absl::InternalError("no result");
    try {
      result = fn(*request, call);
    } catch (const std::exception& error) {
      result = Internal("an unexpected error: ", error.what());
    }
    if (result.ok()) *response = std::move(result).value();
    reactor->Finish(StatusToGrpc(result.status()));
  };
  if (!executor.TrySubmit(std::move(work))) {
    ErrorDetails details;
    details.reason = "FULL";
    details.retry_after = absl::Seconds(1);
    reactor->Finish(StatusToGrpc(
        WithDetails(ResourceExhausted("too many calls are waiting; try again later"), details)));
  }
  return reactor;
}

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_UNARY_H_
