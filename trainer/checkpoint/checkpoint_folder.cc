#include "trainer/checkpoint/checkpoint_folder.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/checkpoint/checkpoint_score.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

constexpr char kSetAside[] = "replaced-";
constexpr size_t kMostVerified = 4;  // by FindAllCheckpoints

// A directory PREFIX step-N [.epoch-E] SUFFIX of the folder.
struct Entry {
  int64_t step = 0;
  int64_t epoch = 0;  // from the name; 0 without one
  std::string path;
};

bool Take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}
bool TakeNumber(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Sorted by step, then by the epoch in the name, both descending.
std::vector<Entry> Entries(const std::string& root, std::string_view prefix = "",
                           std::string_view suffix = "") {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator found(root, error), end; !error && found != end;
       found.increment(error)) {
    const std::string name = found->path().filename().string();
    std::string_view rest = name;
    Entry entry;
    entry.path = found->path().string();
    std::error_code unknown;
    if (Take(rest, prefix) && Take(rest, "step-") && TakeNumber(rest, entry.step) &&
        (!Take(rest, ".epoch-") || TakeNumber(rest, entry.epoch)) && rest == suffix &&
        found->is_directory(unknown)) {
      entries.push_back(std::move(entry));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.step, a.epoch) > std::tie(b.step, b.epoch);
  });
  return entries;
}

std::string StepName(int64_t step) { return StrCat("step-", step); }
std::string OwnName(int64_t step, int64_t epoch) {
  return StrCat(StepName(step), ".epoch-", epoch);
}
fs::path Temporary(const std::string& root, int64_t step, int64_t epoch) {
  return fs::path(root) / StrCat(".", OwnName(step, epoch), ".tmp");
}

// The writer epoch of a directory; 0 without a valid manifest. Fails if its manifest has another
// format or cannot be read.
absl::StatusOr<int64_t> EpochOf(const std::string& path) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadCheckpointManifest(path);
  if (manifest.ok()) return manifest->writer_epoch;
  if (absl::IsDataLoss(manifest.status())) return 0;
  return manifest.status();
}

absl::Status Fenced(const std::string& path, int64_t theirs, int64_t epoch) {
  return FailedPrecondition(path, ": a trainer of writer epoch ", theirs,
                            " has written it; this one has ", epoch, " and is fenced");
}

// Creates a folder and its parents, and fsyncs the parent of each.
absl::Status MakeFolder(const fs::path& path, DirectoryOps& ops) {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return absl::OkStatus();
  const fs::path parent = path.parent_path();
  FRESHET_RETURN_IF_ERROR(MakeFolder(parent, ops));
  fs::create_directory(path, error);
  if (error) return WriteError(path.string(), error.value());
  return ops.Sync(parent.empty() ? "." : parent.string());
}

class Writer {
 public:
  Writer(std::string root, int64_t epoch, DirectoryOps& ops)
      : root_(std::move(root)), epoch_(epoch), ops_(ops) {}

  // Deletes a checkpoint unless it is from a newer writer.
  absl::Status Remove(const Entry& entry) {
    FRESHET_ASSIGN_OR_RETURN(const std::string mine, Claim(entry));
    return mine.empty() ? absl::OkStatus() : Delete(mine, entry.step);
  }

  // With `if_damaged`, an intact one gets its name back.
  absl::Status SetAside(const Entry& entry, bool if_damaged = false) {
    FRESHET_ASSIGN_OR_RETURN(const std::string mine, Claim(entry));
    if (mine.empty()) return absl::OkStatus();
    if (if_damaged && !absl::IsDataLoss(OpenCheckpoint(mine).status())) {
      if (entry.path != mine) ops_.Rename(mine, entry.path);
      return absl::OkStatus();
    }
    const std::string aside = Path(kSetAside + StepName(entry.step));
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    return Moved(ops_.Rename(mine, aside), aside);
  }

  // Deletes a directory. Renames it first, so that a half-deleted one does not have a checkpoint's
  // name and its writer cannot rename it to one. The temporary name is the one under which this
  // writer writes, so it must not be writing.
  absl::Status Delete(const std::string& path, int64_t step) {
    const std::string doomed = Temporary(root_, step, epoch_).string();
    std::error_code error;
    if (path != doomed) {
      fs::remove_all(doomed, error);
      const int failed = ops_.Rename(path, doomed);
      if (failed == ENOENT) return absl::OkStatus();
      FRESHET_RETURN_IF_ERROR(Moved(failed, path));
    }
    fs::remove_all(doomed, error);
    return error ? WriteError(path, error.value()) : absl::OkStatus();
  }

  // Renames the complete directory `temporary` to its checkpoint name, and fsyncs the folder.
  absl::Status MoveIntoPlace(const std::string& temporary, int64_t step) {
    const std::string target = Path(StepName(step));
    int failed = ops_.Rename(temporary, target);
    if (IsTaken(failed)) {
      for (const Entry& entry : Entries(root_)) {
        if (entry.step != step) continue;
        FRESHET_ASSIGN_OR_RETURN(const int64_t theirs, EpochOf(entry.path));
        if (theirs > epoch_) return Fenced(entry.path, theirs, epoch_);
      }
      if (!absl::IsDataLoss(InspectCheckpoint(target).status())) {
        return Replace(temporary, step, target);
      }
      FRESHET_RETURN_IF_ERROR(SetAside({step, 0, target}));
      failed = ops_.Rename(temporary, target);
    }
    FRESHET_RETURN_IF_ERROR(Moved(failed, target));
    return ops_.Sync(root_);
  }

 private:
  std::string Path(const std::string& name) const { return (fs::path(root_) / name).string(); }
  static bool IsTaken(int failed) { return failed == EEXIST || failed == ENOTEMPTY; }
  static absl::Status Moved(int failed, const std::string& path) {
    return failed == 0 ? absl::OkStatus() : WriteError(path, failed);
  }

  // `target` is an intact checkpoint of this writer epoch or an older one.
  absl::Status Replace(const std::string& temporary, int64_t step, const std::string& target) {
    const std::string mine = Path(OwnName(step, epoch_));
    FRESHET_RETURN_IF_ERROR(Moved(ops_.Rename(temporary, mine), mine));
    FRESHET_RETURN_IF_ERROR(ops_.Sync(root_));
    // Without RENAME_EXCHANGE the new checkpoint keeps the name with its epoch.
    if (ops_.Exchange(mine, target) != 0) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(ops_.Sync(root_));
    const absl::StatusOr<int64_t> theirs = EpochOf(mine);
    if (theirs.ok() && *theirs <= epoch_) return Delete(mine, step);
    // A newer writer replaced it between the check and the exchange.
    if (ops_.Exchange(mine, target) == 0 && EpochOf(mine).value_or(-1) == epoch_) {
      FRESHET_RETURN_IF_ERROR(Delete(mine, step));
    }
    return theirs.ok() ? Fenced(target, *theirs, epoch_) : theirs.status();
  }

  // Renames a checkpoint to a name that only this writer uses, so that it cannot be exchanged for
  // another one. Returns "" if it is gone, if that name is taken, or if it is from a newer writer
  // or uncandidates: then it is moved back, or keeps the new name if its former one is taken.
  absl::StatusOr<std::string> Claim(const Entry& entry) {
    if (entry.epoch > epoch_) return std::string();
    const std::string mine = Path(OwnName(entry.step, epoch_));
    if (entry.path != mine) {
      const int failed = ops_.Rename(entry.path, mine);
      if (failed == ENOENT || IsTaken(failed)) return std::string();
      FRESHET_RETURN_IF_ERROR(Moved(failed, entry.path));
    }
    const absl::StatusOr<int64_t> theirs = EpochOf(mine);
    if (theirs.ok() && *theirs <= epoch_) return mine;
    if (entry.path != mine) ops_.Rename(mine, entry.path);
    return std::string();
  }

  const std::string root_;
  const int64_t epoch_;
  DirectoryOps& ops_;
};

absl::StatusOr<std::string> WriteUnderTemporaryName(
    const std::string& root, const fs::path& temporary, CheckpointContents contents,
    const std::function<absl::Status()>& before_rename, FaultPoints& faults, DirectoryOps& ops) {
  FRESHET_RETURN_IF_ERROR(MakeFolder(root, ops));
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directory(temporary, error);
  if (error) return WriteError(temporary.string(), error.value());
  const int64_t epoch = contents.writer_epoch;
  const int64_t version = contents.state.policy.version;
  FRESHET_ASSIGN_OR_RETURN(std::string sha256,
                           FillCheckpoint(temporary.string(), std::move(contents), faults));
  FRESHET_RETURN_IF_ERROR(before_rename());
  faults.Reach("checkpoint_rename");
  Writer writer(root, epoch, ops);
  FRESHET_RETURN_IF_ERROR(writer.MoveIntoPlace(temporary.string(), version));
  return sha256;
}

// By (lineage, version, writer epoch).
void SortNewestFirst(std::vector<ListedCheckpoint>& listed) {
  std::sort(listed.begin(), listed.end(), [](const ListedCheckpoint& a, const ListedCheckpoint& b) {
    return std::tie(a.manifest.policy, a.manifest.writer_epoch) >
           std::tie(b.manifest.policy, b.manifest.writer_epoch);
  });
}

}  // namespace

int DirectoryOps::Rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int DirectoryOps::Exchange(const std::string& a, const std::string& b) {
  const int failed = ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  return failed == 0 ? 0 : errno;
}

absl::Status DirectoryOps::Sync(const std::string& path) { return SyncPath(path); }

DirectoryOps& DirectoryOps::Default() {
  static DirectoryOps ops;
  return ops;
}

absl::StatusOr<std::string> WriteCheckpoint(const std::string& root, CheckpointContents contents,
                                            const std::function<absl::Status()>& before_rename,
                                            FaultPoints& faults, DirectoryOps& ops) {
  const fs::path temporary = Temporary(root, contents.state.policy.version, contents.writer_epoch);
  absl::StatusOr<std::string> sha256;
  try {
    sha256 =
        WriteUnderTemporaryName(root, temporary, std::move(contents), before_rename, faults, ops);
  } catch (const std::exception& error) {
    sha256 = FailedPrecondition(temporary.string(), ": ", error.what());
  }
  if (!sha256.ok()) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  }
  return sha256;
}

absl::StatusOr<FoundCheckpoints> FindAllCheckpoints(const std::string& root,
                                                    const std::string& job) {
  FoundCheckpoints all;
  std::vector<ListedCheckpoint> listed;
  const auto skip = [&all](const std::string& path, const absl::Status& why) {
    FRESHET_LOG(Warning) << "event=checkpoint_skipped reason=" << LogQuoted(Message(why));
    // A vanished one may reappear: see Writer::Claim.
    std::error_code unknown;
    if (absl::IsDataLoss(why) && fs::exists(path, unknown)) all.damaged.push_back(path);
  };
  for (const Entry& entry : Entries(root)) {
    absl::StatusOr<CheckpointManifest> manifest = InspectCheckpoint(entry.path);
    if (absl::IsFailedPrecondition(manifest.status())) return manifest.status();
    if (!manifest.ok()) {
      skip(entry.path, manifest.status());
    } else if (manifest->job != job) {
      return FailedPrecondition(entry.path, ": belongs to job \"", manifest->job, "\", not to \"",
                                job, "\"");
    } else {
      listed.push_back({entry.path, *std::move(manifest)});
    }
  }
  SortNewestFirst(listed);
  for (const ListedCheckpoint& checkpoint : listed) {
    if (all.complete.size() == kMostVerified) {
      all.older.push_back(checkpoint.path);
      continue;
    }
    absl::StatusOr<FoundCheckpoint> found = OpenCheckpoint(checkpoint.path);
    if (absl::IsFailedPrecondition(found.status())) return found.status();
    if (found.ok()) {
      all.complete.push_back(*std::move(found));
    } else {
      skip(checkpoint.path, found.status());
    }
  }
  return all;
}

std::vector<ListedCheckpoint> ListCheckpoints(const std::string& root) {
  std::vector<ListedCheckpoint> listed;
  for (const Entry& entry : Entries(root)) {
    absl::StatusOr<CheckpointManifest> manifest = InspectCheckpoint(entry.path);
    if (manifest.ok()) listed.push_back({entry.path, *std::move(manifest)});
  }
  SortNewestFirst(listed);
  return listed;
}

std::string CheckpointPath(const std::string& root, int64_t step) {
  std::string path = (fs::path(root) / StepName(step)).string();
  int64_t highest = -1;
  for (const Entry& entry : Entries(root)) {
    if (entry.step != step) continue;
    const absl::StatusOr<CheckpointManifest> manifest = InspectCheckpoint(entry.path);
    if (!manifest.ok() || manifest->writer_epoch <= highest) continue;
    highest = manifest->writer_epoch;
    path = entry.path;
  }
  return path;
}

int64_t WriterEpoch(int64_t store_epoch, int64_t seen) { return std::max(store_epoch, seen + 1); }

int64_t HighestWriterEpoch(const std::string& root) {
  int64_t highest = 0;
  for (const Entry& entry : Entries(root, ".", ".tmp")) highest = std::max(highest, entry.epoch);
  for (const char* prefix : {"", kSetAside}) {
    for (const Entry& entry : Entries(root, prefix)) {
      highest = std::max({highest, entry.epoch, EpochOf(entry.path).value_or(0)});
    }
  }
  return highest;
}

absl::Status TidyCheckpoints(const std::string& root, int64_t writer_epoch,
                             const std::vector<std::string>& passed_over,
                             const std::vector<std::string>& damaged, DirectoryOps& ops) {
  Writer writer(root, writer_epoch, ops);
  for (const Entry& entry : Entries(root, ".", ".tmp")) {
    if (entry.epoch < writer_epoch) {
      FRESHET_RETURN_IF_ERROR(writer.Delete(entry.path, entry.step));
    }
  }
  const auto names = [](const std::vector<std::string>& paths, const Entry& entry) {
    return std::find(paths.begin(), paths.end(), entry.path) != paths.end();
  };
  for (const Entry& entry : Entries(root)) {
    if (names(passed_over, entry)) {
      FRESHET_RETURN_IF_ERROR(writer.SetAside(entry));
    } else if (names(damaged, entry)) {
      FRESHET_RETURN_IF_ERROR(writer.SetAside(entry, /*if_damaged=*/true));
    }
  }
  return absl::OkStatus();
}

absl::Status PruneCheckpoints(const std::string& root, int64_t writer_epoch, int64_t newest,
                              const CheckpointRetention& rule, DirectoryOps& ops) {
  Writer writer(root, writer_epoch, ops);
  std::vector<HeldCheckpoint> held;
  std::vector<Entry> candidates;
  std::set<std::string> damaged;
  for (Entry& entry : Entries(root)) {
    if (entry.step > newest) continue;
    const absl::Status status = InspectCheckpoint(entry.path).status();
    if (absl::IsDataLoss(status)) {
      damaged.insert(entry.path);
    } else if (!status.ok()) {
      continue;
    } else if (held.empty() || held.back().version != entry.step) {
      held.push_back({entry.step, ReadScore(entry.path)});
    }
    candidates.push_back(std::move(entry));
  }
  const std::set<int64_t> keep = VersionsToKeep(held, rule);
  // Those with an epoch in the name come first: Claim renames the others to the name with this
  // writer's epoch, which must be free.
  for (const Entry& entry : candidates) {
    const std::set<int64_t>& kept = damaged.contains(entry.path) ? rule.pinned : keep;
    if (!kept.contains(entry.step)) FRESHET_RETURN_IF_ERROR(writer.Remove(entry));
  }
  for (const Entry& entry : Entries(root, kSetAside)) {
    if (entry.step <= newest) FRESHET_RETURN_IF_ERROR(writer.Delete(entry.path, entry.step));
  }
  return absl::OkStatus();
}

}  // namespace freshet
