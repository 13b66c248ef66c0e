#ifndef FRESHET_TESTS_TESTING_LOOPBACK_SERVER_H_
#define FRESHET_TESTS_TESTING_LOOPBACK_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

// Serves a gRPC service in plaintext. Ends running calls when it is destroyed, so a test double
// that owns its server declares it last.
class LoopbackServer {
 public:
  // Listens on `address`; port 0 selects a free port.
  explicit LoopbackServer(grpc::Service* service, const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    FRESHET_CHECK(server_ != nullptr);
  }
  ~LoopbackServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  int port() const { return port_; }
  std::string address() const { return StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_LOOPBACK_SERVER_H_
