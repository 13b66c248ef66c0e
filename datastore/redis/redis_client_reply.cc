#include "datastore/redis/redis_client_reply.h"

#include <hiredis/read.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMaxErrorText = 300;  // of a server message quoted in ours

struct ErrorWord {
  const char* word;
  absl::StatusCode code;
};

constexpr ErrorWord kErrorWords[] = {
    {"LOADING", absl::StatusCode::kUnavailable},
    {"READONLY", absl::StatusCode::kUnavailable},
    {"MASTERDOWN", absl::StatusCode::kUnavailable},
    {"TRYAGAIN", absl::StatusCode::kUnavailable},
    {"CLUSTERDOWN", absl::StatusCode::kUnavailable},
    {"NOREPLICAS", absl::StatusCode::kUnavailable},
    {"BUSY", absl::StatusCode::kUnavailable},
    {"OOM", absl::StatusCode::kResourceExhausted},
    {"MISCONF", absl::StatusCode::kUnavailable},
    {"NOAUTH", absl::StatusCode::kPermissionDenied},
    {"WRONGPASS", absl::StatusCode::kPermissionDenied},
    {"NOPERM", absl::StatusCode::kPermissionDenied},
    {"DENIED", absl::StatusCode::kPermissionDenied},
    {"WRONGTYPE", absl::StatusCode::kFailedPrecondition},
};

}  // namespace

absl::Status RedisErrorStatus(std::string_view text, std::string_view command) {
  const std::string_view word = text.substr(0, text.find(' '));
  absl::StatusCode code = absl::StatusCode::kInternal;
  for (const ErrorWord& entry : kErrorWords) {
    if (word == entry.word) code = entry.code;
  }
  if (text.substr(0, 33) == "ERR max number of clients reached") {
    code = absl::StatusCode::kUnavailable;
  }
  if (text.starts_with("ERR The user executing the script can't ")) {  // its ACL
    code = absl::StatusCode::kPermissionDenied;
  }
  return StatusOf(code, "redis refused ", command, ": ", text.substr(0, kMaxErrorText));
}

// hiredis creates no objects: its callbacks fill `root` as elements arrive, so a count announced by
// hostile bytes allocates nothing.
struct RedisReplyParser::Reader {
  explicit Reader(int64_t max_bytes) : max_reply_bytes(max_bytes) {
    reader = redisReaderCreateWithFunctions(&kFunctions);
    FRESHET_CHECK(reader != nullptr);
    reader->privdata = this;
  }
  ~Reader() { redisReaderFree(reader); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  static void* AddString(const redisReadTask* task, char* text, size_t size);
  static void* AddArray(const redisReadTask* task, int elements);
  static void* AddInteger(const redisReadTask* task, long long value);
  static void* AddNil(const redisReadTask* task);
  static void Free(void*) {}  // the objects are part of `root`

  // Where to store the task's element; null if over the element limit.
  static RedisReply* Place(const redisReadTask* task);
  int64_t Pending() const { return static_cast<int64_t>(reader->len - reader->pos); }

  static redisReplyObjectFunctions kFunctions;

  const int64_t max_reply_bytes;
  redisReader* reader = nullptr;
  RedisReply root;
  bool is_error = false;
  std::string violation;  // error set by a callback
  int64_t elements = 0;   // of the incomplete reply
  int64_t fed = 0;        // total bytes
  int64_t start = 0;      // first byte of the incomplete reply
};

redisReplyObjectFunctions RedisReplyParser::Reader::kFunctions = {AddString, AddArray, AddInteger,
                                                                  AddNil, Free};

RedisReply* RedisReplyParser::Reader::Place(const redisReadTask* task) {
  Reader& self = *static_cast<Reader*>(task->privdata);
  if (++self.elements > kMaxRedisReplyElements) {
    self.violation = StrCat("more than ", kMaxRedisReplyElements, " elements");
    return nullptr;
  }
  if (task->parent == nullptr) return &self.root;
  return &static_cast<RedisReply*>(task->parent->obj)->items.emplace_back();
}

void* RedisReplyParser::Reader::AddString(const redisReadTask* task, char* text, size_t size) {
  RedisReply* reply = Place(task);
  if (reply == nullptr) return nullptr;
  reply->kind =
      task->type == REDIS_REPLY_STRING ? RedisReply::Kind::kString : RedisReply::Kind::kStatus;
  reply->text.assign(text, size);
  if (task->parent == nullptr) {
    static_cast<Reader*>(task->privdata)->is_error = task->type == REDIS_REPLY_ERROR;
  }
  return reply;
}

void* RedisReplyParser::Reader::AddArray(const redisReadTask* task, int elements) {
  Reader& self = *static_cast<Reader*>(task->privdata);
  int depth = 1;
  for (const redisReadTask* up = task->parent; up != nullptr; up = up->parent) ++depth;
  if (depth > kMaxRedisReplyDepth) {
    self.violation = StrCat("deeper than ", kMaxRedisReplyDepth, " arrays");
    return nullptr;
  }
  RedisReply* reply = Place(task);
  if (reply == nullptr) return nullptr;
  reply->kind = RedisReply::Kind::kArray;
  reply->items.reserve(static_cast<size_t>(std::clamp(elements, 0, 64)));
  return reply;
}

void* RedisReplyParser::Reader::AddInteger(const redisReadTask* task, long long value) {
  RedisReply* reply = Place(task);
  if (reply == nullptr) return nullptr;
  reply->kind = RedisReply::Kind::kInteger;
  reply->integer = value;
  return reply;
}

void* RedisReplyParser::Reader::AddNil(const redisReadTask* task) { return Place(task); }

RedisReplyParser::RedisReplyParser(int64_t max_reply_bytes)
    : reader_(std::make_unique<Reader>(max_reply_bytes)) {}

RedisReplyParser::~RedisReplyParser() = default;

absl::Status RedisReplyParser::Feed(std::string_view bytes) {
  if (redisReaderFeed(reader_->reader, bytes.data(), bytes.size()) != REDIS_OK) {
    return DataLoss("redis reply: ", redisReaderGetError(reader_->reader));
  }
  reader_->fed += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RedisRawReply>> RedisReplyParser::Next() {
  Reader& reader = *reader_;
  void* done = nullptr;
  const int result = redisReaderGetReply(reader.reader, &done);
  if (!reader.violation.empty()) return DataLoss("redis reply: ", reader.violation);
  if (result != REDIS_OK) return DataLoss("redis reply: ", redisReaderGetError(reader.reader));
  const int64_t end = done == nullptr ? reader.fed : reader.fed - reader.Pending();
  if (end - reader.start > reader.max_reply_bytes) {
    return DataLoss("redis reply: more than ", reader.max_reply_bytes,
                    " bytes; max_reply_bytes bounds it");
  }
  if (done == nullptr) return std::nullopt;
  reader.start = end;
  reader.elements = 0;
  return RedisRawReply{std::exchange(reader.is_error, false), std::exchange(reader.root, {})};
}

bool RedisReplyParser::HasLeftover() const { return reader_->fed != reader_->start; }

}  // namespace freshet
