#include "rollout/service/engine_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

// What a command line with these words prints on stderr; "" if it is accepted.
std::string Refused(std::vector<const char*> words) {
  CommandLine app("tests", "test");
  EngineFlags flags;
  AddEngineFlags(app, flags);
  words.insert(words.begin(), "test");
  testing::internal::CaptureStderr();
  const bool refused = app.Parse(static_cast<int>(words.size()), words.data()).has_value();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(refused, !text.empty());
  return text;
}

TEST(EngineFlags, AServerHasAnAddressAndAFolder) {
  EXPECT_EQ(Refused({}), "");
  EXPECT_EQ(Refused({"--engine", "vllm", "--engine-address", "127.0.0.1:8000", "--engine-dir",
                     "/dev/shm"}),
            "");
  EXPECT_THAT(Refused({"--engine", "vllm", "--engine-dir", "/dev/shm"}),
              HasSubstr("--engine vllm needs --engine-address and --engine-dir"));
  EXPECT_THAT(Refused({"--engine-dir", "/dev/shm"}), HasSubstr("need --engine vllm"));
  EXPECT_THAT(Refused({"--engine", "vllm", "--engine-address", "nowhere", "--engine-dir", "/x"}),
              HasSubstr("--engine-address: "));
  EXPECT_THAT(Refused({"--engine", "magic"}), HasSubstr("--engine"));
}

}  // namespace
}  // namespace freshet
