#include "runlog/ledger_verifier.h"

#include <optional>
#include <string_view>

#include "base/str_cat.h"
#include "runlog/checkpoint_audit.h"
#include "runlog/job_facts.h"
#include "runlog/jsonl.h"
#include "runlog/ledger_line.h"
#include "runlog/violations.h"

namespace freshet {
namespace {

// A row has a few hundred bytes; even a long sample with new weights at every token fits.
constexpr size_t kMaxRowBytes = size_t{16} << 20;

void CompareWithJob(const std::string& run_dir, const LedgerHistory& history,
                    Violations& violations) {
  const absl::StatusOr<JobFacts> facts = ReadJobFacts(run_dir + "/job.yaml");
  if (absl::IsNotFound(facts.status())) return;
  if (!facts.ok()) {
    violations.Add(Message(facts.status()));
    return;
  }
  if (!history.open()) return;
  const LedgerLine& open = *history.open();
  const auto compare = [&](const char* key, const std::optional<int64_t>& job, int64_t ledger) {
    if (job && *job != ledger) {
      violations.Add("job.yaml: ", key, " is ", *job, ", but the ledger was opened with ", ledger);
    }
  };
  compare("prompts_per_step", facts->prompts_per_step, open.groups_per_step);
  compare("group_size", facts->group_size, open.group_size);
  compare("staleness.max", facts->staleness_max, open.bound);
  compare("replay.max_age", facts->replay_max_age, open.replay_max_age);
  compare("adaptive_rollouts.min_group_size", facts->min_group_size, open.min_group_size);
  if (!facts->staleness_policy.empty() && facts->staleness_policy != open.disposition) {
    violations.Add("job.yaml: staleness.policy is ", facts->staleness_policy,
                   ", but the ledger was opened with ", open.disposition);
  }
  if (facts->steps && history.counts().steps > *facts->steps) {
    violations.Add("job.yaml: trainer.steps is ", *facts->steps, ", but the ledger holds ",
                   history.counts().steps, " steps");
  }
}

std::string Joined(const std::map<std::string, int64_t>& counts) {
  std::string text;
  int64_t total = 0;
  for (const auto& [reason, count] : counts) {
    text += StrCat(text.empty() ? "" : ", ", reason.empty() ? "no reason" : reason, " ", count);
    total += count;
  }
  return text.empty() ? "0" : StrCat(total, " (", text, ")");
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyRun(const std::string& run_dir) {
  Violations violations;
  LedgerHistory history(violations);
  const auto add = [&](int64_t number, std::string_view text) {
    const absl::StatusOr<LedgerLine> line = ParseLedgerLine(text);
    if (line.ok()) {
      history.Add(number, *line);
    } else {
      violations.Add("line ", number, ": ", Message(line.status()));
    }
    return absl::OkStatus();
  };
  VerifyReport report;
  JsonlTail tail;
  const std::string path = run_dir + "/ledger.jsonl";
  absl::StatusOr<JsonlTail> read = ForEachLine(path, kMaxRowBytes, add);
  if (absl::IsNotFound(read.status())) return read.status();
  if (read.ok()) {
    tail = *read;
  } else {
    violations.Add(Message(read.status()));
  }
  history.Finish(tail.torn_bytes > 0);
  if (tail.torn_bytes > 0) {
    report.notes.push_back(StrCat("a torn last line of ", tail.torn_bytes, " bytes was ignored"));
  }
  if (history.incomplete_step()) {
    report.notes.push_back(StrCat("the last step, ", *history.incomplete_step(),
                                  ", is incomplete: the run was killed while writing it"));
  }
  if (history.counts().replays_of_unknown > 0) {
    report.notes.push_back(
        StrCat(history.counts().replays_of_unknown,
               " replayed samples are copies of samples without a row: the groups "
               "of those had not ended"));
  }
  CompareWithJob(run_dir, history, violations);
  const CheckpointAudit audit = AuditCheckpoints(run_dir, history, violations);
  if (history.open()) {
    report.job = history.open()->job;
    report.bound = history.open()->bound;
    report.replay_max_age = history.open()->replay_max_age;
    report.disposition = history.open()->disposition;
    report.groups_per_step = history.open()->groups_per_step;
    report.group_size = history.open()->group_size;
    report.min_group_size = history.open()->min_group_size;
  }
  report.counts = history.counts();
  report.checkpoints = audit.checkpoints;
  report.checkpoint_files = audit.files;
  report.num_violations = violations.count();
  report.violations = violations.listed();
  report.ok = violations.count() == 0;
  return report;
}

std::string FormatVerifyReport(const VerifyReport& report) {
  const LedgerHistory::Counts& counts = report.counts;
  std::string text;
  const auto line = [&](std::string_view name, const auto&... values) {
    std::string padded(name);
    padded.resize(20, ' ');
    text += padded + StrCat(values...) + "\n";
  };
  line("job", report.job);
  const std::string least =
      report.min_group_size > 0 ? StrCat(report.min_group_size, " to ") : std::string();
  line("steps", counts.steps, " of ", report.groups_per_step, " groups x ", least,
       report.group_size, " samples");
  line("trained samples", counts.trained_samples, " (", counts.trained_tokens, " tokens, ",
       counts.masked_tokens, " masked)");
  line("orphaned samples", counts.orphaned_samples);
  line("dropped samples", Joined(counts.dropped));
  line("filtered samples", counts.filtered);
  line("requeued samples", counts.requeued);
  line("dead samples", counts.dead);
  line("max staleness", counts.max_staleness, " (bound ", report.bound, ", policy ",
       report.disposition, ")");
  if (report.replay_max_age > 0) {
    line("replayed samples", counts.replayed_samples, ", at most ", counts.max_replay_age,
         " versions old (bound ", report.replay_max_age, ")");
  }
  line("resumes", counts.resumes, " (lineage ", counts.lineage, ")");
  if (counts.divergences > 0) {
    line("redos that differ", counts.divergences, ", each of them a lineage, nothing orphaned");
  }
  line("durable versions", counts.durable_versions);
  line("checkpoints", report.checkpoints, " on disk, ", report.checkpoint_files, " files checked");
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  for (const std::string& violation : report.violations) text += "violation: " + violation + "\n";
  const auto unlisted = report.num_violations - static_cast<int64_t>(report.violations.size());
  if (unlisted > 0) text += StrCat("and ", unlisted, " more\n");
  text += report.ok ? StrCat("ok: every promise holds over ", counts.rows, " rows\n")
                    : StrCat("FAILED: ", report.num_violations, " violation",
                             report.num_violations == 1 ? "" : "s", " in ", counts.rows, " rows\n");
  return text;
}

}  // namespace freshet
