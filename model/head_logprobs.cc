#include "model/head_logprobs.h"

#include <algorithm>
#include <exception>
#include <tuple>

#include "model/head_chunk.h"
#include "model/memory_use.h"

namespace freshet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

// Targets in the order of their rows.
struct Targets {
  at::Tensor order_M;  // place in the caller's order
  at::Tensor rows_M;
  at::Tensor ids_M;

  // The targets of the rows [first, first + count), with rows counted from `first`.
  Targets Of(int64_t first, int64_t count) const {
    const at::Tensor bounds =
        at::searchsorted(rows_M, at::tensor({first, first + count}, rows_M.options()));
    const int64_t begin = bounds[0].item<int64_t>();
    const int64_t size = bounds[1].item<int64_t>() - begin;
    return {order_M.narrow(0, begin, size), rows_M.narrow(0, begin, size) - first,
            ids_M.narrow(0, begin, size)};
  }
};

// fp32 logits of some rows.
at::Tensor Logits(const at::Tensor& hidden, const at::Tensor& head, double temperature) {
  at::Tensor logits = at::linear(hidden.to(head.scalar_type()), head).to(at::kFloat);
  return temperature == 1.0 ? logits : logits.div_(temperature);
}

// A chunk of logits, and the head's gradient.
MemoryUse LogitsOf(const at::Tensor& head) {
  return {"logits",
          HeadChunkBytes(head.is_cpu()) + head.numel() * static_cast<int64_t>(sizeof(float)),
          head.device(), "lower trainer.max_tokens_per_microbatch"};
}

class HeadFunction : public Function<HeadFunction> {
 public:
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& head,
                             const at::Tensor& target_rows, const at::Tensor& target_ids,
                             double temperature, bool with_entropy, bool entropy_gradient) try {
    const int64_t num_rows = hidden.size(0);
    const int64_t chunk = HeadChunkRows(head.size(0), head.is_cpu());
    Targets targets;
    std::tie(targets.rows_M, targets.order_M) = at::sort(target_rows, /*stable=*/true, 0, false);
    targets.ids_M = target_ids.index_select(0, targets.order_M);
    at::Tensor logprobs = at::empty({target_ids.size(0)}, hidden.options());
    at::Tensor normalizers = at::empty({num_rows}, hidden.options());
    at::Tensor entropies = with_entropy ? at::empty({num_rows}, hidden.options()) : at::Tensor();
    for (int64_t first = 0; first < num_rows; first += chunk) {
      const int64_t count = std::min(chunk, num_rows - first);
      at::Tensor logits = Logits(hidden.narrow(0, first, count), head, temperature);
      const at::Tensor normalizer = at::logsumexp(logits, {1});
      normalizers.narrow(0, first, count).copy_(normalizer);
      const Targets part = targets.Of(first, count);
      const at::Tensor chosen =
          logits.reshape({-1}).index_select(0, part.rows_M * head.size(0) + part.ids_M) -
          normalizer.index_select(0, part.rows_M);
      logprobs.index_copy_(0, part.order_M, chosen);
      if (!with_entropy) continue;
      logits.sub_(normalizer.unsqueeze(1));
      entropies.narrow(0, first, count).copy_((at::exp(logits) * logits).sum(1).neg_());
    }
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["entropy_gradient"] = entropy_gradient;
    ctx->save_for_backward({hidden, head, targets.order_M, targets.rows_M, targets.ids_M,
                            normalizers, entropy_gradient ? entropies : at::Tensor()});
    const at::Tensor entropies_M =
        with_entropy ? entropies.index_select(0, target_rows) : at::empty({0}, hidden.options());
    if (!entropy_gradient) ctx->mark_non_differentiable({entropies_M});
    return {logprobs, entropies_M};
  } catch (const std::exception& error) {
    RethrowFor(error, [&] { return LogitsOf(head); });
  }

  // With p = softmax, z = logits and H the entropy:
  //   d log p_t / d z = onehot_t - p,   d H / d z = -p (log p + H)
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) try {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& hidden = saved[0];
    const at::Tensor& head = saved[1];
    const Targets targets{saved[2], saved[3], saved[4]};
    const at::Tensor& normalizers = saved[5];
    const at::Tensor& entropies = saved[6];
    const double temperature = ctx->saved_data["temperature"].toDouble();
    const int64_t num_rows = hidden.size(0);
    const int64_t chunk = HeadChunkRows(head.size(0), head.is_cpu());
    const at::Tensor d_logprobs =
        grads[0].defined() ? grads[0] : at::zeros({targets.ids_M.size(0)}, hidden.options());
    // Sums over the targets of a row.
    const auto by_row = [&](const at::Tensor& values_M) {
      return at::zeros({num_rows}, hidden.options())
          .index_add_(0, targets.rows_M, values_M.index_select(0, targets.order_M));
    };
    const at::Tensor row_weights = by_row(d_logprobs);
    const bool has_entropy = ctx->saved_data["entropy_gradient"].toBool() && grads[1].defined();
    const at::Tensor d_entropies = has_entropy ? by_row(grads[1]) : at::Tensor();
    at::Tensor d_hidden = at::empty_like(hidden);
    at::Tensor d_head = at::zeros(head.sizes(), hidden.options());  // fp32
    for (int64_t first = 0; first < num_rows; first += chunk) {
      const int64_t count = std::min(chunk, num_rows - first);
      const at::Tensor x = hidden.narrow(0, first, count).to(head.scalar_type());
      const auto column = [&](const at::Tensor& values_R) {
        return values_R.narrow(0, first, count).unsqueeze(1);
      };
      at::Tensor d_logits = at::linear(x, head).to(at::kFloat);  // still the logits
      if (temperature != 1.0) d_logits.div_(temperature);
      d_logits.sub_(column(normalizers));  // log p
      if (has_entropy) {
        const at::Tensor p = at::exp(d_logits);
        d_logits.add_(column(entropies)).mul_(column(d_entropies)).add_(column(row_weights));
        d_logits.mul_(p).neg_();
      } else {
        d_logits.exp_().mul_(column(row_weights)).neg_();
      }
      const Targets part = targets.Of(first, count);
      d_logits.view({-1}).index_add_(0, part.rows_M * head.size(0) + part.ids_M,
                                     d_logprobs.index_select(0, part.order_M));
      if (temperature != 1.0) d_logits.div_(temperature);
      const at::Tensor d_rounded = d_logits.to(head.scalar_type());
      d_hidden.narrow(0, first, count).copy_(at::mm(d_rounded, head));
      if (head.scalar_type() == at::kFloat) {
        d_head.addmm_(d_rounded.t(), x);
      } else {
        d_head.add_(at::mm(d_rounded.t(), x));
      }
    }
    return {d_hidden, d_head, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  } catch (const std::exception& error) {
    RethrowFor(error, [&] { return LogitsOf(ctx->get_saved_variables()[1]); });
  }
};

}  // namespace

TargetLogprobs HeadLogprobs(const at::Tensor& hidden_RH, const at::Tensor& lm_head_VH,
                            const at::Tensor& target_rows_M, const at::Tensor& target_ids_M,
                            double temperature, Entropy entropy) {
  const tensor_list out =
      HeadFunction::apply(hidden_RH, lm_head_VH, target_rows_M, target_ids_M, temperature,
                          entropy != Entropy::kNone, entropy == Entropy::kDifferentiable);
  return {out[0], entropy == Entropy::kNone ? at::Tensor() : out[1]};
}

}  // namespace freshet
