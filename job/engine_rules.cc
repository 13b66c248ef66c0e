#include <string>
#include <vector>

#include "job/engine_limits.h"
#include "job/eval_sets.h"
#include "job/rule_context.h"

namespace freshet {
namespace {

constexpr int64_t kMinHeadDim = 32;  // of the servers' attention kernels
constexpr int64_t kHeadDimStep = 8;

// A server's log-probs after truncation, penalties or masking are not those of the policy. The
// engines refuse the same for each request (rollout/server_engine/server_protocol.h).
void CheckSampling(RuleContext& context) {
  const job::v1::Rollout& rollout = context.spec().rollout();
  const std::string& engine = rollout.engine();
  const auto refuse = [&](const char* key, bool used, const char* neutral) {
    if (!used) return;
    context.Add(StrCat("rollout.", key), "must be ", neutral, " with rollout.engine ", engine,
                ", which has no log-probs of the unchanged policy for training; use engine native");
  };
  refuse("top_p", rollout.top_p() < 1, "1");
  refuse("top_k", rollout.top_k() > 0, "0");
  refuse("min_p", rollout.min_p() > 0, "0");
  refuse("repetition_penalty", rollout.repetition_penalty() != 1, "1");
  refuse("presence_penalty", rollout.presence_penalty() != 0, "0");
  refuse("frequency_penalty", rollout.frequency_penalty() != 0, "0");
  refuse("min_new_tokens", rollout.min_new_tokens() > 0, "0");
  if (engine != "vllm") return;
  if (rollout.temperature() < kMinVllmTemperature) {
    context.Add("rollout.temperature", "must be at least ", kMinVllmTemperature,
                " with rollout.engine ", engine, ", got ", rollout.temperature());
  }
  if (!context.spec().has_eval() || !context.Usable({"eval"})) return;
  const std::vector<job::v1::EvalSet> sets = EvalSets(context.spec());
  for (size_t i = 0; i < sets.size(); ++i) {
    const double temperature = sets[i].temperature();
    if (temperature == 0 || temperature >= kMinVllmTemperature) continue;
    context.Add(EvalSetKey(context.spec(), i, "temperature"), "must be 0 or at least ",
                kMinVllmTemperature, " with rollout.engine ", engine, ", got ", temperature);
  }
}

void CheckNativeKeys(RuleContext& context) {
  const job::v1::Rollout& rollout = context.spec().rollout();
  const auto refuse = [&](const char* key, bool given) {
    if (!given) return;
    context.Add(StrCat("rollout.", key), "applies only with rollout.engine native; set it at the ",
                rollout.engine(), " server instead");
  };
  refuse("threads", rollout.has_threads());
  refuse("kv_cache_bytes", rollout.has_kv_cache_bytes());
  refuse("quantization", rollout.has_quantization() && rollout.quantization() != "none");
  refuse("speculative_tokens", rollout.speculative_tokens() > 0);
  refuse("device", rollout.has_device() && rollout.device() != "auto");
}

void CheckHeadDim(RuleContext& context) {
  const job::v1::Model& model = context.spec().model();
  if (!model.has_config() || !context.Usable({"model"})) return;
  const job::v1::ModelConfig& config = model.config();
  const int64_t head_dim = config.has_head_dim()
                               ? config.head_dim()
                               : config.hidden_size() / config.num_attention_heads();
  if (head_dim >= kMinHeadDim && head_dim % kHeadDimStep == 0) return;
  context.Add("model.config.head_dim", "must be a multiple of ", kHeadDimStep, " from ",
              kMinHeadDim, " with rollout.engine ", context.spec().rollout().engine(), ", got ",
              head_dim, " (hidden_size / num_attention_heads where it is not given)");
}

// What a GPU cannot do.
void CheckDevices(RuleContext& context) {
  const job::v1::Rollout& rollout = context.spec().rollout();
  if (context.Usable({"rollout.device", "rollout.quantization"}) && rollout.device() == "cuda" &&
      rollout.quantization() != "none") {
    context.Add("rollout.quantization", "must be none with rollout.device cuda, got ",
                rollout.quantization());
  }
}

}  // namespace

void CheckEngineRules(RuleContext& context) {
  CheckDevices(context);
  if (!context.Usable({"rollout"}) || context.spec().rollout().engine() == "native") return;
  CheckSampling(context);
  CheckNativeKeys(context);
  CheckHeadDim(context);
}

}  // namespace freshet
