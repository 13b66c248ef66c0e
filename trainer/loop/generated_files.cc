#include "trainer/loop/generated_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/loop/step_report.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

using Decode = std::function<std::string(const std::vector<int32_t>&)>;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".jsonl";

// As many digits as the largest trainer.steps has, so that names sort by step.
std::string FileName(int64_t step) {
  char digits[24];
  std::snprintf(digits, sizeof(digits), "%08lld", static_cast<long long>(step));
  return StrCat(kPrefix, digits, kSuffix);
}

// The step whose file is called `name`.
std::optional<int64_t> StepOf(const std::string& name) {
  const size_t end = name.find(kSuffix);
  if (!name.starts_with(kPrefix) || end == std::string::npos) return std::nullopt;
  int64_t of = 0;
  if (!absl::SimpleAtoi(name.substr(kPrefix.size(), end - kPrefix.size()), &of)) {
    return std::nullopt;
  }
  return name == FileName(of) ? std::optional<int64_t>(of) : std::nullopt;
}

// Whether `name` is that of a file of a step after `step`, or of one that was not finished.
bool IsLeftOver(const std::string& name, int64_t step) {
  constexpr std::string_view kUnfinished = ".tmp";
  if (name.ends_with(kUnfinished)) {
    return StepOf(name.substr(0, name.size() - kUnfinished.size())).has_value();
  }
  return StepOf(name).value_or(step) > step;
}

std::vector<GeneratedTurn> TurnsOf(const Response& response, const Decode& decode) {
  const std::vector<uint8_t>& mask = response.loss_mask;
  std::vector<GeneratedTurn> turns;
  if (std::ranges::count(mask, uint8_t{0}) == 0) return turns;
  for (const TokenRange& segment : SegmentsOf(response)) {
    const auto last = mask.begin() + segment.end;
    for (auto begin = mask.begin() + segment.begin; begin != last;) {
      const auto end = std::find_if(begin, last, [&](uint8_t other) { return other != *begin; });
      const std::vector<int32_t> ids(response.response_ids.begin() + (begin - mask.begin()),
                                     response.response_ids.begin() + (end - mask.begin()));
      turns.push_back({*begin != 0, decode(ids), end - begin});
      begin = end;
    }
  }
  return turns;
}

}  // namespace

GeneratedRow MakeGeneratedRow(int64_t step, const TrainSample& sample, const Decode& decode,
                              bool with_ids) {
  const Prompt& prompt = *sample.sample.prompt;
  const Response& response = *sample.sample.response;
  const Score& score = *sample.sample.score;
  GeneratedRow row;
  row.step = step;
  row.uid = sample.sample.uid;
  row.policy_version = sample.min_version;
  row.attributes = prompt.attributes;
  const auto text = row.attributes.extract("prompt");
  row.prompt = text.empty() ? decode(prompt.prompt_ids) : text.mapped();
  const std::vector<int32_t>& ids = CompletionIds(response);
  row.completion = decode(ids);
  if (!ids.empty()) row.turns = TurnsOf(response, decode);
  row.reward = score.reward;
  row.components = score.components;
  row.outcome = kScoreOutcomeNames[static_cast<size_t>(score.outcome)];
  row.environment_reward = response.env_reward;
  row.finish = FinishName(response.finish);
  row.tokens = static_cast<int64_t>(ids.size());
  row.segments = response.segments;
  if (with_ids) {
    row.ids = GeneratedIds{prompt.prompt_ids, ids, response.behavior_logprobs};
    row.ids->logprobs.resize(ids.size());
  }
  return row;
}

std::vector<std::string> GeneratedFiles::FilesAfter(const std::string& folder, int64_t step,
                                                    size_t most) {
  std::map<int64_t, std::string> paths;
  std::error_code error;
  fs::directory_iterator files(folder, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    const std::optional<int64_t> of = StepOf(files->path().filename().string());
    if (!of.has_value() || *of <= step) continue;
    paths.emplace(*of, files->path().string());
    if (paths.size() > most) paths.erase(std::prev(paths.end()));
  }
  std::vector<std::string> found;
  found.reserve(paths.size());
  for (auto& [of, path] : paths) found.push_back(std::move(path));
  return found;
}

std::string GeneratedFiles::FolderOfRun(const std::string& checkpoint_root) {
  return (fs::path(checkpoint_root).parent_path() / "generated").string();
}

absl::Status GeneratedFiles::RemoveAfter(int64_t step) const {
  std::error_code error;
  fs::directory_iterator files(options_.folder, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    if (IsLeftOver(files->path().filename().string(), step)) fs::remove(files->path(), error);
    if (error) break;
  }
  if (error) {
    return FailedPrecondition(options_.folder,
                              ": files of other steps cannot be removed: ", error.message());
  }
  return absl::OkStatus();
}

absl::Status GeneratedFiles::Write(int64_t step, const std::vector<TrainGroup>& groups) const {
  std::error_code error;
  fs::create_directories(options_.folder, error);
  if (error) return FailedPrecondition(options_.folder, ": cannot be made: ", error.message());
  std::string lines;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      lines += ToLine(MakeGeneratedRow(step, sample, options_.decode, options_.with_ids));
    }
  }
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically(StrCat(options_.folder, "/", FileName(step)), lines));
  return SyncPath(options_.folder);
}

}  // namespace freshet
