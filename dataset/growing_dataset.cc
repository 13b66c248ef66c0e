#include "dataset/growing_dataset.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/row_order.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Prompts between two looks at the folder while rows are left, so that a look costs little per
// prompt.
constexpr int64_t kPromptsPerLook = 64;
constexpr char kEnding[] = ".jsonl";

}  // namespace

GrowingDataset::GrowingDataset(std::shared_ptr<const Dataset> first, JsonlDatasetOptions options,
                               std::string folder, DataRoots roots)
    : first_(std::move(first)),
      options_(std::move(options)),
      folder_(std::move(folder)),
      roots_(std::move(roots)),
      parts_({first_}),
      size_(first_->size()) {}

void GrowingDataset::SetCheck(Check check) {
  MutexLock lock(mu_);
  check_ = std::move(check);
}

int64_t GrowingDataset::size() const {
  MutexLock lock(mu_);
  return size_;
}

absl::StatusOr<GrowingDataset::Place> GrowingDataset::Find(int64_t index) const {
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size_));
  auto part = parts_.begin();
  for (; index >= (*part)->size(); ++part) index -= (*part)->size();
  return Place{*part, index};
}

absl::StatusOr<DatasetRow> GrowingDataset::Get(int64_t index) const {
  FRESHET_ASSIGN_OR_RETURN(const Place place, Find(index));
  return place.rows->Get(place.index);
}

std::string GrowingDataset::Where(int64_t index) const {
  const absl::StatusOr<Place> place = Find(index);
  return place.ok() ? place->rows->Where(place->index) : folder_;
}

int64_t GrowingDataset::RowOf(uint64_t seed, int64_t ordinal, bool shuffle) const {
  Check check;
  {
    MutexLock lock(mu_);
    if (ordinal == last_ordinal_) return last_row_;
    if (offered_ < 0 || offered_ >= size_ || ordinal % kPromptsPerLook == 0) check = check_;
  }
  const std::vector<std::shared_ptr<const Dataset>> more =
      check == nullptr ? std::vector<std::shared_ptr<const Dataset>>() : NewFiles(check);
  MutexLock lock(mu_);
  for (const auto& rows : more) {
    size_ += rows->size();
    parts_.push_back(rows);
  }
  last_ordinal_ = ordinal;
  if (offered_ < 0) offered_ = std::min(ordinal, size_);
  if (offered_ >= size_) {
    last_row_ = RowOfOrdinal(seed, size_, repeated_++, shuffle);
  } else if (offered_ < first_->size()) {
    last_row_ = RowOfOrdinal(seed, first_->size(), offered_++, shuffle);
  } else {
    last_row_ = offered_++;
  }
  return last_row_;
}

absl::StatusOr<std::vector<std::string>> GrowingDataset::ListFiles() const {
  FRESHET_ASSIGN_OR_RETURN(const UniqueFd fd,
                           roots_.Open(folder_, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int own = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);  // closed by closedir
  DIR* const listed = own < 0 ? nullptr : ::fdopendir(own);
  if (listed == nullptr) {
    if (own >= 0) ::close(own);
    return NotFound(folder_, ": cannot be listed");
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(listed)) {
    std::string name = entry->d_name;
    if (!name.starts_with('.') && name.ends_with(kEnding)) names.push_back(std::move(name));
  }
  ::closedir(listed);
  std::sort(names.begin(), names.end());
  if (names.size() > kMaxFiles) {
    return StatusOf(absl::StatusCode::kResourceExhausted, folder_, ": has ", names.size(),
                    " files, more than ", kMaxFiles, "; put several rows into a file");
  }
  return names;
}

std::vector<std::shared_ptr<const Dataset>> GrowingDataset::NewFiles(const Check& check) const {
  std::vector<std::shared_ptr<const Dataset>> taken;
  const absl::StatusOr<std::vector<std::string>> names = ListFiles();
  const std::string error = names.ok() ? "" : Message(names.status());
  if (!error.empty() && error != folder_error_) {
    FRESHET_LOG(Warning) << "event=rows_not_listed folder=" << LogQuoted(folder_)
                         << " error=" << LogQuoted(error);
  }
  folder_error_ = error;
  if (!names.ok()) return taken;
  for (const std::string& name : *names) {
    if (seen_.contains(name)) continue;
    JsonlDatasetOptions options = options_;
    options.path = StrCat(folder_, "/", name);
    absl::StatusOr<std::shared_ptr<const Dataset>> rows = JsonlDataset::Load(options, roots_);
    const absl::Status status = rows.ok() ? check(**rows) : rows.status();
    // A file that cannot be read is tried again.
    if (status.ok() || absl::IsInvalidArgument(status)) seen_.insert(name);
    if (!status.ok()) {
      if (warned_.insert(name).second) {
        FRESHET_LOG(Warning) << "event=rows_skipped file=" << LogQuoted(options.path)
                             << " error=" << LogQuoted(Message(status));
      }
      continue;
    }
    FRESHET_LOG(Info) << "event=rows_taken file=" << LogQuoted(options.path)
                      << " rows=" << (*rows)->size();
    taken.push_back(*std::move(rows));
  }
  return taken;
}

}  // namespace freshet
