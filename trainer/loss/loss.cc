#include "trainer/loss/loss.h"

#include <cmath>
#include <string_view>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// exp(20) is 4.9e8: beyond any useful ratio, and products of two stay finite in float.
constexpr double kMaxLogRatio = 20.0;

at::Tensor SafeExp(const at::Tensor& log_ratio) {
  return at::exp(at::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio));
}

double Sum(const at::Tensor& values) {
  return at::sum(values.detach(), at::kDouble).item<double>();
}

int64_t Count(const at::Tensor& flags) { return at::sum(flags).item<int64_t>(); }

absl::Status CheckTensor(std::string_view name, const at::Tensor& tensor, int64_t size) {
  if (!tensor.defined()) {
    return InvalidArgument(name, " is missing: this loss needs it");
  }
  if (tensor.dim() != 1 || tensor.numel() != size) {
    return InvalidArgument(name, " has ", tensor.dim(), " dimensions and ", tensor.numel(),
                           " entries: it must have 1 and ", size);
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const at::Tensor& mask_N, int64_t size) {
  FRESHET_RETURN_IF_ERROR(CheckTensor("loss_mask", mask_N, size));
  if (!at::logical_or(mask_N == 0, mask_N == 1).all().item<bool>()) {
    return InvalidArgument("loss_mask has an entry that is neither 0 nor 1");
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const at::Tensor& mask_N, int64_t size) {
  FRESHET_RETURN_IF_ERROR(CheckTensor("loss_mask", mask_N, size));
  const at::Tensor counts_N = mask_N.to(at::kDouble);
  const at::Tensor valid_N = at::logical_and(counts_N >= 0, counts_N == at::floor(counts_N));
  if (!at::logical_and(valid_N, at::isfinite(counts_N)).all().item<bool>()) {
    return InvalidArgument("loss_mask has an entry that is not a whole number of at least 0");
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(const at::Tensor& index_N, int64_t size, int64_t num_sequences) {
  FRESHET_RETURN_IF_ERROR(CheckTensor("sequence_index", index_N, size));
  if (index_N.scalar_type() != at::kLong) {
    return InvalidArgument("sequence_index must be int64");
  }
  if (num_sequences < 0) {
    return InvalidArgument("num_sequences ", num_sequences, " is negative");
  }
  if (size > 0 &&
      (index_N.min().item<int64_t>() < 0 || index_N.max().item<int64_t>() >= num_sequences)) {
    return InvalidArgument("sequence_index has entries outside [0, ", num_sequences, ")");
  }
  return absl::OkStatus();
}

absl::Status CheckPositive(std::string_view name, double value) {
  if (!(value > 0 && std::isfinite(value))) {
    return InvalidArgument("normalizer ", name, " is ", value, ": it must be positive and finite");
  }
  return absl::OkStatus();
}

absl::Status CheckNormalizer(AggregateKind aggregate, const LossNormalizer& normalizer) {
  if (aggregate == AggregateKind::kTokenMean) {
    return CheckPositive("total_tokens", normalizer.total_tokens);
  }
  if (aggregate == AggregateKind::kSequenceSumNorm) {
    FRESHET_RETURN_IF_ERROR(CheckPositive("max_tokens", normalizer.max_tokens));
  }
  return CheckPositive("total_sequences", normalizer.total_sequences);
}

// Checked inputs, zeroed where the mask is 0. Uses `where`, not a product, so that masked garbage
// cannot produce NaN and its gradient is exactly 0.
struct Tokens {
  at::Tensor mask_N;     // bool
  at::Tensor counts_N;   // the mask
  at::Tensor index_N;    // int64
  at::Tensor lengths_S;  // tokens with mask 1 of each sequence
  at::Tensor logprobs_N, proximal_N, behavior_N, ref_N, advantages_N, entropy_N;
  int64_t num_sequences = 0;

  at::Tensor SequenceSum(const at::Tensor& values_N) const {
    return at::zeros({num_sequences}, values_N.options()).index_add(0, index_N, values_N);
  }
  at::Tensor ToTokens(const at::Tensor& values_S) const {
    return at::index_select(values_S, 0, index_N);
  }
};

// `values` with masked entries zeroed, in the computation's dtype.
absl::StatusOr<at::Tensor> Select(std::string_view name, const at::Tensor& values_N,
                                  const Tokens& tokens, at::ScalarType type) {
  FRESHET_RETURN_IF_ERROR(CheckTensor(name, values_N, tokens.mask_N.numel()));
  const at::Tensor typed_N = values_N.to(type);
  const at::Tensor selected_N = at::where(tokens.mask_N, typed_N, at::zeros({}, typed_N.options()));
  const at::Tensor finite_N = at::isfinite(selected_N.detach());
  if (!finite_N.all().item<bool>()) {
    const int64_t token = at::nonzero(at::logical_not(finite_N))[0][0].item<int64_t>();
    const double value = selected_N.detach()[token].item<double>();
    const std::string where = tokens.index_N.defined()
                                  ? StrCat(" of sequence ", tokens.index_N[token].item<int64_t>())
                                  : std::string();
    return FailedPrecondition(name, " of token ", token, where, " is ", value,
                              ": it must be finite where the loss mask is 1");
  }
  return selected_N;
}

at::ScalarType ComputeType(const at::Tensor& logprobs_N) {
  return logprobs_N.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

absl::StatusOr<Tokens> SelectTokens(const LossSpec& spec, const LossInputs& in) {
  const int64_t size = in.logprobs_N.defined() ? in.logprobs_N.numel() : 0;
  FRESHET_RETURN_IF_ERROR(CheckTensor("logprobs", in.logprobs_N, size));
  FRESHET_RETURN_IF_ERROR(CheckCounts(in.loss_mask_N, size));
  FRESHET_RETURN_IF_ERROR(CheckSequences(in.sequence_index_N, size, in.num_sequences));
  Tokens tokens;
  tokens.num_sequences = in.num_sequences;
  tokens.mask_N = in.loss_mask_N.to(at::kBool);
  tokens.index_N = in.sequence_index_N;
  const at::ScalarType type = ComputeType(in.logprobs_N);
  tokens.counts_N = in.loss_mask_N.to(type);
  tokens.lengths_S = tokens.SequenceSum(tokens.mask_N.to(type));
  const auto select = [&](std::string_view name, const at::Tensor& values_N, bool needed,
                          at::Tensor& out) -> absl::Status {
    if (needed || values_N.defined()) {
      FRESHET_ASSIGN_OR_RETURN(out, Select(name, values_N, tokens, type));
    }
    return absl::OkStatus();
  };
  FRESHET_RETURN_IF_ERROR(select("logprobs", in.logprobs_N, true, tokens.logprobs_N));
  FRESHET_RETURN_IF_ERROR(
      select("proximal_logprobs", in.proximal_logprobs_N, spec.NeedsProximal(), tokens.proximal_N));
  FRESHET_RETURN_IF_ERROR(
      select("behavior_logprobs", in.behavior_logprobs_N, spec.NeedsBehavior(), tokens.behavior_N));
  FRESHET_RETURN_IF_ERROR(
      select("ref_logprobs", in.ref_logprobs_N, spec.NeedsReference(), tokens.ref_N));
  FRESHET_RETURN_IF_ERROR(select("advantages", in.advantages_N, true, tokens.advantages_N));
  FRESHET_RETURN_IF_ERROR(select("entropy", in.entropy_N, spec.NeedsEntropy(), tokens.entropy_N));
  for (at::Tensor* constant :
       {&tokens.proximal_N, &tokens.behavior_N, &tokens.ref_N, &tokens.advantages_N}) {
    if (constant->defined()) {
      *constant = constant->detach();
    }
  }
  return tokens;
}

// Per-token r; undefined without an anchor.
at::Tensor Ratio(const LossSpec& spec, const Tokens& tokens) {
  if (spec.anchor == AnchorKind::kNone) {
    return {};
  }
  const at::Tensor& anchor_N =
      spec.anchor == AnchorKind::kProximal ? tokens.proximal_N : tokens.behavior_N;
  const at::Tensor log_ratio_N = tokens.logprobs_N - anchor_N;
  if (spec.ratio == RatioLevel::kToken) {
    return SafeExp(log_ratio_N);
  }
  const at::Tensor mean_S = tokens.SequenceSum(log_ratio_N) / at::clamp_min(tokens.lengths_S, 1.0);
  return SafeExp(tokens.ToTokens(mean_S));
}

// Per-token L; counts the clipped ones.
at::Tensor Surrogate(const LossSpec& spec, const Tokens& tokens, const at::Tensor& ratio_N,
                     LossOutput& out) {
  const at::Tensor& advantages_N = tokens.advantages_N;
  if (spec.anchor == AnchorKind::kNone) {
    return -advantages_N * tokens.logprobs_N;
  }
  const double low = 1.0 - spec.clip.low;
  const double high = 1.0 + spec.clip.high;
  const at::Tensor clipped_N = at::clamp(ratio_N, low, high);
  const at::Tensor constant_N = ratio_N.detach();
  if (spec.surrogate == SurrogateKind::kCispo) {
    const at::Tensor outside_N = at::logical_or(constant_N<low, constant_N> high);
    out.clipped_tokens = Count(at::logical_and(outside_N, tokens.mask_N));
    return -advantages_N * clipped_N.detach() * tokens.logprobs_N;
  }
  const at::Tensor negative_N = advantages_N < 0;
  at::Tensor bound_N = at::logical_or(at::logical_and(advantages_N > 0, constant_N > high),
                                      at::logical_and(negative_N, constant_N < low));
  at::Tensor loss_N = at::maximum(-advantages_N * ratio_N, -advantages_N * clipped_N);
  if (spec.clip.dual) {
    const double dual = *spec.clip.dual;
    loss_N = at::where(negative_N, at::minimum(loss_N, -dual * advantages_N), loss_N);
    bound_N = at::logical_or(bound_N, at::logical_and(negative_N, constant_N > dual));
  }
  out.clipped_tokens = Count(at::logical_and(bound_N, tokens.mask_N));
  return loss_N;
}

// Per-token w; counts truncated and excluded tokens. Undefined without a correction.
at::Tensor CorrectionWeight(const CorrectionSpec& spec, const Tokens& tokens, LossOutput& out) {
  if (spec.kind == CorrectionKind::kNone) {
    return {};
  }
  at::Tensor log_rho_N = tokens.proximal_N - tokens.behavior_N;
  if (spec.kind == CorrectionKind::kSeqTis) {
    log_rho_N = tokens.ToTokens(tokens.SequenceSum(log_rho_N));
  }
  const at::Tensor rho_N = SafeExp(log_rho_N);
  const at::Tensor outside_N = at::logical_or(rho_N<spec.low, rho_N> spec.cap);
  out.correction_limited_tokens = Count(at::logical_and(outside_N, tokens.mask_N));
  if (spec.kind == CorrectionKind::kMask) {
    return at::where(outside_N, at::zeros({}, rho_N.options()), rho_N);
  }
  return at::clamp(rho_N, spec.low, spec.cap);
}

at::Tensor ReferenceKl(KlKind kind, const Tokens& tokens) {
  const at::Tensor d_N = tokens.ref_N - tokens.logprobs_N;
  if (kind == KlKind::kK1) {
    return -d_N;
  }
  if (kind == KlKind::kK2) {
    return 0.5 * d_N * d_N;
  }
  const at::Tensor clamped_N = at::clamp(d_N, -kMaxLogRatio, kMaxLogRatio);
  return at::expm1(clamped_N) - clamped_N;
}

// Per-token mask * g.
at::Tensor AggregateWeight(AggregateKind kind, const Tokens& tokens,
                           const LossNormalizer& normalizer) {
  if (kind == AggregateKind::kTokenMean) {
    return tokens.counts_N / normalizer.total_tokens;
  }
  if (kind == AggregateKind::kSequenceSumNorm) {
    return tokens.counts_N / (normalizer.total_sequences * normalizer.max_tokens);
  }
  const at::Tensor lengths_N = tokens.ToTokens(at::clamp_min(tokens.lengths_S, 1.0));
  return tokens.counts_N / (lengths_N * normalizer.total_sequences);
}

void FillSums(const Tokens& tokens, const at::Tensor& ratio_N, const at::Tensor& weight_N,
              LossOutput& out) {
  const at::Tensor zero = at::zeros({}, tokens.logprobs_N.options());
  const auto masked_sum = [&](const at::Tensor& values_N) {
    return Sum(at::where(tokens.mask_N, values_N.detach(), zero));
  };
  out.tokens = Count(tokens.mask_N);
  const double num_tokens = static_cast<double>(out.tokens);
  out.ratio_sum = ratio_N.defined() ? masked_sum(ratio_N) : num_tokens;
  out.correction_weight_sum = weight_N.defined() ? masked_sum(weight_N) : num_tokens;
  if (tokens.behavior_N.defined()) {
    const at::Tensor d_N =
        at::clamp(tokens.logprobs_N.detach() - tokens.behavior_N, -kMaxLogRatio, kMaxLogRatio);
    out.kl_behavior_sum = masked_sum(at::expm1(d_N) - d_N);
    out.logprob_diff_sum = masked_sum(at::abs(tokens.logprobs_N - tokens.behavior_N));
    const at::Tensor ratios_M =
        at::masked_select(at::exp(d_N), tokens.mask_N).to(at::kDouble).to(at::kCPU).contiguous();
    const double* ratios = ratios_M.const_data_ptr<double>();
    for (int64_t i = 0; i < ratios_M.numel(); ++i) out.importance_ratios.Add(ratios[i]);
  }
  if (tokens.entropy_N.defined()) {
    out.entropy_sum = masked_sum(tokens.entropy_N);
  }
}

}  // namespace

absl::StatusOr<LossOutput> PolicyLoss(const LossSpec& spec, const LossInputs& inputs,
                                      const LossNormalizer& normalizer) {
  FRESHET_RETURN_IF_ERROR(CheckNormalizer(spec.aggregate, normalizer));
  FRESHET_ASSIGN_OR_RETURN(const Tokens tokens, SelectTokens(spec, inputs));
  LossOutput out;
  const at::Tensor ratio_N = Ratio(spec, tokens);
  const at::Tensor weight_N = CorrectionWeight(spec.correction, tokens, out);
  at::Tensor loss_N = Surrogate(spec, tokens, ratio_N, out);
  if (weight_N.defined()) {
    loss_N = weight_N * loss_N;
  }
  if (spec.NeedsReference()) {
    const at::Tensor kl_N = ReferenceKl(spec.kl.kind, tokens);
    out.kl_ref_sum = Sum(kl_N);  // masked tokens contribute 0
    loss_N = loss_N + spec.kl.coef * kl_N;
  }
  if (spec.NeedsEntropy()) {
    loss_N = loss_N - spec.entropy_coef * tokens.entropy_N;
  }
  out.loss = at::sum(AggregateWeight(spec.aggregate, tokens, normalizer) * loss_N);
  out.loss_value = out.loss.item<double>();
  FillSums(tokens, ratio_N, weight_N, out);
  return out;
}

absl::StatusOr<SftOutput> SftLoss(const at::Tensor& logprobs_N, const at::Tensor& loss_mask_N,
                                  double total_tokens) {
  FRESHET_RETURN_IF_ERROR(CheckPositive("total_tokens", total_tokens));
  const int64_t size = logprobs_N.defined() ? logprobs_N.numel() : 0;
  FRESHET_RETURN_IF_ERROR(CheckTensor("logprobs", logprobs_N, size));
  FRESHET_RETURN_IF_ERROR(CheckMask(loss_mask_N, size));
  Tokens tokens;
  tokens.mask_N = loss_mask_N.to(at::kBool);
  FRESHET_ASSIGN_OR_RETURN(const at::Tensor selected_N,
                           Select("logprobs", logprobs_N, tokens, ComputeType(logprobs_N)));
  SftOutput out;
  out.loss = -at::sum(selected_N) / total_tokens;
  out.nll_sum = -Sum(selected_N);
  out.tokens = Count(tokens.mask_N);
  return out;
}

}  // namespace freshet
