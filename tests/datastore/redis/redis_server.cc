#include "tests/datastore/redis/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_acl.h"

namespace freshet {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(10);
constexpr int kStartTries = 5;  // another process may take the port between our look and its use

int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  FRESHET_CHECK(fd >= 0 && ::bind(fd, raw, size) == 0 && ::getsockname(fd, raw, &size) == 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

bool RedisServer::Available() { return ::access(kBinary, X_OK) == 0; }

absl::StatusOr<std::unique_ptr<RedisServer>> RedisServer::Start(
    std::map<std::string, std::string> config) {
  std::string folder = (std::filesystem::temp_directory_path() / "freshet-redis-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return Internal(folder, ": cannot be created");
  std::unique_ptr<RedisServer> server(new RedisServer());
  server->folder_ = folder;
  server->config_ = {{"bind", "127.0.0.1"},
                     {"appendonly", "yes"},
                     {"appendfsync", "always"},
                     {"save", "\"\""},
                     {"dir", folder},
                     {"logfile", folder + "/redis.log"},
                     {"enable-debug-command", "yes"}};
  for (const auto& [role, rules] : RedisRoles()) {
    server->config_["user " + role] = StrCat("on >", role, " ", rules);
  }
  for (auto& [key, value] : config) server->config_[key] = std::move(value);
  absl::Status started;
  for (int i = 0; i < kStartTries; ++i) {
    server->port_ = FreePort();
    server->config_["port"] = std::to_string(server->port_);
    if (server->config_.contains("tls-cert-file")) {
      server->tls_port_ = FreePort();
      server->config_["tls-port"] = std::to_string(server->tls_port_);
    }
    started = server->Restart();
    if (started.ok()) return server;
  }
  return started;
}

RedisServer::~RedisServer() {
  Kill();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RedisServer::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

absl::Status RedisServer::Launch() {
  Kill();
  const std::string path = folder_ + "/redis.conf";
  {
    std::ofstream file(path);
    for (const auto& [key, value] : config_) file << key << ' ' << value << '\n';
    if (!file.flush()) return Internal(path, ": cannot be written");
  }
  pid_ = ::fork();
  if (pid_ < 0) return Internal("redis-server cannot be started");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::execl(kBinary, kBinary, path.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  return absl::OkStatus();
}

absl::Status RedisServer::Restart() {
  FRESHET_RETURN_IF_ERROR(Launch());
  return WaitUntilReady();
}

absl::Status RedisServer::WaitUntilReady() {
  const absl::Time deadline = SystemClock::Get().Now() + kStartLimit;
  const std::shared_ptr<RedisClient> client = Client();
  absl::Status last;
  while (SystemClock::Get().Now() < deadline) {
    int ignored = 0;
    if (::waitpid(pid_, &ignored, WNOHANG) == pid_) {
      pid_ = -1;
      return Internal("redis-server ended at its start: see ", folder_, "/redis.log");
    }
    // The client's backoff is the pause between the tries. INFO is answered while the data loads,
    // PING is not.
    const auto replies = client->Pipeline({{"INFO", "server"}, {"PING"}});
    last = replies.status();
    if (!replies.ok()) continue;
    const auto& [info, ping] = std::tie((*replies)[0], (*replies)[1]);
    last = info.status();
    if (!info.ok()) continue;
    if (info->text.find(StrCat("process_id:", pid_, "\r\n")) == std::string::npos) {
      return Internal("another server answers on port ", port_);
    }
    if (ping.ok()) return absl::OkStatus();
    last = ping.status();
  }
  return last;
}

void RedisServer::Stop() {
  ::kill(pid_, SIGSTOP);
  siginfo_t info = {};
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
}

void RedisServer::Continue() { ::kill(pid_, SIGCONT); }

absl::Status RedisServer::Flush() { return Client()->Command({"FLUSHALL"}).status(); }

RedisOptions RedisServer::ClientOptions() const {
  RedisOptions options;
  options.port = port_;
  if (const auto found = config_.find("requirepass"); found != config_.end()) {
    options.password = found->second;
  }
  return options;
}

std::shared_ptr<RedisClient> RedisServer::Client(const std::string& user) const {
  RedisOptions options = ClientOptions();
  options.username = user;
  if (!user.empty()) options.password = user;
  absl::StatusOr<std::shared_ptr<RedisClient>> client = RedisClient::Create(std::move(options));
  FRESHET_CHECK(client.ok());
  return *std::move(client);
}

}  // namespace freshet
