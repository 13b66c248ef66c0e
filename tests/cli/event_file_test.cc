#include "cli/tensorboard/event_file.h"

#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/tensorboard/crc32c.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

template <typename T>
T Read(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The payloads of a TFRecord file; checks every checksum.
std::vector<std::string> Records(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const auto size = Read<uint64_t>(file, 0);
    EXPECT_EQ(Read<uint32_t>(file, 8), MaskedCrc32c(file.substr(0, 8)));
    records.emplace_back(file.substr(12, size));
    EXPECT_EQ(Read<uint32_t>(file, 12 + size), MaskedCrc32c(records.back()));
    file.remove_prefix(16 + size);
  }
  return records;
}

struct Field {
  uint64_t number = 0;
  uint64_t varint = 0;
  std::string bytes;  // of every other type
};

std::vector<Field> Fields(std::string_view data) {
  std::vector<Field> fields;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(data.front());
      data.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!data.empty()) {
    const uint64_t key = varint();
    Field field;
    field.number = key >> 3;
    const uint64_t type = key & 7;
    if (type == 0) {
      field.varint = varint();
    } else {
      const size_t size = type == 1 ? 8 : type == 5 ? 4 : varint();
      field.bytes = std::string(data.substr(0, size));
      data.remove_prefix(size);
    }
    fields.push_back(field);
  }
  return fields;
}

// Tag -> value of an event's summary.
std::map<std::string, float> ScalarsOf(const std::string& event) {
  std::map<std::string, float> scalars;
  for (const Field& part : Fields(event)) {
    if (part.number != 5) continue;
    for (const Field& value : Fields(part.bytes)) {
      const std::vector<Field> fields = Fields(value.bytes);
      scalars[fields.at(0).bytes] = Read<float>(fields.at(1).bytes, 0);
    }
  }
  return scalars;
}

TEST(EventFile, BeginsWithTheVersion) {
  const std::vector<std::string> records = Records(VersionRecord(1.5));
  ASSERT_EQ(records.size(), 1U);
  const std::vector<Field> fields = Fields(records[0]);
  EXPECT_EQ(Read<double>(fields.at(0).bytes, 0), 1.5);
  EXPECT_EQ(fields.at(1).bytes, "brain.Event:2");
}

TEST(EventFile, HoldsStepsAndEvaluations) {
  MetricsHistory history;
  StepMetrics step;
  step.step = 300;
  step.reward_mean = 0.5;
  step.reward_components["exact"] = 0.25;
  step.staleness_tokens[2] = 7;
  step.loss = std::bit_cast<double>(uint64_t{0x7ff8000000000000});  // NaN
  step.wall_seconds = 10;
  history.steps.push_back(step);
  EvalMetrics eval;
  eval.eval_name = "heldout";
  eval.eval_accuracy = 0.75;
  eval.policy_version = 20;
  history.evals.push_back(eval);
  const std::vector<std::string> records = Records(EventFileOf(history, 1000));
  ASSERT_EQ(records.size(), 3U);
  const std::vector<Field> fields = Fields(records[1]);
  EXPECT_EQ(Read<double>(fields.at(0).bytes, 0), 1010);
  EXPECT_EQ(fields.at(1).varint, 300U);
  const std::map<std::string, float> scalars = ScalarsOf(records[1]);
  EXPECT_EQ(scalars.at("train/reward_mean"), 0.5F);
  EXPECT_EQ(scalars.at("reward/exact"), 0.25F);
  EXPECT_EQ(scalars.at("staleness_tokens/2"), 7.0F);
  EXPECT_EQ(scalars.count("train/loss"), 0U);
  EXPECT_EQ(scalars.count("train/step"), 0U);
  EXPECT_EQ(ScalarsOf(records[2]).at("eval/heldout/eval_accuracy"), 0.75F);
}

TEST(EventFile, ExportsARunAgainAndAgain) {
  const ScratchFolder folder;
  StepMetrics step;
  step.step = 1;
  folder.Write("run/metrics.jsonl", ToJson(step) + "\n");
  const absl::StatusOr<std::string> path = ExportTensorboard(folder.File("run"), folder.File("tb"));
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*ExportTensorboard(folder.File("run"), folder.File("tb")), *path);
  EXPECT_EQ(Records(folder.Read(path->substr(folder.path().size() + 1))).size(), 2U);
  EXPECT_TRUE(absl::IsNotFound(ExportTensorboard(folder.File("none"), folder.File("tb")).status()));
}

}  // namespace
}  // namespace freshet
