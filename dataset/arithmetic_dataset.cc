#include "dataset/arithmetic_dataset.h"

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kMaxOperands = 10;     // more could overflow the sum's digits + 1 characters
constexpr int64_t kMaxTotalDigits = 18;  // 10^18 < 2^62

std::string Padded(int64_t value, int64_t width) {
  std::string digits = std::to_string(value);
  const size_t wanted = static_cast<size_t>(width);
  if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
  return digits;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArithmeticDataset>> ArithmeticDataset::Create(
    const ArithmeticDatasetOptions& options, DatasetPart part) {
  if (options.operands < 2 || options.operands > kMaxOperands) {
    return InvalidArgument("dataset.operands is ", options.operands, "; it must be 2..",
                           kMaxOperands);
  }
  if (options.digits < 1 || options.digits > kMaxTotalDigits / options.operands) {
    return InvalidArgument("dataset.digits is ", options.digits, "; it must be 1..",
                           kMaxTotalDigits / options.operands, " with ", options.operands,
                           " operands");
  }
  FRESHET_ASSIGN_OR_RETURN(
      const GeneratedSpace space,
      GeneratedSpace::Create(SpaceSize(10, options.operands * options.digits), options.rows, part));
  return std::unique_ptr<ArithmeticDataset>(new ArithmeticDataset(options, space));
}

absl::StatusOr<DatasetRow> ArithmeticDataset::Get(int64_t index) const {
  FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
  const int64_t base = SpaceSize(10, digits_);
  int64_t item = space_.Item(index);
  int64_t sum = 0;
  DatasetRow row;
  for (int64_t i = 0; i < operands_; ++i) {
    const int64_t operand = item % base;
    item /= base;
    sum += operand;
    row.prompt += StrCat(i == 0 ? "" : "+", Padded(operand, digits_));
  }
  row.prompt += '=';
  row.attributes["answer"] = Padded(sum, digits_ + 1);
  return row;
}

std::string ArithmeticDataset::Where(int64_t index) const {
  return StrCat("arithmetic dataset, row ", index);
}

}  // namespace freshet
