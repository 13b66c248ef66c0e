#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/str_cat.h"
#include "rollout/server_engine/server_protocol.h"
#include "rollout/server_engine/sglang_protocol.h"
#include "rollout/server_engine/vllm_protocol.h"
#include "rollout/worker/rollout_setup.h"
#include "tests/job/job_text.h"
#include "tests/rollout/server_engine/served_model.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

JobResult JobWith(const std::string& engine, const std::string& key) {
  return ParseJob(
      MinimalJobWith(5, StrCat("rollout: {max_new_tokens: 4, engine: ", engine, ", ", key, "}")),
      "job.yaml");
}

TEST(SamplingLimits, AJobMaySetWhatItsEngineTakes) {
  const auto tokenizer = CreateCharTokenizer("0123456789+=");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const ServerProtocol* server : {&VllmProtocol(), &SglangProtocol()}) {
    int refusals = 0;
    for (const char* key :
         {"temperature: 1", "temperature: 0.01", "temperature: 0.009", "top_p: 0.9", "top_k: 5",
          "min_p: 0.1", "repetition_penalty: 1.1", "presence_penalty: 0.5",
          "frequency_penalty: 0.5", "min_new_tokens: 1", "stop: [\"=\"]", "stop_token_ids: [3]"}) {
      const JobResult job = JobWith(server->traits().engine, key);
      const std::string name = StrCat("rollout.", std::string(key, std::string(key).find(':')));
      const bool refused = std::ranges::any_of(
          job.errors, [&](const ConfigError& error) { return error.path == name; });
      const JobResult native = JobWith("native", key);
      ASSERT_TRUE(native.errors.empty()) << FormatConfigError(native.errors[0]);
      GenerationRequest request;
      request.sampling = MakeSampling(native.spec, ServedConfig(), **tokenizer);
      const absl::Status taken = CheckSampling(request, server->traits(), ServedConfig());
      EXPECT_EQ(taken.ok(), !refused) << server->traits().engine << " " << key << ": " << taken;
      refusals += refused ? 1 : 0;
    }
    EXPECT_GE(refusals, 7);
  }
}

}  // namespace
}  // namespace freshet
