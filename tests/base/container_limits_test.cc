#include "base/container_limits.h"

#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

struct Case {
  std::string name;
  std::map<std::string, std::string> files;
  std::optional<double> cpus;
  std::optional<int64_t> memory_bytes;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

class ContainerLimitsTest : public testing::TestWithParam<Case> {};

TEST_P(ContainerLimitsTest, ReadsBothVersions) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("limits-" + GetParam().name);
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  for (const auto& [file, content] : GetParam().files) {
    std::filesystem::create_directories((root / file).parent_path());
    ASSERT_TRUE(WriteFileAtomically((root / file).string(), content).ok());
  }
  const ContainerLimits limits = ReadContainerLimits(root.string());
  EXPECT_EQ(limits.cpus, GetParam().cpus);
  EXPECT_EQ(limits.memory_bytes, GetParam().memory_bytes);
}

TEST(AvailableMemory, IsTheLeastOfTheMachineAndTheContainerWithoutCachedFiles) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "available";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  const auto write = [&](const char* file, const char* content) {
    ASSERT_TRUE(WriteFileAtomically((root / file).string(), content).ok());
  };
  const auto available = [&] {
    return AvailableMemory((root / "meminfo").string(), root.string());
  };
  EXPECT_EQ(available(), 0) << "nothing is known";
  write("meminfo", "MemTotal:  9000 kB\nMemAvailable:    2000 kB\n");
  EXPECT_EQ(available(), 2'048'000);
  write("memory.max", "1000000\n");
  write("memory.current", "900000\n");
  EXPECT_EQ(available(), 100'000);
  write("memory.stat", "anon 5\ninactive_file 300000\n");
  EXPECT_EQ(available(), 400'000);
  write("memory.current", "1500000\n");
  EXPECT_EQ(available(), 0);
}

TEST(UsableProcessors, AreThoseOfTheLimit) {
  EXPECT_EQ(UsableProcessors({.cpus = 1.9, .memory_bytes = {}}), 1);
  EXPECT_EQ(UsableProcessors({.cpus = 0.2, .memory_bytes = {}}), 1);
  EXPECT_GE(UsableProcessors({}), 1);
  EXPECT_EQ(UsableProcessors({.cpus = 1e6, .memory_bytes = {}}), UsableProcessors({}));
}

INSTANTIATE_TEST_SUITE_P(
    Cgroups, ContainerLimitsTest,
    testing::Values(Case{"Version2",
                         {{"cpu.max", "250000 100000\n"}, {"memory.max", "1073741824\n"}},
                         2.5,
                         1073741824},
                    Case{"Version2WithoutLimits",
                         {{"cpu.max", "max 100000\n"}, {"memory.max", "max\n"}},
                         {},
                         {}},
                    Case{"Version1",
                         {{"cpu/cpu.cfs_quota_us", "50000\n"},
                          {"cpu/cpu.cfs_period_us", "100000\n"},
                          {"memory/memory.limit_in_bytes", "4096\n"}},
                         0.5,
                         4096},
                    Case{"Version1WithoutLimits",
                         {{"cpu/cpu.cfs_quota_us", "-1\n"},
                          {"cpu/cpu.cfs_period_us", "100000\n"},
                          {"memory/memory.limit_in_bytes", "9223372036854771712\n"}},
                         {},
                         {}},
                    Case{"None", {}, {}, {}},
                    Case{"Malformed", {{"cpu.max", "many"}, {"memory.max", ""}}, {}, {}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace freshet
