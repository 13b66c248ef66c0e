#include "tests/datastore/redis/store_answers.h"

namespace freshet {
namespace {

template <typename T>
std::string List(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += StrCat(text.size() > 1 ? "," : "", value);
  return text + "]";
}

std::string Mask(const std::vector<uint8_t>& mask) {
  std::string text;
  for (const uint8_t bit : mask) text += StrCat(static_cast<int>(bit));
  return text;
}

std::string Text(const Prompt& prompt) {
  std::string text =
      StrCat("prompt ", prompt.ordinal, " ", prompt.first_attempt, " ", List(prompt.prompt_ids));
  for (const auto& [key, value] : prompt.attributes) text += StrCat(" ", key, "=", value);
  return text;
}

std::string Text(const SampleView& view) {
  std::string text =
      StrCat(view.uid, " of ", view.replay_of, " ", view.key.ordinal, "/", view.key.attempt, "/",
             view.key.index, " ", Text(*view.prompt), " ", Text(*view.response));
  if (view.score != nullptr) {
    text += StrCat(" score ", view.score->reward, " ", static_cast<int>(view.score->outcome));
    for (const auto& [key, value] : view.score->components) text += StrCat(" ", key, "=", value);
  }
  return text;
}

}  // namespace

std::string Text(const absl::Status& status) { return status.ToString(); }
std::string Text(const std::vector<absl::Status>& statuses) {
  std::string text = StrCat(statuses.size(), " answers");
  for (const absl::Status& status : statuses) text += StrCat("\n  ", Text(status));
  return text;
}
std::string Text(int64_t value) { return StrCat(value); }
std::string Text(const std::vector<int64_t>& values) { return List(values); }

std::string Text(const PutPromptsReply& reply) {
  return StrCat("accepted ", reply.accepted, " high ", reply.high_water, " full ", reply.full);
}

std::string Text(const Response& response) {
  std::string text =
      StrCat("ids ", List(response.response_ids), " logp ", List(response.behavior_logprobs),
             " drawn ", List(response.sampling_logprobs), " mask ", Mask(response.loss_mask),
             " finish ", static_cast<int>(response.finish));
  for (const Span& span : response.spans) {
    text += StrCat(" (", span.policy.lineage, ",", span.policy.version, " ", span.begin, "-",
                   span.end, ")");
  }
  return text;
}

std::string Text(const LeaseReply& reply) {
  std::string text = StrCat("reason ", reply.reason);
  for (const GroupLease& lease : reply.leases) {
    text += StrCat("\n  lease ", lease.token, " ", lease.ordinal, "/", lease.attempt, " until ",
                   absl::ToUnixMicros(lease.expires), " ", Text(lease.prompt), " missing ",
                   List(lease.missing), " limit ", lease.max_new_tokens);
    for (const Response& partial : lease.partials) text += StrCat(" {", Text(partial), "}");
  }
  return text;
}

std::string Text(const std::vector<RowLease>& rows) {
  std::string text = StrCat(rows.size(), " rows");
  for (const RowLease& row : rows) {
    text += StrCat("\n  row ", row.token, " until ", absl::ToUnixMicros(row.expires), " ",
                   Text(row.sample));
  }
  return text;
}

std::string Text(const OpenEpochReply& reply) {
  std::string text =
      StrCat("epoch ", reply.epoch, " lineage ", reply.lineage, " digest ", reply.digest);
  for (const JournalEntry& entry : reply.redo) {
    text += StrCat("\n  redo ", entry.step, " ", entry.content_hash, " ", List(entry.uids));
  }
  return text;
}

std::string Text(const NextBatchReply& reply) {
  std::string text = StrCat("ready ", reply.ready, " paused ", reply.paused, " full ",
                            reply.store_full, " reason ", reply.reason);
  for (const TrainGroup& group : reply.groups) {
    text += StrCat("\n  group ", group.ordinal);
    for (const TrainSample& sample : group.samples) {
      text += StrCat("\n    ", Text(sample.sample), " mask ", Mask(sample.loss_mask), " versions ",
                     sample.min_version, "-", sample.max_version);
    }
  }
  return text;
}

std::string Text(const CommitReceipt& receipt) {
  return StrCat("receipt (", receipt.policy.lineage, ",", receipt.policy.version, ") epoch ",
                receipt.epoch, " step ", receipt.step, " hash ", receipt.content_hash, " digest ",
                receipt.digest);
}

std::string Text(const StoreStats& stats) {
  std::string text;
  for (int state = 0; state < kNumGroupStates; ++state) {
    text += StrCat(Name(static_cast<GroupState>(state)), " ", stats.groups[state], " of ",
                   stats.transitions[state], " without ", stats.skipped[state], " in ",
                   absl::FormatDuration(stats.time_in_state[state]), "; ");
  }
  for (const auto& [reason, groups] : stats.ended_by_reason)
    text += StrCat(reason, " ", groups, "; ");
  for (const auto& [reason, samples] : stats.skipped_by_reason)
    text += StrCat(reason, " without ", samples, "; ");
  return text + StrCat("outstanding ", stats.outstanding, " queued ", stats.queued_prompts,
                       " version ", stats.committed_version, " expired ", stats.leases_expired,
                       " put ", stats.samples_put, " again ", stats.duplicate_puts, " fenced ",
                       stats.fenced_puts, " running ", stats.running, " used ", stats.capacity_used,
                       " backlog ", stats.ledger_backlog, " filtered ", stats.filtered_in_a_row,
                       " trained ", stats.trained_samples, "/", stats.trained_tokens, " discarded ",
                       stats.discarded_samples, "/", stats.discarded_tokens, " replayed ",
                       stats.replayed_samples, " pool ", stats.pooled_successes, " skipped ",
                       stats.skipped_samples, " limited ", stats.limited_groups, " generated ",
                       stats.generation.tokens, " idle ",
                       absl::FormatDuration(stats.generation.idle), " swap ",
                       absl::FormatDuration(stats.generation.swap));
}

std::string Text(const Explanation& explanation) {
  return StrCat(explanation.edge, ": ", explanation.text);
}

std::string Text(const PromptCursor& cursor) {
  return StrCat("low water ", cursor.low_water, " above ", List(cursor.above));
}

std::string Text(const std::vector<DeadLetter>& letters) {
  std::string text = StrCat(letters.size(), " letters");
  for (const DeadLetter& letter : letters) {
    text += StrCat("\n  ", absl::ToUnixMicros(letter.time), " ", letter.ordinal, "/",
                   letter.attempt, " ", letter.reason);
  }
  return text;
}

std::string Text(const std::vector<LedgerRow>& rows) {
  std::string text = StrCat(rows.size(), " rows");
  for (const LedgerRow& row : rows) text += "\n  " + LedgerRowToJson(row);
  return text;
}

}  // namespace freshet
