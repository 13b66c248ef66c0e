// Measures how long a trainer's relay takes to bring one version to n engines whose links have a
// limited rate. All run in this process: the trainer's transport, the engines' services, and for
// each engine a proxy that limits what it receives. bench/weights.py --engines prints the table.
//
//   relay_bench --engines N [--bytes B] [--rate R] [--burst B] [--bucket B] [--rounds K]
//               [--from FILE --to FILE [--delta]]
//
// With --from and --to, the versions are in turn these files of equal size, and with --delta the
// engines are in another site and get differences.
// Prints one JSON object a round.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/runtime/channel.h"
#include "tests/fault_proxy/fault_proxy.h"
#include "tests/testing/loopback_server.h"
#include "weights/grpc/cluster_transport.h"
#include "weights/grpc/weight_service.h"
#include "weights/weight_publisher.h"

namespace freshet {
namespace {

constexpr char kRelayJob[] = "bench";
// The most that a link sends at once.
constexpr int64_t kSliceBytes = 8 << 10;
constexpr int64_t kConnectBytes = 64 << 10;
constexpr uint64_t kMaxFileBytes = uint64_t{16} << 30;
// Threads of an engine for its own calls; it takes part in one publication.
constexpr int kStreams = 2;

std::shared_ptr<grpc::Channel> LinkChannel(const std::string& address) {
  static Mutex mu;
  static auto* const channels = new std::map<std::string, std::shared_ptr<grpc::Channel>>();
  MutexLock lock(mu);
  std::shared_ptr<grpc::Channel>& channel = (*channels)[address];
  if (channel == nullptr) channel = runtime::MakeChannel(address, {}).value_or(nullptr);
  return channel;
}

// An engine behind a link, a token bucket of `rate` bytes per second and `burst` bytes.
class LinkedEngine {
 public:
  LinkedEngine(int64_t rate, int64_t burst)
      : service_({.host = "", .max_streams = kStreams}, LinkChannel, SystemClock::Get(), nullptr) {
    service_.Serve(kRelayJob, {subscriber_, {}, {}});
    server_ = std::make_unique<LoopbackServer>(&service_);
    auto link = FaultProxy::Start(server_->port());
    FRESHET_CHECK(link.ok());
    link_ = *std::move(link);
    Toxics limit;
    limit.bytes_per_second = rate;
    limit.burst_bytes = burst;
    limit.slice_bytes = kSliceBytes;
    link_->Set(FaultDirection::kToServer, limit);
  }

  std::string address() const { return StrCat("127.0.0.1:", link_->port()); }
  // Takes the newest version, as an engine does between two steps; else its buffers stay in use.
  void Take() { subscriber_->Take(); }
  int64_t received() const { return link_->NumForwarded(FaultDirection::kToServer); }

 private:
  const std::shared_ptr<WeightSubscriber> subscriber_ = std::make_shared<WeightSubscriber>();
  GrpcWeightService service_;
  std::unique_ptr<LoopbackServer> server_;
  std::unique_ptr<FaultProxy> link_;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct RelayBench {
  int engines = 1;
  int64_t bytes = 16 << 20;
  int64_t rate = 512 << 10;
  int64_t burst = 8 << 10;
  int64_t bucket = 0;
  int rounds = 3;
  std::string from, to;
  bool delta = false;

  // Random bytes of which each version has its number in front, unless there are files.
  std::vector<std::string> Arenas() const {
    std::vector<std::string> arenas;
    for (const std::string& path : {from, to}) {
      if (path.empty()) continue;
      arenas.push_back(ReadFile(path, kMaxFileBytes).value());
    }
    if (!arenas.empty()) return arenas;
    std::string& arena = arenas.emplace_back(static_cast<size_t>(bytes), '\0');
    for (size_t i = 0; i + sizeof(uint64_t) <= arena.size(); i += sizeof(uint64_t)) {
      const uint64_t bits = RandomBits(1, i);
      std::memcpy(arena.data() + i, &bits, sizeof bits);
    }
    return arenas;
  }

  int Run() const {
    std::vector<std::unique_ptr<LinkedEngine>> linked;
    std::vector<WeightMember> members;
    for (int i = 0; i < engines; ++i) {
      linked.push_back(std::make_unique<LinkedEngine>(rate, burst));
      members.push_back({StrCat("engine-", 1000 + i), linked.back()->address(), "", "far"});
    }
    const auto transport =
        std::make_shared<ClusterTransport>(ClusterTransportOptions{.job = kRelayJob,
                                                                   .route = ClusterRoute::kRelay,
                                                                   .host = "",
                                                                   .timeout = absl::Minutes(10),
                                                                   .delta = delta},
                                           LinkChannel, SystemClock::Get(), nullptr);
    transport->SetMembers(1, members);
    std::optional<int64_t> bucket_bytes;
    if (bucket > 0) bucket_bytes = bucket;
    const std::vector<WeightEntry> entries = {{"connect", "BF16", {kConnectBytes / 2}, 0}};
    WeightPublisher publisher(entries, {transport}, nullptr, nullptr, bucket_bytes);
    std::vector<std::string> arenas = Arenas();
    const int warm = from.empty() ? 0 : 1;  // brings the base of the first differences
    for (int round = 0; round <= rounds + warm; ++round) {
      std::string& arena = arenas[static_cast<size_t>(round) % arenas.size()];
      if (from.empty()) std::memcpy(arena.data(), &round, sizeof round);
      // The first one, which is small, connects.
      const std::string_view version = std::string_view(arena).substr(
          0, round == 0 ? size_t{kConnectBytes} : std::string_view::npos);
      FRESHET_CHECK(publisher.Stage({0, round + 1}, 1, version).ok());
      const WeightSnapshot& staged = publisher.staged();
      const absl::Time start = SystemClock::Get().Now();
      const double cpu = CpuSeconds();
      const int64_t received = linked.back()->received();
      const absl::Status started = publisher.Publish(
          {staged.manifest.policy, 1, round + 1, staged.manifest.content_hash, ""});
      const int64_t holders = started.ok() ? publisher.AwaitPublished() : 0;
      const double seconds = absl::ToDoubleSeconds(SystemClock::Get().Now() - start);
      for (const auto& engine : linked) engine->Take();
      if (round <= warm) continue;
      const nlohmann::json result = {
          {"engines", engines},
          {"holders", holders},
          {"bytes", arena.size()},
          {"rate", rate},
          {"received", linked.back()->received() - received},
          {"burst", burst},
          {"bucket_bytes", staged.manifest.bucket_bytes},
          {"seconds", seconds},
          {"cores", (CpuSeconds() - cpu) / seconds},
      };
      std::printf("%s\n", result.dump().c_str());
      std::fflush(stdout);
    }
    // Without waiting for streams that end.
    std::_Exit(0);
  }
};

std::string IsReadable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0 ? "" : StrCat("cannot read ", path);
}

int RelayMain(int argc, char** argv) {
  CommandLine app("how long a version takes to n engines with slow links", "relay_bench");
  RelayBench bench;
  app.Add("--engines", bench.engines).Range(1, 1024);
  app.Add("--bytes", bench.bytes, "of the version").Positive();
  app.Add("--rate", bench.rate, "bytes per second that an engine receives").Positive();
  app.Add("--burst", bench.burst, "bytes that a link sends at once after a pause");
  app.Add("--bucket", bench.bucket, "bytes of a bucket; 0: as a trainer chooses");
  app.Add("--rounds", bench.rounds).Positive();
  app.Add("--from", bench.from, "a version's bytes").Check(IsReadable);
  app.Add("--to", bench.to, "those of the next").Check(IsReadable);
  app.AddFlag("--delta", bench.delta, "send differences");
  app.OnRun([&] {
    std::error_code error;
    const bool together = bench.from.empty() == bench.to.empty();
    if (!together || (!bench.from.empty() && std::filesystem::file_size(bench.from, error) !=
                                                 std::filesystem::file_size(bench.to, error))) {
      std::fprintf(stderr, "relay_bench: --from and --to need two files of equal size\n");
      return 2;
    }
    return bench.Run();
  });
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::RelayMain(argc, argv); }
