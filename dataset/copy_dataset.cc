#include "dataset/copy_dataset.h"

#include <set>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

namespace {

// Splits `text` into UTF-8 characters. Invalid UTF-8 gives unspecified pieces.
std::vector<std::string> Characters(const std::string& text) {
  std::vector<std::string> result;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!continues || result.empty()) result.emplace_back();
    result.back() += c;
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyDataset>> CopyDataset::Create(const CopyDatasetOptions& options,
                                                                 DatasetPart part) {
  std::vector<std::string> symbols = Characters(options.symbols);
  const std::set<std::string> distinct(symbols.begin(), symbols.end());
  if (symbols.empty() || distinct.size() != symbols.size() || distinct.count("=") > 0) {
    return InvalidArgument("dataset.symbols has ", symbols.size(), " characters, ", distinct.size(),
                           " of them different; give each once, without '='");
  }
  const int64_t count = static_cast<int64_t>(symbols.size());
  const int64_t space_size = options.length < 1 ? -1 : SpaceSize(count, options.length);
  if (space_size < 0) {
    return InvalidArgument("dataset.length is ", options.length, "; it must be >= 1, and ", count,
                           "^length must not exceed 2^62");
  }
  FRESHET_ASSIGN_OR_RETURN(const GeneratedSpace space,
                           GeneratedSpace::Create(space_size, options.rows, part));
  return std::unique_ptr<CopyDataset>(new CopyDataset(std::move(symbols), options.length, space));
}

absl::StatusOr<DatasetRow> CopyDataset::Get(int64_t index) const {
  FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
  const int64_t base = static_cast<int64_t>(symbols_.size());
  int64_t item = space_.Item(index);
  std::string text;
  for (int64_t i = 0; i < length_; ++i) {
    text += symbols_[static_cast<size_t>(item % base)];
    item /= base;
  }
  DatasetRow row;
  row.prompt = text + "=";
  row.attributes["answer"] = text;
  return row;
}

std::string CopyDataset::Where(int64_t index) const { return StrCat("copy dataset, row ", index); }

}  // namespace freshet
