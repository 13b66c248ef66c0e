#include "datastore/blob/curation_blob.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/blob_record.h"
#include "datastore/blob/trajectory_blob.h"

namespace freshet {
namespace {

constexpr int64_t kHistoryBytes = sizeof(uint32_t) + 2 * sizeof(double) + sizeof(int64_t);
constexpr int64_t kSuccessBytes = 4 * sizeof(uint32_t);
constexpr int64_t kMaxCurationTasks = 4096;   // with a history
constexpr int64_t kMaxSuccesses = 1'000'000;  // job_spec.proto, Replay.capacity

struct EncodedSuccess {
  const std::string* key = nullptr;
  const PooledSuccess* success = nullptr;
  std::string response;
  std::string score;

  int64_t bytes() const {
    return kSuccessBytes + std::ssize(*key) + std::ssize(success->uid) + std::ssize(response) +
           std::ssize(score);
  }
};

// The newest successes that `max_bytes` hold, by key. One that needs more than is left is skipped.
std::vector<EncodedSuccess> NewestSuccesses(const CurationState& state, int64_t max_bytes) {
  std::vector<EncodedSuccess> all;
  all.reserve(state.successes.size());
  for (const auto& [key, success] : state.successes) all.push_back({&key, &success, "", ""});
  std::stable_sort(all.begin(), all.end(), [](const EncodedSuccess& a, const EncodedSuccess& b) {
    return a.success->oldest > b.success->oldest;
  });
  std::vector<EncodedSuccess> kept;
  kept.reserve(all.size());
  for (EncodedSuccess& candidate : all) {
    absl::StatusOr<std::string> response = EncodeResponse(*candidate.success->response);
    absl::StatusOr<std::string> score = EncodeScore(*candidate.success->score);
    if (!response.ok() || !score.ok()) continue;  // beyond the limits of a record
    candidate.response = *std::move(response);
    candidate.score = *std::move(score);
    if (candidate.bytes() > max_bytes) continue;
    max_bytes -= candidate.bytes();
    kept.push_back(std::move(candidate));
  }
  std::sort(kept.begin(), kept.end(),
            [](const EncodedSuccess& a, const EncodedSuccess& b) { return *a.key < *b.key; });
  return kept;
}

void PutSized(BlobWriter& writer, std::string_view text) {
  writer.Put(static_cast<uint32_t>(text.size()));
  writer.PutText(text);
}

// At most `most`, without those of long names.
void PutHistories(BlobWriter& writer, const std::map<std::string, RolloutHistory>& histories,
                  int64_t most) {
  std::vector<const std::pair<const std::string, RolloutHistory>*> kept;
  kept.reserve(histories.size());
  for (const auto& history : histories) {
    if (std::ssize(history.first) <= kMaxCurationText && std::ssize(kept) < most) {
      kept.push_back(&history);
    }
  }
  writer.Put(static_cast<uint32_t>(kept.size()));
  for (const auto* history : kept) {
    PutSized(writer, history->first);
    writer.Put(history->second.successes);
    writer.Put(history->second.samples);
    writer.Put(history->second.longest);
  }
}

// A text that comes after `previous`, the key before it; null: there is none.
std::string TakeKey(BlobReader& reader, const std::string* previous) {
  std::string key(reader.GetText(reader.GetCount(kMaxCurationText)));
  if (previous != nullptr && !(*previous < key)) reader.Fail("its keys are not in order");
  return key;
}

template <typename Value>
const std::string* LastKey(const std::map<std::string, Value>& map) {
  return map.empty() ? nullptr : &map.rbegin()->first;
}

std::map<std::string, RolloutHistory> TakeHistories(BlobReader& reader, int64_t most) {
  std::map<std::string, RolloutHistory> histories;
  const int64_t count = reader.GetCount(most);
  if (!reader.Expect(count, kHistoryBytes)) return histories;
  for (int64_t i = 0; i < count && reader.ok(); ++i) {
    std::string key = TakeKey(reader, LastKey(histories));
    RolloutHistory history;
    history.successes = reader.Get<double>();
    history.samples = reader.Get<double>();
    history.longest = reader.Get<int64_t>();
    histories.emplace_hint(histories.end(), std::move(key), history);
  }
  return histories;
}

absl::Status TakeSuccesses(BlobReader& reader, std::map<std::string, PooledSuccess>& successes) {
  const int64_t count = reader.GetCount(kMaxSuccesses);
  if (!reader.Expect(count, kSuccessBytes)) return reader.Finish();
  for (int64_t i = 0; i < count; ++i) {
    std::string key = TakeKey(reader, LastKey(successes));
    PooledSuccess success;
    success.uid = reader.GetText(reader.GetCount(kMaxCurationText));
    const std::string_view response = reader.GetText(reader.GetCount(kMaxCurationBytes));
    const std::string_view score = reader.GetText(reader.GetCount(kMaxCurationBytes));
    if (!reader.ok()) return reader.Finish();
    FRESHET_ASSIGN_OR_RETURN(Response decoded, DecodeResponse(response));
    FRESHET_ASSIGN_OR_RETURN(Score decoded_score, DecodeScore(score));
    success.response = std::make_shared<const Response>(std::move(decoded));
    success.score = std::make_shared<const Score>(std::move(decoded_score));
    successes.emplace_hint(successes.end(), std::move(key), std::move(success));
  }
  return absl::OkStatus();
}

}  // namespace

EncodedCuration EncodeCuration(const CurationState& state, int64_t max_success_bytes) {
  const std::vector<EncodedSuccess> successes = NewestSuccesses(state, max_success_bytes);
  EncodedCuration encoded;
  encoded.left_out = state.left_out + std::ssize(state.successes) - std::ssize(successes);
  BlobWriter writer(BlobKind::kCuration, 64 + 48 * (state.rows.size() + state.tasks.size()));
  writer.Put(state.min_reward);
  writer.Put(static_cast<uint32_t>(successes.size()));
  for (const EncodedSuccess& success : successes) {
    PutSized(writer, *success.key);
    PutSized(writer, success.success->uid);
    PutSized(writer, success.response);
    PutSized(writer, success.score);
  }
  PutHistories(writer, state.rows, static_cast<int64_t>(kMaxHistories));
  // A job has few tasks, unless the field of this name has other texts.
  PutHistories(writer, state.tasks, kMaxCurationTasks);
  encoded.record = std::move(writer).Finish();
  return encoded;
}

absl::StatusOr<CurationState> DecodeCuration(std::string_view record) {
  if (std::ssize(record) > kMaxCurationBytes) {
    return DataLoss("record of ", record.size(), " bytes is above ", kMaxCurationBytes);
  }
  FRESHET_ASSIGN_OR_RETURN(BlobReader reader, BlobReader::Open(BlobKind::kCuration, record));
  CurationState state;
  state.min_reward = reader.Get<double>();
  FRESHET_RETURN_IF_ERROR(TakeSuccesses(reader, state.successes));
  state.rows = TakeHistories(reader, static_cast<int64_t>(kMaxHistories));
  state.tasks = TakeHistories(reader, kMaxCurationTasks);
  FRESHET_RETURN_IF_ERROR(reader.Finish());
  return state;
}

}  // namespace freshet
