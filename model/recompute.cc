#include "model/recompute.h"

#include <cstddef>
#include <utility>

namespace freshet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

class RecomputeFunction : public Function<RecomputeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const BlockFn& block, at::TensorList inputs) {
    // The base class disables gradients here.
    ctx->saved_data["block"] = at::IValue::make_capsule(c10::make_intrusive<Holder>(block));
    ctx->save_for_backward(inputs.vec());
    return block(inputs.vec());
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto holder = ctx->saved_data["block"].toCapsule();
    const BlockFn& block = static_cast<const Holder&>(*holder).block;
    tensor_list inputs = ctx->get_saved_variables();
    tensor_list leaves;
    std::vector<size_t> places;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool differentiable = inputs[i].requires_grad();
      inputs[i] = inputs[i].detach();
      if (!differentiable) continue;
      inputs[i].set_requires_grad(true);
      leaves.push_back(inputs[i]);
      places.push_back(i);
    }
    tensor_list computed;
    {
      const at::AutoGradMode with_gradients(true);
      const at::Tensor out = block(inputs);
      computed = torch::autograd::grad({out}, leaves, {grads[0]}, /*retain_graph=*/std::nullopt,
                                       /*create_graph=*/false, /*allow_unused=*/true);
    }
    tensor_list result(inputs.size() + 1);  // none for the function
    for (size_t i = 0; i < places.size(); ++i) result[places[i] + 1] = std::move(computed[i]);
    return result;
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(BlockFn given) : block(std::move(given)) {}
    BlockFn block;
  };
};

}  // namespace

at::Tensor Recompute(const BlockFn& block, const std::vector<at::Tensor>& inputs) {
  return RecomputeFunction::apply(block, at::TensorList(inputs));
}

}  // namespace freshet
