#ifndef FRESHET_TESTS_E2E_REFUSAL_FIXTURE_H_
#define FRESHET_TESTS_E2E_REFUSAL_FIXTURE_H_

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {

// For jobs that `freshet local` must refuse before it creates anything.
class RefusalFixture : public FreshetFixture {
 protected:
  // Expects `freshet local ARGS` to exit with 3, leave the folder unchanged and print at most 6
  // lines, with each of `parts` in one of them. Returns the lines.
  std::vector<std::string> ExpectRefused(std::vector<std::string> args,
                                         const std::vector<std::string>& parts,
                                         size_t num_lines = 0) {
    const std::set<std::string> before = Names();
    args.insert(args.begin(), "local");
    const ChildResult result = Freshet(std::move(args));
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(Names(), before) << "nothing is left behind";
    const std::vector<std::string> lines = Lines(result.err);
    EXPECT_GE(lines.size(), 1U);
    EXPECT_LE(lines.size(), 6U) << result.err;
    if (num_lines > 0) {
      EXPECT_EQ(lines.size(), num_lines) << result.err;
    }
    for (const std::string& line : lines) {
      EXPECT_THAT(line, testing::StartsWith("freshet: "));
      EXPECT_LE(line.size(), 500U) << line;
    }
    for (const std::string& part : parts) EXPECT_THAT(result.err, testing::HasSubstr(part));
    return lines;
  }
  std::vector<std::string> RefuseJob(const TinyJob& job, const std::vector<std::string>& parts,
                                     size_t num_lines = 0) {
    folder_.Write("job.yaml", ToYaml(job));
    return ExpectRefused({"job.yaml"}, parts, num_lines);
  }
  // A job that reads rows.jsonl, without warm-up and evaluation.
  static TinyJob JsonlJob() {
    TinyJob job = MakeTinyJob();
    job["dataset"] = "{type: jsonl, path: rows.jsonl, prompt: \"{question}=\", answer: answer}";
    job["warmup"] = "";
    job["eval"] = "";
    return job;
  }

 private:
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      names.insert(entry.path());
    }
    return names;
  }
};

}  // namespace freshet

#endif  // FRESHET_TESTS_E2E_REFUSAL_FIXTURE_H_
