// Measures the bandwidth in GB/s of the weight transports (shared memory and relay) to engine
// processes, compared with memcpy of the same bytes.
//
//   weight_bench [--rounds N] [--json FILE]   prints a table; writes rows {name, ours, ...} to FILE
//   weight_bench --engine                     runs an engine; the bench starts these itself
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/runtime/channel.h"
#include "weights/grpc/cluster_transport.h"
#include "weights/grpc/weight_service.h"
#include "weights/shm/memory_file.h"
#include "weights/weight_publisher.h"

namespace freshet {
namespace {

constexpr char kJob[] = "bench";
constexpr char kHost[] = "bench-host";
constexpr int64_t kBucketBytes = 4 << 20;

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  static Mutex mu;
  static auto* const channels = new std::map<std::string, std::shared_ptr<grpc::Channel>>();
  MutexLock lock(mu);
  std::shared_ptr<grpc::Channel>& channel = (*channels)[address];
  if (channel == nullptr) channel = runtime::MakeChannel(address, {}).value_or(nullptr);
  return channel;
}

int RunEngine() {
  GrpcWeightService service({.host = kHost}, Connect, SystemClock::Get(), nullptr);
  service.Serve(kJob, {std::make_shared<WeightSubscriber>(), {}, {}});
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("127.0.0.1:%d\n", port);
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

// An engine process. It exits when its standard input is closed.
class Engine {
 public:
  Engine() {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string name = "weight_bench";
    std::string mode = "--engine";
    char* arguments[] = {name.data(), mode.data(), nullptr};
    if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0) {
      std::abort();
    }
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    char byte = 0;
    while (::read(out[0], &byte, 1) == 1 && byte != '\n') address_.push_back(byte);
    ::close(out[0]);
  }
  ~Engine() {
    ::close(stdin_);
    ::waitpid(pid_, nullptr, 0);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;
  std::string address_;
};

double Seconds(absl::Time start) { return absl::ToDoubleSeconds(SystemClock::Get().Now() - start); }
double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median time of a copy of `bytes` into memory that is already mapped.
double MemcpySeconds(const std::string& bytes, int rounds) {
  std::string to(bytes.size(), '\0');
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const absl::Time start = SystemClock::Get().Now();
    std::memcpy(to.data(), bytes.data(), bytes.size());
    seconds.push_back(Seconds(start));
  }
  return Median(std::move(seconds));
}

struct Figures {
  double stage = 0;    // seconds: copy out of the trainer, with hashing
  double publish = 0;  // seconds until the last engine has activated
  int64_t holders = 0;
};

Figures Measure(ClusterRoute route, int engines, std::string& bytes, int rounds) {
  std::vector<std::unique_ptr<Engine>> processes;
  std::vector<WeightMember> members;
  for (int i = 0; i < engines; ++i) {
    processes.push_back(std::make_unique<Engine>());
    members.push_back({StrCat("engine-", i), processes.back()->address()});
  }
  const auto transport = std::make_shared<ClusterTransport>(
      ClusterTransportOptions{.job = kJob, .route = route, .host = kHost}, Connect,
      SystemClock::Get(), nullptr);
  transport->SetMembers(1, members);
  std::unique_ptr<WeightStager> stager;
  if (route == ClusterRoute::kShm) stager = std::make_unique<MemoryFileStager>();
  WeightPublisher publisher({}, kBucketBytes, {transport}, std::move(stager));
  std::vector<double> stage;
  std::vector<double> publish;
  Figures figures;
  figures.holders = engines;
  for (int64_t v = 1; v <= rounds + 2; ++v) {
    bytes[0] = static_cast<char>(v);
    const absl::Time start = SystemClock::Get().Now();
    const WeightSnapshot& staged = publisher.Stage({0, v}, 1, bytes);
    const absl::Time staged_at = SystemClock::Get().Now();
    const absl::Status started =
        publisher.Publish({staged.manifest.policy, 1, v, staged.manifest.content_hash, ""});
    const int64_t holders = started.ok() ? publisher.AwaitPublished() : 0;
    if (v <= 2) continue;  // warm-up: touches fresh memory
    stage.push_back(absl::ToDoubleSeconds(staged_at - start));
    publish.push_back(Seconds(staged_at));
    figures.holders = std::min(figures.holders, holders);
  }
  figures.stage = Median(std::move(stage));
  figures.publish = Median(std::move(publish));
  return figures;
}

int RunBench(int rounds, const std::string& json_file) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::printf("%-10s %6s %7s %9s %9s %14s %14s %12s\n", "transport", "MiB", "engines", "stage ms",
              "send ms", "GB/s an engine", "GB/s together", "memcpy GB/s");
  for (const int64_t mib : {64, 512}) {
    std::string bytes(static_cast<size_t>(mib) << 20, 'w');
    for (size_t i = 0; i < bytes.size(); i += 61)
      bytes[i] = static_cast<char>(i * 2654435761U >> 9);
    const auto size = static_cast<double>(bytes.size());
    const double ceiling = size / MemcpySeconds(bytes, rounds + 2) / 1e9;
    for (const ClusterRoute route : {ClusterRoute::kShm, ClusterRoute::kRelay}) {
      const char* name = route == ClusterRoute::kShm ? "shm" : "grpc_relay";
      for (const int engines : {1, 2, 4}) {
        const Figures figures = Measure(route, engines, bytes, rounds);
        if (figures.holders != engines) {
          std::fprintf(stderr, "%s: only %lld of %d engines got it\n", name,
                       static_cast<long long>(figures.holders), engines);
          return 1;
        }
        const double each = size / (figures.stage + figures.publish) / 1e9;
        std::printf("%-10s %6lld %7d %9.1f %9.1f %14.2f %14.2f %12.2f\n", name,
                    static_cast<long long>(mib), engines, 1e3 * figures.stage,
                    1e3 * figures.publish, each, engines * each, ceiling);
        std::fflush(stdout);
        rows.push_back({{"name", StrCat("weights/", name, "/", mib, "MiB/", engines)},
                        {"ours", each},
                        {"peer", ceiling},
                        {"peer_name", "memcpy"},
                        {"ratio", each / ceiling},
                        {"unit", "GB/s from the trainer's arena to every engine active"},
                        {"engines", engines},
                        {"stage_seconds", figures.stage},
                        {"publish_seconds", figures.publish}});
      }
    }
  }
  if (json_file.empty()) return 0;
  std::ofstream out(json_file);
  out << rows.dump(1) << "\n";
  return out.good() ? 0 : 3;
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) {
  int rounds = 7;
  std::string json_file;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--engine") return freshet::RunEngine();
    if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--json" && i + 1 < argc) {
      json_file = argv[++i];
    } else {
      std::fprintf(stderr, "usage: weight_bench [--rounds N] [--json FILE]\n");
      return 2;
    }
  }
  return freshet::RunBench(rounds, json_file);
}
