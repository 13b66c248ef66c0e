#include "dataset/jsonl_dataset.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "dataset/error_list.h"
#include "dataset/json_fields.h"

namespace freshet {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr uint64_t kBlockBytes = 4096;
constexpr uint64_t kChunkBytes = 64 << 10;

// Iterates over the lines in a byte range of a file. Buffers one chunk and at most `max_line_bytes`
// of the current line.
class LineReader {
 public:
  LineReader(int fd, uint64_t begin, uint64_t end, uint64_t max_line_bytes)
      : fd_(fd), unread_(begin), end_(end), max_line_bytes_(max_line_bytes) {}

  // Returns false at the end of the range or file. INTERNAL: read error, with errno's text.
  absl::StatusOr<bool> Next() {
    text_.clear();
    bytes_ = 0;
    blank_ = true;
    begin_ = unread_ - (chunk_.size() - used_);
    for (bool any = false;; any = true) {
      if (used_ == chunk_.size()) {
        FRESHET_RETURN_IF_ERROR(ReadChunk());
        if (chunk_.empty()) return any;
      }
      const std::string_view rest = std::string_view(chunk_).substr(used_);
      const size_t newline = rest.find('\n');
      const std::string_view piece = rest.substr(0, newline);
      bytes_ += piece.size();
      blank_ = blank_ && piece.find_first_not_of(" \t\r") == std::string_view::npos;
      text_.append(piece.substr(0, max_line_bytes_ - text_.size()));
      used_ += piece.size();
      if (newline == std::string_view::npos) continue;
      ++used_;
      return true;
    }
  }

  const std::string& text() const { return text_; }  // without newline
  uint64_t begin() const { return begin_; }
  uint64_t bytes() const { return bytes_; }  // of the full line
  bool blank() const { return blank_; }
  // Checksum of the line, chained with that of the previous lines.
  uint64_t Checksum(uint64_t before) const {
    return Xxh3(text_.data(), text_.size(), before * 2 + (blank_ ? 1 : 0)) + bytes_;
  }

 private:
  absl::Status ReadChunk() {
    chunk_.resize(std::min(kChunkBytes, end_ - unread_));
    used_ = 0;
    ssize_t got = 0;
    do {
      got = ::pread(fd_, chunk_.data(), chunk_.size(), static_cast<off_t>(unread_));
    } while (got < 0 && errno == EINTR);
    const int error = errno;
    chunk_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    unread_ += chunk_.size();
    return got < 0 ? Internal(std::strerror(error)) : absl::OkStatus();
  }

  const int fd_;
  uint64_t unread_;  // first byte not yet in the chunk
  const uint64_t end_;
  const uint64_t max_line_bytes_;
  std::string chunk_;
  size_t used_ = 0;  // bytes consumed from the chunk
  std::string text_;
  uint64_t begin_ = 0;
  uint64_t bytes_ = 0;
  bool blank_ = true;
};

absl::Status Changed(const std::string& path) {
  return FailedPrecondition(path, ": has changed since the job opened it; restore it, or submit ",
                            "the job again with the new file");
}

absl::StatusOr<DatasetRow> ParseRow(std::string_view line, const RowBuilder& builder) {
  FRESHET_ASSIGN_OR_RETURN(const auto fields, ParseJsonFields(line));
  return builder.Build(fields);
}

}  // namespace

absl::StatusOr<std::unique_ptr<JsonlDataset>> JsonlDataset::Load(const JsonlDatasetOptions& options,
                                                                 const DataRoots& roots) {
  FRESHET_ASSIGN_OR_RETURN(RowBuilder builder,
                           RowBuilder::Create(options.dataset, options.required));
  FRESHET_ASSIGN_OR_RETURN(RegularFile file, roots.OpenFile(options.path));
  FRESHET_RETURN_IF_ERROR(CheckFileSize(options.path, file.size, options.max_file_bytes));
  std::unique_ptr<JsonlDataset> dataset(
      new JsonlDataset(options, std::move(builder), std::move(file)));
  FRESHET_RETURN_IF_ERROR(dataset->Scan(options.check));
  return dataset;
}

absl::Status JsonlDataset::Scan(const std::function<absl::Status(const DatasetRow&)>& check) {
  char mark[kByteOrderMark.size()];
  const ssize_t got = ::pread(file_.fd.get(), mark, sizeof(mark), 0);
  const bool marked = got == sizeof(mark) && kByteOrderMark == std::string_view(mark, sizeof(mark));
  LineReader reader(file_.fd.get(), marked ? sizeof(mark) : 0, file_.size, max_line_bytes_);
  ErrorList errors;
  for (int64_t number = 1;; ++number) {
    const absl::StatusOr<bool> read = reader.Next();
    if (!read.ok()) return NotFound(path_, ": cannot be read: ", Message(read.status()));
    if (!*read) break;
    // A long line gets its own block, so that finding earlier rows does not read it.
    if (blocks_.empty() || reader.begin() >= blocks_.back().begin + kBlockBytes ||
        reader.bytes() > kBlockBytes) {
      blocks_.push_back({reader.begin(), number, rows_, 0});
    }
    blocks_.back().checksum = reader.Checksum(blocks_.back().checksum);
    if (reader.blank()) continue;
    const absl::StatusOr<DatasetRow> parsed =
        reader.bytes() > max_line_bytes_
            ? InvalidArgument("line has ", reader.bytes(), " bytes, more than ", max_line_bytes_,
                              "; split or shorten the row")
            : ParseRow(reader.text(), builder_);
    const absl::Status row = parsed.ok() && check ? check(*parsed) : parsed.status();
    if (row.ok()) {
      ++rows_;
    } else {
      errors.Add(StrCat(path_, ":", number, ": ", Message(row)));
    }
  }
  FRESHET_RETURN_IF_ERROR(errors.ToStatus());
  if (rows_ == 0) return InvalidArgument(path_, ": no rows; write one JSON object a line");
  blocks_.shrink_to_fit();
  return absl::OkStatus();
}

absl::StatusOr<JsonlDataset::FoundRow> JsonlDataset::FindRow(int64_t index) const {
  FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), index,
                       [](int64_t row, const Block& block) { return row < block.first_row; });
  const Block& block = *(after - 1);
  LineReader reader(file_.fd.get(), block.begin, after == blocks_.end() ? file_.size : after->begin,
                    max_line_bytes_);
  FoundRow found;
  int64_t row = block.first_row;
  uint64_t checksum = 0;
  for (int64_t line = block.first_line;; ++line) {
    const absl::StatusOr<bool> read = reader.Next();
    if (!read.ok()) return NotFound(path_, ": cannot be read: ", Message(read.status()));
    if (!*read) break;
    checksum = reader.Checksum(checksum);
    if (!reader.blank() && row++ == index) found = {reader.text(), line};
  }
  if (checksum != block.checksum) return Changed(path_);
  return found;
}

absl::StatusOr<DatasetRow> JsonlDataset::Get(int64_t index) const {
  FRESHET_ASSIGN_OR_RETURN(const FoundRow found, FindRow(index));
  return ParseRow(found.text, builder_);
}

std::string JsonlDataset::Where(int64_t index) const {
  const absl::StatusOr<FoundRow> found = FindRow(index);
  return found.ok() ? StrCat(path_, ":", found->line) : path_;
}

}  // namespace freshet
