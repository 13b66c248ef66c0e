#include "runlog/ledger_history.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/digest.h"
#include "base/str_cat.h"
#include "runlog/token_checks.h"

namespace freshet {
namespace {

using Event = LedgerLine::Event;

std::string SpansText(const std::vector<LedgerLine::Span>& spans) {
  std::string text;
  for (const LedgerLine::Span& span : spans) {
    text += StrCat(span.lineage, ":", span.version, ":", span.begin, ":", span.end, ";");
  }
  return text;
}

// Digest prefix for messages.
std::string Short(const std::string& digest) {
  return digest.empty() ? "(empty)" : digest.substr(0, 12);
}

}  // namespace

void LedgerHistory::Add(int64_t line_number, const LedgerLine& line) {
  line_number_ = line_number;
  ++counts_.rows;
  if (line_number == 1 && line.event != Event::kOpen) {
    violations_.Add("line 1: the first row is not `open`");
  }
  CheckOrder(line);
  switch (line.event) {
    case Event::kOpen:
      AddOpen(line);
      break;
    case Event::kResumed:
      AddResumed(line);
      break;
    case Event::kDurable:
      AddDurable(line);
      break;
    default:
      AddSample(line);
      break;
  }
}

void LedgerHistory::CheckOrder(const LedgerLine& line) {
  if (line.seq) {
    if (last_seq_ && *line.seq <= *last_seq_) {
      Report("seq ", *line.seq, " does not grow: the last was ", *last_seq_);
    }
    last_seq_ = line.seq;
  }
  if (line.event == Event::kOpen || !line.epoch) return;
  if (last_epoch_ && *line.epoch < *last_epoch_) {
    Report("epoch ", *line.epoch, " is fenced: epoch ", *last_epoch_, " has begun");
  }
  last_epoch_ = std::max(last_epoch_.value_or(0), *line.epoch);
}

void LedgerHistory::AddOpen(const LedgerLine& line) {
  if (line_number_ != 1) Report("a second `open` row");
  if (open_) return;
  open_ = line;
  if (line.groups_per_step < 1 || line.group_size < 1) {
    Report("B ", line.groups_per_step, " and G ", line.group_size, " must be at least 1");
  }
  if (line.min_group_size > line.group_size) {
    Report("min_G ", line.min_group_size, " is above G ", line.group_size);
  }
  static const std::set<std::string> kDispositions = {"wait", "drop", "requeue", "mask"};
  if (!kDispositions.contains(line.disposition)) {
    Report("disposition \"", line.disposition, "\" is none of wait, drop, requeue, mask");
  }
}

const std::string* LedgerHistory::DurableSha256(int64_t lineage, int64_t version) const {
  const auto found = durable_.find({lineage, version});
  return found == durable_.end() ? nullptr : &found->second;
}

void LedgerHistory::AddResumed(const LedgerLine& line) {
  ++counts_.resumes;
  const Branch* parent = lineages_.Find(line.parent_lineage);
  if (parent == nullptr) {
    Report("resumed from lineage ", line.parent_lineage, ", which never was");
    return;
  }
  CheckResumedDigest(line, *parent);
  CheckResumedSha256(line);
  if (!line.fork_version && line.lineage == line.parent_lineage) return;
  if (line.lineage <= lineages_.newest()) {
    Report("lineage ", line.lineage, " does not grow: lineage ", lineages_.newest(), " is taken");
    return;
  }
  pending_.reset();
  lineages_.Fork(line.parent_lineage, line.lineage, line.fork_version);
}

void LedgerHistory::CheckResumedDigest(const LedgerLine& line, const Branch& parent) {
  if (line.fork_version) {
    if (*line.fork_version > parent.last_version) {
      Report("resumed from version ", *line.fork_version, ", but lineage ", line.parent_lineage,
             " only reached ", parent.last_version);
      return;
    }
    const std::string expected = lineages_.DigestAt(line.parent_lineage, *line.fork_version);
    if (line.digest != expected) {
      Report("digest of the resumed row is ", Short(line.digest), ", but the rows up to version ",
             *line.fork_version, " give ", Short(expected));
    }
    return;
  }
  // A redo names no version, so accept the digest of any step boundary in the history.
  for (const auto& [version, digest] : parent.digest_after) {
    if (digest == line.digest) return;
  }
  Report("digest of the resumed row is ", Short(line.digest), ", which no step of lineage ",
         line.parent_lineage, " ends with");
}

void LedgerHistory::CheckResumedSha256(const LedgerLine& line) {
  if (!line.fork_version) return;
  if (line.checkpoint_sha256.empty() && *line.fork_version > 0) {
    Report("resumed from version ", *line.fork_version, " without a checkpoint_sha256");
  }
  // The checkpoint may come from the parent or from a lineage that it inherits from.
  for (const auto& [key, sha256] : durable_) {
    const auto& [lineage, version] = key;
    if (version != *line.fork_version) continue;
    const std::optional<int64_t> limit =
        lineages_.VisibleVersion(line.parent_lineage, lineage, /*of_weights=*/true);
    if (!limit || version > *limit) continue;
    if (sha256 == line.checkpoint_sha256) return;
    Report("resumed from checkpoint ", Short(line.checkpoint_sha256), ", but version ", version,
           " is durable as ", Short(sha256));
    return;
  }
}

void LedgerHistory::AddDurable(const LedgerLine& line) {
  ++counts_.durable_versions;
  const Branch* branch = lineages_.Find(line.lineage);
  if (branch == nullptr) {
    Report("durable version ", line.version, " of lineage ", line.lineage, ", which never was");
    return;
  }
  if (line.lineage == lineages_.current()) {
    CheckRedone(StrCat("version ", line.version, " is durable"));
  }
  if (line.lineage != lineages_.current() && !lineages_.ComesFrom(line.lineage, line.version)) {
    Report("durable row of superseded lineage ", line.lineage, " after lineage ",
           lineages_.current(), " began");
  }
  durable_[{line.lineage, line.version}] = line.checkpoint_sha256;
  if (line.version > branch->last_version) {
    Report("version ", line.version, " is durable, but only ", branch->last_version,
           " steps are in the ledger");
    return;
  }
  const std::string expected = lineages_.DigestAt(line.lineage, line.version);
  if (line.digest != expected) {
    Report("digest of durable version ", line.version, " is ", Short(line.digest),
           ", but the rows give ", Short(expected));
  }
}

void LedgerHistory::AddSample(const LedgerLine& line) {
  if (!Diverges(line) &&
      (lineages_.Find(line.lineage) == nullptr || line.lineage != lineages_.current())) {
    Report("row of lineage ", line.lineage, " while lineage ", lineages_.current(),
           " is the current one");
    return;
  }
  if (open_) CheckSampleIndex(line);
  if (line.event == Event::kTrained) {
    AddTrained(line);
    return;
  }
  if (line.reason.empty()) Report("uid ", line.uid, " has no reason");
  switch (line.event) {
    case Event::kDropped:
      // Text after the colon is specific to one case.
      ++counts_.dropped[line.reason.substr(0, line.reason.find(':'))];
      break;
    case Event::kFiltered:
      ++counts_.filtered;
      break;
    case Event::kDead:
      ++counts_.dead;
      break;
    default:
      ++counts_.requeued;
      return;  // may still be trained later
  }
  ended_.push_back({line_number_, line.lineage, line.train_version, line.uid});
}

int64_t LedgerHistory::GroupSizeOf(const LedgerLine& line) const {
  if (!open_) return 0;
  const bool smaller = line.samples > 0 && line.samples < open_->group_size;
  return smaller ? line.samples : open_->group_size;
}

int64_t LedgerHistory::RowsOfStep(const std::map<int64_t, int64_t>& sizes) const {
  int64_t rows =
      open_->group_size * std::max<int64_t>(0, open_->groups_per_step - std::ssize(sizes));
  for (const auto& [prompt, size] : sizes) rows += size;
  return rows;
}

void LedgerHistory::CheckGroupSize(const LedgerLine& line) {
  if (line.samples == 0) return;
  const int64_t least = open_->min_group_size;
  if (least == 0) {
    Report("uid ", line.uid, " is of a group of ", line.samples, " samples, but all have ",
           open_->group_size);
  } else if (line.samples < least || line.samples >= open_->group_size) {
    Report("uid ", line.uid, " is of a group of ", line.samples, " samples; it must have ", least,
           " to ", open_->group_size);
  } else if (line.replay_of.empty() && line.sample >= line.samples) {
    Report("sample ", line.sample, " of uid ", line.uid, " is outside a group of ", line.samples);
  }
}

void LedgerHistory::CheckSampleIndex(const LedgerLine& line) {
  const int64_t size = open_->group_size;
  // A replayed sample has an index of its own beyond those of the group.
  const int64_t first = line.replay_of.empty() ? 0 : size;
  if (line.sample < first || line.sample >= first + size) {
    Report("sample ", line.sample, " of uid ", line.uid, " is outside a group of ", size);
  }
  CheckGroupSize(line);
  if (open_->replay_max_age == 0) {
    if (!line.replay_of.empty()) {
      Report("uid ", line.uid, " replays ", line.replay_of, ", but the job replays nothing");
    }
    return;
  }
  if (line.replay_of.empty()) {
    spans_of_.try_emplace(line.uid, SpansText(line.spans));
  } else if (line.event == Event::kTrained && !line.redo) {
    replays_.push_back(
        {line_number_, line.lineage, line.train_version, line.replay_of, SpansText(line.spans)});
  }
}

void LedgerHistory::AddTrained(const LedgerLine& line) {
  if (line.step != line.train_version + 1) {
    Report("step ", line.step, " trains at version ", line.train_version, "; it must be ",
           line.step - 1);
  }
  CheckSpans(line_number_, line, lineages_, violations_);
  if (open_) {
    CheckAge(line_number_, line, line.replay_of.empty() ? open_->bound : open_->replay_max_age,
             violations_);
  }
  Branch& branch = *lineages_.Find(line.lineage);
  const int64_t version = line.train_version + 1;
  if (line.redo) {
    AddRedo(line);
  } else {
    CheckRedone(StrCat("step ", line.step, " is trained"));
    if (version < branch.last_version) {
      Report("step ", line.step, " is trained after step ", branch.last_version);
    }
    branch.digest = Sha256Hex(branch.digest + line.uid);
    branch.last_version = std::max(branch.last_version, version);
    branch.digest_after[branch.last_version] = branch.digest;
  }
  trained_.push_back({line_number_, line.lineage, line.train_version, line.uid, line.prompt,
                      line.sample, GroupSizeOf(line), line.loss_tokens, line.masked_tokens,
                      line.train_version - line.min_version, line.redo, !line.replay_of.empty()});
}

// Redos with different weights, which start a new lineage.

bool LedgerHistory::Diverges(const LedgerLine& line) {
  if (line.event != LedgerLine::Event::kTrained || !line.redo || lineages_.empty() ||
      line.lineage != lineages_.current() + 1) {
    return false;
  }
  const Branch& parent = *lineages_.Find(lineages_.current());
  if (line.train_version >= parent.last_version) return false;
  const int64_t epoch = line.epoch.value_or(0);
  if (parent.diverged_from && epoch <= parent.epoch) {
    Report("lineage ", line.lineage, " begins in epoch ", epoch, ", in which lineage ",
           lineages_.current(), " began");
  }
  ++counts_.divergences;
  lineages_.Diverge(line.lineage, line.train_version, epoch);
  if (!pending_) pending_ = PendingRedo{epoch, line.step, line.step, {}, {}};
  pending_->first = std::min(pending_->first, line.step);
  return true;
}

void LedgerHistory::AddRedo(const LedgerLine& line) {
  ++counts_.redo_rows;
  if (!pending_ || !open_) return;
  PendingRedo& pending = *pending_;
  const int64_t epoch = line.epoch.value_or(0);
  const auto redone = [&] { return std::ssize(pending.uids); };
  if (epoch != pending.epoch) {
    // A new trainer has no checkpoint of the unfinished lineage.
    if (line.step > pending.first) {
      Report("epoch ", epoch, " redoes from step ", line.step, ", but lineage ",
             lineages_.current(), " needs it from step ", pending.first);
    }
    pending = {epoch, line.step, pending.first, {}, {}};
  } else if (line.step != pending.step) {
    const int64_t full_step = RowsOfStep(pending.sizes);
    if (line.step != pending.step + 1 || redone() != full_step) {
      Report("step ", line.step, " of lineage ", lineages_.current(), " is redone after ", redone(),
             " of ", full_step, " samples of step ", pending.step);
    }
    pending.step = line.step;
    pending.uids.clear();
    pending.sizes.clear();
  }
  pending.uids.insert(line.uid);
  pending.sizes.try_emplace(line.prompt, GroupSizeOf(line));
  const bool last = pending.step >= lineages_.Find(lineages_.current())->last_version;
  if (last && redone() == RowsOfStep(pending.sizes)) pending_.reset();
}

void LedgerHistory::CheckRedone(const std::string& what) {
  if (!pending_) return;
  Report(what, " while lineage ", lineages_.current(), " has redone no more than step ",
         pending_->step, " of ", lineages_.Find(lineages_.current())->last_version);
  pending_.reset();
}

// Checks of the surviving history, step by step.

struct LedgerHistory::StepTally {
  int64_t rows = 0;
  std::map<int64_t, std::set<int64_t>> samples;  // by prompt
  std::map<int64_t, int64_t> sizes;              // of the groups, by prompt
};

void LedgerHistory::Finish(bool torn) {
  if (!open_) violations_.Add("no `open` row");
  counts_.lineage = lineages_.current();
  CheckSteps(TallySteps(), torn);
  CheckEnded();
  CheckReplays();
}

std::map<int64_t, LedgerHistory::StepTally> LedgerHistory::TallySteps() {
  std::map<int64_t, StepTally> steps;
  std::unordered_map<std::string, int64_t> uid_step;
  std::unordered_map<int64_t, int64_t> prompt_step;
  for (const TrainedRow& row : trained_) {
    line_number_ = row.line_number;
    if (!lineages_.Survives(row.lineage, row.train_version)) {
      if (!row.redo) ++counts_.orphaned_samples;
      continue;
    }
    const int64_t step = row.train_version + 1;
    if (row.redo) {
      const auto found = uid_step.find(row.uid);
      if (found == uid_step.end() || found->second != step) {
        Report("uid ", row.uid, " is redone in step ", step, ", which never trained on it");
      }
      continue;
    }
    ++counts_.trained_samples;
    counts_.trained_tokens += row.loss_tokens;
    counts_.masked_tokens += row.masked_tokens;
    counts_.replayed_samples += row.replayed ? 1 : 0;
    int64_t& oldest = row.replayed ? counts_.max_replay_age : counts_.max_staleness;
    if (row.loss_tokens > 0) oldest = std::max(oldest, row.staleness);
    const auto [uid, new_uid] = uid_step.try_emplace(row.uid, step);
    if (!new_uid) {
      Report("uid ", row.uid, " is trained in step ", step, " after it was trained in step ",
             uid->second);
    }
    const auto [prompt, new_prompt] = prompt_step.try_emplace(row.prompt, step);
    if (!new_prompt && prompt->second != step) {
      Report("prompt ", row.prompt, " is trained in step ", step, " after it was trained in step ",
             prompt->second);
    }
    StepTally& tally = steps[step];
    ++tally.rows;
    const auto [size, first_of_group] = tally.sizes.try_emplace(row.prompt, row.group_size);
    if (!first_of_group && size->second != row.group_size) {
      Report("uid ", row.uid, " is of a group of ", row.group_size, " samples, another one of ",
             size->second);
    }
    // A replayed sample and the one that it replaced have the same place in the group.
    const int64_t place = row.replayed && open_ ? row.sample - open_->group_size : row.sample;
    if (!tally.samples[row.prompt].insert(place).second && new_uid) {
      Report("sample ", row.sample, " of prompt ", row.prompt, " is trained twice in step ", step);
    }
  }
  return steps;
}

void LedgerHistory::CheckSteps(const std::map<int64_t, StepTally>& steps, bool torn) {
  counts_.steps = static_cast<int64_t>(steps.size());
  if (!open_) return;
  int64_t previous = 0;
  for (const auto& [step, tally] : steps) {
    if (step != previous + 1) {
      violations_.Add("steps ", previous + 1, "..", step - 1, " have no trained rows");
    }
    previous = step;
    const int64_t expected = RowsOfStep(tally.sizes);
    if (torn && step == steps.rbegin()->first && tally.rows < expected) {
      incomplete_step_ = step;
      continue;
    }
    const auto prompts = static_cast<int64_t>(tally.samples.size());
    if (prompts != open_->groups_per_step) {
      violations_.Add("step ", step, " has ", prompts, " groups; it must have ",
                      open_->groups_per_step);
    }
    for (const auto& [prompt, samples] : tally.samples) {
      const auto size = static_cast<int64_t>(samples.size());
      const int64_t group_size = tally.sizes.at(prompt);
      if (size == group_size) continue;
      violations_.Add("step ", step, " has ", size, " samples of prompt ", prompt,
                      "; it must have ", group_size);
    }
  }
}

void LedgerHistory::CheckEnded() {
  std::set<std::string_view> trained;
  for (const TrainedRow& row : trained_) {
    if (lineages_.Survives(row.lineage, row.train_version)) trained.insert(row.uid);
  }
  for (const EndedRow& row : ended_) {
    line_number_ = row.line_number;
    if (!lineages_.Survives(row.lineage, row.train_version) || !trained.contains(row.uid)) continue;
    Report("uid ", row.uid, " is both trained and dropped, filtered or dead");
  }
}

void LedgerHistory::CheckReplays() {
  for (const ReplayRow& row : replays_) {
    line_number_ = row.line_number;
    if (!lineages_.Survives(row.lineage, row.train_version)) continue;
    const auto success = spans_of_.find(row.replay_of);
    if (success == spans_of_.end()) {
      ++counts_.replays_of_unknown;
    } else if (success->second != row.spans) {
      Report("the spans of a copy of ", row.replay_of, " differ from those of its own row");
    }
  }
}

}  // namespace freshet
