// The operations that bring many small things at once: samples, and values of rows.
#include <cstdio>
#include <utility>

#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "datastore/response_check.h"
#include "services/base/digest.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Of one script: what others wait for it, and what one message may hold.
constexpr size_t kMaxPuts = 256;
constexpr size_t kMaxPutBytes = size_t{16} << 20;
// Tries of entries whose bytes were gone when the script ran.
constexpr int kMaxPutTries = 3;

// Arguments of a sample that are set when its blob is complete.
constexpr size_t kRecordArg = 8;
constexpr size_t kBlobArg = 9;

// Every bit of the value.
std::string Exact(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

}  // namespace

bool RedisTrajectoryStore::PutSlice::Full() const {
  return puts.size() >= kMaxPuts || bytes >= kMaxPutBytes;
}

absl::StatusOr<std::vector<RedisTrajectoryStore::PutFault>> RedisTrajectoryStore::SendPuts(
    const RedisScript& script, const std::vector<std::string>& head, PutSlice slice) {
  std::vector<PutFault> faults;
  if (slice.puts.empty()) return faults;
  for (int i = 0; i < kMaxPutTries; ++i) {
    std::vector<std::string> args = head;
    for (const Put& put : slice.puts) args.insert(args.end(), put.args.begin(), put.args.end());
    FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(script, std::move(args), slice.blobs));
    FRESHET_RETURN_IF_ERROR(answer.Expect(1));
    std::vector<Put> again;
    for (const RedisReply& item : answer.values[0].items) {
      if (item.items.size() < 3) return Internal("redis script: a fault without values");
      Put& put = slice.puts.at(static_cast<size_t>(item.items[0].integer));
      if (item.items[1].text == "RETRY") {
        again.push_back(std::move(put));
        continue;
      }
      PutFault fault{put.position, item.items[1].text, {item.items[2].integer, 0}};
      if (item.items.size() > 3) fault.values[1] = item.items[3].integer;
      faults.push_back(std::move(fault));
    }
    if (again.empty()) return faults;
    FRESHET_RETURN_IF_ERROR(answer.bytes);
    slice.puts = std::move(again);
  }
  return StatusOf(absl::StatusCode::kUnavailable, "redis: bytes written for ", script.name,
                  " were gone ", kMaxPutTries, " times when it ran");
}

absl::StatusOr<RedisTrajectoryStore::Put> RedisTrajectoryStore::MakePut(
    const SamplePut& sample, size_t position, std::map<int64_t, SampleBlob>& blobs,
    PutSlice& slice) const {
  const ResponseSummary summary = Summarize(*sample.response, /*needs_loss=*/true);
  const std::string token = ScriptToken(sample.token);
  std::string reward, score, record;
  if (sample.score != nullptr) {
    reward = "-";
    if (CheckScore(sample.score.get()).ok()) {
      reward = Exact(sample.score->reward);
      FRESHET_ASSIGN_OR_RETURN(score, EncodeScore(*sample.score));
    }
  }
  if (summary.well_formed) {
    SampleBlob& blob = blobs[sample.token];
    if (blob.puts.empty()) blob.first = sample.index;
    const size_t offset = blob.bytes.size();
    FRESHET_RETURN_IF_ERROR(AppendResponse(*sample.response, blob.bytes));
    FRESHET_ASSIGN_OR_RETURN(const std::string sum, BlobChecksum(blob.bytes));
    blob.sums += sum;
    blob.puts.push_back(slice.puts.size());
    slice.bytes += blob.bytes.size() - offset;
    // Seal puts the blob's sum in front of this.
    record = SampleRecordText(token, sum, summary,
                              StrCat("@:", offset, ":", blob.bytes.size() - offset));
  }
  return Put{position,
             {token, StrCat(sample.index), summary.well_formed ? StrCat(summary.lineage) : "-",
              StrCat(summary.oldest), StrCat(summary.newest), StrCat(summary.loss_oldest),
              StrCat(summary.loss_newest), StrCat(summary.num_tokens), std::move(record), "",
              std::move(reward), std::move(score)}};
}

// Names the blobs by what is in them.
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

// Takes samples from `next` on, as many as go in one round trip.
absl::StatusOr<RedisTrajectoryStore::PutSlice> RedisTrajectoryStore::SampleSlice(
    const std::vector<SamplePut>& samples, size_t& next,
    std::vector<absl::Status>& statuses) const {
  PutSlice slice;
  std::map<int64_t, SampleBlob> blobs;
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
                                                 const PutFault& fault) const {
  if (fault.code == "DEAD") {
    return FailedPrecondition("lease ", sample.token, " is not live: sample ", sample.index,
                              " is refused");
  }
  if (fault.code == "SCORE") return CheckScore(sample.score.get());
  const ResponseBounds bounds{fault.values[0],
                              {config_.origin.policy.lineage, fault.values[1]},
                              /*needs_loss=*/true};
  return Malformed(*sample.response, bounds);
}

absl::StatusOr<std::vector<absl::Status>> RedisTrajectoryStore::PutSamples(
    const std::vector<SamplePut>& samples) {
  std::vector<absl::Status> statuses(samples.size());
  for (size_t next = 0; next < samples.size();) {
    FRESHET_ASSIGN_OR_RETURN(PutSlice slice, SampleSlice(samples, next, statuses));
    FRESHET_ASSIGN_OR_RETURN(const std::vector<PutFault> faults,
                             SendPuts(trajectory_scripts::kPutSamples, {}, std::move(slice)));
    for (const PutFault& fault : faults) {
      statuses[fault.position] = RefusedSample(samples[fault.position], fault);
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
  for (size_t next = 0; next < rows.size();) {
    PutSlice slice;
    for (; next < rows.size() && !slice.Full(); ++next) {
      statuses[next] = AddPut(task, rows[next], next, slice);
    }
    FRESHET_ASSIGN_OR_RETURN(
        const std::vector<PutFault> faults,
        SendPuts(trajectory_scripts::kPutRows, {StrCat(static_cast<int>(task))}, std::move(slice)));
    for (const PutFault& fault : faults) {
      const FieldValues& values = rows[fault.position].values;
      absl::Status& status = statuses[fault.position];
      if (fault.code == "DEAD") {
        status = RowNotLive(task, rows[fault.position].token);
        continue;
      }
      status = task == Task::kScore ? CheckScore(values.score.get())
                                    : CheckRefLogprobs(values.ref_logprobs.get(), fault.values[0]);
      if (status.ok()) status = Internal("redis script refused a well-formed value");
    }
  }
  return statuses;
}

}  // namespace freshet
