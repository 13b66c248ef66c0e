#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHTS_FOLDER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHTS_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "model/parameter_layout.h"
#include "weights/manifest.h"

namespace freshet {

// Checks that a server of this model can load `snapshot`: exactly the model's tensors, each with
// its shape, in F32 or BF16, and finite values also as bf16. The servers check none of this.
//   INVALID_ARGUMENT: another model. INTERNAL: values that are not finite.
absl::Status CheckServable(const WeightSnapshot& snapshot, const ParameterLayout& layout);

// The folder that an engine shares with its inference server:
//
//   weights-N/     config.json, generation_config.json and the weights of one version, in bf16
//   SERVED         symbolic link to the directory that the server starts with
//   serve          one line: SERVED, the server's model name. If it changes, the supervisor
//                  (helm/freshet/files/supervise.sh) replaces the server by one of the new name
//   .freshet-engine   marks the folder of an engine, in which old weights and links are deleted
//
// SERVED is "HASH-UNIQUE.K": HASH is of the model's configuration, so that a server can be taken
// over from a former process; K grows with each restart. Confined to one thread.
class WeightsFolder {
 public:
  // Creates `path` if absent, and deletes the weights that former processes left and no server may
  // need. `unique`: letters and digits that no other process uses for this folder.
  // FAILED_PRECONDITION naming the path: it cannot be used, or is not of an engine and has
  // files with such names.
  static absl::StatusOr<std::unique_ptr<WeightsFolder>> Open(const std::string& path,
                                                             const std::string& unique,
                                                             const ModelConfig& model);

  // Writes a directory of weights that the server has not seen and returns its path. Also returns
  // the errors of CheckServable; RESOURCE_EXHAUSTED: the folder is full.
  absl::StatusOr<std::string> Write(const WeightSnapshot& snapshot);
  // Makes the supervisor start a new server on `weights`. Returns its name.
  absl::StatusOr<std::string> Restart(const std::string& weights);
  // The server's next start is with `weights`.
  absl::Status StartWith(const std::string& weights);
  // Deletes all weights but these and those of the server's next start.
  void KeepOnly(const std::vector<std::string>& weights);

  // Name of the server that should run now, if it serves a model of this configuration; "" if not.
  const std::string& served() const { return served_; }
  // The weights of the server's next start.
  std::string start_path() const { return path_ + "/" + start_; }

 private:
  WeightsFolder(std::string path, std::string unique, const ModelConfig& model);

  const std::string path_;
  const std::string unique_;
  const ParameterLayout layout_;
  const std::string config_json_;
  const std::string generation_json_;
  const std::string hash_;
  std::string served_;
  std::string start_;  // target of the link
  int64_t written_ = 0;
  int64_t restarts_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHTS_FOLDER_H_
