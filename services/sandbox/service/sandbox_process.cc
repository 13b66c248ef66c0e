#include "services/sandbox/service/sandbox_process.h"

#include <prometheus/registry.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/certificate_metrics.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/http_server.h"
#include "services/runtime/process_metrics.h"
#include "services/runtime/queue_metrics.h"
#include "services/runtime/readiness.h"
#include "services/runtime/series.h"
#include "services/sandbox/service/sandbox_api.h"
#include "services/sandbox/service/work_folder.h"
#include "services/sandbox/service/worker_pool.h"
#include "services/sandbox/worker/languages.h"
#include "services/sandbox/worker/worker_process.h"

namespace freshet::sandbox {
namespace {

constexpr size_t kMaxBodyBytes = size_t{16} << 20;
constexpr absl::Duration kIoTimeout = absl::Seconds(30);
constexpr absl::Duration kIdleTimeout = absl::Minutes(2);
constexpr absl::Duration kAnswerTimeout = absl::Minutes(30);
constexpr absl::Duration kDrainTimeout = absl::Seconds(30);
constexpr int kFirstUser = 61'000;
constexpr char kPython[] = "/usr/bin/python3";

struct Flags {
  std::string listen = "127.0.0.1:8100";
  std::string http_listen;
  std::string token_file;
  runtime::TlsFiles tls;
  bool insecure = false;
  int64_t workers = 0;
  int64_t max_queued = 256;
  std::string python = kPython;
  std::string isolation = "process";
  std::string folder;
  std::vector<std::string> readable;
  int64_t max_tasks = 256;
  int64_t memory_mb = 512;
  int64_t folder_mb = 64;
  int64_t output_kb = 1024;
};

void AddFlags(const Command& app, Flags& flags) {
  app.Add("--listen", flags.listen, "HOST:PORT of the API, probes and metrics").ShowDefault();
  app.Add("--http-listen", flags.http_listen,
          "HOST:PORT of probes and metrics only, in plaintext; default: none");
  app.Add("--token-file", flags.token_file, "file with the token that callers must send");
  app.Add("--tls-cert", flags.tls.cert, "PEM file: certificate chain");
  app.Add("--tls-key", flags.tls.key, "PEM file: its private key");
  app.AddFlag("--insecure", flags.insecure,
              "allow plaintext, or no token, on a non-loopback address");
  app.Add("--workers", flags.workers, "programs that run at a time; 0: one per processor")
      .Range(0, 1024)
      .ShowDefault();
  app.Add("--max-queued", flags.max_queued, "programs that wait; more get status 429")
      .Range(1, 65536)
      .ShowDefault();
  app.Add("--isolation", flags.isolation,
          "what programs need at least, else this process ends: process (limits, seccomp, "
          "Landlock), namespaces besides, or any (as process, or else namespaces of each program, "
          "for gVisor)")
      .OneOf({"process", "namespaces", "any"})
      .ShowDefault();
  app.Add("--python", flags.python, "Python of Python programs; \"\": none").ShowDefault();
  app.Add("--folder", flags.folder,
          "where programs work; default: one in /tmp, removed at the end, or by the next start");
  app.Add("--read", flags.readable, "further path that programs may read; repeatable");
  app.Add("--max-tasks", flags.max_tasks,
          "processes and threads that a program may start (with namespaces of each program: may "
          "have at a time)")
      .Range(0, 1 << 20)
      .ShowDefault();
  app.Add("--memory-mb", flags.memory_mb, "memory of a program in MiB")
      .Range(16, 1 << 20)
      .ShowDefault();
  app.Add("--folder-mb", flags.folder_mb, "files of a program in MiB")
      .Range(1, 1 << 20)
      .ShowDefault();
  app.Add("--output-kb", flags.output_kb,
          "standard output of a program in KiB, and as much standard error")
      .Range(1, 1 << 20)
      .ShowDefault();
  runtime::AddLogFlag(app);
}

absl::Status CheckFlags(const Flags& flags) {
  if (flags.python != kPython && !flags.python.empty() &&
      ::access(flags.python.c_str(), X_OK) != 0) {
    return InvalidArgument("--python ", flags.python, " is not a program");
  }
  FRESHET_RETURN_IF_ERROR(runtime::HttpServer::CheckListen(flags.listen, "--listen"));
  if (!flags.http_listen.empty()) {
    FRESHET_RETURN_IF_ERROR(runtime::HttpServer::CheckListen(flags.http_listen, "--http-listen"));
  }
  if (flags.tls.cert.empty() != flags.tls.key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key need each other");
  }
  if (flags.insecure || runtime::IsLoopback(flags.listen)) return absl::OkStatus();
  if (flags.tls.cert.empty() || flags.token_file.empty()) {
    return InvalidArgument("--listen ", flags.listen,
                           " is not a loopback address: give --tls-cert, --tls-key and "
                           "--token-file, or --insecure");
  }
  return absl::OkStatus();
}

WorkerPoolOptions PoolOptions(const Flags& flags, const std::string& folder) {
  WorkerPoolOptions options;
  options.argv = {"/proc/self/exe", kWorkerCommand};
  options.workers =
      flags.workers > 0 ? flags.workers : std::max(1U, std::thread::hardware_concurrency());
  options.max_queued = flags.max_queued;
  v1::WorkerStart& start = options.start;
  start.set_folder(folder);
  if (::geteuid() == 0) start.set_user(kFirstUser);
  if (!flags.python.empty() && ::access(flags.python.c_str(), X_OK) == 0) {
    start.set_python(flags.python);
  }
  start.mutable_readable()->Add(flags.readable.begin(), flags.readable.end());
  if (flags.isolation == "namespaces") start.set_level(v1::WorkerStart::LEVEL_NAMESPACES);
  if (flags.isolation == "any") start.set_level(v1::WorkerStart::LEVEL_ANY);
  start.set_max_tasks(flags.max_tasks);
  start.set_max_memory_bytes(flags.memory_mb << 20);
  start.set_max_folder_bytes(flags.folder_mb << 20);
  start.set_max_output_bytes(flags.output_kb << 10);
  return options;
}

// The limits of programs in metrics.
constexpr std::pair<v1::CommandResult::End, const char*> kLimits[] = {
    {v1::CommandResult::END_TIME_LIMIT, "time"},
    {v1::CommandResult::END_MEMORY_LIMIT, "memory"},
    {v1::CommandResult::END_FOLDER_LIMIT, "folder"},
    {v1::CommandResult::END_OUTPUT_LIMIT, "output"},
    {v1::CommandResult::END_TASK_LIMIT, "tasks"},
};

// freshet_sandbox_*, and those of every process. Thread-safe.
class Metrics {
 public:
  Metrics(prometheus::Registry& registry, const WorkerPool& pool, const runtime::TlsFiles& tls,
          int64_t max_queued, int64_t workers)
      : pool_(pool),
        process_(registry, "sandbox", Version()),
        programs_(metrics::CounterFamily(registry, "freshet_sandbox_programs_total",
                                         "Programs that were run."),
                  {}),
        lost_(metrics::CounterFamily(registry, "freshet_sandbox_lost_workers_total",
                                     "Workers that were lost while they ran a program."),
              {}),
        refused_(metrics::CounterFamily(registry, "freshet_sandbox_refused_programs_total",
                                        "Programs refused because too many waited, or they had "
                                        "waited too long."),
                 {}),
        queues_(registry) {
    queues_.Watch("sandbox_programs", max_queued, [&pool] { return pool.queued(); });
    queues_.Watch("sandbox_workers", workers, [&pool] { return pool.busy(); });
    if (!tls.cert.empty()) certificate_.emplace(registry, tls.cert, tls.ca);
    auto& limited = metrics::CounterFamily(registry, "freshet_sandbox_limited_programs_total",
                                           "Programs that a limit ended.");
    for (const auto& [end, name] : kLimits) {
      limited_.emplace_back(limited, metrics::Labels{{"limit", name}});
    }
    auto& layers = metrics::GaugeFamily(registry, "freshet_sandbox_layer_info",
                                        "1 for each layer that isolates programs.");
    for (const std::string& layer : pool.layers()) {
      layers_.emplace_back(layers, metrics::Labels{{"layer", layer}});
      layers_.back()->Set(1);
    }
  }
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_) {
    const WorkerPoolCounters counters = pool_.counters();
    const MutexLock lock(mu_);
    process_.Refresh();
    if (certificate_.has_value()) certificate_->Refresh();
    for (size_t i = 0; i < limited_.size(); ++i) {
      metrics::RaiseTo(*limited_[i], static_cast<double>(counters.limited.at(kLimits[i].first)));
    }
    metrics::RaiseTo(*programs_, static_cast<double>(counters.programs));
    metrics::RaiseTo(*lost_, static_cast<double>(counters.lost_workers));
    metrics::RaiseTo(*refused_, static_cast<double>(counters.refused));
    queues_.Refresh();
  }

 private:
  const WorkerPool& pool_;
  Mutex mu_;
  runtime::ProcessMetrics process_ ABSL_GUARDED_BY(mu_);
  std::optional<runtime::CertificateMetrics> certificate_ ABSL_GUARDED_BY(mu_);
  metrics::CounterSeries programs_, lost_, refused_;
  std::vector<metrics::CounterSeries> limited_;
  metrics::QueueMetrics queues_;
  std::vector<metrics::GaugeSeries> layers_;
};

std::string InstalledLanguages(const std::string& python) {
  std::vector<std::string> names;
  for (const Language& language : Languages()) {
    if (IsInstalled(language, python)) names.push_back(language.name);
  }
  return absl::StrJoin(names, ",");
}

absl::Status Serve(const Flags& flags) {
  // Removing deep folders takes a descriptor for each level.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  std::string token;
  if (!flags.token_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(token, runtime::ReadBearerToken(flags.token_file, nullptr));
  }
  FRESHET_ASSIGN_OR_RETURN(const auto folder, WorkFolder::Create(flags.folder));
  const WorkerPoolOptions options = PoolOptions(flags, folder->path());
  FRESHET_ASSIGN_OR_RETURN(const auto pool, WorkerPool::Start(options));
  FRESHET_LOG(Info) << "event=sandbox_isolation layers="
                    << LogQuoted(absl::StrJoin(pool->layers(), ", "))
                    << " languages=" << InstalledLanguages(options.start.python());
  if (flags.insecure && !runtime::IsLoopback(flags.listen)) {
    FRESHET_LOG(Warning) << "event=insecure listen=" << flags.listen
                         << " reason=\"anyone who reaches it can run programs\"";
  }
  prometheus::Registry registry;
  Metrics shown(registry, *pool, flags.tls, options.max_queued, options.workers);
  runtime::Readiness readiness;
  const runtime::HttpRoutes probes =
      runtime::ProbeRoutes(readiness, registry, [&shown] { shown.Refresh(); });
  const SandboxApi api(*pool, token);
  runtime::HttpLimits limits;
  limits.max_connections = 1024;
  limits.max_body_bytes = kMaxBodyBytes;
  limits.io_timeout = kIoTimeout;
  limits.answer_timeout = kAnswerTimeout;
  limits.idle_timeout = kIdleTimeout;
  limits.flag = "--listen";
  limits.check_head = [&api](const runtime::HttpRequest& head) { return api.CheckHead(head); };
  FRESHET_ASSIGN_OR_RETURN(
      const auto server,
      runtime::HttpServer::Start(
          flags.listen,
          [&](const runtime::HttpRequest& request,
              const std::shared_ptr<runtime::HttpReply>& reply) {
            if (api.Handle(request, reply)) return;
            const auto probe = probes.find(request.path);
            reply->Send(probe == probes.end() ? runtime::HttpResponse{404} : probe->second());
          },
          limits, flags.tls));
  std::unique_ptr<runtime::HttpServer> probe_server;
  if (!flags.http_listen.empty()) {
    FRESHET_ASSIGN_OR_RETURN(probe_server, runtime::HttpServer::Start(flags.http_listen, probes));
  }
  Notification stop;
  const Interrupt interrupt([&stop](int count) {
    if (count > 1) ::_exit(kExitInterrupted);
    stop.Notify();
  });
  std::printf("ready sandbox http=%s\n", server->address().c_str());
  std::fflush(stdout);
  while (!stop.WaitFor(absl::Hours(1))) {
  }
  server->Drain(kDrainTimeout);
  return absl::OkStatus();
}

}  // namespace

int RunSandboxProcess(int argc, char** argv) {
  SetLogRole("sandbox");
  CommandLine app("runs model-written programs in isolation", "freshet-sandbox");
  app.AddVersionFlag(VersionLine("freshet-sandbox"));
  Flags flags;
  AddFlags(app, flags);
  app.AfterParsing([&flags] { return CheckFlags(flags); });
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  const absl::Status served = Serve(flags);
  return served.ok() ? kExitDone : FailContent(served);
}

}  // namespace freshet::sandbox
