// Prompt, response and log-prob bytes: fetched in slices, decoded, dropped if corrupt.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Per round trip. Client and server buffer the whole reply.
constexpr int64_t kSliceBytes = int64_t{4} << 20;
constexpr size_t kSlicePlaces = 4096;

constexpr int64_t kPromptBytes = 4096;  // estimate

}  // namespace

size_t RedisTrajectoryStore::FetchPlan::Add(BlobPlace place) {
  places.push_back(std::move(place));
  return places.size() - 1;
}

size_t RedisTrajectoryStore::FetchPlan::AddPrompt(BlobPlace place) {
  const auto [known, added] = prompts.try_emplace(place.name, places.size());
  return added ? Add(std::move(place)) : known->second;
}

absl::StatusOr<RedisTrajectoryStore::Bytes> RedisTrajectoryStore::Fetch(const FetchPlan& plan) {
  Bytes bytes;
  bytes.prompts.resize(plan.places.size());
  bytes.responses.resize(plan.places.size());
  bytes.floats.resize(plan.places.size());
  int64_t size = 0;
  size_t first = 0;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    size += std::max(plan.places[i].size, kPromptBytes);
    if (i + 1 < plan.places.size() && size < kSliceBytes && i - first < kSlicePlaces) continue;
    FRESHET_RETURN_IF_ERROR(FetchSlice(plan, first, i + 1, bytes));
    first = i + 1;
    size = 0;
  }
  return bytes;
}

// Sends one command per blob: the whole blob or the range that its places need.
absl::Status RedisTrajectoryStore::FetchSlice(const FetchPlan& plan, size_t first, size_t behind,
                                              Bytes& bytes) {
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<size_t> places;
  };
  std::map<std::string_view, Part> parts;
  for (size_t i = first; i < behind; ++i) {
    const BlobPlace& place = plan.places[i];
    Part& part = parts[place.name];
    part.begin = part.places.empty() ? place.offset : std::min(part.begin, place.offset);
    part.end = std::max(part.end, place.offset + place.size);
    part.places.push_back(i);
  }
  std::vector<std::vector<std::string>> commands;
  for (const auto& [name, part] : parts) {
    std::string key = StrCat(prefix_, "b:", name);
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
    const std::string& text = (*reply)->text;
    for (const size_t i : part.places) {
      const BlobPlace& place = plan.places[i];
      // GETRANGE of a missing blob returns "".
      const bool there = static_cast<int64_t>(text.size()) >= place.offset - part.begin;
      std::string_view blob = text;
      if (there) blob.remove_prefix(static_cast<size_t>(place.offset - part.begin));
      if (place.size > 0) blob = blob.substr(0, static_cast<size_t>(place.size));
      Decode(plan, i, there ? blob : std::string_view(), bytes);
    }
    ++reply;
  }
  return absl::OkStatus();
}

void RedisTrajectoryStore::Decode(const FetchPlan& plan, size_t position, std::string_view blob,
                                  Bytes& bytes) {
  const BlobPlace& place = plan.places[position];
  absl::Status status;
  if (blob.empty()) {
    status = DataLoss("bytes are gone");
  } else if (const auto sum = BlobChecksum(blob); !sum.ok() || *sum != place.checksum) {
    status = DataLoss("checksum is not ", place.checksum);
  } else if (place.field == "ph") {
    auto prompt = DecodePrompt(blob);
    status = prompt.status();
    if (status.ok()) bytes.prompts[position] = std::make_shared<const Prompt>(*std::move(prompt));
  } else if (place.field[0] == 'q') {
    auto values = DecodeFloats(blob);
    status = values.status();
    if (status.ok()) {
      bytes.floats[position] = std::make_shared<const std::vector<float>>(*std::move(values));
    }
  } else {
    auto response = DecodeResponse(blob);
    status = response.status();
    if (status.ok()) {
      bytes.responses[position] = std::make_shared<const Response>(*std::move(response));
    }
  }
  if (!status.ok()) bytes.corrupt.emplace_back(place, Message(status));
}

RedisTrajectoryStore::BlobPlace RedisTrajectoryStore::PromptPlace(int64_t ordinal, int64_t attempt,
                                                                  const std::string& sum) const {
  std::string digits = StrCat(ordinal);
  digits.insert(0, digits.size() < 16 ? 16 - digits.size() : 0, '0');
  return {StrCat("p:", digits, ":", sum), ordinal, attempt, "ph", sum};
}

absl::Status RedisTrajectoryStore::AddPlaces(std::string_view record, std::string_view ref,
                                             const std::string& prompt_sum, FetchPlan& plan,
                                             SampleTicket& ticket) const {
  const SampleKey& key = ticket.key;
  FRESHET_ASSIGN_OR_RETURN(SampleRecord sample, ParseSampleRecord(record));
  ticket.prompt = plan.AddPrompt(PromptPlace(key.ordinal, key.attempt, prompt_sum));
  ticket.response =
      plan.Add({std::move(sample.blob), key.ordinal, key.attempt, StrCat("s", key.index),
                std::move(sample.checksum), sample.offset, sample.size});
  if (ref.empty()) return absl::OkStatus();
  const std::string_view token = TakePart(ref, ' ');
  ticket.ref = plan.Add({StrCat(token, ":r:", ref), key.ordinal, key.attempt,
                         StrCat("q", key.index), std::string(ref)});
  return absl::OkStatus();
}

absl::StatusOr<SampleView> RedisTrajectoryStore::View(const SampleTicket& ticket,
                                                      const Bytes& bytes) const {
  SampleView view;
  view.key = ticket.key;
  view.uid = SampleUid(config_.options.job, ticket.key);
  view.prompt = bytes.prompts[ticket.prompt];
  view.response = bytes.responses[ticket.response];
  if (ticket.ref.has_value()) view.ref_logprobs = bytes.floats[*ticket.ref];
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
    FRESHET_LOG(Warning) << "event=corrupt job=" << config_.options.job
                         << " group=" << place.ordinal << " attempt=" << place.attempt
                         << " reason=" << LogQuoted(text);
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
