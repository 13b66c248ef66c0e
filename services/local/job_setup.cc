#include "services/local/job_setup.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "controller/dataset/arithmetic_dataset.h"
#include "controller/dataset/copy_dataset.h"
#include "controller/dataset/fault_list.h"
#include "controller/dataset/jsonl_dataset.h"
#include "controller/dataset/prompt_feeder.h"
#include "controller/dataset/template_dataset.h"
#include "controller/job/job_validator.h"
#include "model/char_tokenizer.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"
#include "services/reward/scorer_factory.h"
#include "services/reward/text_template.h"

namespace freshet {
namespace {

// proto optional -> std::optional, where the getters are named alike.
#define FRESHET_OPTIONAL(message, field) \
  ((message).has_##field() ? std::make_optional((message).field()) : std::nullopt)

ModelConfig RandomModel(const job::v1::ModelConfig& spec, const Tokenizer& tokenizer) {
  ModelConfig config;
  config.vocab_size = tokenizer.vocab_size();
  config.hidden_size = spec.hidden_size();
  config.num_hidden_layers = spec.num_hidden_layers();
  config.num_attention_heads = spec.num_attention_heads();
  config.num_key_value_heads = spec.num_key_value_heads();
  config.head_dim = spec.head_dim();
  config.intermediate_size = spec.intermediate_size();
  config.max_position_embeddings = spec.max_position_embeddings();
  config.rms_norm_eps = spec.rms_norm_eps();
  config.rope_theta = spec.rope_theta();
  config.tie_word_embeddings = spec.tie_word_embeddings();
  config.initializer_range = spec.initializer_range();
  config.bos_token_id = tokenizer.bos_id();
  if (tokenizer.eos_id().has_value()) config.eos_token_ids = {*tokenizer.eos_id()};
  config.DeriveDefaults();
  return config;
}

absl::Status OpenTokenizer(JobSetup& setup) {
  const job::v1::Tokenizer& spec = setup.spec.tokenizer();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      spec.type() == "char"   ? CreateCharTokenizer(spec.alphabet())
      : spec.type() == "file" ? LoadTokenizer(spec.path())
                              : LoadTokenizer(setup.spec.model().path());
  if (!tokenizer.ok() && spec.type() == "char") {
    return InvalidArgument("tokenizer.alphabet: ", Message(tokenizer.status()));
  }
  FRESHET_RETURN_IF_ERROR(tokenizer.status());
  setup.tokenizer = *std::move(tokenizer);
  return absl::OkStatus();
}

absl::Status OpenModel(JobSetup& setup) {
  const job::v1::Model& spec = setup.spec.model();
  if (!spec.has_path()) {
    FRESHET_RETURN_IF_ERROR(OpenTokenizer(setup));
    setup.model = RandomModel(spec.config(), *setup.tokenizer);
    return setup.model.Validate();
  }
  FRESHET_ASSIGN_OR_RETURN(setup.model_files, ModelFiles::Open(spec.path()));
  setup.model = setup.model_files->config();
  std::string faults;
  for (const std::string& fault : setup.model_files->CheckTensors()) {
    faults += (faults.empty() ? "" : "\n") + fault;
  }
  if (!faults.empty()) return InvalidArgument(faults);
  FRESHET_RETURN_IF_ERROR(OpenTokenizer(setup));
  if (setup.tokenizer->vocab_size() > setup.model.vocab_size) {
    return InvalidArgument(spec.path(), ": the tokenizer has ", setup.tokenizer->vocab_size(),
                           " ids, the model's vocab_size is ", setup.model.vocab_size,
                           "; use the tokenizer that the model was trained with");
  }
  return absl::OkStatus();
}

template <typename DatasetType, typename Options>
absl::StatusOr<DatasetSplit> OpenGenerated(Options options, const JobSpec& spec) {
  options.rows.train_rows = spec.dataset().train_rows();
  options.rows.held_out_rows = spec.has_eval() ? spec.eval().rows() : 0;
  options.rows.seed = static_cast<uint64_t>(spec.seed());
  DatasetSplit split;
  FRESHET_ASSIGN_OR_RETURN(split.train, DatasetType::Create(options, DatasetPart::kTrain));
  if (spec.has_eval()) {
    FRESHET_ASSIGN_OR_RETURN(split.held_out, DatasetType::Create(options, DatasetPart::kHeldOut));
  }
  return split;
}

// Fields that the texts of the reward components name: rows must have them.
std::vector<std::string> RewardFields(const job::v1::Reward& reward) {
  std::vector<std::string> fields;
  for (const auto& [name, component] : reward.components()) {
    const absl::StatusOr<TextTemplate> text = TextTemplate::Parse(component.text());
    if (!text.ok()) continue;  // told when the scorer is made
    for (const std::string& field : text->fields()) {
      if (field != "answer" && field != "prompt") fields.push_back(field);
    }
  }
  std::sort(fields.begin(), fields.end());
  fields.erase(std::unique(fields.begin(), fields.end()), fields.end());
  return fields;
}

RowOptions MakeRowOptions(const JobSpec& spec) {
  const job::v1::Dataset& data = spec.dataset();
  RowOptions options;
  options.prompt = data.prompt();
  options.answer = data.answer();
  options.fields.insert(data.fields().begin(), data.fields().end());
  options.required = RewardFields(spec.reward());
  return options;
}

absl::StatusOr<DatasetSplit> OpenJsonl(const JobSpec& spec) {
  const job::v1::Dataset& data = spec.dataset();
  JsonlDatasetOptions options;
  options.path = data.path();
  options.row = MakeRowOptions(spec);
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows, JsonlDataset::Load(options));
  if (!spec.has_eval()) return DatasetSplit{std::move(rows), nullptr};
  if (!data.has_eval_path()) return SplitHeldOut(std::move(rows), spec.eval().rows());
  options.path = data.eval_path();
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> held_out, JsonlDataset::Load(options));
  return DatasetSplit{std::move(rows), std::move(held_out)};
}

absl::StatusOr<DatasetSplit> OpenTemplate(const JobSpec& spec) {
  TemplateDatasetOptions options;
  options.row = MakeRowOptions(spec);
  for (const job::v1::Row& row : spec.dataset().rows()) {
    options.rows.emplace_back(row.values().begin(), row.values().end());
  }
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows, TemplateDataset::Create(options));
  // A list of rows is evaluated on itself: there is nothing to hold out from a handful of prompts.
  return DatasetSplit{rows, spec.has_eval() ? rows : nullptr};
}

absl::StatusOr<DatasetSplit> OpenData(const JobSpec& spec) {
  const job::v1::Dataset& data = spec.dataset();
  if (data.type() == "arithmetic") {
    ArithmeticDatasetOptions options;
    options.operands = data.operands();
    options.digits = data.digits();
    return OpenGenerated<ArithmeticDataset>(options, spec);
  }
  if (data.type() == "copy") {
    CopyDatasetOptions options;
    options.symbols = data.symbols();
    options.length = data.length();
    return OpenGenerated<CopyDataset>(options, spec);
  }
  return data.type() == "jsonl" ? OpenJsonl(spec) : OpenTemplate(spec);
}

absl::StatusOr<std::unique_ptr<CompositeScorer>> OpenScorer(const job::v1::Reward& reward) {
  std::map<std::string, ScorerOptions> components;
  for (const auto& [name, spec] : reward.components()) {
    ScorerOptions& options = components[name];
    options.type = spec.type();
    options.weight = spec.weight();
    options.text = FRESHET_OPTIONAL(spec, text);
    options.min_count = FRESHET_OPTIONAL(spec, min_count);
    options.place = FRESHET_OPTIONAL(spec, place);
    options.pattern = FRESHET_OPTIONAL(spec, pattern);
    options.match = FRESHET_OPTIONAL(spec, match);
    options.shape = FRESHET_OPTIONAL(spec, shape);
    options.min_tokens = FRESHET_OPTIONAL(spec, min_tokens);
    options.max_tokens = FRESHET_OPTIONAL(spec, max_tokens);
    options.margin_tokens = FRESHET_OPTIONAL(spec, margin_tokens);
    options.ignore_case = FRESHET_OPTIONAL(spec, ignore_case);
    options.strip_space = FRESHET_OPTIONAL(spec, strip_space);
    options.tolerance = FRESHET_OPTIONAL(spec, tolerance);
  }
  absl::StatusOr<std::unique_ptr<CompositeScorer>> scorer = MakeCompositeScorer(components);
  if (!scorer.ok()) return InvalidArgument("reward.components.", Message(scorer.status()));
  return scorer;
}

void SetSampling(JobSetup& setup) {
  const job::v1::Rollout& rollout = setup.spec.rollout();
  SamplingParams& sampling = setup.sampling;
  sampling.temperature = rollout.temperature();
  sampling.top_p = rollout.top_p();
  sampling.top_k = static_cast<int32_t>(rollout.top_k());
  sampling.max_new_tokens = static_cast<int32_t>(rollout.max_new_tokens());
  sampling.stop_ids = setup.model.eos_token_ids;
  if (setup.tokenizer->eos_id().has_value())
    sampling.stop_ids.push_back(*setup.tokenizer->eos_id());
  for (const int64_t id : rollout.stop_token_ids()) {
    sampling.stop_ids.push_back(static_cast<int32_t>(id));
  }
  setup.eval_sampling = sampling;
  setup.eval_sampling.top_k = 0;
  setup.eval_sampling.top_p = setup.spec.eval().top_p();
  setup.eval_sampling.temperature = setup.spec.eval().temperature();
  if (setup.spec.eval().has_max_new_tokens()) {
    setup.eval_sampling.max_new_tokens = static_cast<int32_t>(setup.spec.eval().max_new_tokens());
  }
}

void SetStore(JobSetup& setup) {
  const JobSpec& spec = setup.spec;
  StoreOptions& store = setup.store;
  store.job = spec.name();
  store.staleness.max = spec.staleness().max();
  const std::string& policy = spec.staleness().policy();
  store.staleness.disposition = policy == "drop"      ? Disposition::kDrop
                                : policy == "requeue" ? Disposition::kRequeue
                                : policy == "mask"    ? Disposition::kMask
                                                      : Disposition::kWait;
  store.staleness.groups_per_step = spec.prompts_per_step();
  store.staleness.max_in_flight = spec.rollout().max_inflight_groups();
  store.group_size = static_cast<int32_t>(spec.group_size());
  store.last_step = spec.trainer().steps();
  store.capacity_groups = CapacityGroups(spec);
  store.max_queued_prompts = spec.datastore().max_queued_prompts();
  store.lease_ttl = absl::Milliseconds(spec.rollout().lease_ttl_ms());
  store.max_row_failures = static_cast<int32_t>(spec.reward().max_attempts());
  store.max_requeues = static_cast<int32_t>(spec.staleness().max_requeues());
  store.filter_zero_variance = spec.filter().zero_variance();
  store.max_filtered_in_a_row = spec.filter().max_filtered_in_a_row();
}

void SetSchedule(JobSetup& setup) {
  const job::v1::Optimizer& optimizer = setup.spec.optimizer();
  const absl::StatusOr<ScheduleKind> kind = ParseScheduleKind(optimizer.schedule());
  setup.schedule.kind = kind.value_or(ScheduleKind::kConstant);
  setup.schedule.peak = optimizer.learning_rate();
  setup.schedule.warmup_steps = optimizer.warmup_steps();
  setup.schedule.total_steps = setup.spec.trainer().steps();
  setup.schedule.final_fraction = optimizer.min_learning_rate() / optimizer.learning_rate();
}

// Every row that the supervised warm-up may draw has an answer that fits behind its prompt.
absl::Status CheckAnswers(const JobSetup& setup) {
  const Dataset& data = *setup.data.train;
  FaultList faults;
  for (int64_t i = 0; i < data.size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(const DatasetRow row, data.Get(i));
    const std::string where = data.Where(i);
    const auto answer = EncodeAnswer(setup, row, where);
    if (!answer.ok()) {
      faults.Add(Message(answer.status()));
      continue;
    }
    FRESHET_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, EncodePrompt(setup, row.prompt));
    const size_t tokens = prompt.size() + answer->size();
    if (static_cast<int64_t>(tokens) <= setup.model.max_position_embeddings) continue;
    faults.Add(StrCat(where, ": prompt and answer have ", tokens,
                      " tokens, the model's context is ", setup.model.max_position_embeddings,
                      "; shorten or remove the row"));
  }
  return faults.ToStatus();
}

}  // namespace

std::vector<Fault> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss) {
  const job::v1::Loss& keys = spec.loss();
  LossOverrides overrides;
  overrides.preset = FRESHET_OPTIONAL(keys, preset);
  overrides.advantage = FRESHET_OPTIONAL(keys, advantage);
  overrides.surrogate = FRESHET_OPTIONAL(keys, surrogate);
  overrides.ratio = FRESHET_OPTIONAL(keys, ratio);
  overrides.anchor = FRESHET_OPTIONAL(keys, anchor);
  overrides.clip_low = FRESHET_OPTIONAL(keys.clip(), low);
  overrides.clip_high = FRESHET_OPTIONAL(keys.clip(), high);
  overrides.clip_dual = FRESHET_OPTIONAL(keys.clip(), dual);
  overrides.correction_kind = FRESHET_OPTIONAL(keys.correction(), kind);
  overrides.correction_cap = FRESHET_OPTIONAL(keys.correction(), cap);
  overrides.correction_low = FRESHET_OPTIONAL(keys.correction(), low);
  overrides.kl_kind = FRESHET_OPTIONAL(keys.kl(), kind);
  overrides.kl_coef = FRESHET_OPTIONAL(keys.kl(), coef);
  overrides.aggregate = FRESHET_OPTIONAL(keys, aggregate);
  overrides.entropy_coef = FRESHET_OPTIONAL(keys, entropy_coef);
  auto resolved = ResolveLoss(overrides, {spec.group_size(), spec.prompts_per_step()});
  std::vector<Fault> faults;
  if (std::holds_alternative<LossSpec>(resolved)) {
    loss = std::get<LossSpec>(resolved);
    return faults;
  }
  for (const LossFault& fault : std::get<std::vector<LossFault>>(resolved)) {
    faults.push_back(places.At(fault.field, fault.message));
  }
  return faults;
}

absl::StatusOr<std::unique_ptr<JobSetup>> PrepareJob(const JobSpec& spec, const KeyPlaces& places) {
  auto setup = std::make_unique<JobSetup>();
  setup->spec = spec;
  const std::vector<Fault> faults = CheckLoss(spec, places, setup->loss);
  if (!faults.empty()) return InvalidArgument(FormatFaults(faults));
  FRESHET_RETURN_IF_ERROR(OpenModel(*setup));
  FRESHET_ASSIGN_OR_RETURN(setup->data, OpenData(spec));
  FRESHET_ASSIGN_OR_RETURN(setup->scorer, OpenScorer(spec.reward()));
  SetSampling(*setup);
  SetStore(*setup);
  SetSchedule(*setup);
  FRESHET_RETURN_IF_ERROR(setup->store.Validate());

  const int64_t longest_response =
      std::max<int64_t>(setup->sampling.max_new_tokens, setup->eval_sampling.max_new_tokens);
  setup->max_prompt_tokens = setup->model.max_position_embeddings - longest_response;
  if (setup->max_prompt_tokens < 1) {
    return InvalidArgument("rollout.max_new_tokens: ", longest_response,
                           " leaves no room for a prompt in the model's context of ",
                           setup->model.max_position_embeddings, " tokens");
  }
  const PromptEncoder encoder = [&setup](const std::string& text) {
    absl::StatusOr<std::vector<int32_t>> ids = EncodePrompt(*setup, text);
    if (ids.ok()) {
      setup->longest_prompt_tokens =
          std::max(setup->longest_prompt_tokens, static_cast<int64_t>(ids->size()));
    }
    return ids;
  };
  FRESHET_RETURN_IF_ERROR(ValidatePrompts(*setup->data.train, encoder, setup->max_prompt_tokens));
  if (setup->data.held_out != nullptr) {
    FRESHET_RETURN_IF_ERROR(
        ValidatePrompts(*setup->data.held_out, encoder, setup->max_prompt_tokens));
  }
  if (spec.warmup().has_sft()) FRESHET_RETURN_IF_ERROR(CheckAnswers(*setup));
  return setup;
}

absl::StatusOr<std::vector<int32_t>> EncodeAnswer(const JobSetup& setup, const DatasetRow& row,
                                                  const std::string& where) {
  const auto answer = row.attributes.find("answer");
  if (answer == row.attributes.end()) {
    return InvalidArgument(where, ": warmup.sft needs an answer; name its field in dataset.answer");
  }
  absl::StatusOr<std::vector<int32_t>> ids = setup.tokenizer->Encode(answer->second);
  if (!ids.ok()) return InvalidArgument(where, ": answer: ", Message(ids.status()));
  if (setup.tokenizer->eos_id().has_value()) ids->push_back(*setup.tokenizer->eos_id());
  return ids;
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const JobSetup& setup, const std::string& text) {
  return setup.tokenizer->EncodeWithSpecial(text);
}

}  // namespace freshet
