#include "datastore/event_log.h"

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

absl::Status CheckName(const char* what, const std::string& name) {
  if (name.size() <= static_cast<size_t>(kMaxEventKeyBytes)) return absl::OkStatus();
  return InvalidArgument("event log: ", what, " of ", name.size(), " bytes is above ",
                         kMaxEventKeyBytes);
}

absl::Status CheckStream(const std::string& stream) {
  if (stream.empty()) return InvalidArgument("event log: the stream's name is empty");
  return CheckName("the stream's name", stream);
}

}  // namespace

absl::Status EventLogOptions::Validate() const {
  if (max_length < 1) return InvalidArgument("event log: max_length ", max_length, " is below 1");
  if (recent_keys < 1 || recent_keys > max_length) {
    return InvalidArgument("event log: recent_keys ", recent_keys,
                           " is not between 1 and max_length ", max_length);
  }
  if (max_bytes < 1) return InvalidArgument("event log: max_bytes ", max_bytes, " is below 1");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> EventLog::Append(const std::string& stream, const std::string& key,
                                         const std::string& value) {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<int64_t> cursors, AppendAll({{stream, key, value}}));
  return cursors.at(0);
}

absl::Status ValidateEventAppend(const std::string& stream, const std::string& key,
                                 const std::string& value) {
  FRESHET_RETURN_IF_ERROR(CheckStream(stream));
  FRESHET_RETURN_IF_ERROR(CheckName("a key", key));
  if (value.size() > static_cast<size_t>(kMaxEventBytes)) {
    return InvalidArgument("event log: a value of ", value.size(), " bytes is above ",
                           kMaxEventBytes);
  }
  return absl::OkStatus();
}

absl::Status ValidateEventRead(const std::string& stream, int64_t after, int64_t max) {
  FRESHET_RETURN_IF_ERROR(CheckStream(stream));
  if (after < 0) return InvalidArgument("event log: cursor ", after, " is below 0");
  if (max < 1 || max > kMaxEventPage) {
    return InvalidArgument("event log: a page of ", max, " events is not between 1 and ",
                           kMaxEventPage);
  }
  return absl::OkStatus();
}

absl::Status EventCursorError(const std::string& stream, int64_t after, int64_t newest) {
  return StatusOf(absl::StatusCode::kOutOfRange, "event log: cursor ", after, " of ", stream,
                  " is above the newest, ", newest);
}

}  // namespace freshet
