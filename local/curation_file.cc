#include "local/curation_file.h"

#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "datastore/blob/curation_blob.h"

namespace freshet {

std::pair<std::string, std::string> MakeCurationFile(InMemoryTrajectoryStore& store) {
  EncodedCuration encoded = EncodeCuration(store.Curation(kMaxSuccessBytes));
  if (encoded.left_out > 0) {
    FRESHET_LOG(Warning) << "event=successes_not_saved successes=" << encoded.left_out
                         << " saved_bytes=" << encoded.record.size();
  }
  return {kCurationFile, std::move(encoded.record)};
}

absl::Status RestoreCurationFile(const std::string& checkpoint, InMemoryTrajectoryStore& store) {
  const std::string path = (std::filesystem::path(checkpoint) / kCurationFile).string();
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return absl::OkStatus();
  const absl::StatusOr<std::string> record = ReadFile(path, kMaxCurationBytes);
  if (absl::IsInvalidArgument(record.status())) return DataLoss(Message(record.status()));
  if (!record.ok()) return StatusOf(absl::StatusCode::kUnavailable, Message(record.status()));
  absl::StatusOr<CurationState> state = DecodeCuration(*record);
  const absl::Status restored =
      state.ok() ? store.RestoreCuration(*std::move(state)) : state.status();
  if (restored.ok()) return restored;
  return StatusOf(restored.code(), path, ": ", Message(restored),
                  "; resume with the program that wrote it, or remove this checkpoint to resume "
                  "from the one before");
}

}  // namespace freshet
