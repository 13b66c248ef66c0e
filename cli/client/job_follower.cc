#include "cli/client/job_follower.h"

#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "cli/format/job_text.h"
#include "cli/format/watch_view.h"
#include "job/proto_json.h"

namespace freshet {
namespace {

using job::v1::Event;
using job::v1::Job;

constexpr absl::Duration kRefresh = absl::Seconds(2);
constexpr absl::Duration kReopen = absl::Seconds(1);

// Serializes output of the following and the refreshing thread. The lock is held while a text is
// written. Thread-safe.
class Screen {
 public:
  Screen(const Job& job, const FollowOptions& options, const Terminal& terminal,
         std::function<void(std::string_view)> write)
      : show_(options.show),
        write_(std::move(write)),
        view_(job, {terminal.out, terminal.color, terminal.width, absl::LocalTimeZone()}) {}

  void Apply(const Event& event) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    if (show_ == FollowOptions::Show::kJson) {
      write_(ProtoToJson(event).dump() + "\n");
    } else {
      Show(view_.Apply(event));
    }
  }
  void SetJob(const Job& job) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    Show(view_.SetJob(job));
  }
  void Note(std::string_view note) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    if (show_ == FollowOptions::Show::kEvents) {
      Show(view_.Note(note));
    } else {
      PrintLine(std::string(note));
    }
  }
  void Finish() ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    Show(view_.Finish());
  }

 private:
  void Show(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (show_ == FollowOptions::Show::kEvents && !text.empty()) write_(text);
  }

  Mutex mu_;
  const FollowOptions::Show show_;
  const std::function<void(std::string_view)> write_ ABSL_GUARDED_BY(mu_);
  WatchView view_ ABSL_GUARDED_BY(mu_);
};

int ExitCodeOf(const Job& job) {
  switch (job.state()) {
    case job::v1::JOB_STATE_FAILED:
      PrintLine(StrCat("job ", job.id(), " failed: ", job.reason(), "; freshet describe ", job.id(),
                       ", freshet logs ", job.id()));
      return kExitJobFailed;
    case job::v1::JOB_STATE_CANCELLED:
      PrintLine(StrCat("job ", job.id(), " was cancelled", job.reason().empty() ? "" : ": ",
                       job.reason(), "; go on with freshet resume ", job.id()));
      return kExitJobCancelled;
    default:
      return kExitDone;
  }
}

class Follower {
 public:
  Follower(const Session& session, std::string job_id, const FollowOptions& options, Screen& screen)
      : session_(session),
        job_id_(std::move(job_id)),
        options_(options),
        screen_(screen),
        deadline_(absl::Now() + options.timeout) {}

  int Run(const Job& job) {
    std::string cursor;
    if (!options_.from_start && job.recent_events_size() > 0) {
      for (const Event& event : job.recent_events()) screen_.Apply(event);
      cursor = job.recent_events(job.recent_events_size() - 1).cursor();
    }
    Interrupt interrupt([this](int count) { Interrupted(count); });
    std::jthread refresher;
    if (options_.show == FollowOptions::Show::kEvents) {
      refresher = std::jthread([this] { Refresh(); });
    }
    const int code = FollowToEnd(cursor);
    done_.Notify();
    if (refresher.joinable()) refresher.join();
    screen_.Finish();
    if (interrupt.count() == 0) return code;
    PrintLine(StrCat("the job goes on; freshet watch ", job_id_, " shows it, freshet cancel ",
                     job_id_, " ends it"));
    return options_.ask_twice ? kExitInterrupted : kExitDone;
  }

 private:
  void Interrupted(int count) {
    if (options_.ask_twice && count == 1) {
      screen_.Note(StrCat("waiting for the end of job ", job_id_, "; Ctrl-C again stops waiting"));
      return;
    }
    stopped_.Notify();
    session_.client().CancelStreams();
  }

  void Refresh() {
    while (!done_.WaitFor(kRefresh)) {
      const absl::StatusOr<Job> job = session_.client().Get(job_id_);
      if (job.ok() && !done_.HasBeenNotified()) screen_.SetJob(*job);
    }
  }

  int FollowToEnd(std::string cursor) {
    while (true) {
      bool lost = false;
      const absl::Status status = FollowEvents(
          session_.client(), job_id_, cursor, deadline_, options_.patience,
          [&](const Event& event) {
            if (std::exchange(lost, false)) screen_.Note("connected again");
            cursor = event.cursor();
            screen_.Apply(event);
            return !stopped_.HasBeenNotified();
          },
          [&](const absl::Status& why) {
            if (!std::exchange(lost, true) && !stopped_.HasBeenNotified()) {
              screen_.Note("connection lost, trying again: " + Message(why));
            }
          });
      if (stopped_.HasBeenNotified()) return kExitDone;
      if (!status.ok()) return Fail(status);
      absl::StatusOr<Job> job = session_.client().Get(job_id_);
      if (stopped_.HasBeenNotified()) return kExitDone;
      if (!job.ok()) return Fail(job.status());
      if (HasEnded(job->state())) {
        screen_.Finish();
        return ExitCodeOf(*job);
      }
      // The stream ended before the job: the server shut down, or the job was resumed.
      if (stopped_.WaitFor(kReopen)) return kExitDone;
    }
  }

  int Fail(const absl::Status& status) {
    screen_.Finish();
    if (absl::IsDeadlineExceeded(status) && absl::Now() >= deadline_) {
      PrintLine(StrCat("job ", job_id_, " has not ended within ",
                       absl::FormatDuration(options_.timeout), "; it goes on: freshet watch ",
                       job_id_));
      return kExitTimeout;
    }
    return session_.Fail(status);
  }

  const Session& session_;
  const std::string job_id_;
  const FollowOptions& options_;
  Screen& screen_;
  const absl::Time deadline_;
  Notification done_;
  Notification stopped_;
};

}  // namespace

int FollowJob(const Session& session, const std::string& job_id, const FollowOptions& options,
              const Terminal& terminal, const std::function<void(std::string_view)>& write) {
  const absl::StatusOr<Job> job = session.client().Get(job_id);
  if (!job.ok()) return session.Fail(job.status());
  Screen screen(*job, options, terminal, write);
  return Follower(session, job_id, options, screen).Run(*job);
}

}  // namespace freshet
