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

TEST(EngineFlags, OnlyVllmTakesWeightsByNccl) {
  const auto with = [](const char* engine) {
    return Refused({"--engine", engine, "--engine-address", "127.0.0.1:8000", "--engine-dir",
                    "/dev/shm", "--engine-weights", "nccl"});
  };
  EXPECT_EQ(with("vllm"), "");
  EXPECT_THAT(with("sglang"), HasSubstr("needs --engine vllm, not sglang"));
  EXPECT_THAT(Refused({"--engine-weights", "nccl"}), HasSubstr("needs --engine vllm, not native"));
  EXPECT_THAT(Refused({"--engine-weights", "ipc"}), HasSubstr("--engine-weights"));
}

TEST(EngineFlags, NcclIsOpenedOnlyIfItIsWanted) {
  EngineFlags flags;
  flags.kind = "vllm";
  const auto missing = [](const std::string& name) {
    return absl::UnimplementedError("lib" + name + ".so.2 is missing");
  };
  const auto none = OpenEngineTransfer(flags, missing);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, nullptr);
  flags.weights = "nccl";
  const absl::Status refused = OpenEngineTransfer(flags, missing).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("libnccl.so.2 is missing"));
}

}  // namespace
}  // namespace freshet
