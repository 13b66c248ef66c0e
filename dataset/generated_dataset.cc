#include "dataset/generated_dataset.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet {
namespace {

constexpr int64_t kMaxOperands = 10;     // more could overflow the sum's digits + 1 characters
constexpr int64_t kMaxTotalDigits = 18;  // 10^18 < 2^62

// The different rows that a dataset can have.
struct Generator {
  int64_t size = 0;
  std::function<DatasetRow(int64_t item)> make;  // requires 0 <= item < size
};

class GeneratedDataset final : public Dataset {
 public:
  GeneratedDataset(std::string type, Generator generator, const GeneratedSpace& space)
      : type_(std::move(type)), generator_(std::move(generator)), space_(space) {}

  int64_t size() const override { return space_.rows(); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override {
    FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
    return generator_.make(space_.Item(index));
  }
  std::string Where(int64_t index) const override { return StrCat(type_, " dataset, row ", index); }

 private:
  const std::string type_;
  const Generator generator_;
  const GeneratedSpace space_;
};

DatasetRow MakeSum(int64_t operands, int digits, int64_t item) {
  const int64_t base = SpaceSize(10, digits);
  int64_t sum = 0;
  DatasetRow row;
  for (int64_t i = 0; i < operands; ++i) {
    const int64_t operand = item % base;
    item /= base;
    sum += operand;
    row.prompt += absl::StrFormat("%s%0*d", i == 0 ? "" : "+", digits, operand);
  }
  row.prompt += '=';
  row.attributes["answer"] = absl::StrFormat("%0*d", digits + 1, sum);
  return row;
}

DatasetRow MakeCopy(const std::vector<std::string>& symbols, int64_t length, int64_t item) {
  const int64_t base = static_cast<int64_t>(symbols.size());
  std::string text;
  for (int64_t i = 0; i < length; ++i) {
    text += symbols[static_cast<size_t>(item % base)];
    item /= base;
  }
  return {text + "=", {{"answer", text}}};
}

absl::StatusOr<Generator> ArithmeticGenerator(const job::v1::Dataset& dataset) {
  const int64_t operands = dataset.operands();
  const int64_t digits = dataset.digits();
  if (operands < 2 || operands > kMaxOperands) {
    return InvalidArgument("dataset.operands is ", operands, "; it must be 2..", kMaxOperands);
  }
  if (digits < 1 || digits > kMaxTotalDigits / operands) {
    return InvalidArgument("dataset.digits is ", digits, "; it must be 1..",
                           kMaxTotalDigits / operands, " with ", operands, " operands");
  }
  return Generator{SpaceSize(10, operands * digits), [operands, digits](int64_t item) {
                     return MakeSum(operands, static_cast<int>(digits), item);
                   }};
}

absl::StatusOr<Generator> CopyGenerator(const job::v1::Dataset& dataset) {
  const std::vector<std::string> symbols = Utf8Characters(dataset.symbols());
  const std::set<std::string> distinct(symbols.begin(), symbols.end());
  if (symbols.empty() || distinct.size() != symbols.size() || distinct.count("=") > 0) {
    return InvalidArgument("dataset.symbols has ", symbols.size(), " characters, ", distinct.size(),
                           " of them different; give each once, without '='");
  }
  const int64_t length = dataset.length();
  const int64_t base = static_cast<int64_t>(symbols.size());
  const int64_t size = length < 1 ? -1 : SpaceSize(base, length);
  if (size < 0) {
    return InvalidArgument("dataset.length is ", length, "; it must be >= 1, and ", base,
                           "^length must not exceed 2^62");
  }
  return Generator{size,
                   [symbols, length](int64_t item) { return MakeCopy(symbols, length, item); }};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeGeneratedDataset(const job::v1::JobSpec& spec,
                                                              DatasetPart part) {
  const job::v1::Dataset& dataset = spec.dataset();
  FRESHET_ASSIGN_OR_RETURN(Generator generator, dataset.type() == "copy"
                                                    ? CopyGenerator(dataset)
                                                    : ArithmeticGenerator(dataset));
  FRESHET_ASSIGN_OR_RETURN(const GeneratedSpace space,
                           GeneratedSpace::Create(generator.size, spec, part));
  return std::make_unique<GeneratedDataset>(dataset.type(), std::move(generator), space);
}

}  // namespace freshet
