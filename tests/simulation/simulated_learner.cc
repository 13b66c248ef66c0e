#include "tests/simulation/simulated_learner.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/safetensors.h"

namespace freshet {
namespace {

constexpr const char* kTensor = "uids";
constexpr const char* kHeader = "uids\n";

}  // namespace

absl::Status SimulatedLearner::Load(const std::string& checkpoint) {
  FRESHET_ASSIGN_OR_RETURN(const auto file,
                           SafetensorsFile::Open(checkpoint + "/model.safetensors"));
  const TensorInfo* info = file->Find(kTensor);
  if (info == nullptr) return absl::DataLossError(StrCat(checkpoint, ": no tensor ", kTensor));
  std::istringstream text{std::string(file->Data(*info))};
  std::string line;
  std::getline(text, line);
  trained_.clear();
  std::string uid;
  int64_t count = 0;
  while (text >> uid >> count) trained_[uid] = count;
  WriteArena();
  return absl::OkStatus();
}

void SimulatedLearner::WriteArena() {
  arena_ = kHeader;
  for (const auto& [uid, count] : trained_) arena_ += StrCat(uid, " ", count, "\n");
}

absl::StatusOr<TrainStepResult> SimulatedLearner::TrainStep(int64_t step,
                                                            const std::vector<TrainGroup>& groups) {
  const absl::Time end = absl::Now() + absl::Seconds(options_.step_seconds);
  TrainStepResult result;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      ++trained_[sample.sample.uid];
      result.tokens_trained += std::count(sample.loss_mask.begin(), sample.loss_mask.end(), 1);
    }
  }
  WriteArena();
  if (options_.on_step) options_.on_step(step, groups);
  absl::SleepFor(end - absl::Now());
  return result;
}

absl::StatusOr<std::shared_ptr<const LearnerState>> SimulatedLearner::Snapshot() const {
  auto state = std::make_shared<LearnerState>();
  StateTensor tensor{kTensor, Dtype::kU8, {static_cast<int64_t>(arena_.size())}, {}, {}};
  tensor.bytes.resize(arena_.size());
  std::memcpy(tensor.bytes.data(), arena_.data(), arena_.size());
  state->model.push_back(tensor);
  state->optimizer.push_back(std::move(tensor));
  return std::shared_ptr<const LearnerState>(std::move(state));
}

absl::StatusOr<ModelBundle> SimulatedLearnerFactory::Describe(const job::v1::JobSpec& spec,
                                                              const DataRoots& roots) {
  FRESHET_ASSIGN_OR_RETURN(const ModelSetup model, OpenModel(spec, roots));
  return MakeModelBundle(spec, model);
}

absl::StatusOr<StartedLearner> SimulatedLearnerFactory::Start(const LearnerStart& start) {
  StartedLearner started;
  auto learner = std::make_unique<SimulatedLearner>(options_);
  if (start.checkpoint != nullptr) FRESHET_RETURN_IF_ERROR(learner->Load(start.checkpoint->path));
  started.learner = std::move(learner);
  started.checkpoint_files = {{"config.json", "{}"}};
  started.decode = [](const std::vector<int32_t>& ids) { return StrCat(ids.size(), " tokens"); };
  return started;
}

}  // namespace freshet
