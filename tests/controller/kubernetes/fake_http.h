#ifndef FRESHET_TESTS_CONTROLLER_KUBERNETES_FAKE_HTTP_H_
#define FRESHET_TESTS_CONTROLLER_KUBERNETES_FAKE_HTTP_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "services/http/http_client.h"

namespace freshet {

// Records the calls and returns preset answers. Confined to one thread.
class FakeHttp final : public HttpClient {
 public:
  absl::StatusOr<HttpReply> Send(const HttpCall& call) override {
    calls.push_back(call);
    return answer(call);
  }
  std::vector<HttpCall> calls;
  std::function<absl::StatusOr<HttpReply>(const HttpCall&)> answer = [](const HttpCall&) {
    return HttpReply{200, "{\"spec\": {\"replicas\": 2}}"};
  };
};

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_KUBERNETES_FAKE_HTTP_H_
