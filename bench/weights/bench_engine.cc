#include "bench/weights/bench_engine.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "bench/model/bench_model.h"
#include "collective/open_backend.h"
#include "model/torch_threads.h"
#include "rollout/engine/native_engine.h"
#include "services/runtime/channel.h"
#include "weights/grpc/weight_service.h"

namespace freshet {
namespace {

constexpr int kPrompt = 64;
constexpr int kGenerate = 256;

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "weight_bench: %s\n", message.c_str());
  std::exit(1);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Fail(std::string(status.message()));
}

// Generates; between two steps it takes new weights.
class Generator {
 public:
  Generator(const std::string& model, int batch, std::shared_ptr<WeightSubscriber> subscriber)
      : config_(BenchModel(model)), batch_(batch), subscriber_(std::move(subscriber)) {
    if (batch > 0) {
      NativeEngineOptions options;
      options.bf16 = true;
      options.cache_bytes = int64_t{256} << 20;
      auto engine = NativeEngine::Create(config_, options);
      Check(engine.status());
      engine_ = *std::move(engine);
    }
  }

  void Run(std::stop_token stop) {
    absl::Time last = absl::InfinitePast();
    while (!stop.stop_requested()) {
      if (std::optional<WeightSnapshot> snapshot = subscriber_->Take()) {
        if (engine_ != nullptr) Check(engine_->LoadWeights(Lane::kRollout, *snapshot));
        MutexLock lock(mu_);
        version_ = snapshot->manifest.policy.version;
        ++versions_;
      }
      if (engine_ == nullptr || version() == 0) {
        Notification never;
        never.WaitFor(absl::Milliseconds(1));
        continue;
      }
      if (engine_->Idle()) Submit();
      const absl::Time start = SystemClock::Get().Now();
      const int64_t before = engine_->stats().tokens_generated;
      const auto outputs = engine_->Poll();
      Check(outputs.status());
      const auto whole = std::count_if(outputs->begin(), outputs->end(), IsWhole);
      const absl::Time end = SystemClock::Get().Now();
      MutexLock lock(mu_);
      tokens_ += engine_->stats().tokens_generated - before;
      completed_ += whole;
      steps_.push_back(absl::ToDoubleSeconds(end - start));
      if (last != absl::InfinitePast()) gap_ = std::max(gap_, absl::ToDoubleSeconds(end - last));
      last = end;
    }
  }

  nlohmann::json Stats() {
    MutexLock lock(mu_);
    double median = 0;
    if (!steps_.empty()) {
      std::sort(steps_.begin(), steps_.end());
      median = steps_[steps_.size() / 2];
    }
    const nlohmann::json stats = {
        {"version", version_},   {"versions", versions_},         {"tokens", tokens_},
        {"requests", requests_}, {"samples_lost", samples_lost_}, {"step_seconds", median},
        {"gap_seconds", gap_}};
    steps_.clear();
    gap_ = 0;
    return stats;
  }

 private:
  int64_t version() {
    MutexLock lock(mu_);
    return version_;
  }
  void Submit() {
    GenerationRequest request;
    {
      MutexLock lock(mu_);
      samples_lost_ = requests_ * batch_ - completed_;
      request.id = request.ordinal = ++requests_;
    }
    request.seed = 1;
    for (int i = 0; i < kPrompt; ++i) request.prompt_ids.push_back((7 * i) % 1000);
    for (int i = 0; i < batch_; ++i) request.sample_indices.push_back(i);
    request.sampling.max_new_tokens = kGenerate;
    Check(engine_->Submit(std::move(request)));
  }
  // Whether the sample was generated to its end.
  static bool IsWhole(const GenerationOutput& output) {
    const Response& response = output.response;
    return output.error.ok() &&
           (response.finish == FinishReason::kStop || (response.finish == FinishReason::kLength &&
                                                       response.response_ids.size() == kGenerate));
  }

  const ModelConfig config_;
  const int batch_;
  const std::shared_ptr<WeightSubscriber> subscriber_;
  std::unique_ptr<NativeEngine> engine_;
  Mutex mu_;
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t versions_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t requests_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t completed_ ABSL_GUARDED_BY(mu_) = 0;     // whole samples
  int64_t samples_lost_ ABSL_GUARDED_BY(mu_) = 0;  // of all requests but the newest
  double gap_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<double> steps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::shared_ptr<grpc::Channel> BenchChannel(const std::string& address) {
  static Mutex mu;
  static auto* const channels = new std::map<std::string, std::shared_ptr<grpc::Channel>>();
  MutexLock lock(mu);
  std::shared_ptr<grpc::Channel>& channel = (*channels)[address];
  if (channel == nullptr) channel = runtime::MakeChannel(address, {}).value_or(nullptr);
  return channel;
}

int RunBenchEngine(const std::string& model, int batch) {
  UseOneTorchThread();
  GrpcWeightService service({.host = kBenchHost, .open_backend = OpenBackend}, BenchChannel,
                            SystemClock::Get(), nullptr);
  const auto subscriber = std::make_shared<WeightSubscriber>();
  service.Serve(kBenchJob, {subscriber, {}, {}, /*broadcast_backend=*/"gloo"});
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  Generator generator(model, batch, subscriber);
  std::jthread generating([&](std::stop_token stop) { generator.Run(stop); });
  std::printf("127.0.0.1:%d\n", port);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%s\n", generator.Stats().dump().c_str());
    std::fflush(stdout);
  }
  service.Forget(kBenchJob);
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

EngineProcess::EngineProcess(const std::string& model, int batch) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) Fail("no pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<std::string> words = {"weight_bench", "engine",  "--model",
                                    model,          "--batch", StrCat(batch)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0) {
    Fail("an engine does not start");
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  stdin_ = in[1];
  stdout_ = out[0];
  address_ = ReadLine();
}

EngineProcess::~EngineProcess() {
  ::close(stdin_);
  ::close(stdout_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

void EngineProcess::Kill() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

std::string EngineProcess::ReadLine() {
  std::string line;
  char byte = 0;
  while (::read(stdout_, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
  if (line.empty()) Fail("an engine has ended");
  return line;
}

nlohmann::json EngineProcess::Stats() {
  if (::write(stdin_, "\n", 1) != 1) Fail("an engine has ended");
  return nlohmann::json::parse(ReadLine());
}

}  // namespace freshet
