// Bulk operations: samples and row values.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "datastore/response_check.h"

namespace freshet {
namespace {

// Per script: bounds how long others wait for it and the message size.
constexpr size_t kMaxPuts = 256;
constexpr size_t kMaxPutBytes = size_t{16} << 20;
// Tries of entries whose bytes expired before the script ran.
constexpr int kMaxPutTries = 3;

// Argument positions of a sample; the first ones are shared by its run.
constexpr size_t kTokenArg = 0;
constexpr size_t kVersionsArg = 1;
constexpr size_t kBlobArg = 2;
constexpr size_t kTokensArg = 3;
constexpr size_t kIndexArg = 4;
constexpr size_t kRecordArg = 5;

// Formats `value` so that it round-trips.
std::string Exact(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

// Arguments of put_samples.lua. Consecutive samples with the same token, versions and blob form one
// run.
std::vector<std::string> SampleArgs(const std::vector<std::vector<std::string>>& samples) {
  std::vector<std::string> args;
  for (size_t i = 0; i < samples.size();) {
    const std::vector<std::string>& head = samples[i];
    size_t behind = i;
    int64_t tokens = 0;
    while (behind < samples.size() && samples[behind][kTokenArg] == head[kTokenArg] &&
           samples[behind][kVersionsArg] == head[kVersionsArg] &&
           samples[behind][kBlobArg] == head[kBlobArg]) {
      tokens += std::atoll(samples[behind++][kTokensArg].c_str());
    }
    for (std::string arg : {head[kTokenArg], StrCat(behind - i), head[kVersionsArg], head[kBlobArg],
                            StrCat(tokens)}) {
      args.push_back(std::move(arg));
    }
    for (; i < behind; ++i) {
      args.insert(args.end(), samples[i].begin() + kIndexArg, samples[i].end());
    }
  }
  return args;
}

}  // namespace

bool RedisTrajectoryStore::PutSlice::Full() const {
  return puts.size() >= kMaxPuts || bytes >= kMaxPutBytes;
}

absl::StatusOr<std::vector<RedisTrajectoryStore::PutError>> RedisTrajectoryStore::SendPuts(
    const RedisScript& script, const PutArgs& make_args, PutSlice slice) {
  std::vector<PutError> errors;
  if (slice.puts.empty()) return errors;
  Commands sets = SetCommands(std::move(slice.blobs));
  for (int i = 0; i < kMaxPutTries; ++i) {
    std::vector<std::vector<std::string>> entries;
    for (const Put& put : slice.puts) entries.push_back(put.args);
    FRESHET_ASSIGN_OR_RETURN(const Answer answer, Send(script, make_args(entries), sets));
    FRESHET_RETURN_IF_ERROR(answer.Expect(1));
    std::vector<Put> again;
    for (const RedisReply& item : answer.values[0].items) {
      if (item.items.size() < 3) return Internal("redis script: an error without values");
      Put& put = slice.puts.at(static_cast<size_t>(item.items[0].integer));
      if (item.items[1].text == "RETRY") {
        again.push_back(std::move(put));
        continue;
      }
      PutError error{put.position, item.items[1].text, {item.items[2].integer}};
      for (size_t value = 1; value < 3 && value + 2 < item.items.size(); ++value) {
        error.values[value] = item.items[value + 2].integer;
      }
      errors.push_back(std::move(error));
    }
    if (again.empty()) return errors;
    FRESHET_RETURN_IF_ERROR(answer.bytes);
    slice.puts = std::move(again);
  }
  return StatusOf(absl::StatusCode::kUnavailable, "redis: bytes written for ", script.name,
                  " expired ", kMaxPutTries, " times before it ran");
}

absl::StatusOr<RedisTrajectoryStore::Put> RedisTrajectoryStore::MakePut(
    const SamplePut& sample, size_t position, std::map<int64_t, SampleBlob>& blobs,
    PutSlice& slice) const {
  const ResponseSummary summary = Summarize(*sample.response, /*needs_loss=*/true);
  const std::string token = ScriptToken(sample.token);
  std::string versions, reward, score, record;
  if (sample.score != nullptr) {
    reward = "-";
    if (CheckScore(sample.score.get()).ok()) {
      reward = Exact(sample.score->reward);
      FRESHET_ASSIGN_OR_RETURN(score, EncodeScore(*sample.score));
    }
  }
  if (summary.well_formed) {
    versions = StrCat(summary.first_lineage, " ", summary.last_lineage, " ", summary.oldest, " ",
                      summary.newest, " ", summary.loss_oldest, " ", summary.loss_newest);
    SampleBlob& blob = blobs[sample.token];
    if (blob.puts.empty()) blob.first = sample.index;
    const size_t offset = blob.bytes.size();
    FRESHET_RETURN_IF_ERROR(AppendResponse(*sample.response, blob.bytes));
    FRESHET_ASSIGN_OR_RETURN(const std::string sum, BlobChecksum(blob.bytes));
    blob.sums += sum;
    blob.puts.push_back(slice.puts.size());
    slice.bytes += blob.bytes.size() - offset;
    // Seal prepends the blob's checksum.
    record = SampleRecordText(token, sum, summary,
                              StrCat("@:", offset, ":", blob.bytes.size() - offset));
  }
  return Put{position,
             {token, std::move(versions), "", StrCat(summary.num_tokens), StrCat(sample.index),
              std::move(record), std::move(reward), std::move(score)}};
}

// Names the blobs by their content.
void RedisTrajectoryStore::Seal(std::map<int64_t, SampleBlob> blobs, PutSlice& slice) const {
  for (auto& [token, blob] : blobs) {
    if (blob.puts.empty()) continue;
    const std::string sum =
        blob.puts.size() == 1 ? blob.sums : Hex64(Xxh3(blob.sums.data(), blob.sums.size()));
    const std::string place = StrCat(blob.first, ":", sum);
    const std::string name = StrCat(ScriptToken(token), ":", place);
    for (const size_t i : blob.puts) {
      std::vector<std::string>& args = slice.puts[i].args;
      args[kRecordArg].replace(args[kRecordArg].find('@'), 1, place);
      args[kBlobArg] = name;
    }
    slice.blobs.push_back({name, std::move(blob.bytes)});
  }
}

// Blobs for the samples from `next` on, with capacity for about one slice.
std::map<int64_t, RedisTrajectoryStore::SampleBlob> RedisTrajectoryStore::EmptyBlobs(
    const std::vector<SamplePut>& samples, size_t next) {
  constexpr size_t kBytesPerToken = 9;  // 8 1/8, rounded up
  constexpr size_t kOtherBytes = 128;
  std::map<int64_t, size_t> sizes;
  size_t total = 0;
  for (size_t i = next; i < samples.size() && i - next < kMaxPuts && total < kMaxPutBytes; ++i) {
    if (samples[i].response == nullptr) continue;
    const size_t size = kBytesPerToken * samples[i].response->response_ids.size() +
                        sizeof(float) * samples[i].response->sampling_logprobs.size() + kOtherBytes;
    sizes[samples[i].token] += size;
    total += size;
  }
  std::map<int64_t, SampleBlob> blobs;
  for (const auto& [token, size] : sizes) blobs[token].bytes.reserve(size);
  return blobs;
}

// Takes samples from `next` on, as many as fit in one round trip.
absl::StatusOr<RedisTrajectoryStore::PutSlice> RedisTrajectoryStore::SampleSlice(
    const std::vector<SamplePut>& samples, size_t& next,
    std::vector<absl::Status>& statuses) const {
  PutSlice slice;
  std::map<int64_t, SampleBlob> blobs = EmptyBlobs(samples, next);
  for (; next < samples.size() && !slice.Full(); ++next) {
    absl::Status& status = statuses[next];
    status = CheckSamplePut(samples[next], config_.options.group_size);
    if (!status.ok()) continue;
    absl::StatusOr<Put> put = MakePut(samples[next], next, blobs, slice);
    status = put.status();
    if (put.ok()) slice.puts.push_back(*std::move(put));
  }
  Seal(std::move(blobs), slice);
  return slice;
}

absl::Status RedisTrajectoryStore::RefusedSample(const SamplePut& sample,
                                                 const PutError& error) const {
  if (error.code == "DEAD") {
    return FailedPrecondition("lease ", sample.token, " is not live: sample ", sample.index,
                              " is refused");
  }
  if (error.code == "SCORE") return CheckScore(sample.score.get());
  const ResponseBounds bounds{error.values[0],
                              config_.origin.policy.lineage,
                              {error.values[2], error.values[1]},
                              /*needs_loss=*/true};
  return Malformed(*sample.response, bounds);
}

absl::StatusOr<std::vector<absl::Status>> RedisTrajectoryStore::PutSamples(
    const std::vector<SamplePut>& samples) {
  std::vector<absl::Status> statuses(samples.size());
  for (size_t next = 0; next < samples.size();) {
    FRESHET_ASSIGN_OR_RETURN(PutSlice slice, SampleSlice(samples, next, statuses));
    FRESHET_ASSIGN_OR_RETURN(
        const std::vector<PutError> errors,
        SendPuts(trajectory_scripts::kPutSamples, SampleArgs, std::move(slice)));
    for (const PutError& error : errors) {
      statuses[error.position] = RefusedSample(samples[error.position], error);
    }
  }
  return statuses;
}

absl::Status RedisTrajectoryStore::AddPut(Task task, const RowPut& row, size_t position,
                                          PutSlice& slice) const {
  Put put{position, {ScriptToken(row.token), "0", "0", ""}};
  if (task == Task::kScore && CheckScore(row.values.score.get()).ok()) {
    FRESHET_ASSIGN_OR_RETURN(put.args[3], EncodeScore(*row.values.score));
    put.args[1] = "1";
    put.args[2] = Exact(row.values.score->reward);
  } else if (task == Task::kRefLogprob && row.values.ref_logprobs != nullptr) {
    const std::vector<float>& values = *row.values.ref_logprobs;
    const int64_t count = static_cast<int64_t>(values.size());
    if (CheckRefLogprobs(&values, count).ok()) {
      FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodeFloats(values));
      FRESHET_ASSIGN_OR_RETURN(put.args[3], BlobChecksum(bytes));
      put.args[1] = "1";
      put.args[2] = StrCat(count);
      slice.bytes += bytes.size();
      slice.blobs.push_back({StrCat(put.args[0], ":r:", put.args[3]), std::move(bytes)});
    }
  }
  slice.puts.push_back(std::move(put));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::Status>> RedisTrajectoryStore::PutRows(
    Task task, const std::vector<RowPut>& rows) {
  std::vector<absl::Status> statuses(rows.size());
  const PutArgs make_args = [task](const std::vector<std::vector<std::string>>& entries) {
    std::vector<std::string> args = {StrCat(static_cast<int>(task))};
    for (const auto& entry : entries) args.insert(args.end(), entry.begin(), entry.end());
    return args;
  };
  for (size_t next = 0; next < rows.size();) {
    PutSlice slice;
    for (; next < rows.size() && !slice.Full(); ++next) {
      statuses[next] = AddPut(task, rows[next], next, slice);
    }
    FRESHET_ASSIGN_OR_RETURN(const std::vector<PutError> errors,
                             SendPuts(trajectory_scripts::kPutRows, make_args, std::move(slice)));
    for (const PutError& error : errors) {
      const FieldValues& values = rows[error.position].values;
      absl::Status& status = statuses[error.position];
      if (error.code == "DEAD") {
        status = RowNotLive(task, rows[error.position].token);
        continue;
      }
      status = task == Task::kScore ? CheckScore(values.score.get())
                                    : CheckRefLogprobs(values.ref_logprobs.get(), error.values[0]);
      if (status.ok()) status = Internal("redis script refused a well-formed value");
    }
  }
  return statuses;
}

}  // namespace freshet
