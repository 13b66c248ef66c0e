#ifndef FRESHET_SERVICES_SANDBOX_SERVICE_SANDBOX_API_H_
#define FRESHET_SERVICES_SANDBOX_SERVICE_SANDBOX_API_H_

#include <memory>
#include <optional>
#include <string>

#include "services/runtime/http_server.h"
#include "services/sandbox/service/worker_pool.h"

namespace freshet::sandbox {

// POST /run_code and /submit, and GET /v1/ping, as SandboxFusion 0.3 answers them. Thread-safe.
class SandboxApi {
 public:
  // `token`: what callers must send as "Authorization: Bearer TOKEN"; "": nothing. The pool must
  // outlive the answers.
  SandboxApi(WorkerPool& pool, std::string token) : pool_(pool), token_(std::move(token)) {}

  // Refuses requests without the token before their body is received.
  std::optional<runtime::HttpResponse> CheckHead(const runtime::HttpRequest& head) const;
  // False: the path is another one.
  bool Handle(const runtime::HttpRequest& request,
              const std::shared_ptr<runtime::HttpReply>& reply) const;

 private:
  void RunCode(const std::string& body, const std::shared_ptr<runtime::HttpReply>& reply) const;
  void Submit(const std::string& body, const std::shared_ptr<runtime::HttpReply>& reply) const;

  WorkerPool& pool_;
  const std::string token_;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_SERVICE_SANDBOX_API_H_
