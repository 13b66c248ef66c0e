// The bytes of prompts, responses and log-probs: fetched in slices, decoded, dropped when corrupt.
#include <utility>

#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Of one MGET; its reply is one message for client and server.
constexpr int64_t kSliceBytes = int64_t{32} << 20;
constexpr size_t kSliceKeys = 1024;

constexpr int64_t kBytesPerToken = 9;  // 8 1/8 of a response, rounded up
constexpr int64_t kPromptBytes = 4096;

}  // namespace

absl::StatusOr<RedisTrajectoryStore::Bytes> RedisTrajectoryStore::Fetch(
    const std::vector<BlobPlace>& places) {
  Bytes bytes;
  std::vector<BlobPlace> slice;
  int64_t size = 0;
  for (const BlobPlace& place : places) {
    slice.push_back(place);
    size += place.size_hint;
    if (size < kSliceBytes && slice.size() < kSliceKeys) continue;
    FRESHET_RETURN_IF_ERROR(FetchSlice(slice, bytes));
    slice.clear();
    size = 0;
  }
  if (!slice.empty()) FRESHET_RETURN_IF_ERROR(FetchSlice(slice, bytes));
  return bytes;
}

absl::Status RedisTrajectoryStore::FetchSlice(const std::vector<BlobPlace>& places, Bytes& bytes) {
  std::vector<std::string> command = {"MGET"};
  for (const BlobPlace& place : places) command.push_back(StrCat(prefix_, "b:", place.name));
  FRESHET_ASSIGN_OR_RETURN(const RedisReply reply, client_->Command(command));
  if (reply.items.size() != places.size()) return Internal("redis: MGET lost replies");
  for (size_t i = 0; i < places.size(); ++i) Decode(places[i], reply.items[i], bytes);
  return absl::OkStatus();
}

void RedisTrajectoryStore::Decode(const BlobPlace& place, const RedisReply& reply, Bytes& bytes) {
  absl::Status status;
  if (reply.kind != RedisReply::Kind::kString) {
    status = DataLoss("bytes are gone");
  } else if (const auto sum = BlobChecksum(reply.text); !sum.ok() || *sum != place.checksum) {
    status = DataLoss("checksum is not ", place.checksum);
  } else if (place.field == "ph") {
    auto prompt = DecodePrompt(reply.text);
    status = prompt.status();
    if (status.ok()) bytes.prompts[place.name] = std::make_shared<const Prompt>(*std::move(prompt));
  } else if (place.field[0] == 'q') {
    auto values = DecodeFloats(reply.text);
    status = values.status();
    if (status.ok()) {
      bytes.floats[place.name] = std::make_shared<const std::vector<float>>(*std::move(values));
    }
  } else {
    auto response = DecodeResponse(reply.text);
    status = response.status();
    if (status.ok()) {
      bytes.responses[place.name] = std::make_shared<const Response>(*std::move(response));
    }
  }
  if (!status.ok()) bytes.corrupt.emplace_back(place, Message(status));
}

RedisTrajectoryStore::BlobPlace RedisTrajectoryStore::PromptPlace(int64_t ordinal, int64_t attempt,
                                                                  const std::string& sum) const {
  std::string digits = StrCat(ordinal);
  digits.insert(0, digits.size() < 16 ? 16 - digits.size() : 0, '0');
  return {StrCat("p:", digits, ":", sum), ordinal, attempt, "ph", sum, kPromptBytes};
}

absl::StatusOr<std::vector<RedisTrajectoryStore::BlobPlace>> RedisTrajectoryStore::PlacesOf(
    const SampleTicket& ticket) const {
  const SampleKey& key = ticket.key;
  FRESHET_ASSIGN_OR_RETURN(const SampleRecord record, ParseSampleRecord(ticket.record));
  std::vector<BlobPlace> places;
  places.push_back(PromptPlace(key.ordinal, key.attempt, ticket.prompt_sum));
  places.push_back({StrCat(record.token, ":", key.index, ":", record.checksum), key.ordinal,
                    key.attempt, StrCat("s", key.index), record.checksum,
                    record.num_tokens * kBytesPerToken});
  if (!ticket.ref.empty()) {
    std::string_view ref = ticket.ref;
    const std::string token(TakePart(ref, ' '));
    const std::string sum(ref);
    places.push_back({StrCat(token, ":r:", sum), key.ordinal, key.attempt, StrCat("q", key.index),
                      sum, record.num_tokens * kBytesPerToken});
  }
  return places;
}

absl::StatusOr<SampleView> RedisTrajectoryStore::View(const SampleTicket& ticket,
                                                      const Bytes& bytes) const {
  const auto find = [](const auto& map, const std::string& name) {
    const auto it = map.find(name);
    return it == map.end() ? nullptr : it->second;
  };
  FRESHET_ASSIGN_OR_RETURN(const std::vector<BlobPlace> places, PlacesOf(ticket));
  SampleView view;
  view.key = ticket.key;
  view.uid = SampleUid(config_.options.job, ticket.key);
  view.prompt = find(bytes.prompts, places[0].name);
  view.response = find(bytes.responses, places[1].name);
  if (places.size() > 2) view.ref_logprobs = find(bytes.floats, places[2].name);
  if (!ticket.score.empty()) {
    FRESHET_ASSIGN_OR_RETURN(Score score, DecodeScore(ticket.score));
    view.score = std::make_shared<const Score>(std::move(score));
  }
  return view;
}

absl::Status RedisTrajectoryStore::DropCorrupt(
    const std::vector<std::pair<BlobPlace, std::string>>& corrupt) {
  std::vector<std::string> args;
  for (const auto& [place, what] : corrupt) {
    const std::string text =
        place.field == "ph" ? StrCat("prompt: ", what)
                            : StrCat(place.field[0] == 'q' ? "ref_logprobs of sample " : "sample ",
                                     place.field.substr(1), ": ", what);
    FRESHET_LOG(Warning) << "job=" << config_.options.job << " group=" << place.ordinal
                         << " attempt=" << place.attempt << " corrupt=\"" << text << "\"";
    for (const std::string& arg :
         {StrCat(place.ordinal), StrCat(place.attempt), place.field, place.checksum, text}) {
      args.push_back(arg);
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kDropCorrupt, std::move(args)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  for (size_t i = 0; i < corrupt.size() && i < answer.values[0].items.size(); ++i) {
    if (answer.values[0].items[i].integer != 2) continue;
    return DataLoss("group ", corrupt[i].first.ordinal,
                    " is trained and its bytes are lost: ", corrupt[i].second);
  }
  return absl::OkStatus();
}

}  // namespace freshet
