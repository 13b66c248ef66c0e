#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "freshet/job/v1/key_options.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_schema.h"
#include "job/loss_spec.h"

namespace freshet {
namespace {

using ::testing::UnorderedElementsAreArray;

std::vector<std::string> Allowed(const std::string& path) {
  const JobKeyLookup lookup = FindJobKey(path);
  return lookup.key ? SplitList(OptionsOf(*lookup.key->field).one_of())
                    : std::vector<std::string>();
}

TEST(LossKeys, PresetsAreThoseOfTheTrainer) {
  std::vector<std::string> presets;
  for (const LossPreset& preset : LossPresets()) presets.emplace_back(preset.name);
  EXPECT_THAT(Allowed("loss.preset"), UnorderedElementsAreArray(presets));
}

// The trainer implements each choice that a job file may contain.
TEST(LossKeys, ChoicesAreKnownToTheTrainer) {
  struct Case {
    const char* path;
    std::optional<std::string> LossOverrides::*member;
  };
  for (const Case& c : {
           Case{"loss.advantage", &LossOverrides::advantage},
           Case{"loss.surrogate", &LossOverrides::surrogate},
           Case{"loss.ratio", &LossOverrides::ratio},
           Case{"loss.anchor", &LossOverrides::anchor},
           Case{"loss.correction.kind", &LossOverrides::correction_kind},
           Case{"loss.kl.kind", &LossOverrides::kl_kind},
           Case{"loss.aggregate", &LossOverrides::aggregate},
       }) {
    const std::vector<std::string> allowed = Allowed(c.path);
    EXPECT_FALSE(allowed.empty()) << c.path;
    std::vector<std::string> names = allowed;
    names.emplace_back("no such choice");
    for (const std::string& name : names) {
      LossOverrides overrides;
      overrides.*c.member = name;
      const auto loss = ResolveLoss(overrides, {.group_size = 8, .groups_per_step = 8});
      const auto* errors = std::get_if<std::vector<LossError>>(&loss);
      const bool is_unknown =
          errors != nullptr && std::any_of(errors->begin(), errors->end(), [&](const auto& error) {
            return error.field == c.path &&
                   error.message.find("is not one of") != std::string::npos;
          });
      EXPECT_EQ(is_unknown, name == "no such choice") << c.path << " " << name;
    }
  }
}

}  // namespace
}  // namespace freshet
