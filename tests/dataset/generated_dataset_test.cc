// The arithmetic and copy datasets.
#include "dataset/generated_dataset.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

std::set<std::string> Prompts(const Dataset& dataset) {
  std::set<std::string> prompts;
  for (int64_t i = 0; i < dataset.size(); ++i) prompts.insert(dataset.Get(i)->prompt);
  return prompts;
}

struct Rows {
  int64_t train_rows = 0;
  int64_t held_out_rows = 0;
  int64_t seed = 0;
};

job::v1::JobSpec SpecOf(const char* type, const Rows& rows) {
  job::v1::JobSpec spec;
  spec.mutable_dataset()->set_type(type);
  spec.mutable_dataset()->set_train_rows(rows.train_rows);
  spec.mutable_eval()->set_rows(rows.held_out_rows);
  spec.set_seed(rows.seed);
  return spec;
}

job::v1::JobSpec ArithmeticSpec(int64_t operands, int64_t digits, const Rows& rows) {
  job::v1::JobSpec spec = SpecOf("arithmetic", rows);
  spec.mutable_dataset()->set_operands(operands);
  spec.mutable_dataset()->set_digits(digits);
  return spec;
}

job::v1::JobSpec CopySpec(const char* symbols, int64_t length, const Rows& rows) {
  job::v1::JobSpec spec = SpecOf("copy", rows);
  spec.mutable_dataset()->set_symbols(symbols);
  spec.mutable_dataset()->set_length(length);
  return spec;
}

std::unique_ptr<Dataset> Arithmetic(int64_t operands, int64_t digits, const Rows& rows,
                                    DatasetPart part) {
  auto dataset = MakeGeneratedDataset(ArithmeticSpec(operands, digits, rows), part);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

bool Disjoint(const std::set<std::string>& a, const std::set<std::string>& b) {
  for (const std::string& x : a) {
    if (b.count(x) > 0) return false;
  }
  return true;
}

TEST(ArithmeticDataset, MakesPaddedSums) {
  const auto dataset = Arithmetic(2, 2, {8000, 512, 1}, DatasetPart::kTrain);
  ASSERT_EQ(dataset->size(), 8000);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const DatasetRow row = *dataset->Get(i);
    ASSERT_EQ(row.prompt.size(), 6u);
    ASSERT_EQ(row.prompt[2], '+');
    ASSERT_EQ(row.prompt[5], '=');
    ASSERT_EQ(row.attributes.at("answer").size(), 3u);
    ASSERT_EQ(std::stoi(row.attributes.at("answer")),
              std::stoi(row.prompt.substr(0, 2)) + std::stoi(row.prompt.substr(3, 2)));
  }
}

TEST(ArithmeticDataset, FitsTenOperandsInOneMoreDigit) {
  const auto dataset = Arithmetic(10, 1, {100, 0, 3}, DatasetPart::kTrain);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const DatasetRow row = *dataset->Get(i);
    int sum = 0;
    for (size_t at = 0; at < row.prompt.size(); at += 2) sum += row.prompt[at] - '0';
    EXPECT_EQ(row.prompt.size(), 20u);
    EXPECT_EQ(row.attributes.at("answer").size(), 2u);
    EXPECT_EQ(std::stoi(row.attributes.at("answer")), sum);
  }
}

TEST(ArithmeticDataset, RowsAreDistinctAndPartsDisjointForEverySeed) {
  const Rows one{8000, 512, 1}, two{8000, 512, 2};
  const auto train_1 = Prompts(*Arithmetic(2, 2, one, DatasetPart::kTrain));
  const auto train_2 = Prompts(*Arithmetic(2, 2, two, DatasetPart::kTrain));
  const auto held_1 = Prompts(*Arithmetic(2, 2, one, DatasetPart::kHeldOut));
  const auto held_2 = Prompts(*Arithmetic(2, 2, two, DatasetPart::kHeldOut));
  EXPECT_EQ(train_1.size(), 8000u);
  EXPECT_EQ(held_1.size(), 512u);
  EXPECT_NE(held_1, held_2);
  for (const auto& train : {train_1, train_2}) {
    EXPECT_TRUE(Disjoint(train, held_1));
    EXPECT_TRUE(Disjoint(train, held_2));
  }
}

TEST(ArithmeticDataset, PartsCanTakeTheWholeSpace) {
  const Rows rows{70, 30, 5};
  auto all = Prompts(*Arithmetic(2, 1, rows, DatasetPart::kTrain));
  all.merge(Prompts(*Arithmetic(2, 1, rows, DatasetPart::kHeldOut)));
  EXPECT_EQ(all.size(), 100u);
}

TEST(ArithmeticDataset, IsTheSameForTheSameSeedOnly) {
  const auto a = Arithmetic(2, 3, {100, 10, 7}, DatasetPart::kTrain);
  const auto b = Arithmetic(2, 3, {100, 10, 7}, DatasetPart::kTrain);
  const auto c = Arithmetic(2, 3, {100, 10, 8}, DatasetPart::kTrain);
  int64_t same_as_c = 0;
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(a->Get(i)->prompt, b->Get(i)->prompt);
    if (a->Get(i)->prompt == c->Get(i)->prompt) ++same_as_c;
  }
  EXPECT_LT(same_as_c, 20);
}

TEST(ArithmeticDataset, HeldOutRowsDoNotDependOnTheirNumber) {
  const auto few = Arithmetic(2, 2, {8000, 10, 1}, DatasetPart::kHeldOut);
  const auto many = Arithmetic(2, 2, {8000, 2000, 1}, DatasetPart::kHeldOut);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(few->Get(i)->prompt, many->Get(i)->prompt);
}

TEST(ArithmeticDataset, NamesTheOptionOutOfItsBounds) {
  const struct {
    job::v1::JobSpec spec;
    DatasetPart part;
    const char* error;
  } cases[] = {
      {ArithmeticSpec(1, 2, {1, 1, 0}), DatasetPart::kTrain,
       "dataset.operands is 1; it must be 2..10"},
      {ArithmeticSpec(11, 1, {1, 1, 0}), DatasetPart::kTrain, "dataset.operands is 11"},
      {ArithmeticSpec(2, 0, {1, 1, 0}), DatasetPart::kTrain,
       "dataset.digits is 0; it must be 1..9"},
      {ArithmeticSpec(3, 7, {1, 1, 0}), DatasetPart::kTrain,
       "dataset.digits is 7; it must be 1..6"},
      {ArithmeticSpec(2, 1, {0, 1, 0}), DatasetPart::kTrain,
       "dataset.train_rows is 0; it must be 1..100"},
      {ArithmeticSpec(2, 1, {101, 0, 0}), DatasetPart::kTrain, "dataset.train_rows is 101"},
      {ArithmeticSpec(2, 1, {90, 11, 0}), DatasetPart::kTrain,
       "held-out rows are 11; they must be 0..10"},
      {ArithmeticSpec(2, 1, {90, 0, 0}), DatasetPart::kHeldOut,
       "held-out rows are 0; they must be 1..10"},
  };
  for (const auto& c : cases) {
    const auto dataset = MakeGeneratedDataset(c.spec, c.part);
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument) << c.error;
    EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(c.error));
  }
}

TEST(CopyDataset, AnswersWithThePromptsSymbols) {
  // Three characters, the last one of two bytes.
  const job::v1::JobSpec spec = CopySpec("ab\xC3\xA9", 3, {20, 7, 1});
  const auto train = MakeGeneratedDataset(spec, DatasetPart::kTrain);
  const auto held = MakeGeneratedDataset(spec, DatasetPart::kHeldOut);
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_TRUE(held.ok()) << held.status();
  auto all = Prompts(**train);
  all.merge(Prompts(**held));
  EXPECT_EQ(all.size(), 27u);  // 3^3
  EXPECT_EQ(all.count("\xC3\xA9"
                      "ab="),
            1u);
  for (int64_t i = 0; i < 20; ++i) {
    const DatasetRow row = *(*train)->Get(i);
    EXPECT_EQ(row.prompt, row.attributes.at("answer") + "=");
  }
}

TEST(CopyDataset, NamesTheOptionOutOfItsBounds) {
  const Rows rows{2, 1, 0};
  const struct {
    job::v1::JobSpec spec;
    const char* error;
  } cases[] = {
      {CopySpec("", 2, rows), "dataset.symbols has 0 characters"},
      {CopySpec("aba", 2, rows), "dataset.symbols has 3 characters, 2 of them different"},
      {CopySpec("ab=", 2, rows), "dataset.symbols"},
      {CopySpec("ab", 0, rows), "dataset.length is 0"},
      {CopySpec("ab", 63, rows), "dataset.length is 63"},
      {CopySpec("ab", 1, rows), "held-out rows are 1; they must be 0..0"},
  };
  for (const auto& c : cases) {
    const auto dataset = MakeGeneratedDataset(c.spec, DatasetPart::kTrain);
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument) << c.error;
    EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(c.error));
  }
}

TEST(CopyDataset, TakesALargeSpace) {
  const auto dataset = MakeGeneratedDataset(CopySpec("ab", 62, {5, 5, 0}), DatasetPart::kHeldOut);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->Get(4)->prompt.size(), 63u);
}

TEST(GeneratedSpace, SizeSaysWhenItOverflows) {
  EXPECT_EQ(SpaceSize(10, 0), 1);
  EXPECT_EQ(SpaceSize(10, 18), 1000000000000000000);
  EXPECT_EQ(SpaceSize(10, 19), -1);
  EXPECT_EQ(SpaceSize(2, 62), int64_t{1} << 62);
  EXPECT_EQ(SpaceSize(2, 63), -1);
  EXPECT_EQ(SpaceSize(1, 65536), 1);
}

}  // namespace
}  // namespace freshet
