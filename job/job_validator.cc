#include "job/job_validator.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

#include "job/job_kind.h"
#include "job/key_rules.h"
#include "job/reward_types.h"
#include "job/rule_context.h"

namespace freshet {
namespace {

void CheckNames(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (context.Usable({"name"}) && !IsName(spec.name(), "._-")) {
    context.Add("name", "must be letters, digits, '.', '_' and '-', starting with a letter or a ",
                "digit; got '", Excerpt(spec.name()), "'");
  }
}

void CheckModelSource(RuleContext& context) {
  const job::v1::Model& model = context.spec().model();
  if (!context.Usable({"model.init", "model.path"})) {
    return;
  }
  if (model.has_init() && model.has_path()) {
    context.Add("model.path", "contradicts model.init ", model.init(), "; keep one of the two");
  } else if (!model.has_init() && !model.has_path()) {
    context.Add("model", "needs exactly one of init (random, with config) and path (a Hugging ",
                "Face directory)");
  } else if (model.has_path() && model.path().empty()) {
    context.Add("model.path",
                "is empty; give a Hugging Face directory, here or by --set model.path=DIR");
  }
  if (model.has_init() && !context.spec().has_tokenizer() && context.Usable({"tokenizer"})) {
    context.Add("tokenizer", "is required with model.init random, for example ",
                "{type: char, alphabet: \"0123456789+=\"}");
  }
}

void CheckModelShape(RuleContext& context) {
  if (!context.spec().model().has_config() || !context.Usable({"model"})) {
    return;
  }
  const job::v1::ModelConfig& config = context.spec().model().config();
  const int64_t heads = config.num_attention_heads();
  if (!config.has_head_dim() && config.hidden_size() % heads != 0) {
    context.Add("model.config.hidden_size", "must be a multiple of num_attention_heads ", heads,
                ", got ", config.hidden_size(), "; or give head_dim");
  } else if (config.has_head_dim() && config.head_dim() % 2 != 0) {
    context.Add("model.config.head_dim", "must be even, got ", config.head_dim(),
                " (hidden_size / num_attention_heads where it is not given)");
  }
  if (heads % std::max<int64_t>(1, config.num_key_value_heads()) != 0) {
    context.Add("model.config.num_key_value_heads", "must divide num_attention_heads ", heads,
                ", got ", config.num_key_value_heads());
  }
}

void CheckSteps(RuleContext& context) {
  const JobSpec& spec = context.spec();
  const int64_t minibatches = spec.trainer().minibatches_per_step();
  if (context.Usable({"trainer.minibatches_per_step", "prompts_per_step"}) && minibatches > 0 &&
      spec.prompts_per_step() % minibatches != 0) {
    context.Add("trainer.minibatches_per_step", "must divide prompts_per_step ",
                spec.prompts_per_step(), ", got ", minibatches);
  }
  if (!Generates(spec) &&
      context.Usable({"trainer.max_tokens_per_microbatch", "rollout.max_new_tokens"}) &&
      spec.trainer().max_tokens_per_microbatch() <= spec.rollout().max_new_tokens()) {
    context.Add("trainer.max_tokens_per_microbatch", "must be more than rollout.max_new_tokens ",
                spec.rollout().max_new_tokens(), ", so that one sample fits, got ",
                spec.trainer().max_tokens_per_microbatch());
  }
  if (context.Usable({"rollout"}) &&
      spec.rollout().min_new_tokens() > spec.rollout().max_new_tokens()) {
    context.Add("rollout.min_new_tokens", "must be at most rollout.max_new_tokens ",
                spec.rollout().max_new_tokens(), ", got ", spec.rollout().min_new_tokens());
  }
  for (int i = 0; i < spec.rollout().stop_size(); ++i) {
    const std::string& stop = spec.rollout().stop(i);
    if (stop.empty() || stop.size() > 1024) {
      context.Add(StrCat("rollout.stop.", i), "must have 1 to 1024 bytes, got ", stop.size());
    }
  }
  if (context.Usable({"rollout.max_sequences", "group_size"}) &&
      spec.rollout().max_sequences() < spec.group_size()) {
    context.Add("rollout.max_sequences", "must be at least group_size ", spec.group_size(),
                ", so that one group fits, got ", spec.rollout().max_sequences());
  }
}

// All advantages except reinforce_pp, which normalises over the batch, compare samples within a
// group.
void CheckGroupSize(RuleContext& context) {
  const job::v1::Loss& loss = context.spec().loss();
  if (context.spec().group_size() != 1 || Generates(context.spec()) ||
      !context.Usable({"group_size", "loss"})) {
    return;
  }
  const bool own = loss.has_advantage();
  const std::string name = own ? loss.advantage() : loss.has_preset() ? loss.preset() : "grpo";
  if (name != "reinforce_pp") {
    context.Add("group_size", "must be at least 2: ", own ? "loss.advantage " : "loss.preset ",
                name, " compares the samples of a group (reinforce_pp does not)");
  }
}

void CheckCredit(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (spec.loss().credit() != "turn" || !context.Usable({"loss", "environment"})) return;
  const job::v1::Environment& environment = spec.environment();
  if (spec.has_environment() &&
      (environment.type() != "openai_agent" || environment.max_conversations() > 1)) {
    return;
  }
  context.Add("loss.credit",
              "turn needs an environment that rewards turns; add the block environment, of another "
              "type than openai_agent, or with max_conversations above 1");
}

void CheckNotAsked(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (spec.loss().not_asked() != "duplicate" ||
      !context.Usable({"loss", "environment.type", "team"})) {
    return;
  }
  if (spec.has_team() && spec.environment().type() == "openai_agent") return;
  context.Add(
      "loss.not_asked",
      "duplicate needs a policy of a team, with environment.type openai_agent: any other is "
      "asked in all its episodes; remove it");
}

void CheckStaleness(RuleContext& context) {
  const JobSpec& spec = context.spec();
  const int64_t eta = spec.staleness().max();
  if (!context.Usable({"staleness.max"})) {
    return;
  }
  if (context.Usable({"weight_sync.every_steps"}) && spec.weight_sync().every_steps() > eta + 1) {
    context.Add("weight_sync.every_steps", "must be at most staleness.max + 1 = ", eta + 1,
                ", got ", spec.weight_sync().every_steps(),
                "; training would wait for samples that engines may only make with newer weights");
  }
  if (!context.Usable({"datastore.capacity_groups", "checkpoint.every_steps", "prompts_per_step",
                       "trainer.steps"})) {
    return;
  }
  const int64_t least = LeastCapacityGroups(spec);
  if (CapacityGroups(spec) >= least) {
    return;
  }
  if (spec.checkpoint().every_steps() == 0) {
    context.Add("datastore.capacity_groups", "must be at least (staleness.max ", eta,
                " + 1 + trainer.steps ", spec.trainer().steps(), ") * prompts_per_step ",
                spec.prompts_per_step(), " = ", least, ", or 0, got ",
                spec.datastore().capacity_groups(),
                "; without checkpoints on the way the store keeps every group");
  } else {
    context.Add("datastore.capacity_groups", "must be at least (staleness.max ", eta,
                " + 1 + 2 * checkpoint.every_steps ", spec.checkpoint().every_steps(),
                ") * prompts_per_step ", spec.prompts_per_step(), " = ", least, ", or 0, got ",
                spec.datastore().capacity_groups(), "; or checkpoint more often");
  }
}

void CheckFilter(RuleContext& context) {
  const job::v1::Filter& filter = context.spec().filter();
  if (context.Usable({"filter", "group_size"}) && filter.zero_variance() &&
      context.spec().group_size() == 1) {
    context.Add("filter.zero_variance",
                "needs a group_size of at least 2, got 1; every group would be filtered");
  }
  if (context.Usable({"filter"}) && filter.has_min_mean_reward() && filter.has_max_mean_reward() &&
      filter.min_mean_reward() > filter.max_mean_reward()) {
    context.Add("filter.min_mean_reward", "must be at most max_mean_reward ",
                FormatBound(filter.max_mean_reward()), ", got ",
                FormatBound(filter.min_mean_reward()), "; every group would be filtered");
  }
}

void CheckReplay(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (!spec.has_replay() || !context.Usable({"replay"})) return;
  const int64_t eta = spec.staleness().max();
  if (context.Usable({"staleness.max"}) && eta == 0) {
    context.Add(
        "replay",
        "needs staleness.max of at least 1: with 0, a step trains only on samples of its own "
        "version, and a run is repeatable");
  } else if (context.Usable({"staleness.max"}) && spec.replay().max_age() <= eta) {
    context.Add("replay.max_age", "must be more than staleness.max ", eta, ", got ",
                spec.replay().max_age());
  }
  if (context.Usable({"group_size"}) && spec.group_size() < 2) {
    context.Add("replay", "needs a group_size of at least 2, got ", spec.group_size());
  }
  if (!context.Usable({"reward"})) return;
  for (const auto& [name, component] : spec.reward().components()) {
    if (!SeesGroup(component)) continue;
    context.Add("replay", "contradicts reward.components.", name,
                ", which compares the samples of a group; remove one of the two");
  }
}

void CheckAdaptiveRollouts(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (!spec.has_adaptive_rollouts() || !context.Usable({"adaptive_rollouts"})) return;
  const job::v1::AdaptiveRollouts& adaptive = spec.adaptive_rollouts();
  if (context.Usable({"staleness.max"}) && spec.staleness().max() == 0) {
    context.Add("adaptive_rollouts",
                "needs staleness.max above 0: with 0 runs are repeatable, but what is known of a "
                "row depends on time");
  }
  if (context.Usable({"group_size"}) && adaptive.min_group_size() > spec.group_size()) {
    context.Add("adaptive_rollouts.min_group_size", "must be at most group_size ",
                spec.group_size(), ", got ", adaptive.min_group_size());
  }
  if (!context.Usable({"environment.type"})) return;
  if (spec.environment().type() == "openai_agent") {
    context.Add("adaptive_rollouts",
                "contradicts environment.type openai_agent: agents and teams may need group_size "
                "episodes of every prompt; remove one of the two");
  } else if (adaptive.has_max_tokens_factor() && spec.has_environment()) {
    context.Add("adaptive_rollouts.max_tokens_factor",
                "contradicts environment: the limit would also bound its observations, which may "
                "be longer than those of the longest success; remove one of the two");
  }
}

void CheckWeightSync(RuleContext& context) {
  const job::v1::WeightSync& sync = context.spec().weight_sync();
  if (context.Usable({"weight_sync.delta", "weight_sync.transport"}) && sync.delta() == "zstd" &&
      (sync.transport() == "shm" || sync.transport() == "inprocess")) {
    context.Add("weight_sync.delta", "zstd has no effect with transport ", sync.transport(),
                ", which sends no weights to other sites; use auto, cuda_ipc, grpc_relay or nccl, "
                "or remove it");
  }
}

void CheckOptimizer(RuleContext& context) {
  const job::v1::Optimizer& optimizer = context.spec().optimizer();
  if (context.Usable({"optimizer.min_learning_rate", "optimizer.learning_rate"}) &&
      optimizer.min_learning_rate() > optimizer.learning_rate()) {
    context.Add("optimizer.min_learning_rate", "must be at most learning_rate ",
                FormatBound(optimizer.learning_rate()), ", got ",
                FormatBound(optimizer.min_learning_rate()));
  }
  const int64_t steps = context.spec().trainer().steps();
  if (context.Usable({"optimizer.warmup_steps", "trainer.steps"}) &&
      optimizer.warmup_steps() > steps) {
    context.Add("optimizer.warmup_steps", "must be at most trainer.steps ", steps, ", got ",
                optimizer.warmup_steps());
  }
}

}  // namespace

bool IsName(std::string_view text, std::string_view punctuation) {
  const auto is_alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && is_alnum(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alnum(c) || punctuation.find(c) != std::string_view::npos;
  });
}

std::vector<ConfigError> ValidateJob(const JobSpec& spec, const KeyPlaces& places,
                                     const std::vector<ConfigError>& earlier) {
  std::vector<ConfigError> errors = earlier;
  std::vector<ConfigError> of_keys = CheckKeys(spec, places, earlier);
  errors.insert(errors.end(), std::make_move_iterator(of_keys.begin()),
                std::make_move_iterator(of_keys.end()));
  RuleContext context(spec, places, errors);
  CheckNames(context);
  CheckModelSource(context);
  CheckModelShape(context);
  CheckGenerateRules(context);
  CheckTaskRules(context);
  CheckDataRules(context);
  CheckEvalRules(context);
  CheckServiceRules(context);
  CheckEngineRules(context);
  CheckSteps(context);
  CheckGroupSize(context);
  CheckCredit(context);
  CheckNotAsked(context);
  CheckStaleness(context);
  CheckFilter(context);
  CheckReplay(context);
  CheckAdaptiveRollouts(context);
  CheckWeightSync(context);
  CheckOptimizer(context);
  errors.erase(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(earlier.size()));
  return errors;
}

int64_t LeastCapacityGroups(const JobSpec& spec) {
  const int64_t every = spec.checkpoint().every_steps();
  const int64_t kept_steps = every == 0 ? spec.trainer().steps() : 2 * every;
  return (spec.staleness().max() + 1 + kept_steps) * spec.prompts_per_step();
}

int64_t CapacityGroups(const JobSpec& spec) {
  const int64_t given = spec.datastore().capacity_groups();
  return given == 0 ? LeastCapacityGroups(spec) : given;
}

}  // namespace freshet
