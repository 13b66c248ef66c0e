#include "cli/client/server_target.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kConfig[] = R"(current: lab
contexts:
  lab: {address: "lab:7070", ca: /ca.pem}
  home: {address: "10.0.0.5:7070", ca: /c, cert: /x, key: /k, token_file: /t}
)";

TargetSources WithConfig() {
  TargetSources sources;
  sources.config_path = "config.yaml";
  sources.config = kConfig;
  return sources;
}

TEST(ServerTarget, DefaultWithoutAnything) {
  const absl::StatusOr<ServerTarget> target = ResolveTarget({});
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->address, "127.0.0.1:7070");
  EXPECT_FALSE(target->named);
}

TEST(ServerTarget, FlagBeforeEnvironmentBeforeContext) {
  TargetSources sources = WithConfig();
  EXPECT_EQ(ResolveTarget(sources)->address, "lab:7070");
  sources.environment = "other:1";
  EXPECT_EQ(ResolveTarget(sources)->address, "other:1");
  sources.server = "flag:2";
  EXPECT_EQ(ResolveTarget(sources)->address, "flag:2");
  EXPECT_EQ(ResolveTarget(sources)->source, "--server");
  EXPECT_TRUE(ResolveTarget(sources)->ca.empty());
}

TEST(ServerTarget, AContextBringsItsFiles) {
  TargetSources sources = WithConfig();
  sources.context = "home";
  const absl::StatusOr<ServerTarget> target = ResolveTarget(sources);
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->cert, "/x");
  EXPECT_EQ(target->token_file, "/t");
  sources.context = "";
  sources.server = "home";
  EXPECT_EQ(ResolveTarget(sources)->key, "/k");
  sources.server = "10.0.0.5:7070";  // the address of a context
  EXPECT_EQ(ResolveTarget(sources)->key, "/k");
}

TEST(ServerTarget, SeveralControllersAreOneTarget) {
  TargetSources sources = WithConfig();
  sources.server = "10.0.0.6:7070,10.0.0.5:7070";
  const absl::StatusOr<ServerTarget> target = ResolveTarget(sources);
  ASSERT_TRUE(target.ok());
  EXPECT_THAT(SplitAddresses(target->address), ElementsAre("10.0.0.6:7070", "10.0.0.5:7070"));
  EXPECT_EQ(target->key, "/k");  // of the context with one of these addresses
  for (const char* bad : {"a:1,", "a:1,,b:2", "lab,home", "a:1,b"}) {
    sources.server = bad;
    const absl::Status status = ResolveTarget(sources).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not HOST:PORT")) << bad;
  }
}

TEST(ServerTarget, FlagsWinOverTheContextsFiles) {
  TargetSources sources = WithConfig();
  sources.ca = "/mine.pem";
  EXPECT_EQ(ResolveTarget(sources)->ca, "/mine.pem");
}

TEST(ServerTarget, NamesTheContextsThereAre) {
  TargetSources sources = WithConfig();
  sources.server = "nowhere";
  const absl::Status status = ResolveTarget(sources).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("home, lab"));
}

TEST(ServerTarget, MutualTlsNeedsAllThreeFiles) {
  TargetSources sources;
  sources.cert = "/x";
  EXPECT_THAT(std::string(ResolveTarget(sources).status().message()), HasSubstr("--key"));
  sources.key = "/k";
  EXPECT_THAT(std::string(ResolveTarget(sources).status().message()), HasSubstr("--ca"));
  sources.ca = "/c";
  EXPECT_TRUE(ResolveTarget(sources).ok());
}

TEST(ServerTarget, RefusesAConfigurationThatIsNone) {
  const char* const kBad[] = {"[1, 2]",
                              "contexts: 3",
                              "contexts: {a: {adress: x}}",
                              "contexts: {a: {ca: x}}",
                              "contexts: {a: b}",
                              "server: x",
                              "current: [a]",
                              "{{{",
                              "contexts: {a: {address: {b: c}}}"};
  for (const char* text : kBad) {
    TargetSources sources;
    sources.config_path = "config.yaml";
    sources.config = text;
    const absl::Status status = ResolveTarget(sources).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.yaml")) << text;
  }
  TargetSources large;
  large.config = std::string(300 << 10, '#');
  EXPECT_TRUE(absl::IsInvalidArgument(ResolveTarget(large).status()));
}

TEST(ServerTarget, AnEmptyConfigurationIsNone) {
  TargetSources sources;
  sources.config = "";
  EXPECT_TRUE(ResolveTarget(sources).ok());
}

}  // namespace
}  // namespace freshet
