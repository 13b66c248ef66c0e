#include "tests/e2e/freshet_fixture.h"

#include <filesystem>
#include <sstream>
#include <utility>

namespace freshet {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::unique_ptr<ChildProcess> FreshetFixture::Start(std::vector<std::string> args,
                                                    const std::string& input) {
  args.insert(args.begin(), std::string(FRESHET_BIN_DIR) + "/freshet");
  return std::make_unique<ChildProcess>(args, ChildOptions{folder_.path(), input});
}

ChildResult FreshetFixture::Freshet(std::vector<std::string> args, const std::string& input,
                                    absl::Duration deadline) {
  ChildResult result = Start(std::move(args), input)->Wait(deadline);
  EXPECT_FALSE(result.timed_out) << result.out << result.err;
  return result;
}

ChildResult FreshetFixture::Train(const TinyJob& job, std::vector<std::string> flags) {
  WriteJob(job);
  flags.insert(flags.begin(), {"local", "job.yaml", "--run-dir", "run"});
  ChildResult result = Freshet(std::move(flags));
  EXPECT_EQ(result.exit_code, 0) << result.err << "\n" << ToYaml(job);
  return result;
}

ChildResult FreshetFixture::Resume() {
  ChildResult result = Freshet({"local", "--resume", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result;
}

std::string FreshetFixture::Path(const std::string& name) const {
  return name.front() == '/' ? name : folder_.File(name);
}

bool FreshetFixture::Exists(const std::string& name) const {
  return std::filesystem::exists(Path(name));
}

std::vector<Json> FreshetFixture::Rows(const std::string& name) const {
  std::vector<Json> rows;
  for (const std::string& line : Lines(folder_.Read(name))) {
    rows.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(rows.back().is_object()) << name << ": " << line;
  }
  return rows;
}

std::map<int64_t, Json> FreshetFixture::SurvivingSteps() const {
  std::map<int64_t, Json> steps;
  for (const Json& row : Rows("run/metrics.jsonl")) {
    if (!row.contains("step")) continue;
    Json& best = steps[row["step"].get<int64_t>()];
    if (best.is_null() || best["lineage"].get<int64_t>() <= row["lineage"].get<int64_t>()) {
      best = row;
    }
  }
  return steps;
}

std::vector<Json> FreshetFixture::Evaluations() const {
  std::vector<Json> rows;
  for (const Json& row : Rows("run/metrics.jsonl")) {
    if (row.contains("eval_name")) rows.push_back(row);
  }
  return rows;
}

std::vector<Json> FreshetFixture::Ledger(const std::string& event) const {
  std::vector<Json> rows;
  for (const Json& row : Rows("run/ledger.jsonl")) {
    if (row["event"] == event) rows.push_back(row);
  }
  return rows;
}

void FreshetFixture::ExpectVerified() {
  const ChildResult result = Freshet({"ledger", "verify", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

void FreshetFixture::ExpectComplete(int64_t steps) {
  ExpectVerified();
  const std::map<int64_t, Json> rows = SurvivingSteps();
  EXPECT_EQ(static_cast<int64_t>(rows.size()), steps);
  int64_t expected = 0;
  int64_t lineage = 0;
  for (const auto& [step, row] : rows) {
    EXPECT_EQ(step, ++expected);
    EXPECT_EQ(row["policy_version"], step);
    EXPECT_GE(row["lineage"].get<int64_t>(), lineage) << "step " << step;
    lineage = row["lineage"].get<int64_t>();
  }
  EXPECT_TRUE(Exists("run/checkpoints/step-" + std::to_string(steps) + "/manifest.json"));
  EXPECT_EQ(Ledger("open").size(), 1U);
}

}  // namespace freshet
