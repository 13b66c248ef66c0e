#include "cli/commands/control_commands.h"

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "cli/format/job_text.h"
#include "services/runtime/error_details.h"

namespace freshet {
namespace {

constexpr absl::Duration kDeletePatience = absl::Seconds(10);
constexpr absl::Duration kDeletePause = absl::Milliseconds(250);

// Prints the job's state after a call.
int Show(const Session& session, const absl::StatusOr<job::v1::Job>& job) {
  if (!job.ok()) return session.Fail(job.status());
  std::printf("%s %s%s%s\n", job->id().c_str(), StateName(job->state()).c_str(),
              job->reason().empty() ? "" : ": ", job->reason().c_str());
  return kExitDone;
}

// A server's reason for errors that will go away.
bool IsTryAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) && runtime::DetailsOf(status).reason == "TRY_AGAIN";
}

// The workers of a job that has just ended may still be stopping, so retry.
int Delete(const Session& session, const std::string& id, bool keep_checkpoints) {
  const absl::Time give_up = absl::Now() + kDeletePatience;
  absl::Status status = session.client().Delete(id, keep_checkpoints);
  while (IsTryAgain(status) && absl::Now() < give_up) {
    absl::SleepFor(kDeletePause);
    status = session.client().Delete(id, keep_checkpoints);
    if (absl::IsNotFound(status)) status = absl::OkStatus();  // it was there before
  }
  if (IsTryAgain(status)) {
    session.Fail(status);
    return kExitTimeout;
  }
  if (!status.ok()) return session.Fail(status);
  std::printf("%s deleted%s\n", id.c_str(), keep_checkpoints ? ", its checkpoints kept" : "");
  return kExitDone;
}

int Scale(const Session& session, const std::string& target, int replicas) {
  job::v1::ScaleRequest request;
  const size_t slash = target.find('/');
  request.set_role(target.substr(0, slash));
  if (slash != std::string::npos) request.set_pool(target.substr(slash + 1));
  request.set_replicas(replicas);
  const absl::StatusOr<job::v1::ScaleReply> reply = session.client().Scale(request);
  if (!reply.ok()) return session.Fail(reply.status());
  std::printf("%s %d -> %d\n", target.c_str(), reply->before(), reply->wanted());
  std::fprintf(stderr, "next: freshet top\n");
  return kExitDone;
}

int Resume(const Session& session, const std::string& id, const std::vector<std::string>& raised) {
  std::map<std::string, int64_t> max_calls;
  for (const std::string& one : raised) {
    const size_t equals = one.find('=');
    if (equals == std::string::npos ||
        !absl::SimpleAtoi(one.substr(equals + 1), &max_calls[one.substr(0, equals)])) {
      std::fprintf(stderr, "freshet: --max-calls is '%s'; give NAME=N\n", one.c_str());
      return kExitCommandLine;
    }
  }
  return Show(session, session.client().Resume(id, max_calls));
}

using JobCall =
    std::function<int(const Session&, const std::string& id, const std::string& reason)>;

void AddJobCall(const Command& app, ConnectionFlags& connection, const char* name, const char* help,
                const JobCall& call) {
  std::string& id = app.Keep<std::string>();
  std::string& reason = app.Keep<std::string>();
  const Command command = app.AddCommand(name, help);
  command.Add("JOB", id, "id of the job").Required();
  command.Add("--reason", reason, "reason, kept with the job");
  OnSession(command, connection,
            [&id, &reason, call](const Session& session) { return call(session, id, reason); });
}

}  // namespace

void AddControlCommands(const Command& app, ConnectionFlags& connection) {
  AddJobCall(app, connection, "pause", "stop generating and training; work is kept",
             [](const Session& session, const std::string& id, const std::string& reason) {
               return Show(session, session.client().Pause(id, reason));
             });
  std::string& resumed = app.Keep<std::string>();
  std::vector<std::string>& raised = app.Keep<std::vector<std::string>>();
  const Command resume = app.AddCommand(
      "resume", "continue a paused job, or a failed or cancelled one from its last checkpoint");
  resume.Add("JOB", resumed, "id of the job").Required();
  resume
      .Add("--max-calls", raised,
           "NAME=N: raise reward.components.NAME.max_calls of a job that has ended")
      .OneValueEach();
  OnSession(resume, connection,
            [&](const Session& session) { return Resume(session, resumed, raised); });
  AddJobCall(app, connection, "cancel", "end a job after a last checkpoint",
             [](const Session& session, const std::string& id, const std::string& reason) {
               return Show(session, session.client().Cancel(id, reason));
             });

  std::string& id = app.Keep<std::string>();
  bool& keep = app.Keep<bool>(false);
  const Command remove = app.AddCommand("delete", "delete an ended job and its data");
  remove.Add("JOB", id, "id of the job").Required();
  remove.AddFlag("--keep-checkpoints", keep, "leave its checkpoints on the trainer's disk");
  OnSession(remove, connection, [&](const Session& session) { return Delete(session, id, keep); });

  std::string& target = app.Keep<std::string>();
  int& replicas = app.Keep<int>(0);
  const Command scale = app.AddCommand("scale", "set the number of workers of a role");
  scale.Add("ROLE", target, "rollout, rollout/POOL, reward or env").Required();
  scale.Add("N", replicas, "how many").Required().Range(0, 100000);
  OnSession(scale, connection,
            [&](const Session& session) { return Scale(session, target, replicas); });
}

}  // namespace freshet
