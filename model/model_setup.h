#ifndef FRESHET_MODEL_MODEL_SETUP_H_
#define FRESHET_MODEL_MODEL_SETUP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "model/model_config.h"
#include "model/model_files.h"
#include "model/tokenizer.h"

namespace freshet {

// The model of a job, opened and checked.
struct ModelSetup {
  ModelConfig config;
  // Null when the weights are drawn at random, or when they come from another process.
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Opens model and tokenizer of a resolved job and reads every weight.
// Returns:
//   NOT_FOUND: a file or directory that the job names is not there.
//   INVALID_ARGUMENT: broken or unsuitable files, one line per error; a tokenizer with more ids
//     than the model has embeddings.
//   Errors of DataRoots.
absl::StatusOr<ModelSetup> OpenModel(const job::v1::JobSpec& spec, const DataRoots& roots);

// A model without its weights, as it travels to roles that have no file system.
struct ModelBundle {
  std::string config_json;
  std::vector<TokenizerFile> tokenizer_files;  // empty for a tokenizer that the job itself defines
};
ModelBundle MakeModelBundle(const job::v1::JobSpec& spec, const ModelSetup& model);

// The model of `spec` from the bundle that MakeModelBundle made of it; `files` is null. Opens no
// file. INVALID_ARGUMENT for a bundle that is broken or does not fit together.
absl::StatusOr<ModelSetup> OpenModelBundle(const job::v1::JobSpec& spec, const ModelBundle& bundle);

// The files, name and content, that make a directory of fp32 weights a Hugging Face model: config,
// generation config and tokenizer. For checkpoints, whatever the dtype of the model was.
std::vector<std::pair<std::string, std::string>> ModelTextFiles(const ModelConfig& config,
                                                                const Tokenizer& tokenizer);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_SETUP_H_
