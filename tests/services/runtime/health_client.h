#ifndef FRESHET_TESTS_SERVICES_RUNTIME_HEALTH_CLIENT_H_
#define FRESHET_TESTS_SERVICES_RUNTIME_HEALTH_CLIENT_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "services/runtime/channel.h"

namespace freshet {

// grpc.health.v1 without generated code. Request: field 1, the service name. Reply: field 1, the
// state.
class HealthClient {
 public:
  static constexpr int kUnknown = -1;  // NOT_FOUND
  static constexpr int kServing = 1;
  static constexpr int kNotServing = 2;

  explicit HealthClient(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {}

  int Check(const std::string& service) {
    std::string bytes;
    if (!service.empty())
      bytes = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    Notification done;
    grpc::Status result;
    const auto context = runtime::CallWithin(absl::Seconds(10));
    stub_.UnaryCall(context.get(), "/grpc.health.v1.Health/Check", {}, &request, &reply,
                    [&](grpc::Status status) {
                      result = std::move(status);
                      done.Notify();
                    });
    done.WaitFor(absl::Seconds(20));
    if (!result.ok())
      return -static_cast<int>(
          result.error_code() == grpc::StatusCode::NOT_FOUND ? 1 : 100 + result.error_code());
    std::vector<grpc::Slice> slices;
    if (!reply.Dump(&slices).ok()) return -2;
    std::string answer;
    for (const grpc::Slice& part : slices) {
      answer.append(static_cast<const char*>(static_cast<const void*>(part.begin())), part.size());
    }
    return answer.size() == 2 ? answer[1] : 0;
  }

 private:
  grpc::GenericStub stub_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_RUNTIME_HEALTH_CLIENT_H_
