#ifndef FRESHET_TESTS_E2E_FRESHET_FIXTURE_H_
#define FRESHET_TESTS_E2E_FRESHET_FIXTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/tiny_job.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/child_process.h"

namespace freshet {

using Json = nlohmann::json;

// Runs the built `freshet` in a fresh folder. File names are relative to it unless they begin with
// '/'.
class FreshetFixture : public testing::Test {
 protected:
  // Starts `freshet ARGS`.
  std::unique_ptr<ChildProcess> Start(std::vector<std::string> args, const std::string& input = "");
  // Runs `freshet ARGS` to completion. `deadline` is far above the expected duration; it keeps a
  // hanging run from blocking the suite.
  ChildResult Freshet(std::vector<std::string> args, const std::string& input = "",
                      absl::Duration deadline = absl::Minutes(3));
  // Trains the job in folder "run"; expects success.
  ChildResult Train(const TinyJob& job, std::vector<std::string> flags = {});
  // Runs `freshet local --resume run`; expects success.
  ChildResult Resume();

  void WriteJob(const TinyJob& job) { folder_.Write("job.yaml", ToYaml(job)); }
  std::string Path(const std::string& name) const;
  bool Exists(const std::string& name) const;

  // Objects of a JSON Lines file; fails the test on an invalid line.
  std::vector<Json> Rows(const std::string& name) const;
  // Step rows of run/metrics.jsonl, taking the highest lineage of each step.
  std::map<int64_t, Json> SurvivingSteps() const;
  // Evaluation rows of run/metrics.jsonl in file order.
  std::vector<Json> Evaluations() const;
  std::vector<Json> Ledger(const std::string& event) const;

  // Expects `freshet ledger verify run` to succeed.
  void ExpectVerified();
  // Expects that steps 1..steps survive with non-decreasing lineages, the ledger verifies, and the
  // last checkpoint exists.
  void ExpectComplete(int64_t steps);

  const ScratchFolder folder_;
};

std::vector<std::string> Lines(const std::string& text);

}  // namespace freshet

#endif  // FRESHET_TESTS_E2E_FRESHET_FIXTURE_H_
