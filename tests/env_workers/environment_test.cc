#include "env_workers/environment.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(EnvironmentRegistry, MakesTheBuiltinOnesByName) {
  EXPECT_EQ(BuiltinEnvironments().types().size(), 2U);
  for (const char* name : {"guess_number", "calculator"}) {
    const auto made = BuiltinEnvironments().Make(name);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE((*made)->Reset(1, {}).ok());
  }
}

TEST(EnvironmentRegistry, SaysWhichNamesThereAre) {
  const auto made = BuiltinEnvironments().Make("chess");
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(made.status().message(),
            "environment 'chess' is unknown; use calculator, guess_number");
}

TEST(EnvironmentRegistry, DoesNotRepeatALongUnknownName) {
  const auto made = BuiltinEnvironments().Make(std::string(1 << 20, 'x'));
  EXPECT_LT(made.status().message().size(), 200U);
}

TEST(EnvironmentRegistry, ChecksOptionsByNameAndValue) {
  const EnvironmentRegistry& all = BuiltinEnvironments();
  EXPECT_TRUE(all.CheckOptions("guess_number", {{"max", "20"}}).ok());
  EXPECT_TRUE(all.CheckOptions("calculator", {{"source", "prompt"}}).ok());
  const absl::Status unknown = all.CheckOptions("guess_number", {{"maximum", "20"}});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("options.maximum: guess_number has no such option; use max"),
            absl::string_view::npos)
      << unknown;
  EXPECT_EQ(all.CheckOptions("guess_number", {{"max", "0"}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(all.CheckOptions("chess", {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(EnvironmentRegistry, TakesANameOnce) {
  EnvironmentRegistry registry;
  const EnvironmentType type = BuiltinEnvironments().types().at("guess_number");
  EXPECT_TRUE(registry.Add(type).ok());
  EXPECT_EQ(registry.Add(type).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(registry.Add({}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
