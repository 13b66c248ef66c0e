#include "cli/commands/checkpoint_commands.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "base/interrupt.h"
#include "base/str_cat.h"
#include "cli/client/checkpoint_export.h"
#include "cli/client/ledger_export.h"
#include "cli/commands/query_commands.h"
#include "cli/format/job_text.h"
#include "cli/format/output_format.h"
#include "runlog/ledger_verifier.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "freshet-ledger-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int List(const Session& session, const std::string& id, OutputFormat format) {
  const absl::StatusOr<job::v1::ListCheckpointsReply> reply = session.client().ListCheckpoints(id);
  if (!reply.ok()) return session.Fail(reply.status());
  std::printf("%s", FormatCheckpoints(*reply, format).c_str());
  if (reply->checkpoints().empty()) {
    std::fprintf(stderr, "no checkpoint yet; freshet watch %s shows the steps\n", id.c_str());
  }
  return kExitDone;
}

using TakeFile = std::function<absl::Status(const job::v1::FileChunk&)>;

// Receives what `ask` asks the server for into a new folder.
int Export(const Session& session, const std::string& folder,
           const std::function<absl::Status(const TakeFile&)>& ask) {
  absl::StatusOr<std::unique_ptr<CheckpointExport>> into = CheckpointExport::Begin(folder);
  if (!into.ok()) return FailContent(into.status());
  const Interrupt interrupt([&](int) { session.client().CancelStreams(); });
  absl::Status written = absl::OkStatus();
  const absl::Status status = ask([&](const job::v1::FileChunk& chunk) {
    written = (*into)->Take(chunk);
    return written;
  });
  if (interrupt.count() > 0) {
    PrintLine("interrupted; nothing was written");
    return kExitInterrupted;
  }
  if (!written.ok()) return FailContent(written);
  if (!status.ok()) return session.Fail(status);
  const absl::Status finished = (*into)->Finish();
  if (!finished.ok()) return FailContent(finished);
  std::printf("%s\n", folder.c_str());
  std::fprintf(stderr, "%zu files, %sB\n", (*into)->files(),
               HumanCount(static_cast<double>((*into)->bytes())).c_str());
  return kExitDone;
}

int ExportGenerated(const Session& session, const std::string& id, int64_t after,
                    const std::string& folder) {
  size_t files = 0;
  int64_t last_step = 0;
  const int code = Export(session, folder, [&](const TakeFile& take) {
    return session.client().ExportGenerated(id, after, [&](const job::v1::FileChunk& chunk) {
      constexpr std::string_view kPrefix = "step-";
      if (!chunk.path().empty()) ++files;
      if (chunk.path().starts_with(kPrefix)) {
        last_step = std::strtoll(chunk.path().c_str() + kPrefix.size(), nullptr, 10);
      }
      return take(chunk);
    });
  });
  if (code == kExitDone && files == CheckpointExport::kMaxFiles) {
    PrintLine(StrCat("an export has at most 9,999 files; copy later ones with --after ", last_step,
                     " into another folder"));
  }
  return code;
}

}  // namespace

int VerifyJobLedger(const ConnectionFlags& connection, const std::string& job_id) {
  return WithSession(connection, [&](const Session& session) {
    const TemporaryFolder folder;
    if (folder.path().empty()) {
      PrintLine("cannot create a temporary folder; set TMPDIR to one with free space");
      return static_cast<int>(kExitContent);
    }
    const absl::Status status = ExportLedger(session.client(), job_id, folder.path());
    if (absl::IsUnavailable(status) && !session.target().named) {
      PrintLine(StrCat(job_id, ": is not a run folder, and no cluster answers at ",
                       session.target().address, "; name a run folder, or --server"));
      return static_cast<int>(kExitContent);
    }
    if (!status.ok()) return session.Fail(status);
    const absl::StatusOr<VerifyReport> report = VerifyRun(folder.path());
    if (!report.ok()) return static_cast<int>(FailContent(report.status()));
    std::printf("%s", FormatVerifyReport(*report).c_str());
    return static_cast<int>(report->ok ? kExitDone : kExitInternal);
  });
}

int ExportJobLedger(const ConnectionFlags& connection, const std::string& job_id,
                    const std::string& folder) {
  return WithSession(connection, [&](const Session& session) {
    std::error_code error;
    if (!fs::create_directory(folder, error)) {
      PrintLine(
          StrCat(folder, ": ", error ? error.message() : "exists already; name a new folder"));
      return static_cast<int>(kExitContent);
    }
    const absl::Status status = ExportLedger(session.client(), job_id, folder);
    if (!status.ok()) {
      fs::remove_all(folder, error);
      return session.Fail(status);
    }
    std::printf("%s\n", folder.c_str());
    return static_cast<int>(kExitDone);
  });
}

void AddCheckpointCommands(const Command& app, ConnectionFlags& connection) {
  const Command checkpoint = app.AddCommand("checkpoint", "checkpoints of a job");
  checkpoint.RequireCommand();
  std::string& id = app.Keep<std::string>();
  std::string& format = app.Keep<std::string>("table");
  const Command list = checkpoint.AddCommand("list", "durable checkpoints, newest first");
  list.Add("JOB", id, "id of the job").Required();
  AddOutputFlag(list, format);
  OnSession(list, connection,
            [&](const Session& session) { return List(session, id, ParseOutputFormat(format)); });

  std::string& folder = app.Keep<std::string>();
  int64_t& step = app.Keep<int64_t>(-1);
  const Command copy =
      checkpoint.AddCommand("export", "copy one to this machine, as a Hugging Face folder");
  copy.Add("JOB", id, "id of the job").Required();
  copy.Add("DIR", folder, "new folder").Required();
  copy.Add("--step", step, "which one; the newest by default").Range(int64_t{0}, int64_t{1} << 53);
  OnSession(copy, connection, [&](const Session& session) {
    return Export(session, folder, [&](const TakeFile& take) {
      return session.client().ExportCheckpoint(id, step, take);
    });
  });

  const Command generated = app.AddCommand("generated", "files of a job of kind generate");
  generated.RequireCommand();
  int64_t& after = app.Keep<int64_t>(0);
  const Command fetch = generated.AddCommand("export", "copy them to this machine");
  fetch.Add("JOB", id, "id of the job").Required();
  fetch.Add("DIR", folder, "new folder").Required();
  fetch.Add("--after", after, "only files of steps after this one; all by default")
      .Range(int64_t{0}, int64_t{1} << 53);
  OnSession(fetch, connection,
            [&](const Session& session) { return ExportGenerated(session, id, after, folder); });
}

}  // namespace freshet
