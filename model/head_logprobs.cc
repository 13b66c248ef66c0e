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

// Targets in ascending order of their rows or ids.
struct Targets {
  at::Tensor order_M;  // place in the caller's order
  at::Tensor rows_M;
  at::Tensor ids_M;

  static Targets Sorted(const at::Tensor& rows, const at::Tensor& ids, const at::Tensor& key) {
    const at::Tensor order = std::get<1>(at::sort(key, /*stable=*/true, 0, false));
    return {order, rows.index_select(0, order), ids.index_select(0, order)};
  }
  // The targets whose `key`, by which they are sorted, is in [first, first + count).
  Targets In(const at::Tensor& key, int64_t first, int64_t count) const {
    const at::Tensor bounds =
        at::searchsorted(key, at::tensor({first, first + count}, key.options()));
    const int64_t begin = bounds[0].item<int64_t>();
    const int64_t size = bounds[1].item<int64_t>() - begin;
    return {order_M.narrow(0, begin, size), rows_M.narrow(0, begin, size),
            ids_M.narrow(0, begin, size)};
  }
};

// Computes the logits of one chunk at a time, in memory that all chunks share: a result is valid
// until the next call.
class ChunkLogits {
 public:
  // At most `most` logits at a time; with `exponentials` also as many of those.
  ChunkLogits(const at::Tensor& head, int64_t most, double temperature, bool exponentials)
      : logits_(at::empty({most}, head.options().dtype(at::kFloat))),
        products_(head.scalar_type() == at::kFloat ? logits_ : at::empty({most}, head.options())),
        exponentials_(exponentials ? at::empty_like(logits_) : at::Tensor()),
        temperature_(temperature) {}

  // fp32 logits [R, T] of the rows x [R, H] for the tokens whose rows of the head are `tokens`
  // [T, H].
  at::Tensor Compute(const at::Tensor& x, const at::Tensor& tokens) {
    const at::Tensor products = View(products_, x.size(0), tokens.size(0));
    at::Tensor out = products;
    at::mm_out(out, x, tokens.t());
    at::Tensor logits = View(logits_, x.size(0), tokens.size(0));
    if (!products_.is_same(logits_)) logits.copy_(products);
    return DivideByTemperature(logits);
  }
  // Divides the gradients of logits by the temperature, in place, and returns them in the head's
  // type.
  at::Tensor Round(at::Tensor gradients) {
    DivideByTemperature(gradients);
    if (products_.is_same(logits_)) return gradients;
    return View(products_, gradients.size(0), gradients.size(1)).copy_(gradients);
  }
  at::Tensor Exp(const at::Tensor& logits) {
    at::Tensor out = View(exponentials_, logits.size(0), logits.size(1));
    return at::exp_out(out, logits);
  }

 private:
  static at::Tensor View(const at::Tensor& memory, int64_t rows, int64_t columns) {
    return memory.narrow(0, 0, rows * columns).view({rows, columns});
  }
  at::Tensor DivideByTemperature(at::Tensor values) const {
    return temperature_ == 1.0 ? values : values.div_(temperature_);
  }

  const at::Tensor logits_, products_, exponentials_;
  const double temperature_;
};

// With the head's gradient, if there is one.
MemoryUse LogitsOf(const at::Tensor& head, bool with_gradient) {
  return {"logits",
          LogitsBytes(head.size(0), head.is_cpu()) +
              (with_gradient ? static_cast<int64_t>(head.nbytes()) : 0),
          head.device(), "lower trainer.max_tokens_per_microbatch"};
}

// The sum to which the backward pass adds the head's gradient; undefined: it returns the gradient.
// A struct, because autograd would record a tensor.
struct HeadGradientSum {
  at::Tensor sum_VH;
};

class HeadFunction : public Function<HeadFunction> {
 public:
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& head,
                             const at::Tensor& target_rows, const at::Tensor& target_ids,
                             double temperature, bool with_entropy, bool entropy_gradient,
                             const HeadGradientSum& gradients) try {
    const int64_t num_rows = hidden.size(0);
    const int64_t chunk = HeadChunkSize(head.size(0), head.is_cpu());
    const Targets targets = Targets::Sorted(target_rows, target_ids, target_rows);
    at::Tensor logprobs = at::empty({target_ids.size(0)}, hidden.options());
    at::Tensor normalizers = at::empty({num_rows}, hidden.options());
    at::Tensor entropies = with_entropy ? at::empty({num_rows}, hidden.options()) : at::Tensor();
    ChunkLogits chunks(head, std::min(chunk, num_rows) * head.size(0), temperature,
                       /*exponentials=*/true);
    for (int64_t first = 0; first < num_rows; first += chunk) {
      const int64_t count = std::min(chunk, num_rows - first);
      at::Tensor logits =
          chunks.Compute(hidden.narrow(0, first, count).to(head.scalar_type()), head);
      const at::Tensor largest = logits.amax(1, /*keepdim=*/true);
      logits.sub_(largest);
      at::Tensor weights = chunks.Exp(logits);
      const at::Tensor sums = weights.sum(1);
      const at::Tensor logs = sums.log();
      normalizers.narrow(0, first, count).copy_(largest.squeeze(1) + logs);
      const Targets part = targets.In(targets.rows_M, first, count);
      const at::Tensor rows = part.rows_M - first;
      const at::Tensor chosen =
          logits.view({-1}).index_select(0, rows * head.size(0) + part.ids_M) -
          logs.index_select(0, rows);
      logprobs.index_copy_(0, part.order_M, chosen);
      if (!with_entropy) continue;
      entropies.narrow(0, first, count).copy_(logs - weights.mul_(logits).sum(1).div_(sums));
    }
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["entropy_gradient"] = entropy_gradient;
    if (gradients.sum_VH.defined()) ctx->saved_data["head_gradients"] = gradients.sum_VH;
    ctx->save_for_backward({hidden, head, target_rows, target_ids, normalizers,
                            entropy_gradient ? entropies : at::Tensor()});
    const at::Tensor entropies_M =
        with_entropy ? entropies.index_select(0, target_rows) : at::empty({0}, hidden.options());
    if (!entropy_gradient) ctx->mark_non_differentiable({entropies_M});
    return {logprobs, entropies_M};
  } catch (const std::exception& error) {
    RethrowFor(error, [&] { return LogitsOf(head, /*with_gradient=*/false); });
  }

  // With p = softmax, z = logits and H the entropy:
  //   d log p_t / d z = onehot_t - p,   d H / d z = -p (log p + H)
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) try {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& hidden = saved[0];
    const at::Tensor& head = saved[1];
    const at::Tensor& target_rows = saved[2];
    const Targets targets = Targets::Sorted(target_rows, saved[3], saved[3]);
    const at::Tensor normalizers = saved[4].unsqueeze(1);
    const int64_t num_rows = hidden.size(0);
    const at::Tensor d_logprobs =
        grads[0].defined() ? grads[0] : at::zeros({target_rows.size(0)}, hidden.options());
    // Sums over the targets of a row.
    const auto by_row = [&](const at::Tensor& values_M) {
      return at::zeros({num_rows}, hidden.options())
          .index_add_(0, target_rows, values_M)
          .unsqueeze(1);
    };
    const at::Tensor row_weights = by_row(d_logprobs);
    const bool has_entropy = ctx->saved_data["entropy_gradient"].toBool() && grads[1].defined();
    const at::Tensor d_entropies = has_entropy ? by_row(grads[1]) : at::Tensor();
    const at::Tensor entropies = has_entropy ? saved[5].unsqueeze(1) : at::Tensor();
    const auto stored = ctx->saved_data.find("head_gradients");
    const bool adds = stored != ctx->saved_data.end();
    at::Tensor d_hidden = at::zeros_like(hidden);
    at::Tensor d_head = adds ? stored->second.toTensor() : at::empty_like(head);
    const at::Tensor x = hidden.to(head.scalar_type());
    const int64_t slice = HeadChunkSize(num_rows, head.is_cpu(),
                                        head.size(1) * static_cast<int64_t>(head.element_size()));
    ChunkLogits chunks(head, std::min(slice, head.size(0)) * num_rows,
                       ctx->saved_data["temperature"].toDouble(), has_entropy);
    // Of a slice, in the head's type.
    at::Tensor d_x = at::empty_like(x);
    const at::Tensor d_tokens =
        adds ? at::empty({std::min(slice, head.size(0)), head.size(1)}, head.options()) : d_head;
    for (int64_t first = 0; first < head.size(0); first += slice) {
      const int64_t count = std::min(slice, head.size(0) - first);
      const at::Tensor tokens = head.narrow(0, first, count);
      at::Tensor d_logits = chunks.Compute(x, tokens).sub_(normalizers);  // log p
      if (has_entropy) {
        const at::Tensor p = chunks.Exp(d_logits);
        d_logits.add_(entropies).mul_(d_entropies).add_(row_weights);
        d_logits.mul_(p).neg_();
      } else {
        d_logits.exp_().mul_(row_weights).neg_();
      }
      const Targets part = targets.In(targets.ids_M, first, count);
      d_logits.view({-1}).index_add_(0, part.rows_M * count + (part.ids_M - first),
                                     d_logprobs.index_select(0, part.order_M));
      const at::Tensor d_rounded = chunks.Round(d_logits);
      d_hidden.add_(at::mm_out(d_x, d_rounded, tokens));
      at::Tensor d_part = d_tokens.narrow(0, adds ? 0 : first, count);
      at::mm_out(d_part, d_rounded.t(), x);
      if (adds) d_head.narrow(0, first, count).add_(d_part);
    }
    if (adds) d_head = at::Tensor();
    return {d_hidden,     d_head,       at::Tensor(), at::Tensor(),
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  } catch (const std::exception& error) {
    RethrowFor(error, [&] {
      return LogitsOf(ctx->get_saved_variables()[1], ctx->saved_data.count("head_gradients") == 0);
    });
  }
};

}  // namespace

TargetLogprobs HeadLogprobs(const at::Tensor& hidden_RH, const at::Tensor& lm_head_VH,
                            const at::Tensor& target_rows_M, const at::Tensor& target_ids_M,
                            double temperature, Entropy entropy,
                            const at::Tensor& head_gradients_VH) {
  // Without a gradient of its own, the head is not part of the graph.
  const at::Tensor head = head_gradients_VH.defined() ? lm_head_VH.detach() : lm_head_VH;
  const tensor_list out = HeadFunction::apply(
      hidden_RH, head, target_rows_M, target_ids_M, temperature, entropy != Entropy::kNone,
      entropy == Entropy::kDifferentiable, HeadGradientSum{head_gradients_VH});
  return {out[0], entropy == Entropy::kNone ? at::Tensor() : out[1]};
}

}  // namespace freshet
