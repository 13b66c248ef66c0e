#include "rollout/server_engine/weight_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/dtype.h"
#include "rollout/server_engine/vllm_protocol.h"

namespace freshet {
namespace {

// The communicator's time-outs are real time.
absl::Duration TimeUntil(absl::Time deadline) {
  return std::max(absl::ZeroDuration(), deadline - SystemClock::Get().Now());
}

absl::Status TransferError(const char* what, const absl::Status& status) {
  return status.ok() ? status : StatusOf(status.code(), what, ": ", Message(status));
}

// A step without a body.
ControlStep TransferStep(const char* route) {
  return {.call = PostCall(route), .loads_weights = true, .check = CheckTransferAnswer};
}

}  // namespace

WeightTransfer::WeightTransfer(std::shared_ptr<CommunicatorBackend> backend,
                               const ModelConfig& model, const Clock& clock,
                               const WeightTransferOptions& options)
    : backend_(std::move(backend)),
      tensors_(MakeParameterLayout(model).entries),
      clock_(clock),
      options_(options),
      chunks_(PackTensors(tensors_, options.buffer_bytes)) {}

absl::Status WeightTransfer::Load(const StoredWeights& weights, bool recompute_kv, RunSteps run) {
  const absl::Status loaded = TryLoad(weights, recompute_kv, run);
  if (loaded.ok()) {
    failures_ = 0;
    return loaded;
  }
  Close();
  const absl::Duration delay = BackoffDelay(++failures_, options_.first_delay, options_.max_delay);
  retry_at_ = clock_.Now() + delay;
  FRESHET_LOG(Warning) << "event=weight_transfer_off for=" << absl::FormatDuration(delay)
                       << " reason=" << LogQuoted(Message(loaded));
  return loaded;
}

absl::Status WeightTransfer::TryLoad(const StoredWeights& weights, bool recompute_kv,
                                     RunSteps run) {
  FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(weights.path));
  if (group_ == nullptr) FRESHET_RETURN_IF_ERROR(run({CheckNotPaused()}));
  // Workers join while nothing is generated, because joining blocks them.
  FRESHET_RETURN_IF_ERROR(run({PauseVllm(recompute_kv)}));
  if (group_ == nullptr) FRESHET_RETURN_IF_ERROR(MakeGroup(run));
  std::vector<ControlStep> steps = {TransferStep("/start_weight_update"),
                                    {.call = UpdateWeights(tensors_),
                                     .loads_weights = true,
                                     .check = CheckTransferAnswer,
                                     .concurrent_work =
                                         [&](absl::Duration timeout, const std::stop_token& stop) {
                                           return TransferError("sending weights",
                                                                Send(*files, timeout, stop));
                                         }},
                                    TransferStep("/finish_weight_update")};
  for (ControlStep& step : ResumeVllm(weights.policy, recompute_kv)) {
    steps.push_back(std::move(step));
  }
  return run(std::move(steps));
}

absl::Status WeightTransfer::MakeGroup(RunSteps run) {
  int workers = 0;
  const auto take_workers = [&workers](const std::string& body) -> absl::Status {
    FRESHET_ASSIGN_OR_RETURN(workers, ParseWorldSize(body));
    return absl::OkStatus();
  };
  // A former process may have left a group.
  FRESHET_RETURN_IF_ERROR(
      run({TransferStep("/shutdown_weight_transfer_engine"),
           {.call = GetCall("/get_world_size?include_dp=true"), .check = take_workers}}));
  FRESHET_ASSIGN_OR_RETURN(const std::string id, backend_->NewRendezvous());
  FRESHET_RETURN_IF_ERROR(
      run({{.call = InitTransfer(id, workers, options_.buffer_bytes),
            .loads_weights = true,
            .check = CheckTransferAnswer,
            .concurrent_work = [&](absl::Duration timeout, const std::stop_token& stop) {
              return TransferError("the group with the server's workers",
                                   Join(id, workers, timeout, stop));
            }}}));
  FRESHET_LOG(Info) << "event=weight_transfer_group workers=" << workers;
  return absl::OkStatus();
}

absl::Status WeightTransfer::Join(const std::string& id, int workers, absl::Duration timeout,
                                  std::stop_token stop) {
  const absl::Time deadline = SystemClock::Get().Now() + timeout;
  GroupPlace place;
  place.size = workers + 1;
  place.rendezvous = id;
  place.timeout = timeout;
  place.stop = stop;
  place.undivided = true;
  FRESHET_ASSIGN_OR_RETURN(group_, backend_->Connect(place));
  const std::stop_callback stopped(stop, [this] { group_->Abort("the server has not joined"); });
  float one = 1;  // the workers' warm-up
  return group_->AllReduce({&one, 1}, TimeUntil(deadline));
}

absl::Status WeightTransfer::Send(const ModelFiles& files, absl::Duration timeout,
                                  const std::stop_token& stop) {
  const absl::Time deadline = SystemClock::Get().Now() + timeout;
  const std::stop_callback stopped(stop, [this] { group_->Abort("the server's call has failed"); });
  std::vector<std::byte> buffer;
  for (const PackedChunk& chunk : chunks_) {
    buffer.resize(chunk.bytes);
    size_t filled = 0;
    for (size_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      const StoredTensor* tensor = files.Find(tensors_[i].name);
      const size_t bytes = static_cast<size_t>(tensors_[i].size) * DtypeBytes(Dtype::kBf16);
      if (tensor == nullptr || tensor->dtype != Dtype::kBf16 || tensor->data.size() != bytes) {
        return Internal(files.path(), ": ", tensors_[i].name, " is not a bf16 tensor of ", bytes,
                        " bytes");
      }
      std::memcpy(buffer.data() + filled, tensor->data.data(), bytes);
      filled += bytes;
    }
    FRESHET_RETURN_IF_ERROR(group_->Broadcast(buffer, /*root=*/0, TimeUntil(deadline)));
  }
  return absl::OkStatus();
}

}  // namespace freshet
