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
#include "text/tokenizer.h"

namespace freshet {

// An opened and checked model of a job.
struct ModelSetup {
  ModelConfig config;
  // Null if weights are initialized randomly or come from another process.
  std::shared_ptr<const ModelFiles> files;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Opens model and tokenizer of a resolved job and reads all weights.
// Returns:
//   NOT_FOUND: a file or directory that the job names does not exist.
//   INVALID_ARGUMENT, one line per error: corrupt or unsupported files, or a tokenizer with more
//     ids than the model has embeddings.
//   Errors of DataRoots.
absl::StatusOr<ModelSetup> OpenModel(const job::v1::JobSpec& spec, const DataRoots& roots);

// A model without its weights, for roles without a file system.
struct ModelBundle {
  std::string config_json;
  std::string generation_config_json;          // empty if the model has none
  std::vector<TokenizerFile> tokenizer_files;  // empty if the job file defines the tokenizer
};
ModelBundle MakeModelBundle(const job::v1::JobSpec& spec, const ModelSetup& model);

// Opens a bundle made by MakeModelBundle for `spec`. Opens no files; `files` is null.
// INVALID_ARGUMENT: the bundle is malformed or inconsistent.
absl::StatusOr<ModelSetup> OpenModelBundle(const job::v1::JobSpec& spec, const ModelBundle& bundle);

// Name and content of the files that turn a directory of weights of `dtype` into a Hugging Face
// model: config, generation config and tokenizer, as they came except for the dtype. Used for
// checkpoints, whatever the model's dtype.
std::vector<std::pair<std::string, std::string>> ModelTextFiles(const ModelConfig& config,
                                                                const Tokenizer& tokenizer,
                                                                Dtype dtype);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_SETUP_H_
