#include "model/model_setup.h"

#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

constexpr char kBundle[] = "the trainer's model";

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

// Whether the job file alone defines the tokenizer.
bool DefinedByJob(const job::v1::JobSpec& spec) { return spec.tokenizer().type() == "char"; }

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeCharTokenizer(const job::v1::JobSpec& spec) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      CreateCharTokenizer(spec.tokenizer().alphabet());
  if (!tokenizer.ok()) {
    return InvalidArgument("tokenizer.alphabet: ", Message(tokenizer.status()));
  }
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const job::v1::JobSpec& spec,
                                                         const DataRoots& roots) {
  if (DefinedByJob(spec)) return MakeCharTokenizer(spec);
  return LoadTokenizer(
      spec.tokenizer().type() == "file" ? spec.tokenizer().path() : spec.model().path(), roots);
}

absl::Status CheckVocabulary(const ModelSetup& model, const std::string& source) {
  if (model.tokenizer->vocab_size() <= model.config.vocab_size) return absl::OkStatus();
  return InvalidArgument(source, ": the tokenizer has ", model.tokenizer->vocab_size(),
                         " ids, the model's vocab_size is ", model.config.vocab_size,
                         "; use the tokenizer that the model was trained with");
}

}  // namespace

absl::StatusOr<ModelSetup> OpenModel(const job::v1::JobSpec& spec, const DataRoots& roots) {
  ModelSetup model;
  if (!spec.model().has_path()) {
    FRESHET_ASSIGN_OR_RETURN(model.tokenizer, OpenTokenizer(spec, roots));
    model.config = RandomModel(spec.model().config(), *model.tokenizer);
    FRESHET_RETURN_IF_ERROR(model.config.Validate());
    return model;
  }
  FRESHET_ASSIGN_OR_RETURN(model.files, ModelFiles::Open(spec.model().path(), roots));
  model.config = model.files->config();
  FRESHET_RETURN_IF_ERROR(model.config.CheckGenerates(spec.model().path()));
  FRESHET_RETURN_IF_ERROR(ErrorsToStatus(model.files->CheckTensors()));
  FRESHET_ASSIGN_OR_RETURN(model.tokenizer, OpenTokenizer(spec, roots));
  FRESHET_RETURN_IF_ERROR(CheckVocabulary(model, spec.model().path()));
  return model;
}

ModelBundle MakeModelBundle(const job::v1::JobSpec& spec, const ModelSetup& model) {
  ModelBundle bundle;
  bundle.config_json = model.config.ToJson();
  bundle.generation_config_json = model.config.generation_text;
  if (!DefinedByJob(spec)) bundle.tokenizer_files = model.tokenizer->Files();
  return bundle;
}

absl::StatusOr<ModelSetup> OpenModelBundle(const job::v1::JobSpec& spec,
                                           const ModelBundle& bundle) {
  ModelSetup model;
  FRESHET_ASSIGN_OR_RETURN(model.config, ParseModelConfig(bundle.config_json, kBundle));
  FRESHET_RETURN_IF_ERROR(model.config.CheckGenerates(kBundle));
  if (!bundle.generation_config_json.empty()) {
    FRESHET_RETURN_IF_ERROR(
        MergeGenerationConfig(bundle.generation_config_json, kBundle, model.config));
  }
  if (DefinedByJob(spec)) {
    FRESHET_ASSIGN_OR_RETURN(model.tokenizer, MakeCharTokenizer(spec));
  } else {
    FRESHET_ASSIGN_OR_RETURN(model.tokenizer, ParseTokenizer(bundle.tokenizer_files, kBundle));
  }
  FRESHET_RETURN_IF_ERROR(CheckVocabulary(model, kBundle));
  return model;
}

std::vector<std::pair<std::string, std::string>> ModelTextFiles(const ModelConfig& config,
                                                                const Tokenizer& tokenizer,
                                                                Dtype dtype) {
  ModelConfig written = config;
  written.dtype = dtype;
  std::vector<std::pair<std::string, std::string>> files = {
      {"config.json", written.ToJson()}, {"generation_config.json", config.GenerationJson()}};
  for (const TokenizerFile& file : tokenizer.Files()) files.emplace_back(file.name, file.content);
  return files;
}

}  // namespace freshet
