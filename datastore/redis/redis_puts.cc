#include "datastore/redis/redis_puts.h"

#include <array>
#include <map>
#include <string>
#include <utility>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/task_field.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_blobs.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "datastore/response_check.h"

namespace freshet {
namespace {

// Per script: bounds how long others wait for it and the message size.
constexpr size_t kMaxPuts = 256;
constexpr size_t kMaxPutBytes = size_t{16} << 20;

// An entry for a script that returns errors per entry.
struct Put {
  size_t position = 0;             // in the caller's list
  std::array<std::string, 3> run;  // of a sample: token, versions, blob
  int64_t num_tokens = 0;          // of a sample
  std::vector<std::string> args;   // same number for each entry
};
constexpr size_t kRecordArg = 1;  // of a sample

// Blob of one lease's samples, while it is being filled.
struct SampleBlob {
  std::string bytes;
  int32_t first = 0;         // index of the first sample
  std::string sums;          // checksums of the samples
  std::vector<size_t> puts;  // positions in the slice
};

// Entries for one script call.
struct PutSlice {
  std::vector<Put> puts;
  std::vector<RedisBlob> blobs;
  std::map<int64_t, SampleBlob> sample_blobs;  // by lease token
  size_t bytes = 0;
  bool Full() const { return puts.size() >= kMaxPuts || bytes >= kMaxPutBytes; }
};

// Why a script rejected an entry.
struct PutError {
  std::string code;
  int64_t values[3] = {0, 0, 0};
};

// Arguments of put_samples.lua. Consecutive samples with the same token, versions and blob form one
// run.
std::vector<std::string> SampleArgs(const std::vector<Put>& puts) {
  std::vector<std::string> args;
  for (auto put = puts.begin(); put != puts.end();) {
    const auto& [token, versions, blob] = put->run;
    auto behind = put;
    int64_t num_tokens = 0;
    for (; behind != puts.end() && behind->run == put->run; ++behind) {
      num_tokens += behind->num_tokens;
    }
    args.insert(args.end(), {token, StrCat(behind - put), versions, blob, StrCat(num_tokens)});
    for (; put != behind; ++put) args.insert(args.end(), put->args.begin(), put->args.end());
  }
  return args;
}

// Reserves memory for the samples from `next` on, as many as fit in one slice.
void ReserveBlobs(const std::vector<SamplePut>& samples, size_t next, PutSlice& slice) {
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
  for (const auto& [token, size] : sizes) slice.sample_blobs[token].bytes.reserve(size);
}

absl::Status AddSample(const RedisStoreConfig& config, const SamplePut& sample, size_t position,
                       PutSlice& slice) {
  FRESHET_RETURN_IF_ERROR(CheckSamplePut(sample, config.options.group_size));
  const ResponseSummary summary = Summarize(*sample.response, /*needs_loss=*/true);
  Put put{position, {config.ScriptToken(sample.token), "", ""}, summary.num_tokens, {}};
  std::string reward, score, record;
  if (sample.score != nullptr) {
    reward = "-";
    if (CheckScore(sample.score.get()).ok()) {
      reward = ExactText(sample.score->reward);
      FRESHET_ASSIGN_OR_RETURN(score, EncodeScore(*sample.score));
    }
  }
  if (summary.well_formed) {
    put.run[1] = StrCat(summary.first_lineage, " ", summary.last_lineage, " ", summary.oldest, " ",
                        summary.newest, " ", summary.loss_oldest, " ", summary.loss_newest);
    SampleBlob& blob = slice.sample_blobs[sample.token];
    if (blob.puts.empty()) blob.first = sample.index;
    const size_t offset = blob.bytes.size();
    FRESHET_RETURN_IF_ERROR(AppendResponse(*sample.response, blob.bytes));
    FRESHET_ASSIGN_OR_RETURN(const std::string sum, BlobChecksum(blob.bytes));
    blob.sums += sum;
    blob.puts.push_back(slice.puts.size());
    const size_t size = blob.bytes.size() - offset;
    slice.bytes += size;
    // Seal inserts the blob's checksum.
    record = SampleRecordText(put.run[0], sum, summary, StrCat("@:", offset, ":", size));
  }
  put.args = {StrCat(sample.index), std::move(record), std::move(reward), std::move(score)};
  slice.puts.push_back(std::move(put));
  return absl::OkStatus();
}

// Names the samples' blobs by their content.
void Seal(const RedisStoreConfig& config, PutSlice& slice) {
  for (auto& [token, blob] : slice.sample_blobs) {
    if (blob.puts.empty()) continue;
    const std::string sum =
        blob.puts.size() == 1 ? blob.sums : Hex64(Xxh3(blob.sums.data(), blob.sums.size()));
    const std::string place = StrCat(blob.first, ":", sum);
    const std::string name = StrCat(config.ScriptToken(token), ":", place);
    for (const size_t i : blob.puts) {
      std::string& record = slice.puts[i].args[kRecordArg];
      record.replace(record.find('@'), 1, place);
      slice.puts[i].run[2] = name;
    }
    slice.blobs.push_back({name, std::move(blob.bytes)});
  }
}

// Puts entries in slices. `add` adds an entry to a slice, `make_args` builds the script's arguments
// for a slice, and `refused` returns the status of an entry that the script rejected.
template <typename Add, typename MakeArgs, typename Refused>
absl::StatusOr<std::vector<absl::Status>> PutAll(RedisScriptRunner& runner,
                                                 const RedisScript& script, size_t num_entries,
                                                 const Add& add, const MakeArgs& make_args,
                                                 const Refused& refused) {
  std::vector<absl::Status> statuses(num_entries);
  for (size_t next = 0; next < num_entries;) {
    PutSlice slice;
    for (; next < num_entries && !slice.Full(); ++next) statuses[next] = add(next, slice);
    if (slice.puts.empty()) continue;
    Seal(runner.config(), slice);
    const auto done = [&](const ScriptAnswer& answer) -> absl::StatusOr<bool> {
      FRESHET_RETURN_IF_ERROR(answer.Expect(1));
      std::vector<Put> again;
      for (const RedisReply& item : answer.values[0].items) {
        if (item.items.size() < 2) return Internal("redis script: an error without a code");
        Put& put = slice.puts.at(static_cast<size_t>(item.items[0].integer));
        PutError error{item.items[1].text};
        for (size_t i = 0; i < 3 && i + 2 < item.items.size(); ++i) {
          error.values[i] = item.items[i + 2].integer;
        }
        if (error.code == "RETRY") {
          again.push_back(std::move(put));
        } else {
          statuses[put.position] = refused(put.position, error);
        }
      }
      slice.puts = std::move(again);
      return slice.puts.empty();
    };
    const auto sent = runner.RunUntil(
        script, std::move(slice.blobs), [&] { return make_args(slice.puts); }, done);
    FRESHET_RETURN_IF_ERROR(sent.status());
  }
  return statuses;
}

absl::Status RefusedSample(const SamplePut& sample, const PutError& error, int64_t root_lineage) {
  if (error.code == "DEAD") {
    return FailedPrecondition("lease ", sample.token, " is not live: sample ", sample.index,
                              " is refused");
  }
  if (error.code == "INDEX") {
    return CheckSamplePut(sample, static_cast<int32_t>(error.values[0]));
  }
  if (error.code == "SCORE") return CheckScore(sample.score.get());
  return Malformed(
      *sample.response,
      {error.values[0], root_lineage, {error.values[2], error.values[1]}, /*needs_loss=*/true});
}

absl::Status RefusedRow(const RowPut& row, const PutError& error) {
  if (error.code == "DEAD") return RowNotLive(row.token);
  const absl::Status status = CheckScore(row.values.score.get());
  return status.ok() ? Internal("redis script refused a well-formed score") : status;
}

absl::Status AddRow(const RowPut& row, const std::string& token, size_t position, PutSlice& slice) {
  const Score* const score = row.values.score.get();
  std::vector<std::string> args = {token, "0", "0", ""};
  if (CheckScore(score).ok()) {
    FRESHET_ASSIGN_OR_RETURN(const std::string record, EncodeScore(*score));
    args = {token, "1", ExactText(score->reward), record};
  }
  slice.puts.push_back({position, {}, 0, std::move(args)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PutPromptsReply> RedisPuts::PutPrompts(const std::vector<Prompt>& prompts) {
  std::vector<std::string> args = {StrCat(prompts.size())};
  std::vector<RedisBlob> blobs;
  for (const Prompt& prompt : prompts) {
    if (prompt.ordinal > kMaxScriptInteger) {
      return InvalidArgument("prompt ordinal ", prompt.ordinal, " is too large: use at most ",
                             kMaxScriptInteger);
    }
    FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodePrompt(prompt));
    FRESHET_ASSIGN_OR_RETURN(const std::string sum, BlobChecksum(bytes));
    if (prompt.ordinal >= 0) {
      blobs.push_back({PromptBlobName(prompt.ordinal, sum), std::move(bytes)});
    }
    const bool known_by_key =
        config_.options.replay.has_value() || config_.options.adaptive.has_value();
    args.insert(args.end(), {StrCat(prompt.ordinal), StrCat(prompt.first_attempt), sum,
                             known_by_key ? PromptKey(prompt) : "", TaskOfRow(prompt.attributes)});
  }
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kPutPrompts, std::move(args), std::move(blobs)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(3));
  const std::vector<RedisReply>& values = answer.values;
  FRESHET_ASSIGN_OR_RETURN(const int64_t high_water, ParseNumber(values[1].text));
  return PutPromptsReply{values[0].integer, high_water, values[2].integer == 1};
}

absl::StatusOr<std::vector<absl::Status>> RedisPuts::PutSamples(
    const std::vector<SamplePut>& samples) {
  const auto add = [&](size_t i, PutSlice& slice) {
    if (slice.puts.empty()) ReserveBlobs(samples, i, slice);
    return AddSample(config_, samples[i], i, slice);
  };
  const auto refused = [&](size_t i, const PutError& error) {
    return RefusedSample(samples[i], error, config_.origin.policy.lineage);
  };
  return PutAll(runner_, trajectory_scripts::kPutSamples, samples.size(), add, SampleArgs, refused);
}

absl::StatusOr<std::vector<absl::Status>> RedisPuts::PutRows(const std::vector<RowPut>& rows) {
  const auto add = [&](size_t i, PutSlice& slice) {
    return AddRow(rows[i], config_.ScriptToken(rows[i].token), i, slice);
  };
  const auto make_args = [](const std::vector<Put>& puts) {
    std::vector<std::string> args;
    for (const Put& put : puts) args.insert(args.end(), put.args.begin(), put.args.end());
    return args;
  };
  const auto refused = [&](size_t i, const PutError& error) { return RefusedRow(rows[i], error); };
  return PutAll(runner_, trajectory_scripts::kPutRows, rows.size(), add, make_args, refused);
}

}  // namespace freshet
