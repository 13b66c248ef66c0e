#include "tests/simulation/history.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "base/digest.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

History::History(const std::string& folder, const std::string& role) {
  absl::StatusOr<LineAppender> file =
      LineAppender::Open(StrCat(folder, "/", role, "-", ::getpid(), ".jsonl"));
  FRESHET_CHECK(file.ok());
  MutexLock lock(mu_);
  file_ = *std::move(file);
}

std::unique_ptr<History> History::FromEnvironment(const std::string& role) {
  const char* folder = std::getenv("FRESHET_SIM_HISTORY");
  return folder == nullptr ? nullptr : std::make_unique<History>(folder, role);
}

int64_t History::Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void History::Add(const std::string& fields) {
  MutexLock lock(mu_);
  FRESHET_CHECK(file_.Append(StrCat(R"({"t":)", Now(), ",", fields, "}\n")).ok());
}

void History::AddLoad(const WeightManifest& manifest) {
  Add(StrCat(R"("event":"load","lineage":)", manifest.policy.lineage, R"(,"version":)",
             manifest.policy.version, R"(,"epoch":)", manifest.epoch, R"(,"hash":")",
             manifest.content_hash, "\""));
}

void History::AddTrain(int64_t step, const std::vector<TrainGroup>& groups) {
  std::string samples;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      const SampleView& view = sample.sample;
      samples += StrCat(samples.empty() ? "" : ",", R"([")", view.uid, R"(",")",
                        ResponseHash(*view.response), R"(",)",
                        view.score == nullptr ? "null" : StrCat(view.score->reward), "]");
    }
  }
  Add(StrCat(R"("event":"train","step":)", step, R"(,"samples":[)", samples, "]"));
}

std::string ResponseHash(const Response& response) {
  uint64_t hash = Xxh3(response.response_ids.data(), response.response_ids.size() * 4);
  hash = Xxh3(response.behavior_logprobs.data(), response.behavior_logprobs.size() * 4, hash);
  hash = Xxh3(response.sampling_logprobs.data(), response.sampling_logprobs.size() * 4, hash);
  hash = Xxh3(response.loss_mask.data(), response.loss_mask.size(), hash);
  for (const Span& span : response.spans) {
    const int64_t fields[] = {span.policy.lineage, span.policy.version, span.begin, span.end};
    hash = Xxh3(fields, sizeof(fields), hash);
  }
  return Hex64(hash);
}

}  // namespace freshet
