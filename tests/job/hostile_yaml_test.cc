#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"
#include "tests/testing/sanitized.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

std::string Repeat(const std::string& text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

constexpr int kManyLevels = 100000;

TEST(HostileYaml, EmptyTextIsOneFault) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~\n"}) {
    EXPECT_THAT(ErrorLines(text),
                ElementsAre("job.yaml: is empty; a job file has at least name, model, dataset, "
                            "rollout, reward, trainer and optimizer (freshet init writes one)"))
        << text;
  }
}

TEST(HostileYaml, BinaryIsOneFault) {
  EXPECT_THAT(ErrorLines("name: a\n\x7F"
                         "ELF\x02\x01"),
              ElementsAre("job.yaml:2: is not text: byte 7f (hexadecimal) is not allowed in YAML"));
  EXPECT_THAT(ErrorLines(std::string("a\0b", 3)),
              ElementsAre("job.yaml:1: is not text: byte 00 (hexadecimal) is not allowed in YAML"));
  EXPECT_THAT(ErrorLines("\xFF\xFEn\0"),
              ElementsAre("job.yaml:1: is not text: byte ff (hexadecimal) is not allowed in YAML"));
}

TEST(HostileYaml, TruncatedCharacterAtTheEndIsAFault) {
  EXPECT_THAT(ErrorLines("name: \xE2\x82"),
              ElementsAre("job.yaml:1: is not text: byte e2 (hexadecimal) is not allowed in YAML"));
}

TEST(HostileYaml, AliasesAreRefused) {
  EXPECT_THAT(ErrorLines("a: &a [*a]\n"),
              ElementsAre("job.yaml:1: aliases are not supported; write the value again"));
  EXPECT_THAT(ErrorLines("&a x: &b {y: *b}\n"),
              ElementsAre("job.yaml:1: aliases are not supported; write the value again"));
  EXPECT_THAT(ErrorLines("a: &a {b: 1}\nname:\n  <<: *a\n"),
              ElementsAre("job.yaml:3: aliases are not supported; write the value again"));
}

TEST(HostileYaml, AliasBombIsOneFault) {
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    bomb += StrCat("a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  }
  EXPECT_THAT(ErrorLines(bomb),
              ElementsAre("job.yaml:2: aliases are not supported; write the value again"));
}

TEST(HostileYaml, UnknownAliasIsOneFault) {
  EXPECT_THAT(ErrorLines("a: *nothing\n"),
              ElementsAre("job.yaml:1: is not valid YAML: the referenced anchor is not defined"));
}

TEST(HostileYaml, DeepFlowNestingIsOneFault) {
  const std::string error =
      "job.yaml:1: more than 1000 brackets are open; a job file nests at most 32 levels";
  EXPECT_THAT(ErrorLines(Repeat("[", kManyLevels)), ElementsAre(error));
  EXPECT_THAT(ErrorLines(Repeat("[", kManyLevels) + Repeat("]", kManyLevels)), ElementsAre(error));
  EXPECT_THAT(ErrorLines(Repeat("{a: ", kManyLevels)), ElementsAre(error));
}

TEST(HostileYaml, DeepBlockNestingIsOneFault) {
  EXPECT_THAT(ErrorLines(Repeat("- ", kManyLevels) + "x"),
              ElementsAre("job.yaml:1: nested more than 32 levels deep; no key is so deep"));
  std::string indented;
  for (int i = 0; i < 1000; ++i) indented += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(ErrorLines(indented),
              ElementsAre("job.yaml:33: nested more than 32 levels deep; no key is so deep"));
}

TEST(HostileYaml, NestingAtTheLimitIsReadAndOneBeyondIsNot) {
  const auto nested = [](int levels) {  // the outer map counts as a level
    return "x: " + Repeat("[", levels - 1) + Repeat("]", levels - 1) + "\n";
  };
  EXPECT_THAT(ErrorLines(nested(32)), ::testing::Contains(::testing::HasSubstr("unknown key")));
  EXPECT_THAT(ErrorLines(nested(33)),
              ElementsAre("job.yaml:1: nested more than 32 levels deep; no key is so deep"));
}

TEST(HostileYaml, DeepNestingOfKeysIsOneFault) {
  EXPECT_THAT(ErrorLines(Repeat("? ", kManyLevels)),
              ElementsAre("job.yaml:1: a key must be text, not a list or a map"));
}

TEST(HostileYaml, SizeIsLimited) {
  const std::string limit = "# " + std::string((4 << 20) - 2, 'x');
  EXPECT_THAT(ErrorLines(limit), ElementsAre(::testing::HasSubstr("is empty")));
  EXPECT_THAT(
      ErrorLines(limit + "x"),
      ElementsAre("job.yaml: is 4194305 bytes; a job file has at most 4194304, put rows into "
                  "a jsonl file"));
}

TEST(HostileYaml, NumberOfValuesIsLimited) {
  EXPECT_THAT(ErrorLines("[" + Repeat("1,", 1000000) + "]"),
              ElementsAre("job.yaml:1: more than 500000 commas and brackets; put rows into a jsonl "
                          "file"));
  EXPECT_THAT(ErrorLines(Repeat("- 1\n", 200001)),
              ElementsAre("job.yaml:200001: more than 200000 values; put rows into a jsonl file"));
}

TEST(HostileYaml, OtherShapesAreOneFaultEach) {
  struct Case {
    const char* text;
    const char* error;
  };
  for (const Case& c : {
           Case{"hello\n", "job.yaml:1: expected a block of keys such as 'name: ...', got 'hello'"},
           Case{"- a\n", "job.yaml:1: expected a block of keys such as 'name: ...', got a list"},
           Case{"? [a]\n: 1\n", "job.yaml:1: a key must be text, not a list or a map"},
           Case{": 1\n", "job.yaml:1: a key must be text, and here it is missing"},
           Case{"name: !!python/object x\n",
                "job.yaml:1: tags are not supported; remove the word with '!'"},
           Case{"name: a\n---\nname: b\n",
                "job.yaml: holds several YAML documents; a job file is one, without '---'"},
           Case{"name: [1, 2\n", "job.yaml:2: is not valid YAML: end of sequence flow not found"},
           Case{"name: \"a", "job.yaml:1: is not valid YAML: illegal EOF in scalar"},
           Case{"a:\n\tb: 1\n", "job.yaml:2: is not valid YAML: illegal map value"},
       }) {
    EXPECT_THAT(ErrorLines(c.text), ElementsAre(c.error)) << c.text;
  }
}

TEST(HostileYaml, ManyFaultsAreCutShort) {
  std::string job = MinimalJobWith(6, "reward:\n  components:");
  std::string components;
  for (int i = 0; i < 20000 / kHistoryDivisor; ++i)
    components += StrCat("\n    c", i, ": {type: none, k: 1}");
  const size_t at = job.find("components:") + 11;
  const JobResult result = ParseJob(job.insert(at, components), "job.yaml");
  EXPECT_GE(result.errors.size(), kMaxErrors);
  EXPECT_LE(result.errors.size(), 3 * kMaxErrors);
}

TEST(HostileYaml, ByteOrderMarkIsSkipped) {
  EXPECT_THAT(ErrorLines("\xEF\xBB\xBF" + MinimalJob()), ElementsAre());
}

TEST(HostileYaml, AnyPrefixOfAJobGivesFaultsOrAJob) {
  const std::string job = MinimalJob();
  for (size_t size = 0; size + 1 < job.size(); ++size) {
    const JobResult result = ParseJob(job.substr(0, size), "job.yaml");
    for (const ConfigError& error : result.errors) {
      EXPECT_EQ(FormatConfigError(error).find('\n'), std::string::npos);
    }
    if (size < job.size() - 10) {
      EXPECT_FALSE(result.errors.empty()) << size;
    }
  }
}

}  // namespace
}  // namespace freshet
