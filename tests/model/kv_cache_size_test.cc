#include "model/kv_cache_size.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

TEST(KvBlocksOfGroup, SharesThePromptsWholeBlocks) {
  EXPECT_EQ(KvBlocksOfGroup(32, 1, 16), 2 + 1);
  EXPECT_EQ(KvBlocksOfGroup(32, 8, 16), 2 + 8);
  // The prompt's last block is partly filled: each sample has a copy.
  EXPECT_EQ(KvBlocksOfGroup(33, 8, 15), 3 + 8);
  EXPECT_EQ(KvBlocksOfGroup(33, 8, 16), 3 + 16);
}

TEST(CheckKvCacheBytes, AGroupMustFit) {
  ModelConfig config;
  config.num_hidden_layers = 2;
  config.num_key_value_heads = 3;
  config.head_dim = 8;
  EXPECT_EQ(KvBlockBytes(config, /*bf16=*/false), 2 * 3 * 8 * 2 * 16 * 4);
  EXPECT_EQ(KvBlockBytes(config, /*bf16=*/true), 2 * 3 * 8 * 2 * 16 * 2);
  job::v1::JobSpec spec;
  spec.set_group_size(8);
  spec.mutable_rollout()->set_max_new_tokens(16);
  EXPECT_TRUE(CheckKvCacheBytes(spec, config, 1'000'000).ok()) << "the key is not set";
  spec.mutable_rollout()->set_kv_cache_bytes(10 * KvBlockBytes(config, false));
  EXPECT_TRUE(CheckKvCacheBytes(spec, config, 32).ok());
  const absl::Status refused = CheckKvCacheBytes(spec, config, 33);
  spec.mutable_model()->set_dtype("bf16");
  EXPECT_TRUE(CheckKvCacheBytes(spec, config, 33).ok()) << "blocks are half as large";
  EXPECT_THAT(Message(refused), HasSubstr("rollout.kv_cache_bytes"));
  EXPECT_THAT(Message(refused), HasSubstr(StrCat("it needs ", 19 * KvBlockBytes(config, false))));
}

}  // namespace
}  // namespace freshet
