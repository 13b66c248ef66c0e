#include "cli/machine/machine_facts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "cli/client/user_folders.h"
#include "model/model_files.h"
#include "text/tokenizer.h"
#include "weights/shm/memory_file.h"
#include "weights/shm/memory_file_reader.h"
#include "weights/weight_arena.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

constexpr int kControllerPort = 7070;
constexpr absl::Duration kServerTimeout = absl::Seconds(3);
constexpr int64_t kProbeBytes = 1 << 20;

// The value after "KEY" and a colon in a file of such lines.
std::string LineValue(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) return line.substr(colon + 1);
  }
  return "";
}

int64_t FreeBytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

// The closest existing ancestor folder.
std::string ExistingFolder(std::string path) {
  std::error_code error;
  while (path.size() > 1 && !fs::exists(path, error)) path = fs::path(path).parent_path().string();
  return path;
}

// Why a memory file cannot be created here and mapped through its path; "" if it can.
std::string TryMemoryFile() {
  const std::vector<std::byte> bytes(kProbeBytes);
  WeightManifest manifest;
  const absl::StatusOr<WeightBytes> file =
      MemoryFileStager().Stage(bytes, /*bucket_bytes=*/kProbeBytes, manifest);
  if (!file.ok()) return Message(file.status());
  const absl::StatusOr<WeightBytes> mapped =
      MemoryFileReader().Map(MemoryFilePath(**file), manifest);
  return mapped.ok() ? "" : Message(mapped.status());
}

// "Redis server v=7.0.15 sha=..." -> "7.0.15".
std::string RedisVersion(const std::string& program) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      ::popen(("'" + program + "' --version 2>/dev/null").c_str(), "r"), &::pclose);
  std::array<char, 256> text{};
  if (pipe == nullptr || std::fgets(text.data(), text.size(), pipe.get()) == nullptr) return "";
  const std::string_view line(text.data());
  const size_t at = line.find("v=");
  if (at == std::string_view::npos) return "";
  return std::string(line.substr(at + 2, line.find_first_of(" \n", at) - at - 2));
}

void LookAtModel(const std::string& path, MachineFacts& facts) {
  facts.model_path = path;
  const auto error = [&](const absl::Status& status) {
    std::istringstream lines(Message(status));
    for (std::string line; std::getline(lines, line);) facts.model_errors.push_back(line);
  };
  const absl::StatusOr<std::unique_ptr<ModelFiles>> model = ModelFiles::Open(path);
  if (!model.ok()) {
    error(model.status());
  } else {
    const ModelConfig& config = (*model)->config();
    facts.model_text = StrCat(config.num_hidden_layers, " layers, hidden ", config.hidden_size,
                              ", vocabulary ", config.vocab_size);
    for (const std::string& text : (*model)->CheckTensors()) facts.model_errors.push_back(text);
  }
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(path);
  if (!tokenizer.ok()) error(tokenizer.status());
}

void LookAtServer(const ConnectionFlags& connection, MachineFacts& facts) {
  const absl::StatusOr<Session> session = Session::Open(connection);
  if (!session.ok()) {
    facts.server = "the server";
    facts.server_error = Message(session.status());
    return;
  }
  facts.server = session->target().address;
  const absl::StatusOr<job::v1::Cluster> cluster = session->client().GetCluster(kServerTimeout);
  facts.server_reached = cluster.ok();
  if (cluster.ok()) {
    facts.workers = cluster->workers_size();
  } else {
    facts.server_error = Message(cluster.status());
  }
}

}  // namespace

std::string FindProgram(const std::string& name) {
  const char* variable = std::getenv("PATH");
  std::istringstream path(variable == nullptr ? "/usr/bin:/bin" : variable);
  for (std::string folder; std::getline(path, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    std::error_code error;
    if (fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

int FreePort(int port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  const bool free = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return free ? ntohs(address.sin_port) : 0;
}

MachineFacts GatherMachineFacts(const ConnectionFlags& connection, const std::string& model_path) {
  MachineFacts facts;
  std::istringstream flags(LineValue("/proc/cpuinfo", "flags"));
  for (std::string flag; flags >> flag;) facts.cpu_flags.insert(flag);
  facts.cores = static_cast<int>(std::thread::hardware_concurrency());
  facts.memory_available_bytes =
      std::atoll(LineValue("/proc/meminfo", "MemAvailable").c_str()) * 1024;
  facts.memory_file_error = TryMemoryFile();
  facts.state_folder = StateFolder();
  facts.state_disk_bytes = FreeBytes(ExistingFolder(facts.state_folder));
  facts.redis_path = FindProgram("redis-server");
  if (!facts.redis_path.empty()) facts.redis_version = RedisVersion(facts.redis_path);
  for (const char* role : {"controller", "rollout", "reward", "env", "trainer", "local"}) {
    const std::string name = std::string("freshet-") + role;
    if (::access((BinaryFolder() + "/" + name).c_str(), X_OK) != 0) {
      facts.missing_binaries.push_back(name);
    }
  }
  facts.port = kControllerPort;
  facts.port_free = FreePort(kControllerPort) != 0;
  LookAtServer(connection, facts);
  if (!model_path.empty()) LookAtModel(model_path, facts);
  return facts;
}

}  // namespace freshet
