// Part of LedgerHistory: redos with different weights, which start a new lineage.

#include <algorithm>
#include <limits>
#include <utility>

#include "base/str_cat.h"
#include "runlog/ledger_history.h"

namespace freshet {
namespace {

std::string Line(int64_t number) { return StrCat("line ", number, ": "); }

}  // namespace

std::optional<int64_t> LedgerHistory::AncestorVersion(int64_t lineage, int64_t ancestor) const {
  int64_t limit = std::numeric_limits<int64_t>::max();
  for (std::optional<int64_t> at = lineage; at;) {
    if (*at == ancestor) return limit;
    const auto branch = branches_.find(*at);
    if (branch == branches_.end()) return std::nullopt;
    limit = std::min(limit, branch->second.diverged_from.value_or(branch->second.fork_version));
    at = branch->second.parent;
  }
  return std::nullopt;
}

bool LedgerHistory::Diverges(int64_t line_number, const LedgerLine& line) {
  if (line.event != LedgerLine::Event::kTrained || !line.redo || branches_.empty() ||
      line.lineage != current_lineage_ + 1) {
    return false;
  }
  const Branch& parent = branches_.at(current_lineage_);
  if (line.train_version >= parent.last_version) return false;
  if (parent.diverged_from && line.epoch.value_or(0) <= parent.epoch) {
    violations_.Add(Line(line_number), "lineage ", line.lineage, " begins in epoch ",
                    line.epoch.value_or(0), ", in which lineage ", current_lineage_, " began");
  }
  ++counts_.divergences;
  Branch child = parent;
  child.parent = current_lineage_;
  child.fork_version = parent.last_version;
  child.diverged_from = line.train_version;
  child.epoch = line.epoch.value_or(0);
  current_lineage_ = line.lineage;
  if (!pending_) pending_ = PendingRedo{child.epoch, line.step, line.step, {}};
  branches_[line.lineage] = std::move(child);
  pending_->first = std::min(pending_->first, line.step);
  return true;
}

void LedgerHistory::AddRedo(int64_t line_number, const LedgerLine& line) {
  ++counts_.redo_rows;
  if (!pending_ || !open_) return;
  PendingRedo& pending = *pending_;
  const int64_t epoch = line.epoch.value_or(0);
  const auto full_step = static_cast<size_t>(open_->groups_per_step * open_->group_size);
  if (epoch != pending.epoch) {
    // A new trainer has no checkpoint of the unfinished lineage.
    if (line.step > pending.first) {
      violations_.Add(Line(line_number), "epoch ", epoch, " redoes from step ", line.step,
                      ", but lineage ", current_lineage_, " needs it from step ", pending.first);
    }
    pending = {epoch, line.step, pending.first, {}};
  } else if (line.step != pending.step) {
    if (line.step != pending.step + 1 || pending.uids.size() != full_step) {
      violations_.Add(Line(line_number), "step ", line.step, " of lineage ", current_lineage_,
                      " is redone after ", pending.uids.size(), " of ", full_step,
                      " samples of step ", pending.step);
    }
    pending.step = line.step;
    pending.uids.clear();
  }
  pending.uids.insert(line.uid);
  const bool last = pending.step >= branches_.at(current_lineage_).last_version;
  if (last && pending.uids.size() == full_step) pending_.reset();
}

void LedgerHistory::CheckRedone(int64_t line_number, const std::string& what) {
  if (!pending_) return;
  violations_.Add(Line(line_number), what, " while lineage ", current_lineage_,
                  " has redone no more than step ", pending_->step, " of ",
                  branches_.at(current_lineage_).last_version);
  pending_.reset();
}

bool LedgerHistory::ComesFrom(int64_t lineage, int64_t version) const {
  for (int64_t at = current_lineage_; at != lineage;) {
    const auto branch = branches_.find(at);
    if (branch == branches_.end() || !branch->second.diverged_from ||
        version > *branch->second.diverged_from) {
      return false;
    }
    at = *branch->second.parent;
  }
  return true;
}

}  // namespace freshet
