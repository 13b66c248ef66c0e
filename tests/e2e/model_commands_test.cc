// score, generate and tokenize: stable JSON lines for scripts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/safetensors.h"
#include "tests/e2e/freshet_fixture.h"
#include "tests/model/test_directory.h"
#include "tests/testing/model_directory.h"

namespace freshet {
namespace {

using testing::HasSubstr;

class ModelCommandsTest : public FreshetFixture {
 protected:
  ModelCommandsTest() { ModelDirectory().Write(Path("model")); }
  // Runs a command; expects success and one JSON object per line.
  std::vector<Json> Objects(const std::vector<std::string>& args, const std::string& input = "") {
    const ChildResult result = Freshet(args, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::vector<Json> rows;
    for (const std::string& line : Lines(result.out)) {
      rows.push_back(Json::parse(line, nullptr, false));
      EXPECT_TRUE(rows.back().is_object()) << line;
    }
    return rows;
  }
  void ExpectContentError(const std::vector<std::string>& args,
                          const std::vector<std::string>& parts, const std::string& input = "") {
    const ChildResult result = Freshet(args, input);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(Lines(result.err).size(), 1U) << result.err;
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  }
};

double MaxDifference(const Json& a, const Json& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference = std::max(difference, std::abs(a[i].get<double>() - b[i].get<double>()));
  }
  return difference;
}

TEST_F(ModelCommandsTest, ScoreGivesOneNumberLessThanTokens) {
  folder_.Write("ids", "[1,2,3,10]\n[5]\n[11,0,11]\n");
  const std::vector<Json> rows = Objects({"score", "model", "--ids", "ids"});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]["logprobs"].size(), 3U);
  EXPECT_EQ(rows[1], Json::parse(R"({"logprobs": []})"));
  EXPECT_EQ(rows[2]["logprobs"].size(), 2U);
  for (const Json& value : rows[0]["logprobs"]) EXPECT_LE(value.get<double>(), 0);
}

TEST_F(ModelCommandsTest, AllEnginesAgree) {
  folder_.Write("ids", "[1,2,3,10,4,5,6,7,8,9,0,11,1,1,2,3]\n[5,5]\n");
  const std::vector<Json> prefill = Objects({"score", "model", "--ids", "ids"});
  for (const char* engine : {"prefill", "decode", "trainer"}) {
    const std::vector<Json> rows =
        Objects({"score", "model", "--ids", "ids", "--engine", engine, "--dtype", "fp32"});
    ASSERT_EQ(rows.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_LE(MaxDifference(rows[i]["logprobs"], prefill[i]["logprobs"]), 1e-4) << engine;
    }
  }
  const std::vector<Json> bf16 = Objects({"score", "model", "--ids", "ids", "--dtype", "bf16"});
  EXPECT_LE(MaxDifference(bf16[0]["logprobs"], prefill[0]["logprobs"]), 0.5);
}

TEST_F(ModelCommandsTest, GenerateGivesNewTokensOnly) {
  folder_.Write("ids", "[1,2,3]\n[4]\n");
  const std::vector<Json> rows = Objects(
      {"generate", "model", "--ids", "ids", "--greedy", "--max-new-tokens", "6", "--ignore-eos"});
  ASSERT_EQ(rows.size(), 2U);
  for (const Json& row : rows) {
    EXPECT_EQ(row["ids"].size(), 6U);
    EXPECT_EQ(row["logprobs"].size(), 6U);
  }
  // Scoring prompt and continuation as one sequence gives the same numbers.
  Json whole = Json::array({1, 2, 3});
  for (const Json& id : rows[0]["ids"]) whole.push_back(id);
  folder_.Write("whole", whole.dump() + "\n");
  const Json scores = Objects({"score", "model", "--ids", "whole"})[0]["logprobs"];
  const Json tail(std::vector<Json>(scores.begin() + 2, scores.end()));
  EXPECT_LE(MaxDifference(tail, rows[0]["logprobs"]), 1e-4);
}

TEST_F(ModelCommandsTest, GenerateStopsAtTheEndToken) {
  // The head strongly prefers the end token after any prefix.
  ModelDirectory model;
  for (float& value : model.tensors["model.embed_tokens.weight"].values) value = 1.0F;
  for (const char* name :
       {"model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight"}) {
    for (float& value : model.tensors[name].values) value = 0.0F;
  }
  for (float& value : model.tensors["model.norm.weight"].values) value = 1.0F;
  std::vector<float>& head = model.tensors["lm_head.weight"].values;
  for (size_t i = 0; i < head.size(); ++i) head[i] = i / 16 == 11 ? 1.0F : 0.0F;
  model.Write(Path("model"));
  folder_.Write("ids", "[1,2]\n");
  std::vector<std::string> args = {"generate", "model", "--ids", "ids", "--max-new-tokens", "5"};
  EXPECT_EQ(Objects(args)[0]["ids"], Json({11}));
  args.emplace_back("--ignore-eos");
  EXPECT_EQ(Objects(args)[0]["ids"], Json({11, 11, 11, 11, 11}));
}

TEST_F(ModelCommandsTest, TokenizeGivesIdsAndTextBack) {
  const std::vector<Json> rows = Objects({"tokenize", "model"}, "\"12=\"\n\"\"\n\"3</s>4\"\n");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0], Json::parse(R"({"ids": [1, 2, 10], "decoded": "12="})"));
  EXPECT_EQ(rows[1], Json::parse(R"({"ids": [], "decoded": ""})"));
  EXPECT_EQ(rows[2], Json::parse(R"({"ids": [3, 11, 4], "decoded": "3</s>4"})"));
}

TEST_F(ModelCommandsTest, TokenizeNeedsTheTokenizerFilesOnly) {
  std::filesystem::remove(Path("model/model.safetensors"));
  std::filesystem::remove(Path("model/config.json"));
  EXPECT_EQ(Objects({"tokenize", "model"}, "\"7\"\n").size(), 1U);
}

TEST_F(ModelCommandsTest, ChatRendersConversations) {
  folder_.Write("model/chat_template.jinja",
                "{% for m in messages %}{{ m.content }}={% endfor %}{% if not messages %}"
                "{{ raise_exception('say something') }}{% endif %}"
                "{% if add_generation_prompt %}1{% endif %}");
  folder_.Write("chats", R"({"messages": [{"role": "user", "content": "12"}]})"
                         "\n");
  const std::vector<Json> rows =
      Objects({"chat", "model", "--messages", "chats", "--add-generation-prompt"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0], Json::parse(R"({"text": "12=1", "ids": [1, 2, 10, 1]})"));
  folder_.Write("chats", R"({"messages": []})"
                         "\n");
  ExpectContentError({"chat", "model", "--messages", "chats"}, {"chats:1: say something"});
  folder_.Write("chats", "{}\n");
  ExpectContentError({"chat", "model", "--messages", "chats"}, {"chats:1: ", "messages"});
}

TEST_F(ModelCommandsTest, BadInputIsNamed) {
  const std::vector<std::string> score = {"score", "model", "--ids", "ids"};
  ExpectContentError(score, {"ids: "});  // no such file
  folder_.Write("ids", "[1]\n[1,2\n");
  ExpectContentError(score, {"ids:2: "});
  folder_.Write("ids", "[1,12]\n");
  ExpectContentError(score, {"ids:1: ", "12"});
  folder_.Write("ids", "[1,-1]\n");
  ExpectContentError(score, {"ids:1: ", "-1"});
  folder_.Write("ids", "[1,2.5]\n");
  ExpectContentError(score, {"ids:1: ", "2.5"});
  folder_.Write("ids", "[]\n");
  ExpectContentError(score, {"ids:1: "});
  folder_.Write("ids", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n");
  ExpectContentError(score, {"ids:1: ", "17 tokens", "16"});
  folder_.Write("ids", "[1,2,3]\n");
  ExpectContentError({"generate", "model", "--ids", "ids", "--max-new-tokens", "14"},
                     {"ids:1: ", "16"});
  ExpectContentError({"score", "nowhere", "--ids", "ids"}, {"nowhere: no such model directory"});
  ExpectContentError({"tokenize", "model"}, {"stdin:2: "}, "\"1\"\nnonsense\n");
  ExpectContentError({"tokenize", "model"}, {"stdin:1: ", "'x'"}, "\"x\"\n");
  ExpectContentError({"tokenize", "nowhere"}, {"nowhere"}, "");
}

TEST_F(ModelCommandsTest, BadCommandLines) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"score", "model"},
           {"score", "--ids", "ids"},
           {"score", "model", "--ids", "ids", "--engine", "magic"},
           {"score", "model", "--ids", "ids", "--dtype", "fp8"},
           {"generate", "model", "--ids", "ids"},
           {"generate", "model", "--ids", "ids", "--max-new-tokens", "0"},
           {"generate", "model", "--ids", "ids", "--max-new-tokens", "3", "--greedy",
            "--temperature", "1"},
           {"tokenize"}}) {
    EXPECT_EQ(Freshet(args).exit_code, 2);
  }
}

// A model with reference outputs. Skipped if its files are absent.
struct ReferenceModel {
  const char* name;
  const char* model;  // folder of the reference data
  const char* reference;
  int new_tokens;  // length of its greedy continuations
};

void PrintTo(const ReferenceModel& model, std::ostream* out) { *out << model.name; }

class ReferenceModelTest : public ModelCommandsTest,
                           public testing::WithParamInterface<ReferenceModel> {
 protected:
  void SetUp() override {
    model_ = ReferencePath(GetParam().model);
    const std::string path =
        ReferencePath(GetParam().reference) + std::string("/reference.safetensors");
    if (!std::filesystem::exists(model_) || !std::filesystem::exists(path)) {
      GTEST_SKIP() << "no reference data at " << path;
    }
    auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    reference_ = *std::move(file);
    folder_.Write("prompts", AllPrompts());
    ASSERT_GT(num_prompts_, 0);
  }
  template <typename Element>
  Json Read(const std::string& name) const {
    const TensorInfo* info = reference_->Find(name);
    if (info == nullptr) return nullptr;
    const std::string_view bytes = reference_->Data(*info);
    std::vector<Element> values(bytes.size() / sizeof(Element));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::string AllPrompts() {
    std::string lines;
    for (num_prompts_ = 0;; ++num_prompts_) {
      const Json ids = Read<int64_t>("p" + std::to_string(num_prompts_) + ".input_ids");
      if (ids.is_null()) return lines;
      lines += ids.dump() + "\n";
    }
  }

  std::string model_;
  std::unique_ptr<SafetensorsFile> reference_;
  int num_prompts_ = 0;
};

TEST_P(ReferenceModelTest, LogProbsEqualTheReference) {
  for (const char* engine : {"prefill", "decode", "trainer"}) {
    const std::vector<Json> rows =
        Objects({"score", model_, "--ids", "prompts", "--engine", engine});
    ASSERT_EQ(static_cast<int>(rows.size()), num_prompts_);
    for (int i = 0; i < num_prompts_; ++i) {
      const Json expected = Read<float>("p" + std::to_string(i) + ".logprobs");
      EXPECT_LE(MaxDifference(rows[static_cast<size_t>(i)]["logprobs"], expected), 1e-4)
          << engine << ", prompt " << i;
    }
  }
}

TEST_P(ReferenceModelTest, GreedyContinuationsEqualTheReference) {
  const std::vector<Json> rows =
      Objects({"generate", model_, "--ids", "prompts", "--greedy", "--max-new-tokens",
               std::to_string(GetParam().new_tokens), "--ignore-eos"});
  ASSERT_EQ(static_cast<int>(rows.size()), num_prompts_);
  for (int i = 0; i < num_prompts_; ++i) {
    const std::string name = "p" + std::to_string(i);
    EXPECT_EQ(rows[static_cast<size_t>(i)]["ids"], Read<int64_t>(name + ".greedy_ids")) << name;
    EXPECT_LE(MaxDifference(rows[static_cast<size_t>(i)]["logprobs"],
                            Read<float>(name + ".greedy_logprobs")),
              1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, ReferenceModelTest,
                         testing::Values(ReferenceModel{"Stories260K", "stories260K/hf",
                                                        "parity/stories260K/reference", 64},
                                         ReferenceModel{"Llama3Rope", "parity/llama3_rope",
                                                        "parity/llama3_rope/reference", 32}),
                         [](const auto& tested) { return tested.param.name; });

TEST_F(ModelCommandsTest, TokenizesTheReferenceCases) {
  const std::string model = ReferencePath("stories260K/hf");
  const std::string cases = ReferencePath("tokenizers/stories260K/cases.jsonl");
  if (!std::filesystem::exists(model) || !std::filesystem::exists(cases)) {
    GTEST_SKIP() << "no reference data at " << cases;
  }
  std::ifstream file(cases);
  std::vector<Json> expected;
  std::string input;
  for (std::string line; std::getline(file, line);) {
    expected.push_back(Json::parse(line));
    input += expected.back()["text"].dump() + "\n";
  }
  const std::vector<Json> rows = Objects({"tokenize", model}, input);
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["ids"], expected[i]["ids"]) << expected[i]["text"];
    EXPECT_EQ(rows[i]["decoded"], expected[i]["decoded"]);
  }
}

}  // namespace
}  // namespace freshet
