#include "rollout/server_engine/vllm_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Tensors of these numbers of elements, of 2 bytes each.
std::vector<ParameterEntry> Tensors(const std::vector<int64_t>& sizes) {
  std::vector<ParameterEntry> tensors;
  for (const int64_t size : sizes) {
    tensors.push_back({.name = "t" + std::to_string(tensors.size()), .shape = {size, 1}});
    tensors.back().size = size;
  }
  return tensors;
}

// (tensors, bytes) of each chunk.
std::vector<std::pair<size_t, size_t>> Chunks(const std::vector<int64_t>& sizes, size_t limit) {
  std::vector<std::pair<size_t, size_t>> chunks;
  size_t next = 0;
  for (const PackedChunk& chunk : PackTensors(Tensors(sizes), limit)) {
    EXPECT_EQ(chunk.first, next);
    next = chunk.first + chunk.count;
    chunks.emplace_back(chunk.count, chunk.bytes);
  }
  EXPECT_EQ(next, sizes.size());
  return chunks;
}

TEST(PackTensors, AChunkEndsWithTheTensorThatCrossesTheLimit) {
  EXPECT_THAT(Chunks({}, 10), IsEmpty());
  EXPECT_THAT(Chunks({1, 2, 3}, 100), ElementsAre(Pair(3, 12)));
  EXPECT_THAT(Chunks({1, 2, 3}, 7), ElementsAre(Pair(3, 12)));  // 2, 6, 12 > 7
  EXPECT_THAT(Chunks({1, 2, 3}, 6), ElementsAre(Pair(3, 12)));  // 6 is not above 6
  EXPECT_THAT(Chunks({1, 2, 3}, 5), ElementsAre(Pair(2, 6), Pair(1, 6)));
  EXPECT_THAT(Chunks({1, 2, 3}, 12), ElementsAre(Pair(3, 12)));  // the remainder
  EXPECT_THAT(Chunks({3, 3, 3, 1}, 6), ElementsAre(Pair(2, 12), Pair(2, 8)));
  EXPECT_THAT(Chunks({1, 50, 1}, 10), ElementsAre(Pair(2, 102), Pair(1, 2)));
  EXPECT_THAT(Chunks({2, 1}, 0), ElementsAre(Pair(1, 4), Pair(1, 2)));
}

TEST(TransferCalls, HaveWhatTheWorkersNeed) {
  const runtime::HttpCall init = InitTransfer(std::string(128, '\xfb'), 4, 1 << 28);
  EXPECT_EQ(init.target, "/init_weight_transfer_engine");
  std::string id;  // standard base64 of 128 bytes: 42 * 3 + 2
  for (int i = 0; i < 42; ++i) id += "+/v7";
  id += "+/s=";
  EXPECT_EQ(Json::parse(init.body), Json({{"init_info",
                                           {{"nccl_unique_id_b64", id},
                                            {"rank_offset", 1},
                                            {"world_size", 5},
                                            {"packed", true},
                                            {"packed_buffer_size_bytes", 268435456},
                                            {"packed_num_buffers", 2}}}}));
  const runtime::HttpCall update = UpdateWeights(Tensors({3, 4}));
  EXPECT_EQ(update.target, "/update_weights");
  EXPECT_EQ(Json::parse(update.body), Json::parse(R"({"update_info":{"names":["t0","t1"],
      "dtype_names":["bfloat16","bfloat16"],"shapes":[[3,1],[4,1]]}})"));
}

TEST(TransferAnswers, AreChecked) {
  EXPECT_EQ(ParseWorldSize(R"({"world_size":1})").value_or(0), 1);
  EXPECT_EQ(ParseWorldSize(R"({"world_size":4096})").value_or(0), 4096);
  for (const char* body :
       {"", "[]", "{}", "{", R"({"world_size":0})", R"({"world_size":-1})", R"({"world_size":1.5})",
        R"({"world_size":"2"})", R"({"world_size":4097})", R"({"world_size":18446744073709551615})",
        R"({"world_size":null})"}) {
    EXPECT_EQ(ParseWorldSize(body).status().code(), absl::StatusCode::kInternal) << body;
  }
  EXPECT_TRUE(CheckTransferAnswer(R"({"message":"Weights updated"})").ok());
  for (const char* body : {"", "[]", "{}", "null", R"({"message":3})", R"({"error":"x"})"}) {
    EXPECT_EQ(CheckTransferAnswer(body).code(), absl::StatusCode::kInternal) << body;
  }
}

}  // namespace
}  // namespace freshet
