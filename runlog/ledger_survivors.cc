// Part of LedgerHistory: checks of the surviving history, step by step.

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/str_cat.h"
#include "runlog/ledger_history.h"

namespace freshet {
namespace {

std::string Line(int64_t number) { return StrCat("line ", number, ": "); }

}  // namespace

struct LedgerHistory::StepTally {
  int64_t rows = 0;
  std::map<int64_t, std::set<int64_t>> samples;  // by prompt
};

void LedgerHistory::Finish(bool torn) {
  if (!open_) violations_.Add("no `open` row");
  counts_.lineage = current_lineage_;
  CheckSteps(TallySteps(), torn);
  CheckEnded();
}

std::map<int64_t, LedgerHistory::StepTally> LedgerHistory::TallySteps() {
  std::map<int64_t, StepTally> steps;
  std::unordered_map<std::string, int64_t> uid_step;
  std::unordered_map<int64_t, int64_t> prompt_step;
  for (const TrainedRow& row : trained_) {
    if (!Survives(row.lineage, row.train_version)) {
      if (!row.redo) ++counts_.orphaned_samples;
      continue;
    }
    const int64_t step = row.train_version + 1;
    if (row.redo) {
      const auto found = uid_step.find(row.uid);
      if (found == uid_step.end() || found->second != step) {
        violations_.Add(Line(row.line_number), "uid ", row.uid, " is redone in step ", step,
                        ", which never trained on it");
      }
      continue;
    }
    ++counts_.trained_samples;
    counts_.trained_tokens += row.loss_tokens;
    counts_.masked_tokens += row.masked_tokens;
    if (row.loss_tokens > 0) counts_.max_staleness = std::max(counts_.max_staleness, row.staleness);
    const auto [uid, new_uid] = uid_step.try_emplace(row.uid, step);
    if (!new_uid) {
      violations_.Add(Line(row.line_number), "uid ", row.uid, " is trained in step ", step,
                      " after it was trained in step ", uid->second);
    }
    const auto [prompt, new_prompt] = prompt_step.try_emplace(row.prompt, step);
    if (!new_prompt && prompt->second != step) {
      violations_.Add(Line(row.line_number), "prompt ", row.prompt, " is trained in step ", step,
                      " after it was trained in step ", prompt->second);
    }
    StepTally& tally = steps[step];
    ++tally.rows;
    if (!tally.samples[row.prompt].insert(row.sample).second && new_uid) {
      violations_.Add(Line(row.line_number), "sample ", row.sample, " of prompt ", row.prompt,
                      " is trained twice in step ", step);
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
    const int64_t expected = open_->groups_per_step * open_->group_size;
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
      if (size == open_->group_size) continue;
      violations_.Add("step ", step, " has ", size, " samples of prompt ", prompt,
                      "; it must have ", open_->group_size);
    }
  }
}

void LedgerHistory::CheckEnded() {
  std::set<std::string_view> trained;
  for (const TrainedRow& row : trained_) {
    if (Survives(row.lineage, row.train_version)) trained.insert(row.uid);
  }
  for (const EndedRow& row : ended_) {
    if (!Survives(row.lineage, row.train_version) || !trained.contains(row.uid)) continue;
    violations_.Add(Line(row.line_number), "uid ", row.uid,
                    " is both trained and dropped, filtered or dead");
  }
}

}  // namespace freshet
