#include "trainer/checkpoint/checkpoint_score.h"

#include <cmath>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/json_document.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace freshet {
namespace {

constexpr char kFile[] = "/evaluation.json";
constexpr uint64_t kMaxBytes = 64 << 10;

}  // namespace

bool RecordScore(const std::string& root, const CheckpointScore& score) {
  const std::string path = CheckpointPath(root, score.due);
  const absl::StatusOr<CheckpointManifest> manifest = ReadCheckpointManifest(path);
  if (!manifest.ok() || manifest->policy.lineage > score.policy.lineage) return false;
  const nlohmann::ordered_json json = {{"eval_name", score.eval_name},
                                       {"eval_accuracy", score.accuracy},
                                       {"policy_version", score.policy.version},
                                       {"lineage", score.policy.lineage}};
  const absl::Status written = WriteFileAtomically(path + kFile, json.dump(2) + "\n");
  if (!written.ok()) {
    FRESHET_LOG(Warning) << "event=score_not_written error=" << LogQuoted(Message(written));
  }
  return written.ok();
}

std::optional<double> ReadScore(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path + kFile, kMaxBytes);
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<nlohmann::json> json = ParseJson(*text, path + kFile);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  std::vector<std::string> errors;
  const double accuracy = JsonFields(*json, path, errors).Number("eval_accuracy", NAN);
  if (!errors.empty() || !std::isfinite(accuracy)) return std::nullopt;
  return accuracy;
}

}  // namespace freshet
