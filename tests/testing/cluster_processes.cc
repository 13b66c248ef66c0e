#include "tests/testing/cluster_processes.h"

#include <grpcpp/grpcpp.h>

#include <csignal>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_acl.h"
#include "services/runtime/http_client.h"

namespace freshet {
namespace {

constexpr absl::Duration kStart = absl::Seconds(60);
constexpr absl::Duration kCall = absl::Seconds(20);
// Deadline of drains and of commands, some of which watch a job until it ends.
constexpr absl::Duration kEnd = absl::Seconds(90);

std::string RoleOf(const std::string& name) { return name.substr(0, name.find_first_of("-.")); }

// Value of KEY in " KEY=VALUE" within `text`.
std::string ValueOf(const std::string& text, const std::string& key) {
  const size_t begin = text.find(" " + key + "=");
  if (begin == std::string::npos) return "";
  const size_t value = begin + key.size() + 2;
  return text.substr(value, text.find_first_of(" \n", value) - value);
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const runtime::TlsFiles& tls,
                                                      const std::string& token_file) {
  if (!tls.enabled()) return grpc::InsecureChannelCredentials();
  constexpr uint64_t kMaxPemBytes = 1 << 20;
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ReadFile(tls.ca, kMaxPemBytes).value_or("");
  options.pem_cert_chain = ReadFile(tls.cert, kMaxPemBytes).value_or("");
  options.pem_private_key = ReadFile(tls.key, kMaxPemBytes).value_or("");
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::SslCredentials(options);
  const std::string token = ReadFile(token_file, kMaxPemBytes).value_or("");
  if (token.empty()) return credentials;
  const std::string bare(absl::StripTrailingAsciiWhitespace(token));
  return grpc::CompositeChannelCredentials(credentials, grpc::AccessTokenCredentials(bare));
}

std::unique_ptr<grpc::ClientContext> Context() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + kCall));
  return context;
}

}  // namespace

ClusterProcesses::~ClusterProcesses() {
  // Stopped processes would not handle SIGTERM.
  for (auto& [name, process] : processes_) process.child->Signal(SIGKILL);
}

std::vector<std::string> ClusterProcesses::Command(const std::string& name) const {
  const std::string role = RoleOf(name);
  const bool simulated = options_.simulated && (role == "rollout" || role == "trainer");
  std::vector<std::string> command = {
      StrCat(FRESHET_BIN_DIR, simulated ? "/freshet-sim-" : "/freshet-", role), "--name", name};
  const auto add = [&command](const std::string& flag, const std::string& value) {
    command.push_back(flag);
    command.push_back(value);
  };
  const auto former = processes_.find(name);
  const bool back = role == "controller" && former != processes_.end();
  add("--listen", back ? former->second.grpc : "127.0.0.1:0");
  add("--http-listen", "127.0.0.1:0");
  if (options_.tls.enabled()) {
    add("--tls-cert", options_.tls.cert);
    add("--tls-key", options_.tls.key);
    add("--tls-ca", options_.tls.ca);
  }
  if (options_.flags) {
    for (std::string& flag : options_.flags(role)) command.push_back(std::move(flag));
  }
  if (role != "env") {
    const bool tls = redis_->tls_port() != 0;
    add("--redis", StrCat("127.0.0.1:", tls ? redis_->tls_port() : redis_->port()));
    add("--redis-user", role);
    add("--redis-password-file", folder_.File(role + ".password"));
    if (tls) {
      command.push_back("--redis-tls");
      add("--redis-tls-ca", options_.tls.ca);
      add("--redis-tls-cert", options_.tls.cert);
      add("--redis-tls-key", options_.tls.key);
    }
  }
  if (role == "controller") {
    add("--time-scale", StrCat(options_.time_scale));
    return command;
  }
  add("--controller", processes_.at("controller").grpc);
  if (role == "trainer") add("--state-dir", folder_.File("state"));
  const size_t pool = name.find('.');
  if (pool != std::string::npos) {
    add("--pool", name.substr(pool + 1, name.find('-', pool) - pool - 1));
  }
  return command;
}

absl::Status ClusterProcesses::Launch(const std::string& name) {
  folder_.Write(StrCat("logs/", name, ".log"), "");
  // The shell redirects the output and then execs the program.
  std::vector<std::string> argv = {
      "/bin/sh", "-c", StrCat("exec \"$@\" >'", folder_.File("logs"), "/", name, ".log' 2>&1"),
      "sh"};
  for (std::string& word : Command(name)) argv.push_back(std::move(word));
  Process process;
  process.child = std::make_unique<ChildProcess>(argv);
  const absl::Status ready = Await(name, process);
  processes_[name] = std::move(process);
  return ready;
}

absl::Status ClusterProcesses::Await(const std::string& name, Process& process) {
  const std::string head = StrCat("ready ", RoleOf(name), " ");
  const bool ready = Await(
      [&] {
        const std::string log = Log(name);
        const size_t line = log.find(head);
        if (line == std::string::npos || log.find('\n', line) == std::string::npos) return false;
        process.grpc = ValueOf(log.substr(line), "grpc");
        process.http = ValueOf(log.substr(line), "http");
        return true;
      },
      kStart);
  return ready ? absl::OkStatus() : absl::InternalError(StrCat(name, ": ", Log(name)));
}

absl::Status ClusterProcesses::Start(const std::vector<std::string>& workers) {
  FRESHET_ASSIGN_OR_RETURN(redis_, RedisServer::Start(options_.redis));
  for (const auto& [role, rules] : RedisRoles()) folder_.Write(role + ".password", role + "\n");
  FRESHET_RETURN_IF_ERROR(Launch("controller"));
  stub_ = job::v1::JobService::NewStub(grpc::CreateChannel(
      processes_.at("controller").grpc, Credentials(options_.client_tls, options_.token_file)));
  for (const std::string& worker : workers) FRESHET_RETURN_IF_ERROR(Launch(worker));
  const bool joined = Await(
      [&] {
        job::v1::Cluster cluster;
        if (!stub_->GetCluster(Context().get(), {}, &cluster).ok()) return false;
        size_t ready = 0;
        for (const auto& worker : cluster.workers()) ready += worker.state() == "ready" ? 1 : 0;
        return ready == workers.size();
      },
      kStart);
  return joined ? absl::OkStatus() : absl::InternalError("not all workers have joined");
}

void ClusterProcesses::Signal(const std::string& name, int signal) {
  processes_.at(name).child->Signal(signal);
}

void ClusterProcesses::Kill(const std::string& name) {
  Signal(name, SIGKILL);
  processes_.at(name).child->Wait(kEnd);
}

absl::Status ClusterProcesses::Drain(const std::string& name) {
  Signal(name, SIGTERM);
  const ChildResult result = processes_.at(name).child->Wait(kEnd);
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(StrCat(name, " ended with ", result.exit_code, ": ", Log(name)));
}

std::string ClusterProcesses::MetricsBody(const std::string& name) const {
  return runtime::HttpGet(processes_.at(name).http, "/metrics", kEnd).body;
}

ChildResult ClusterProcesses::RunFreshet(const runtime::TlsFiles& tls,
                                         const std::string& token_file,
                                         const std::string& controller,
                                         const std::vector<std::string>& args) const {
  std::vector<std::string> command = {FRESHET_BIN_DIR "/freshet"};
  command.insert(command.end(), args.begin(), args.end());
  command.insert(command.end(), {"--server", processes_.at(controller).grpc});
  const std::map<std::string, std::string> files = {
      {"--ca", tls.ca}, {"--cert", tls.cert}, {"--key", tls.key}, {"--token-file", token_file}};
  for (const auto& [flag, file] : files) {
    if (!file.empty()) command.insert(command.end(), {flag, file});
  }
  return ChildProcess(command).Wait(kEnd);
}

absl::Status ClusterProcesses::Submit(const std::string& id, const std::string& yaml,
                                      int32_t priority) {
  job::v1::SubmitRequest request;
  request.set_job_id(id);
  request.set_yaml(yaml);
  request.set_priority(priority);
  job::v1::Job job;
  return FromGrpc(stub_->Submit(Context().get(), request, &job));
}

absl::StatusOr<job::v1::Job> ClusterProcesses::Get(const std::string& id) {
  job::v1::GetRequest request;
  request.set_job_id(id);
  job::v1::Job job;
  FRESHET_RETURN_IF_ERROR(FromGrpc(stub_->Get(Context().get(), request, &job)));
  return job;
}

std::vector<std::string> ClusterProcesses::Notices(const std::string& id, const std::string& kind) {
  std::vector<std::string> texts;
  const absl::StatusOr<job::v1::Job> job = Get(id);
  if (!job.ok()) return texts;
  for (const job::v1::Event& event : job->recent_events()) {
    if (event.notice().kind() == kind) texts.push_back(event.notice().text());
  }
  return texts;
}

bool ClusterProcesses::Await(const std::function<bool()>& holds, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool ClusterProcesses::AwaitState(const std::string& id, job::v1::JobState state,
                                  absl::Duration timeout) {
  return Await(
      [&] {
        const auto job = Get(id);
        return job.ok() && job->state() == state;
      },
      timeout);
}

bool ClusterProcesses::AwaitStep(const std::string& id, int64_t step, absl::Duration timeout) {
  return Await(
      [&] {
        const auto job = Get(id);
        return job.ok() && job->step() >= step;
      },
      timeout);
}

std::vector<std::string> ClusterProcesses::Keys() {
  std::vector<std::string> keys;
  const absl::StatusOr<RedisReply> reply = redis_->Client()->Command({"KEYS", "*"});
  if (!reply.ok()) return {std::string(reply.status().message())};
  for (const RedisReply& key : reply->items) keys.push_back(key.text);
  return keys;
}

}  // namespace freshet
