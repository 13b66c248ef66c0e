#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "model/tensor_convert.h"
#include "model/tensor_digest.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/policy_learner_state.h"
#include "weights/transfer_time.h"

namespace freshet {

// What a rank tells the others before the gradients are summed.
struct PolicyLearner::RankOutcome {
  int32_t code = 0;        // absl::StatusCode
  int32_t number = 0;      // of the rank, for messages
  char message[256] = {};  // shortened, ends with 0
  uint64_t weights = 0;    // digest of those that all ranks hold
  uint64_t lends = 0;      // 1: its state is lent to a checkpoint, perhaps until it is written
  StepSums sums;
};

void PolicyLearner::SetRanks(RankUse ranks) {
  state_->AbandonSnapshot();
  state_->ranks = ranks.ranks;
  state_->background = ranks.background;
  state_->rank_number = ranks.number;
  state_->ranks_here = ranks.here;
  state_->on_phase = ranks.on_phase == nullptr ? [](RankPhase) {} : std::move(ranks.on_phase);
}

absl::Status PolicyLearner::SyncFromRankZero() {
  try {
    const at::NoGradGuard no_grad;
    const bool divides = state_->options.sharding != Sharding::kNone && state_->ranks->size() > 1;
    return divides ? DivideState() : CopyState();
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::StatusOr<PolicyLearner::SyncFacts> PolicyLearner::ReceiveFacts() {
  SyncFacts facts;
  if (state_->ranks->rank() == 0) {
    const State& state = *state_;
    const bool has_reference = state.reference.defined() || state.reference_files != nullptr;
    facts = {state.files == nullptr ? state.optimizer->step() : state.files->optimizer_steps(),
             has_reference ? 1 : 0};
  }
  FRESHET_RETURN_IF_ERROR(Receive(std::as_writable_bytes(std::span(&facts, 1))));
  return facts;
}

absl::Status PolicyLearner::Receive(std::span<std::byte> bytes) {
  return state_->ranks->Broadcast(
      bytes, /*root=*/0, kShareTimeout + TransferTime(std::ssize(bytes) * state_->ranks->size()));
}

absl::Status PolicyLearner::CopyState() {
  const bool receives = state_->ranks->rank() != 0;
  if (receives) state_->AwaitLoans();
  FRESHET_RETURN_IF_ERROR(state_->LoadFiles());
  if (!state_->masters.defined()) FRESHET_RETURN_IF_ERROR(state_->HoldWhole());
  FRESHET_ASSIGN_OR_RETURN(const SyncFacts facts, ReceiveFacts());
  AdamWState optimizer = state_->optimizer->GetState();
  for (const at::Tensor& tensor : {state_->masters, optimizer.exp_avg, optimizer.exp_avg_sq}) {
    FRESHET_RETURN_IF_ERROR(Receive(BytesOf(tensor)));
  }
  if (facts.has_reference != 0) {
    if (!state_->reference.defined()) state_->reference = at::empty_like(state_->weights);
    FRESHET_RETURN_IF_ERROR(Receive(BytesOf(state_->reference)));
  }
  if (!receives) return absl::OkStatus();
  optimizer.step = facts.optimizer_steps;
  FRESHET_RETURN_IF_ERROR(state_->optimizer->SetState(optimizer));
  if (state_->options.bf16) state_->rounded.copy_(state_->masters);
  return absl::OkStatus();
}

// Returns the sums of all ranks, or the error of the lowest rank that has one, the same on every
// rank. Errors of other ranks than 0, but for FAILED_PRECONDITION, become UNAVAILABLE: replacing
// the process may help.
absl::StatusOr<PolicyLearner::Agreement> PolicyLearner::Agree(const absl::StatusOr<StepSums>& own,
                                                              bool lends) const {
  static_assert(std::is_trivially_copyable_v<RankOutcome>);
  RankOutcome mine;
  mine.code = static_cast<int32_t>(own.status().code());
  mine.number = state_->rank_number;
  mine.lends = lends ? 1 : 0;
  const std::string message = Message(own.status());
  std::memcpy(mine.message, message.data(), std::min(message.size(), sizeof(mine.message) - 1));
  // Parts differ anyway.
  const at::Tensor& compared = state_->divided() ? state_->weights : state_->masters;
  if (compared.defined()) {
    mine.weights =
        compared.is_cpu() ? Xxh3(compared.const_data_ptr(), compared.nbytes()) : DigestOf(compared);
  }
  if (own.ok()) mine.sums = *own;
  state_->on_phase(RankPhase::kExchanging);
  std::vector<RankOutcome> all(static_cast<size_t>(state_->ranks->size()));
  FRESHET_RETURN_IF_ERROR(state_->ranks->AllGather(
      std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), kShareTimeout));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code == 0) continue;
    auto code = static_cast<absl::StatusCode>(all[rank].code);
    if (rank > 0 && code != absl::StatusCode::kFailedPrecondition) {
      code = absl::StatusCode::kUnavailable;
    }
    const char* const text = all[rank].message;
    return StatusOf(code, "rank ", all[rank].number, ": ",
                    ValidUtf8(std::string(text, ::strnlen(text, sizeof(all[rank].message))),
                              sizeof(all[rank].message)));
  }
  Agreement agreed;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].weights != all[0].weights) {
      return StatusOf(absl::StatusCode::kUnavailable, "the weights of rank ", all[rank].number,
                      " differ from those of rank 0");
    }
    agreed.sums.Add(all[rank].sums);
    agreed.any_lends = agreed.any_lends || all[rank].lends != 0;
  }
  return agreed;
}

absl::Status PolicyLearner::SumGradients() {
  if (state_->divides_weights()) return absl::OkStatus();  // the pass has summed them
  if (state_->divided()) return ReduceGradients();
  state_->on_phase(RankPhase::kSumming);
  const auto size = static_cast<size_t>(state_->gradients.numel());
  // All of it may pass through rank 0.
  const auto bytes = static_cast<int64_t>(state_->gradients.nbytes()) * state_->ranks->size();
  return state_->ranks->AllReduce({state_->gradients.mutable_data_ptr<float>(), size},
                                  TransferTime(bytes));
}

}  // namespace freshet
