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

template <typename T>
absl::Status Keep(absl::StatusOr<T> value, std::shared_ptr<const T>& out) {
  if (value.ok()) out = std::make_shared<const T>(*std::move(value));
  return value.status();
}

absl::Status Decode(const BlobPlace& place, std::string_view blob, size_t position,
                    FetchedBlobs& blobs) {
  if (blob.empty()) return DataLoss("bytes are gone");
  const auto sum = BlobChecksum(blob);
  if (!sum.ok() || *sum != place.checksum) return DataLoss("checksum is not ", place.checksum);
  if (place.field == "ph") return Keep(DecodePrompt(blob), blobs.prompts[position]);
  if (place.field[0] == 'q') return Keep(DecodeFloats(blob), blobs.floats[position]);
  return Keep(DecodeResponse(blob), blobs.responses[position]);
}

}  // namespace

std::string PromptBlobName(int64_t ordinal, std::string_view checksum) {
  std::string digits = StrCat(ordinal);
  digits.insert(0, digits.size() < 16 ? 16 - digits.size() : 0, '0');
  return StrCat("p:", digits, ":", checksum);
}

size_t FetchPlan::Add(BlobPlace place) {
  places_.push_back(std::move(place));
  return places_.size() - 1;
}

size_t FetchPlan::AddPrompt(int64_t ordinal, int64_t attempt, const std::string& checksum) {
  const std::string name = PromptBlobName(ordinal, checksum);
  const auto [known, added] = prompts_.try_emplace(name, places_.size());
  return added ? Add({name, ordinal, attempt, "ph", checksum}) : known->second;
}

absl::StatusOr<size_t> FetchPlan::AddResponse(const SampleKey& key, char field,
                                              std::string_view record) {
  FRESHET_ASSIGN_OR_RETURN(SampleRecord sample, ParseSampleRecord(record));
  return Add({std::move(sample.blob), key.ordinal, key.attempt,
              StrCat(std::string(1, field), key.index), std::move(sample.checksum), sample.offset,
              sample.size});
}

absl::StatusOr<SampleTicket> FetchPlan::AddSample(const SampleKey& key, std::string score,
                                                  const std::string& prompt_sum,
                                                  std::string_view record, std::string_view ref) {
  SampleTicket ticket{key, std::move(score)};
  ticket.prompt = AddPrompt(key.ordinal, key.attempt, prompt_sum);
  FRESHET_ASSIGN_OR_RETURN(ticket.response, AddResponse(key, 's', record));
  if (ref.empty()) return ticket;
  const std::string_view token = TakePart(ref, ' ');
  ticket.ref = Add({StrCat(token, ":r:", ref), key.ordinal, key.attempt, StrCat("q", key.index),
                    std::string(ref)});
  return ticket;
}

absl::StatusOr<SampleView> FetchedBlobs::View(const std::string& job,
                                              const SampleTicket& ticket) const {
  SampleView view;
  view.key = ticket.key;
  view.uid = SampleUid(job, ticket.key);
  view.prompt = prompts[ticket.prompt];
  view.response = responses[ticket.response];
  if (ticket.ref.has_value()) view.ref_logprobs = floats[*ticket.ref];
  if (!ticket.score.empty()) {
    FRESHET_ASSIGN_OR_RETURN(Score score, DecodeScore(ticket.score));
    view.score = std::make_shared<const Score>(std::move(score));
  }
  return view;
}

absl::StatusOr<FetchedBlobs> RedisBlobReader::Fetch(const FetchPlan& plan) const {
  const std::vector<BlobPlace>& places = plan.places();
  FetchedBlobs blobs;
  blobs.prompts.resize(places.size());
  blobs.responses.resize(places.size());
  blobs.floats.resize(places.size());
  Corrupt corrupt;
  int64_t size = 0;
  size_t first = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    size += std::max(places[i].size, kPromptBytes);
    if (i + 1 < places.size() && size < kSliceBytes && i - first < kSlicePlaces) continue;
    FRESHET_RETURN_IF_ERROR(FetchSlice(places, first, i + 1, blobs, corrupt));
    first = i + 1;
    size = 0;
  }
  if (!corrupt.empty()) FRESHET_RETURN_IF_ERROR(DropCorrupt(corrupt));
  for (const auto& [place, what] : corrupt) blobs.ended.insert(place.ordinal);
  return blobs;
}

// Sends one command per blob: the whole blob or the range that its places need.
absl::Status RedisBlobReader::FetchSlice(const std::vector<BlobPlace>& places, size_t first,
                                         size_t behind, FetchedBlobs& blobs,
                                         Corrupt& corrupt) const {
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<size_t> places;
  };
  std::map<std::string_view, Part> parts;
  for (size_t i = first; i < behind; ++i) {
    const BlobPlace& place = places[i];
    Part& part = parts[place.name];
    part.begin = part.places.empty() ? place.offset : std::min(part.begin, place.offset);
    part.end = std::max(part.end, place.offset + place.size);
    part.places.push_back(i);
  }
  const std::string prefix = StrCat(config_.Prefix(), "b:");
  std::vector<std::vector<std::string>> commands;
  for (const auto& [name, part] : parts) {
    std::string key = StrCat(prefix, name);
    if (part.end == 0) {
      commands.push_back({"GET", std::move(key)});
    } else {
      commands.push_back({"GETRANGE", std::move(key), StrCat(part.begin), StrCat(part.end - 1)});
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const auto replies, client_->Pipeline(commands));
  auto reply = replies.begin();
  for (const auto& [name, part] : parts) {
    FRESHET_RETURN_IF_ERROR(reply->status());
    const std::string_view text = (*reply++)->text;
    for (const size_t i : part.places) {
      const BlobPlace& place = places[i];
      // GETRANGE of a missing blob returns "".
      const size_t begin = static_cast<size_t>(place.offset - part.begin);
      std::string_view blob = text.substr(std::min(begin, text.size()));
      if (place.size > 0) blob = blob.substr(0, static_cast<size_t>(place.size));
      const absl::Status status = Decode(place, blob, i, blobs);
      if (!status.ok()) corrupt.emplace_back(place, Message(status));
    }
  }
  return absl::OkStatus();
}

absl::Status RedisBlobReader::DropCorrupt(const Corrupt& corrupt) const {
  std::vector<std::string> args;
  for (const auto& [place, what] : corrupt) {
    const std::string text =
        place.field == "ph" ? StrCat("prompt: ", what)
                            : StrCat(place.field[0] == 'q' ? "ref_logprobs of sample " : "sample ",
                                     place.field.substr(1), ": ", what);
    FRESHET_LOG(Warning) << "event=corrupt job=" << config_.options.job
                         << " group=" << place.ordinal << " attempt=" << place.attempt
                         << " reason=" << LogQuoted(text);
    args.insert(args.end(),
                {StrCat(place.ordinal), StrCat(place.attempt), place.field, place.checksum, text});
  }
  FRESHET_ASSIGN_OR_RETURN(const auto values, runner_.RunForValues(trajectory_scripts::kDropCorrupt,
                                                                   1, std::move(args)));
  for (size_t i = 0; i < corrupt.size() && i < values[0].items.size(); ++i) {
    if (values[0].items[i].integer != 2) continue;
    return DataLoss("group ", corrupt[i].first.ordinal,
                    " is trained and its bytes are lost: ", corrupt[i].second);
  }
  return absl::OkStatus();
}

}  // namespace freshet
