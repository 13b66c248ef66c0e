#include "local/team_command.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/job_mode.h"
#include "job/job_yaml.h"
#include "job/policies.h"
#include "job/yaml_tree.h"
#include "local/job_setup.h"
#include "local/local_services.h"
#include "local/run_folder.h"
#include "local/team_processes.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

// A member that is told to stop ends its step and saves a checkpoint.
constexpr absl::Duration kStopGrace = absl::Minutes(2);

// Environment variable of the members: the process id of the team's command.
constexpr const char* kTeamVariable = "FRESHET_TEAM_PROCESS";

constexpr size_t kMaxNamedRuns = 10;

struct TeamMember {
  std::string policy;
  std::vector<std::string> overrides;
};

absl::Status CheckFlags(const LocalCommand& command, size_t members) {
  if (!command.crash_at.empty()) return InvalidArgument("--crash-at needs a job without policies");
  if (!command.status_listen.empty() && !command.status_listen.ends_with(":0")) {
    return InvalidArgument("--status-listen ", command.status_listen,
                           ": each policy has a status page of its own; give port 0");
  }
  if (command.metrics_port + static_cast<int>(members) > 65536) {
    return InvalidArgument("--metrics-port ", command.metrics_port,
                           ": each policy takes the next port; give a smaller one");
  }
  return absl::OkStatus();
}

// The command line of the member's process: it resumes the run in its folder.
TeamProcess MakeProcess(const LocalCommand& command, const std::string& run_dir,
                        const TeamMember& member, int number) {
  std::error_code error;
  TeamProcess process = {
      member.policy,
      {fs::read_symlink("/proc/self/exe", error).string(), "local", "--resume",
       StrCat(run_dir, "/", member.policy), "--status-listen", command.status_listen,
       "--log-format", GetLogFormat() == LogFormat::kJson ? "json" : "text"},
      {StrCat(kTeamVariable, "=", ::getpid())}};
  const auto add = [&process](const std::string& flag, const std::string& value) {
    process.argv.push_back(flag);
    process.argv.push_back(value);
  };
  for (const std::string& text : member.overrides) add("--set", text);
  if (command.json) process.argv.emplace_back("--json");
  if (command.metrics_port != 0) add("--metrics-port", StrCat(command.metrics_port + number));
  for (const auto& [flag, value] : runtime::RewardArguments(command.rewards)) add(flag, value);
  return process;
}

absl::StatusOr<int> RunMembers(const LocalCommand& command, const std::string& run_dir,
                               const std::vector<TeamMember>& members) {
  size_t width = 0;
  std::vector<TeamProcess> processes;
  for (size_t i = 0; i < members.size(); ++i) {
    width = std::max(width, members[i].policy.size());
    processes.push_back(MakeProcess(command, run_dir, members[i], static_cast<int>(i)));
  }
  TeamProcesses team(
      [width, json = command.json](const std::string& name, bool is_error, std::string_view line) {
        const std::string text = TeamLine(name, width, json && !is_error, line);
        std::fprintf(is_error ? stderr : stdout, "%s\n", text.c_str());
        std::fflush(is_error ? stderr : stdout);
      },
      kStopGrace);
  const Interrupt interrupt([&team](int /*count*/) { team.Stop(); });
  FRESHET_ASSIGN_OR_RETURN(const TeamEnd end, team.Run(processes));
  if (interrupt.count() > 1) return kExitInterrupted;
  if (!end.killed.empty()) {
    PrintError(absl::AbortedError(StrCat("policy ", end.killed,
                                         " did not end within 2 minutes and was killed; its last "
                                         "checkpoint is kept")));
  }
  if (end.failed.empty()) return end.interrupted ? kExitInterrupted : kExitDone;
  const std::string how = end.exit_code == kExitJobCancelled
                              ? "was interrupted"
                              : StrCat("failed with exit code ", end.exit_code, ": ", end.error);
  PrintError(absl::AbortedError(StrCat("policy ", end.failed, " ", how,
                                       "\ncontinue with: freshet local --resume ", run_dir)));
  return end.exit_code;
}

int FailCommandLine(const absl::Status& status) {
  PrintError(status);
  return kExitCommandLine;
}

int ExitCodeOf(const absl::StatusOr<int>& code) {
  return code.ok() ? *code : FailContent(code.status());
}

// Makes the folders of all policies, or none: under another name, which is changed at the end.
absl::Status MakeFolders(const std::string& run_dir, const std::vector<JobResult>& jobs) {
  std::error_code error;
  if (fs::exists(run_dir, error)) {
    return FailedPrecondition(run_dir, ": exists already; continue it with --resume ", run_dir,
                              ", or choose another folder with --run-dir");
  }
  fs::path path = fs::absolute(run_dir, error);
  if (!path.has_filename()) path = path.parent_path();  // without a '/' at the end
  const std::string made = path.string() + ".tmp";
  fs::create_directories(path.parent_path(), error);
  if (error) return WriteError(path.parent_path().string(), error.value());
  if (!fs::create_directory(made, error)) {
    return error ? WriteError(made, error.value())
                 : FailedPrecondition(made,
                                      ": another process makes this run, or was ended while "
                                      "it did; remove the folder if none runs");
  }
  absl::Status status;
  for (const JobResult& job : jobs) {
    // The processes lock the folders that are made here.
    status = RunFolder::Create(StrCat(made, "/", job.policy), WriteJobYaml(job.spec)).status();
    if (!status.ok()) break;
  }
  if (status.ok() && ::rename(made.c_str(), path.c_str()) != 0) {
    status = WriteError(run_dir, errno);
  }
  if (status.ok()) return SyncPath(path.parent_path().string());
  fs::remove_all(made, error);
  return status;
}

absl::StatusOr<int> StartMembers(const LocalCommand& command, const std::vector<JobResult>& jobs) {
  FRESHET_ASSIGN_OR_RETURN(const ServiceScorers services, ConnectedScorers(command.rewards));
  std::vector<TeamMember> members;
  members.reserve(jobs.size());
  for (const JobResult& job : jobs) {
    const std::vector<ConfigError> errors = CheckMode(job.spec, job.places, JobMode::kLocal);
    if (!errors.empty()) return InvalidArgument(FormatConfigErrors(errors));
    FRESHET_RETURN_IF_ERROR(PrepareJob(job.spec, job.places, services).status());
    members.push_back({job.policy, {}});
  }
  const std::string run_dir =
      command.run_dir.empty() ? "runs/" + jobs.front().spec.team() : command.run_dir;
  FRESHET_RETURN_IF_ERROR(MakeFolders(run_dir, jobs));
  return RunMembers(command, run_dir, members);
}

absl::StatusOr<int> ResumeMembers(const LocalCommand& command,
                                  const std::vector<std::string>& policies) {
  std::vector<TeamMember> members;
  members.reserve(policies.size());
  for (const std::string& policy : policies) {
    FRESHET_ASSIGN_OR_RETURN(std::vector<std::string> overrides,
                             OverridesOf(policy, policies, command.overrides));
    members.push_back({policy, std::move(overrides)});
  }
  return RunMembers(command, command.resume_dir, members);
}

// SIGHUP comes at least once when the team's command ends: its threads end one by one.
extern "C" void StopOnce(int /*signal*/) {
  static volatile sig_atomic_t stopped = 0;
  if (stopped == 0) {
    stopped = 1;
    ::kill(::getpid(), SIGTERM);
  }
}

// The text of a key of a job file; "" if there is none.
std::string TextOf(const YamlNode& job, std::string_view key) {
  const auto found = std::ranges::find(job.entries, key, &YamlEntry::key);
  return found == job.entries.end() ? "" : found->value.text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindPolicyRuns(const std::string& run_dir) {
  std::vector<std::string> folders;
  std::error_code error;
  if (fs::exists(fs::path(run_dir) / "job.yaml", error)) return folders;
  std::set<std::string> teams;  // "" of a run that is none of its folder's policy
  for (auto entry = fs::directory_iterator(run_dir, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path file = entry->path() / "job.yaml";
    std::error_code unknown;
    if (!fs::exists(file, unknown)) continue;
    folders.push_back(entry->path().filename().string());
    const YamlNode job = ParseYamlTree(ReadFile(file.string(), kMaxYamlBytes).value_or("")).root;
    const std::string team = TextOf(job, "team");
    teams.insert(TextOf(job, "name") == StrCat(team, "-", folders.back()) ? team : "");
  }
  std::sort(folders.begin(), folders.end());
  if (folders.empty() || (teams.size() == 1 && !teams.contains(""))) return folders;
  const bool more = folders.size() > kMaxNamedRuns;
  if (more) folders.resize(kMaxNamedRuns);
  return FailedPrecondition(run_dir, ": is no run and no run of several policies; name one of: ",
                            absl::StrJoin(folders, ", "), more ? ", ..." : "");
}

int StartTeam(const LocalCommand& command, const std::vector<JobResult>& jobs) {
  const absl::Status flags = CheckFlags(command, jobs.size());
  return flags.ok() ? ExitCodeOf(StartMembers(command, jobs)) : FailCommandLine(flags);
}

int ResumeTeam(const LocalCommand& command, const std::vector<std::string>& policies) {
  const absl::Status flags = CheckFlags(command, policies.size());
  return flags.ok() ? ExitCodeOf(ResumeMembers(command, policies)) : FailCommandLine(flags);
}

void EndWithTeam() {
  const char* const text = std::getenv(kTeamVariable);
  if (text == nullptr) return;
  ::signal(SIGPIPE, SIG_IGN);  // the command takes the output, and may be gone
  struct sigaction action {};
  action.sa_handler = StopOnce;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGHUP, &action, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0);
  if (StrCat(::getppid()) != text) ::raise(SIGTERM);
}

std::function<std::string()> EndedPolicy() {
  if (std::getenv(kTeamVariable) == nullptr) return nullptr;
  return [text = std::make_shared<std::string>()]() -> std::string {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    std::array<char, 256> bytes;
    // Later lines are not needed.
    if (text->find('\n') == std::string::npos && text->size() < bytes.size() &&
        ::poll(&input, 1, /*timeout=*/0) == 1) {
      const ssize_t size = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (size > 0) text->append(bytes.data(), static_cast<size_t>(size));
    }
    const size_t end = text->find('\n');
    return end == std::string::npos ? "" : text->substr(0, end);
  };
}

absl::StatusOr<std::vector<std::string>> OverridesOf(const std::string& policy,
                                                     const std::vector<std::string>& policies,
                                                     const std::vector<std::string>& overrides) {
  std::vector<std::string> own;
  for (const std::string& text : overrides) {
    PolicyOverride one = ReadPolicyOverride(text, policies);
    if (one.text.starts_with("name=")) one.error = "the runs of a team keep their names; remove it";
    if (!one.error.empty()) {
      return InvalidArgument("--set: ", Excerpt(one.key, 120), ": ", one.error);
    }
    if (one.policy.empty() || one.policy == policy) own.push_back(std::move(one.text));
  }
  return own;
}

std::string TeamLine(const std::string& policy, size_t width, bool is_row, std::string_view line) {
  if (is_row && line.starts_with("{\"")) {
    return StrCat("{\"policy\":\"", policy, "\",", line.substr(1));
  }
  return StrCat(policy, std::string(width - std::min(width, policy.size()), ' '), " | ", line);
}

}  // namespace freshet
