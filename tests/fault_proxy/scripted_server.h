#ifndef FRESHET_TESTS_FAULT_PROXY_SCRIPTED_SERVER_H_
#define FRESHET_TESTS_FAULT_PROXY_SCRIPTED_SERVER_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace freshet {

// A TCP server on a free loopback port with scripted answers, to imitate misbehaving peers.
// Thread-safe.
class ScriptedServer {
 public:
  // Returns the reply to the bytes of one read; nullopt closes the connection. Called on the
  // server's thread.
  using Answer = std::function<std::optional<std::string>(const std::string& received)>;

  explicit ScriptedServer(Answer answer);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  int port() const { return port_; }

 private:
  void Run(const std::stop_token& stop);
  // Returns false once the connection has ended.
  bool Serve(int fd);

  const Answer answer_;
  int listener_ = -1;
  int wake_ = -1;
  int port_ = 0;
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_FAULT_PROXY_SCRIPTED_SERVER_H_
