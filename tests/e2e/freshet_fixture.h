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

// Runs the built `freshet` in a fresh folder. Names of files are relative to that folder, unless
// they begin with '/'.
class FreshetFixture : public testing::Test {
 protected:
  // Starts `freshet ARGS`.
  std::unique_ptr<ChildProcess> Start(std::vector<std::string> args, const std::string& input = "");
  // Runs it to its end. A run that takes longer than `deadline`, which is far above what it needs,
  // fails one test instead of hanging the whole suite.
  ChildResult Freshet(std::vector<std::string> args, const std::string& input = "",
                      absl::Duration deadline = absl::Minutes(3));
  // Trains the job in the folder "run", expecting success.
  ChildResult Train(const TinyJob& job, std::vector<std::string> flags = {});
  // `freshet local --resume run`, expecting success.
  ChildResult Resume();

  void WriteJob(const TinyJob& job) { folder_.Write("job.yaml", ToYaml(job)); }
  std::string Path(const std::string& name) const;
  bool Exists(const std::string& name) const;

  // Objects of a JSON Lines file; a line that is none fails the test.
  std::vector<Json> Rows(const std::string& name) const;
  // Rows of run/metrics.jsonl about steps, the one of the highest lineage for each step.
  std::map<int64_t, Json> SurvivingSteps() const;
  // Rows of run/metrics.jsonl about evaluations, in file order.
  std::vector<Json> Evaluations() const;
  // Rows of run/ledger.jsonl with that event.
  std::vector<Json> Ledger(const std::string& event) const;

  // `freshet ledger verify run` finds nothing.
  void ExpectVerified();
  // Steps 1..steps survive, with lineages that do not decrease, every promise holds, and the last
  // checkpoint is there.
  void ExpectComplete(int64_t steps);

  const ScratchFolder folder_;
};

// The lines of a program's output.
std::vector<std::string> Lines(const std::string& text);

}  // namespace freshet

#endif  // FRESHET_TESTS_E2E_FRESHET_FIXTURE_H_
