#include "datastore/redis/redis_blobs.h"

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Per round trip. Client and server buffer the whole reply.
constexpr int64_t kSliceBytes = int64_t{4} << 20;
constexpr size_t kSlicePlaces = 4096;

constexpr int64_t kPromptBytes = 4096;  // estimate

}  // namespace

std::string PromptBlobName(int64_t ordinal, std::string_view checksum) {
  return StrCat("p:", absl::Dec(ordinal, absl::kZeroPad16), ":", checksum);
}

template <typename T>
std::shared_ptr<const T> FetchPlan::Add(Place place,
                                        absl::StatusOr<T> (*decode)(std::string_view)) {
  auto value = std::make_shared<T>();
  place.decode = [value, decode](std::string_view blob) -> absl::Status {
    FRESHET_ASSIGN_OR_RETURN(*value, decode(blob));
    return absl::OkStatus();
  };
  places_.push_back(std::move(place));
  return value;
}

std::shared_ptr<const Prompt> FetchPlan::AddPrompt(int64_t ordinal, int32_t attempt,
                                                   const std::string& checksum) {
  const std::string name = PromptBlobName(ordinal, checksum);
  std::shared_ptr<const Prompt>& prompt = prompts_[name];
  if (prompt == nullptr) prompt = Add({name, ordinal, attempt, "ph", checksum}, DecodePrompt);
  return prompt;
}

absl::StatusOr<std::shared_ptr<const Response>> FetchPlan::AddResponse(const SampleKey& key,
                                                                       char field,
                                                                       std::string_view record) {
  FRESHET_ASSIGN_OR_RETURN(SampleRecord sample, ParseSampleRecord(record));
  return AddResponse(key, field, std::move(sample));
}

std::shared_ptr<const Response> FetchPlan::AddResponse(const SampleKey& key, char field,
                                                       SampleRecord sample) {
  return Add(
      {std::move(sample.blob), key.ordinal, key.attempt, StrCat(std::string(1, field), key.index),
       std::move(sample.checksum), sample.offset, sample.size},
      DecodeResponse);
}

absl::StatusOr<SampleView> FetchPlan::AddSample(const SampleKey& key, const std::string& score,
                                                const std::string& prompt_sum,
                                                std::string_view record) {
  SampleView view;
  view.key = key;
  view.uid = SampleUid(job_, key);
  view.prompt = AddPrompt(key.ordinal, key.attempt, prompt_sum);
  FRESHET_ASSIGN_OR_RETURN(SampleRecord sample, ParseSampleRecord(record));
  view.replay_of = ReplayOf(sample, job_);
  view.response = AddResponse(key, 's', std::move(sample));
  if (!score.empty()) {
    const auto value = std::make_shared<Score>();
    scores_.emplace_back(key.ordinal, score, value);
    view.score = value;
  }
  return view;
}

absl::StatusOr<RedisBlobReader::Corrupt> RedisBlobReader::FetchPlaces(
    std::span<const Place> places) const {
  Corrupt corrupt;
  int64_t size = 0;
  size_t first = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    size += std::max(places[i].size, kPromptBytes);
    if (i + 1 < places.size() && size < kSliceBytes && i - first < kSlicePlaces) continue;
    FRESHET_RETURN_IF_ERROR(FetchSlice(places.subspan(first, i + 1 - first), corrupt));
    first = i + 1;
    size = 0;
  }
  return corrupt;
}

absl::StatusOr<std::set<int64_t>> RedisBlobReader::Fetch(const FetchPlan& plan) const {
  FRESHET_ASSIGN_OR_RETURN(const Corrupt corrupt, FetchPlaces(plan.places_));
  if (!corrupt.empty()) FRESHET_RETURN_IF_ERROR(DropCorrupt(corrupt));
  std::set<int64_t> ended;
  for (const auto& [place, what] : corrupt) ended.insert(place->ordinal);
  for (const auto& [ordinal, record, score] : plan.scores_) {
    if (ended.contains(ordinal)) continue;
    FRESHET_ASSIGN_OR_RETURN(*score, DecodeScore(record));
  }
  return ended;
}

absl::Status RedisBlobReader::Read(const FetchPlan& plan) const {
  FRESHET_ASSIGN_OR_RETURN(const Corrupt corrupt, FetchPlaces(plan.places_));
  if (corrupt.empty()) return absl::OkStatus();
  const auto& [place, what] = corrupt.front();
  return DataLoss("group ", place->ordinal, ": ", what);
}

// Sends one command per blob: the whole blob or the range that its places need.
absl::Status RedisBlobReader::FetchSlice(std::span<const Place> places, Corrupt& corrupt) const {
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<const Place*> places;
  };
  std::map<std::string_view, Part> parts;
  for (const Place& place : places) {
    Part& part = parts[place.name];
    part.begin = part.places.empty() ? place.offset : std::min(part.begin, place.offset);
    part.end = std::max(part.end, place.offset + place.size);
    part.places.push_back(&place);
  }
  const std::string prefix = StrCat(runner_.config().Prefix(), "b:");
  std::vector<std::vector<std::string>> commands;
  for (const auto& [name, part] : parts) {
    std::vector<std::string>& command = commands.emplace_back();
    command = {part.end == 0 ? "GET" : "GETRANGE", StrCat(prefix, name)};
    if (part.end > 0) command.insert(command.end(), {StrCat(part.begin), StrCat(part.end - 1)});
  }
  FRESHET_ASSIGN_OR_RETURN(const auto replies, runner_.client().Pipeline(commands));
  auto reply = replies.begin();
  for (const auto& [name, part] : parts) {
    FRESHET_RETURN_IF_ERROR(reply->status());
    const std::string_view text = (*reply++)->text;
    for (const Place* place : part.places) {
      // GETRANGE of a missing blob returns "".
      const size_t begin = static_cast<size_t>(place->offset - part.begin);
      std::string_view blob = text.substr(std::min(begin, text.size()));
      if (place->size > 0) blob = blob.substr(0, static_cast<size_t>(place->size));
      absl::Status status;
      if (blob.empty()) {
        status = DataLoss("bytes are gone");
      } else if (const auto sum = BlobChecksum(blob); !sum.ok() || *sum != place->checksum) {
        status = DataLoss("checksum is not ", place->checksum);
      } else {
        status = place->decode(blob);
      }
      if (!status.ok()) corrupt.emplace_back(place, Message(status));
    }
  }
  return absl::OkStatus();
}

absl::Status RedisBlobReader::DropCorrupt(const Corrupt& corrupt) const {
  std::vector<std::string> args;
  for (const auto& [place, what] : corrupt) {
    const std::string text = place->field == "ph"
                                 ? StrCat("prompt: ", what)
                                 : StrCat("sample ", place->field.substr(1), ": ", what);
    FRESHET_LOG(Warning) << "event=corrupt job=" << runner_.config().options.job
                         << " group=" << place->ordinal << " attempt=" << place->attempt
                         << " reason=" << LogQuoted(text);
    args.insert(args.end(), {StrCat(place->ordinal), StrCat(place->attempt), place->field,
                             place->checksum, text});
  }
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kDropCorrupt, std::move(args)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  const std::vector<RedisReply>& found = answer.values[0].items;
  for (size_t i = 0; i < corrupt.size() && i < found.size(); ++i) {
    if (found[i].integer != 2) continue;
    return DataLoss("group ", corrupt[i].first->ordinal,
                    " is trained and its bytes are lost: ", corrupt[i].second);
  }
  return absl::OkStatus();
}

}  // namespace freshet
