#include "runlog/ledger_history.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Event = LedgerLine::Event;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::string EmptyDigest() { return Sha256Hex(""); }

std::string Line(int64_t number) { return StrCat("line ", number, ": "); }

// Digest prefix for messages.
std::string Short(const std::string& digest) {
  return digest.empty() ? "(empty)" : digest.substr(0, 12);
}

}  // namespace

void LedgerHistory::Add(int64_t line_number, const LedgerLine& line) {
  ++counts_.rows;
  if (line_number == 1 && line.event != Event::kOpen) {
    violations_.Add("line 1: the first row is not `open`");
  }
  CheckOrder(line_number, line);
  switch (line.event) {
    case Event::kOpen:
      AddOpen(line_number, line);
      break;
    case Event::kResumed:
      AddResumed(line_number, line);
      break;
    case Event::kDurable:
      AddDurable(line_number, line);
      break;
    default:
      AddSample(line_number, line);
      break;
  }
}

void LedgerHistory::CheckOrder(int64_t line_number, const LedgerLine& line) {
  if (line.seq) {
    if (last_seq_ && *line.seq <= *last_seq_) {
      violations_.Add(Line(line_number), "seq ", *line.seq, " does not grow: the last was ",
                      *last_seq_);
    }
    last_seq_ = line.seq;
  }
  if (line.event == Event::kOpen || !line.epoch) return;
  if (last_epoch_ && *line.epoch < *last_epoch_) {
    violations_.Add(Line(line_number), "epoch ", *line.epoch, " is fenced: epoch ", *last_epoch_,
                    " has begun");
  }
  last_epoch_ = std::max(last_epoch_.value_or(0), *line.epoch);
}

void LedgerHistory::AddOpen(int64_t line_number, const LedgerLine& line) {
  if (line_number != 1) violations_.Add(Line(line_number), "a second `open` row");
  if (open_) return;
  open_ = line;
  if (line.groups_per_step < 1 || line.group_size < 1) {
    violations_.Add(Line(line_number), "B ", line.groups_per_step, " and G ", line.group_size,
                    " must be at least 1");
  }
  static const std::set<std::string> kDispositions = {"wait", "drop", "requeue", "mask"};
  if (!kDispositions.contains(line.disposition)) {
    violations_.Add(Line(line_number), "disposition \"", line.disposition,
                    "\" is none of wait, drop, requeue, mask");
  }
}

LedgerHistory::Branch* LedgerHistory::FindBranch(int64_t lineage) {
  if (branches_.empty()) {
    current_lineage_ = lineage;
    Branch& root = branches_[lineage];
    root.digest = EmptyDigest();
    root.digest_after[0] = root.digest;
    return &root;
  }
  const auto found = branches_.find(lineage);
  return found == branches_.end() ? nullptr : &found->second;
}

std::string LedgerHistory::DigestAt(int64_t lineage, int64_t version) const {
  if (branches_.empty()) return version == 0 ? EmptyDigest() : "";
  const auto branch = branches_.find(lineage);
  if (branch == branches_.end() || version > branch->second.last_version) return "";
  const auto after = branch->second.digest_after.upper_bound(version);
  if (after == branch->second.digest_after.begin()) return "";
  return std::prev(after)->second;
}

const std::string* LedgerHistory::DurableSha256(int64_t lineage, int64_t version) const {
  const auto found = durable_.find({lineage, version});
  return found == durable_.end() ? nullptr : &found->second;
}

std::optional<int64_t> LedgerHistory::VisibleVersion(int64_t lineage, int64_t ancestor) const {
  int64_t limit = kUnlimited;
  for (std::optional<int64_t> at = lineage; at;) {
    if (*at == ancestor) return limit;
    const auto branch = branches_.find(*at);
    if (branch == branches_.end()) return std::nullopt;
    limit = std::min(limit, branch->second.fork_version);
    at = branch->second.parent;
  }
  return std::nullopt;
}

bool LedgerHistory::Survives(int64_t lineage, int64_t train_version) const {
  const std::optional<int64_t> limit = VisibleVersion(current_lineage_, lineage);
  return limit && train_version < *limit;
}

void LedgerHistory::AddResumed(int64_t line_number, const LedgerLine& line) {
  ++counts_.resumes;
  const Branch* parent = FindBranch(line.parent_lineage);
  if (parent == nullptr) {
    violations_.Add(Line(line_number), "resumed from lineage ", line.parent_lineage,
                    ", which never was");
    return;
  }
  CheckResumedDigest(line_number, line, *parent);
  CheckResumedSha256(line_number, line);
  if (!line.fork_version && line.lineage == line.parent_lineage) return;
  if (line.lineage <= branches_.rbegin()->first) {
    violations_.Add(Line(line_number), "lineage ", line.lineage, " does not grow: lineage ",
                    branches_.rbegin()->first, " is taken");
    return;
  }
  pending_.reset();
  Branch child;
  child.parent = line.parent_lineage;
  child.fork_version = line.fork_version.value_or(kUnlimited);
  child.last_version = std::min(child.fork_version, parent->last_version);
  child.digest_after = parent->digest_after;
  child.digest_after.erase(child.digest_after.upper_bound(child.fork_version),
                           child.digest_after.end());
  child.digest = child.digest_after.empty() ? EmptyDigest() : child.digest_after.rbegin()->second;
  branches_[line.lineage] = std::move(child);
  current_lineage_ = line.lineage;
}

void LedgerHistory::CheckResumedDigest(int64_t line_number, const LedgerLine& line,
                                       const Branch& parent) {
  if (line.fork_version) {
    if (*line.fork_version > parent.last_version) {
      violations_.Add(Line(line_number), "resumed from version ", *line.fork_version,
                      ", but lineage ", line.parent_lineage, " only reached ", parent.last_version);
      return;
    }
    const std::string expected = DigestAt(line.parent_lineage, *line.fork_version);
    if (line.digest != expected) {
      violations_.Add(Line(line_number), "digest of the resumed row is ", Short(line.digest),
                      ", but the rows up to version ", *line.fork_version, " give ",
                      Short(expected));
    }
    return;
  }
  // A redo names no version, so accept the digest of any step boundary in the history.
  for (const auto& [version, digest] : parent.digest_after) {
    if (digest == line.digest) return;
  }
  violations_.Add(Line(line_number), "digest of the resumed row is ", Short(line.digest),
                  ", which no step of lineage ", line.parent_lineage, " ends with");
}

void LedgerHistory::CheckResumedSha256(int64_t line_number, const LedgerLine& line) {
  if (!line.fork_version) return;
  if (line.checkpoint_sha256.empty() && *line.fork_version > 0) {
    violations_.Add(Line(line_number), "resumed from version ", *line.fork_version,
                    " without a checkpoint_sha256");
  }
  // The checkpoint may come from the parent or from a lineage that it inherits from.
  for (const auto& [key, sha256] : durable_) {
    const auto& [lineage, version] = key;
    if (version != *line.fork_version) continue;
    const std::optional<int64_t> limit = AncestorVersion(line.parent_lineage, lineage);
    if (!limit || version > *limit) continue;
    if (sha256 == line.checkpoint_sha256) return;
    violations_.Add(Line(line_number), "resumed from checkpoint ", Short(line.checkpoint_sha256),
                    ", but version ", version, " is durable as ", Short(sha256));
    return;
  }
}

void LedgerHistory::AddDurable(int64_t line_number, const LedgerLine& line) {
  ++counts_.durable_versions;
  const Branch* branch = FindBranch(line.lineage);
  if (branch == nullptr) {
    violations_.Add(Line(line_number), "durable version ", line.version, " of lineage ",
                    line.lineage, ", which never was");
    return;
  }
  if (line.lineage == current_lineage_) {
    CheckRedone(line_number, StrCat("version ", line.version, " is durable"));
  }
  if (line.lineage != current_lineage_ && !ComesFrom(line.lineage, line.version)) {
    violations_.Add(Line(line_number), "durable row of superseded lineage ", line.lineage,
                    " after lineage ", current_lineage_, " began");
  }
  durable_[{line.lineage, line.version}] = line.checkpoint_sha256;
  if (line.version > branch->last_version) {
    violations_.Add(Line(line_number), "version ", line.version, " is durable, but only ",
                    branch->last_version, " steps are in the ledger");
    return;
  }
  const std::string expected = DigestAt(line.lineage, line.version);
  if (line.digest != expected) {
    violations_.Add(Line(line_number), "digest of durable version ", line.version, " is ",
                    Short(line.digest), ", but the rows give ", Short(expected));
  }
}

void LedgerHistory::AddSample(int64_t line_number, const LedgerLine& line) {
  if (!Diverges(line_number, line) &&
      (FindBranch(line.lineage) == nullptr || line.lineage != current_lineage_)) {
    violations_.Add(Line(line_number), "row of lineage ", line.lineage, " while lineage ",
                    current_lineage_, " is the current one");
    return;
  }
  if (open_ && line.sample >= open_->group_size) {
    violations_.Add(Line(line_number), "sample ", line.sample, " of uid ", line.uid,
                    " is outside a group of ", open_->group_size);
  }
  if (line.event == Event::kTrained) {
    AddTrained(line_number, line);
    return;
  }
  if (line.reason.empty()) violations_.Add(Line(line_number), "uid ", line.uid, " has no reason");
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
  ended_.push_back({line_number, line.lineage, line.train_version, line.uid});
}

void LedgerHistory::AddTrained(int64_t line_number, const LedgerLine& line) {
  if (line.step != line.train_version + 1) {
    violations_.Add(Line(line_number), "step ", line.step, " trains at version ",
                    line.train_version, "; it must be ", line.step - 1);
  }
  CheckSpans(line_number, line);
  CheckAge(line_number, line);
  Branch& branch = *FindBranch(line.lineage);
  const int64_t version = line.train_version + 1;
  if (line.redo) {
    AddRedo(line_number, line);
  } else {
    CheckRedone(line_number, StrCat("step ", line.step, " is trained"));
    if (version < branch.last_version) {
      violations_.Add(Line(line_number), "step ", line.step, " is trained after step ",
                      branch.last_version);
    }
    branch.digest = Sha256Hex(branch.digest + line.uid);
    branch.last_version = std::max(branch.last_version, version);
    branch.digest_after[branch.last_version] = branch.digest;
  }
  trained_.push_back({line_number, line.lineage, line.train_version, line.uid, line.prompt,
                      line.sample, line.loss_tokens, line.masked_tokens,
                      line.train_version - line.min_version, line.redo});
}

void LedgerHistory::CheckSpans(int64_t line_number, const LedgerLine& line) {
  int64_t end = 0;
  const LedgerLine::Span* previous = nullptr;
  for (const LedgerLine::Span& span : line.spans) {
    if (span.begin != end || span.end <= span.begin) {
      violations_.Add(Line(line_number), "spans of uid ", line.uid, " are not contiguous: [",
                      span.begin, ", ", span.end, ") follows token ", end);
      return;
    }
    if (previous != nullptr &&
        std::pair(span.lineage, span.version) < std::pair(previous->lineage, previous->version)) {
      violations_.Add(Line(line_number), "spans of uid ", line.uid, " go back from version ",
                      previous->version, " to ", span.version);
    }
    if (span.version > line.train_version) {
      violations_.Add(Line(line_number), "uid ", line.uid, " has tokens of version ", span.version,
                      ", newer than the version ", line.train_version, " that trains on it");
    }
    const std::optional<int64_t> limit = VisibleVersion(line.lineage, span.lineage);
    if (!limit || span.version > *limit) {
      violations_.Add(Line(line_number), "uid ", line.uid, " has tokens of the orphaned version ",
                      span.version, " of lineage ", span.lineage);
    }
    end = span.end;
    previous = &span;
  }
  if (line.spans.empty()) violations_.Add(Line(line_number), "uid ", line.uid, " has no spans");
  if (line.loss_tokens + line.masked_tokens > end) {
    violations_.Add(Line(line_number), "uid ", line.uid, " has ", line.loss_tokens, " loss and ",
                    line.masked_tokens, " masked tokens, but spans of only ", end);
  }
}

void LedgerHistory::CheckAge(int64_t line_number, const LedgerLine& line) {
  if (!open_ || line.spans.empty() || line.loss_tokens == 0) return;
  // The ledger does not say which tokens bear no loss (masked or observed). The loss-bearing ones
  // must fit in the spans from min_version to max_version, and in those within the bound.
  int64_t oldest = kUnlimited;
  int64_t newest = 0;
  int64_t window_tokens = 0;
  int64_t young_tokens = 0;
  bool min_is_a_span = false;
  bool max_is_a_span = false;
  for (const LedgerLine::Span& span : line.spans) {
    const int64_t tokens = span.end - span.begin;
    oldest = std::min(oldest, span.version);
    newest = std::max(newest, span.version);
    min_is_a_span = min_is_a_span || span.version == line.min_version;
    max_is_a_span = max_is_a_span || span.version == line.max_version;
    if (line.min_version <= span.version && span.version <= line.max_version) {
      window_tokens += tokens;
    }
    if (line.train_version - span.version <= open_->bound) young_tokens += tokens;
  }
  if (!min_is_a_span || !max_is_a_span || line.loss_tokens > window_tokens) {
    violations_.Add(Line(line_number), "min_version ", line.min_version, " and max_version ",
                    line.max_version, " of uid ", line.uid, " do not agree with its spans, from ",
                    oldest, " to ", newest);
  }
  if (line.train_version - line.min_version > open_->bound || line.loss_tokens > young_tokens) {
    violations_.Add(Line(line_number), "uid ", line.uid, " trained at version ", line.train_version,
                    " on tokens of version ",
                    line.loss_tokens > young_tokens ? oldest : line.min_version,
                    ": staleness above the bound ", open_->bound);
  }
}

}  // namespace freshet
