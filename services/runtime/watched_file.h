#ifndef FRESHET_SERVICES_RUNTIME_WATCHED_FILE_H_
#define FRESHET_SERVICES_RUNTIME_WATCHED_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/file_stamp.h"

namespace freshet::runtime {

// A file's content, parsed as T. Checked for changes once per `refresh`. If a new version is
// unusable, this is logged and the last good content stays in force. Thread-safe.
template <typename T>
class WatchedFile {
 public:
  struct Options {
    std::string path;
    std::string what;  // log prefix: "event=WHAT_reloaded", "event=WHAT_kept"
    uint64_t max_bytes = 1 << 20;
    absl::Duration refresh = absl::Seconds(10);
    // Called for every changed file with whether it was accepted; must be quick. May be empty.
    std::function<void(bool taken)> on_change;
  };
  using Parse = absl::StatusOr<T> (*)(std::string_view text);

  // `clock` must outlive it. Errors of reading and parsing name the file.
  static absl::StatusOr<std::unique_ptr<WatchedFile>> Open(Options options, Parse parse,
                                                           const Clock& clock) {
    std::unique_ptr<WatchedFile> file(new WatchedFile(std::move(options), parse, clock));
    const FileStamp stamp = StampOf(file->options_.path);
    FRESHET_ASSIGN_OR_RETURN(T value, file->Load());
    {
      MutexLock lock(file->mu_);
      file->value_ = std::make_shared<const T>(std::move(value));
      file->stamp_ = stamp;
      file->next_look_ = clock.Now() + file->options_.refresh;
    }
    return file;
  }

  // Checks the file and returns the content in force.
  std::shared_ptr<const T> Current() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const absl::Time now = clock_.Now();
    if (now < next_look_) return value_;
    next_look_ = now + options_.refresh;
    const FileStamp stamp = StampOf(options_.path);
    if (stamp == stamp_) return value_;
    stamp_ = stamp;
    // Loads under the lock to preserve the order of changes; the file is small and local.
    absl::StatusOr<T> value = Load();
    if (value.ok()) {
      value_ = std::make_shared<const T>(*std::move(value));
      FRESHET_LOG(Info) << "event=" << options_.what << "_reloaded file=" << options_.path;
    } else {
      FRESHET_LOG(Error) << "event=" << options_.what
                         << "_kept error=" << LogQuoted(Message(value.status()));
    }
    if (options_.on_change) options_.on_change(value.ok());
    return value_;
  }

 private:
  WatchedFile(Options options, Parse parse, const Clock& clock)
      : options_(std::move(options)), parse_(parse), clock_(clock) {}

  absl::StatusOr<T> Load() const {
    FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(options_.path, options_.max_bytes));
    absl::StatusOr<T> value = parse_(text);
    if (!value.ok()) return InvalidArgument(options_.path, ": ", Message(value.status()));
    return value;
  }

  const Options options_;
  const Parse parse_;
  const Clock& clock_;
  Mutex mu_;
  std::shared_ptr<const T> value_ ABSL_GUARDED_BY(mu_);
  FileStamp stamp_ ABSL_GUARDED_BY(mu_);
  absl::Time next_look_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_WATCHED_FILE_H_
