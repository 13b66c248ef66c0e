#include "runlog/generated_row.h"

#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

// JSON takes up to 6 bytes for one.
constexpr size_t kMaxShortText = size_t{1} << 20;
// Of a shortened row besides its texts. Names of components come from the job.
constexpr size_t kMaxUid = 4096;

Json Finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json TurnsOf(const GeneratedRow& row) {
  Json turns = Json::array();
  for (const GeneratedTurn& turn : row.turns) {
    turns.push_back({{"role", turn.of_policy ? "policy" : "environment"},
                     {"text", turn.text},
                     {"tokens", turn.tokens}});
  }
  return turns;
}

Json IdsOf(const GeneratedIds& ids) {
  Json logprobs = Json::array();
  for (const float value : ids.logprobs) logprobs.push_back(Finite(value));
  return {{"prompt_ids", ids.prompt},
          {"completion_ids", ids.completion},
          {"logprobs", std::move(logprobs)}};
}

Json NumbersOf(const GeneratedRow& row) {
  Json components = Json::object();
  for (const auto& [name, value] : row.components) components[name] = Finite(value);
  Json json = {{"reward", Finite(row.reward)}, {"components", std::move(components)},
               {"outcome", row.outcome},       {"finish", row.finish},
               {"tokens", row.tokens},         {"policy_version", row.policy_version}};
  if (!row.segments.empty()) json["segments"] = row.segments;
  if (row.environment_reward.has_value()) {
    json["environment_reward"] = Finite(*row.environment_reward);
  }
  return json;
}

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ShortLine(const GeneratedRow& row) {
  Json json = {{"step", row.step},
               {"uid", ValidUtf8(row.uid, kMaxUid)},
               {"truncated", true},
               {"prompt", ValidUtf8(row.prompt, kMaxShortText)},
               {"completion", ValidUtf8(row.completion, kMaxShortText)}};
  json.update(NumbersOf(row));
  return Line(json);
}

}  // namespace

std::string ToLine(const GeneratedRow& row) {
  Json json = {
      {"step", row.step}, {"uid", row.uid}, {"prompt", row.prompt}, {"completion", row.completion}};
  if (!row.turns.empty()) json["turns"] = TurnsOf(row);
  json.update(NumbersOf(row));
  json["attributes"] = row.attributes;
  if (row.ids.has_value()) json.update(IdsOf(*row.ids));
  std::string line = Line(json);
  return line.size() <= kMaxGeneratedLine ? line : ShortLine(row);
}

}  // namespace freshet
