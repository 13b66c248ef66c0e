// Measures publications of a model's weights from a trainer's process to engine processes, which
// generate meanwhile. bench/weights.py runs it beside peers and prints the table.
//
//   weight_bench serve [--model T|M] [--engines N] [--batch B]
//   weight_bench engine [--model T|M] [--batch B]     started by serve
//
// serve answers requests, one JSON object a line:
//   {"workload": "publish", "route": ROUTE}  one version by shm, grpc_relay or gloo
//   {"workload": "kill", "route": ROUTE}     one that loses an engine in the middle
//   {"workload": "storm", "route": ROUTE, "changes": N, "seconds": S}  engines come and go
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "bench/model/bench_model.h"
#include "bench/weights/bench_engine.h"
#include "collective/gloo_backend.h"
#include "nlohmann/json.hpp"
#include "weights/grpc/cluster_transport.h"
#include "weights/shm/memory_file.h"
#include "weights/weight_publisher.h"

namespace freshet {
namespace {

constexpr absl::Duration kTakeLimit = absl::Minutes(2);
constexpr int kKillAttempts = 20;

double Seconds(absl::Time start) { return absl::ToDoubleSeconds(SystemClock::Get().Now() - start); }

void Pause(absl::Duration time) {
  Notification never;
  never.WaitFor(time);
}

// How many members have activated a version since Clear, and the longest of their times. Without a
// lock: publications report on their thread, before AwaitPublished returns.
class MemberTimes final : public WeightSyncObserver {
 public:
  void OnPhase(WeightPhase, absl::Duration) override {}
  void OnBytes(int64_t) override {}
  void OnDelta(int64_t, int64_t) override {}
  void OnFailure(const char*) override {}
  void OnMembers(const std::string&, const char*,
                 const std::vector<absl::Duration>& took) override {
    for (const absl::Duration each : took) longest = std::max(longest, each);
    count += took.size();
  }
  void Clear() {
    longest = absl::ZeroDuration();
    count = 0;
  }
  absl::Duration longest;
  size_t count = 0;
};

class Trainer {
 public:
  Trainer(const std::string& model, int engines, int batch)
      : model_(model),
        batch_(batch),
        source_(BenchWeights(BenchModel(model), Dtype::kBf16)),
        bytes_(reinterpret_cast<const char*>(source_->data()), source_->size()),
        copy_(bytes_.size(), '\0') {
    source_ = nullptr;
    for (int i = 0; i < engines; ++i) Add(batch);
    Publish("shm");  // starts the engines
  }

  nlohmann::json Answer(const nlohmann::json& request) {
    const std::string workload = request.at("workload");
    const std::string route = request.value("route", "shm");
    if (workload == "publish") return Publish(route);
    if (workload == "kill") return Kill(route);
    if (workload == "storm") return Storm(route, request.at("changes"), request.at("seconds"));
    return {{"error", "unknown workload"}};
  }

 private:
  void Add(int batch) {
    engines_.push_back(std::make_unique<EngineProcess>(model_, batch));
    names_.push_back(StrCat("engine-", 1000 + added_++));
    SetMembers();
  }
  void Remove() {
    engines_.pop_back();
    names_.pop_back();
    SetMembers();
  }
  void SetMembers() {
    if (transport_ != nullptr) transport_->SetMembers(++revision_, Members());
  }
  std::vector<WeightMember> Members() const {
    std::vector<WeightMember> members;
    for (size_t i = 0; i < engines_.size(); ++i) {
      members.push_back({names_[i], engines_[i]->address()});
    }
    return members;
  }

  // The publisher of this route, instead of that of the former one, which would go on to serve the
  // members.
  WeightPublisher& Publisher(const std::string& route) {
    if (route == route_) return *publisher_;
    publisher_ = nullptr;
    transport_ = nullptr;
    ClusterTransportOptions options{
        .job = kBenchJob, .route = *ParseClusterRoute(route), .host = kBenchHost};
    if (route == "gloo") options.backend = MakeGlooBackend();
    transport_ =
        std::make_shared<ClusterTransport>(options, BenchChannel, SystemClock::Get(), &members_);
    transport_->SetMembers(++revision_, Members());
    std::unique_ptr<WeightStager> stager;
    if (route == "shm") stager = std::make_unique<MemoryFileStager>();
    publisher_ = std::make_unique<WeightPublisher>(
        std::vector<WeightEntry>(), std::vector<std::shared_ptr<WeightTransport>>{transport_},
        std::move(stager));
    route_ = route;
    for (int i = 0; i < 2; ++i) Send(route);  // touches its memory
    return *publisher_;
  }

  // Seconds of one publication, and the number of engines that hold its version.
  struct Times {
    double stage = 0;
    double publish = 0;
    double members = 0;  // until the last engine that holds it has activated it
    int64_t holders = 0;
  };
  Times Send(const std::string& route, const std::function<void()>& meanwhile = {}) {
    WeightPublisher& publisher = Publisher(route);
    ++version_;
    std::memcpy(bytes_.data(), &version_, sizeof version_);
    members_.Clear();
    Times times;
    absl::Time start = SystemClock::Get().Now();
    const absl::Status copied = publisher.Stage({0, version_}, 1, bytes_);
    FRESHET_CHECK(copied.ok());
    const WeightSnapshot& staged = publisher.staged();
    times.stage = Seconds(start);
    start = SystemClock::Get().Now();
    absl::Time end = start;
    const absl::Status started =
        publisher.Publish({staged.manifest.policy, 1, version_, staged.manifest.content_hash, ""},
                          [&end] { end = SystemClock::Get().Now(); });
    if (meanwhile) meanwhile();
    times.holders = started.ok() ? publisher.AwaitPublished() : 0;
    times.publish = absl::ToDoubleSeconds(end - start);
    times.members = absl::ToDoubleSeconds(members_.longest);
    return times;
  }

  // Waits until the first `engines` engines have taken the newest version; false: not in time.
  // Raises `step_seconds` to their longest median step, and `stall_steps` to their longest pause in
  // steps.
  bool AwaitTaken(size_t engines, double& step_seconds, double& stall_steps) {
    const absl::Time give_up = SystemClock::Get().Now() + kTakeLimit;
    for (size_t i = 0; i < engines; ++i) {
      double gap = 0;
      while (true) {
        const nlohmann::json stats = engines_[i]->Stats();
        gap = std::max(gap, stats.at("gap_seconds").get<double>());
        step_seconds = std::max(step_seconds, stats.at("step_seconds").get<double>());
        if (stats.at("version") == version_) break;
        if (SystemClock::Get().Now() > give_up) return false;
        Pause(absl::Milliseconds(20));
      }
      // The swap is in the gap before the next step's end.
      Pause(absl::Seconds(2 * step_seconds + 0.05));
      gap = std::max(gap, engines_[i]->Stats().at("gap_seconds").get<double>());
      if (step_seconds > 0) stall_steps = std::max(stall_steps, gap / step_seconds - 1);
    }
    return true;
  }

  void AwaitTaken(size_t engines) {
    double step_seconds = 0;
    double stall_steps = 0;
    FRESHET_CHECK(AwaitTaken(engines, step_seconds, stall_steps));
  }

  nlohmann::json Publish(const std::string& route) {
    Publisher(route);
    Pause(absl::Seconds(1));
    const int64_t tokens_before = Total(engines_.size(), "tokens");
    Pause(absl::Seconds(batch_ > 0 ? 1.0 : 0.0));
    double step = 0;
    int64_t tokens = -tokens_before;
    for (auto& engine : engines_) {
      const nlohmann::json stats = engine->Stats();
      step = std::max(step, stats.at("step_seconds").get<double>());
      tokens += stats.at("tokens").get<int64_t>();
    }
    absl::Time start = SystemClock::Get().Now();
    std::memcpy(copy_.data(), bytes_.data(), bytes_.size());
    const double memcpy_seconds = Seconds(start);
    start = SystemClock::Get().Now();
    const Times times = Send(route);
    double stall = 0;
    const bool taken = AwaitTaken(engines_.size(), step, stall);
    return {{"bytes", bytes_.size()},
            {"memcpy_seconds", memcpy_seconds},
            {"stage_seconds", times.stage},
            {"publish_seconds", times.publish},
            {"holders", taken ? times.holders : 0},
            {"engines", engines_.size()},
            {"step_seconds", step},
            {"tokens_per_second", tokens},
            {"stall_steps", stall}};
  }

  // With one more engine, which does not generate: a version as usual, and one in whose middle it
  // dies. The times are until the last of the others has activated the version; they have taken the
  // one before. A version that the dying engine has too does not count.
  nlohmann::json Kill(const std::string& route) {
    Publisher(route);
    for (int attempt = 0; attempt < kKillAttempts; ++attempt) {
      const size_t others = engines_.size();
      Add(0);
      Send(route);
      AwaitTaken(others);
      const double half = Send(route).members / 2;
      AwaitTaken(others);
      EngineProcess& victim = *engines_.back();
      const Times disturbed = Send(route, [&] {
        Pause(absl::Seconds(half));
        victim.Kill();
      });
      const size_t activated = members_.count;
      Remove();
      AwaitTaken(others);
      const Times usual = Send(route);
      if (activated > others) continue;
      return {{"usual_seconds", usual.members},
              {"killed_seconds", disturbed.members},
              {"publish_seconds", disturbed.publish},
              {"holders", activated},
              {"others", others}};
    }
    return {{"error", "the engine dies too late"}};
  }

  // The sum of a counter of the first `engines` engines.
  int64_t Total(size_t engines, const char* counter) {
    int64_t total = 0;
    for (size_t i = 0; i < engines; ++i) total += engines_[i]->Stats().at(counter).get<int64_t>();
    return total;
  }

  // Waits until the first `engines` engines have ended the requests that they are generating.
  bool AwaitRequests(size_t engines) {
    const absl::Time give_up = SystemClock::Get().Now() + kTakeLimit;
    for (size_t i = 0; i < engines; ++i) {
      const int64_t running = engines_[i]->Stats().at("requests");
      while (running > 0 && engines_[i]->Stats().at("requests") == running) {
        if (SystemClock::Get().Now() > give_up) return false;
        Pause(absl::Milliseconds(100));
      }
    }
    return true;
  }

  // Engines come and go, one change at a time, while versions flow. The permanent ones must take
  // every version that is published, and complete all their samples.
  nlohmann::json Storm(const std::string& route, int changes, double seconds) {
    const size_t permanent = engines_.size();
    Send(route);
    double step = 0;
    double stall = 0;
    if (!AwaitTaken(permanent, step, stall)) return {{"error", "no start"}};
    int64_t tokens = Total(permanent, "tokens");
    absl::Time start = SystemClock::Get().Now();
    Pause(absl::Seconds(seconds / 6));
    const double quiet = static_cast<double>(Total(permanent, "tokens") - tokens) / Seconds(start);
    const int64_t before = Total(permanent, "versions");
    tokens = Total(permanent, "tokens");
    start = SystemClock::Get().Now();
    int done = 0;
    int64_t published = 0;
    int64_t lost = 0;
    double slowest = 0;
    while (done < changes) {
      if (Seconds(start) >= seconds * done / changes) {
        if (done % 2 == 0) {
          Add(0);
        } else {
          engines_.back()->Kill();  // it leaves the members a moment later
        }
        ++done;
      }
      const Times times = Send(route);
      if (done % 2 == 0 && engines_.size() > permanent) Remove();
      slowest = std::max(slowest, times.publish);
      ++published;
      if (!AwaitTaken(permanent, step, stall)) ++lost;
    }
    const double took = Seconds(start);
    tokens = Total(permanent, "tokens") - tokens;
    const int64_t taken = Total(permanent, "versions") - before;
    const bool ended = AwaitRequests(permanent);
    return {{"seconds", took},
            {"changes", done},
            {"published", published},
            {"lost", lost + static_cast<int64_t>(permanent) * published - taken},
            {"samples_lost", Total(permanent, "samples_lost") +
                                 (ended ? 0 : static_cast<int64_t>(permanent) * batch_)},
            {"tokens_per_second", static_cast<double>(tokens) / took},
            {"tokens_per_second_before", quiet},
            {"slowest_seconds", slowest}};
  }

  const std::string model_;
  const int batch_;
  WeightBytes source_;
  std::string bytes_;
  std::string copy_;
  std::vector<std::unique_ptr<EngineProcess>> engines_;
  std::vector<std::string> names_;
  int added_ = 0;
  int64_t revision_ = 0;
  int64_t version_ = 0;
  std::string route_;
  MemberTimes members_;
  std::shared_ptr<ClusterTransport> transport_;
  std::unique_ptr<WeightPublisher> publisher_;
};

int Serve(const std::string& model, int engines, int batch) {
  Trainer trainer(model, engines, batch);
  std::printf("{}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%s\n", trainer.Answer(nlohmann::json::parse(line)).dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

int Main(int argc, char** argv) {
  CommandLine app("how fast weights travel", "weight_bench");
  app.RequireCommand();
  std::string model = "M";
  int engines = 2;
  int batch = 16;
  const Command serve = app.AddCommand("serve", "a trainer and its engines");
  serve.Add("--engines", engines).Positive();
  const Command engine = app.AddCommand("engine", "one engine; started by serve");
  for (const Command& command : {serve, engine}) {
    command.Add("--model", model, "T: 33.6 M parameters; M: 415 M").OneOf({"T", "M"});
    command.Add("--batch", batch, "samples that an engine generates at once; 0: none")
        .Range(0, 512);
  }
  serve.OnRun([&] { return Serve(model, engines, batch); });
  engine.OnRun([&] { return RunBenchEngine(model, batch); });
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
