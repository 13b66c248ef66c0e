#include "trainer/service/event_outbox.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kSliceRows = 256;
constexpr int64_t kSliceBytes = int64_t{8} << 20;

int64_t BytesOf(const OutboxRow& row) {
  return static_cast<int64_t>(row.event.key.size() + row.event.value.size());
}

}  // namespace

absl::Status EventOutbox::Send(std::vector<OutboxRow> rows) {
  for (OutboxRow& row : rows) {
    bytes_ += BytesOf(row);
    rows_.push_back(std::move(row));
  }
  while (!rows_.empty()) {
    const size_t count = NextSlice();
    absl::Status status = SendFirst(count);
    // Send the rows one by one, so that a bad row does not block the others.
    for (size_t i = 0; i < count && absl::IsInvalidArgument(status); ++i) {
      const absl::Status one = SendFirst(1);
      if (absl::IsInvalidArgument(one)) {
        Drop(rows_.begin(), Message(one));
      } else if (!one.ok()) {
        status = one;
      }
    }
    if (!status.ok() && !absl::IsInvalidArgument(status)) {
      MakeRoom();
      return status;
    }
  }
  return absl::OkStatus();
}

size_t EventOutbox::NextSlice() const {
  size_t count = 0;
  for (int64_t bytes = 0; count < std::min(rows_.size(), kSliceRows); ++count) {
    bytes += BytesOf(rows_[count]);
    if (count > 0 && bytes > kSliceBytes) break;
  }
  return count;
}

absl::Status EventOutbox::SendFirst(size_t count) {
  std::vector<NewEvent> events;
  for (size_t i = 0; i < count; ++i) events.push_back(rows_[i].event);
  const absl::Status status = log_.AppendAll(events).status();
  for (size_t i = 0; i < count && status.ok(); ++i) {
    bytes_ -= BytesOf(rows_.front());
    rows_.pop_front();
  }
  return status;
}

void EventOutbox::MakeRoom() {
  const auto full = [this] { return waiting() > options_.max_rows || bytes_ > options_.max_bytes; };
  const auto reason = StrCat("more than ", options_.max_rows, " rows or ", options_.max_bytes,
                             " bytes wait for the datastore");
  for (auto row = rows_.begin(); row != rows_.end() && full();) {
    if (!row->expendable) {
      ++row;
      continue;
    }
    const auto index = row - rows_.begin();
    Drop(row, reason);
    row = rows_.begin() + index;
  }
  while (full()) Drop(rows_.begin(), reason);
}

void EventOutbox::Drop(std::deque<OutboxRow>::iterator row, const std::string& reason) {
  if (!row->expendable) {
    FRESHET_LOG(Warning) << "event=row_dropped stream=" << row->event.stream
                         << " key=" << row->event.key << " reason=" << LogQuoted(reason);
  }
  bytes_ -= BytesOf(*row);
  rows_.erase(row);
  ++dropped_;
}

}  // namespace freshet
