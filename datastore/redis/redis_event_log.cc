#include "datastore/redis/redis_event_log.h"

#include <algorithm>
#include <charconv>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// KEYS: stream, keys. ARGV: key, value, max_length, recent_keys, max_bytes. Returns the cursor.
// Bytes are counted from event `c` on, because older versions did not count them.
constexpr char kAppendText[] = R"lua(
local key, recent = ARGV[1], tonumber(ARGV[4])
local n = tonumber(redis.call('HGET', KEYS[2], 'n') or '0')
if key ~= '' then
  local seen = tonumber(redis.call('HGET', KEYS[2], 'k' .. key) or '0')
  if seen > 0 and seen > n - recent then return seen end
end
n = n + 1
local function forget(row)
  local cursor, name = string.match(row[1], '^%d+'), row[2][2]
  if name ~= '' and redis.call('HGET', KEYS[2], 'k' .. name) == cursor then
    redis.call('HDEL', KEYS[2], 'k' .. name)
  end
  return tonumber(cursor)
end
if n > recent then
  local old = string.format('%.0f-0', n - recent)
  local row = redis.call('XRANGE', KEYS[1], old, old)[1]
  if row then forget(row) end
end
local counted = redis.call('HMGET', KEYS[2], 'b', 'c')
local bytes, from = tonumber(counted[1] or '0') + #key + #ARGV[2], tonumber(counted[2] or n)
local length = redis.call('XLEN', KEYS[1])
while length > 0 and (length >= tonumber(ARGV[3]) or bytes > tonumber(ARGV[5])) do
  local row = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if forget(row) >= from then bytes = bytes - #row[2][2] - #row[2][4] end
  redis.call('XDEL', KEYS[1], row[1])
  length = length - 1
end
local id = string.format('%.0f', n)
redis.call('XADD', KEYS[1], id .. '-0', 'k', key, 'v', ARGV[2])
redis.call('HSET', KEYS[2], 'n', id, 'b', string.format('%.0f', bytes), 'c',
  string.format('%.0f', from))
if key ~= '' then redis.call('HSET', KEYS[2], 'k' .. key, id) end
return n
)lua";
constexpr RedisScript kAppend = {"append_event", kAppendText};
// For small events that must be appended even at the server's memory limit, such as the notice that
// the job stalls there.
const RedisScript& AppendAtLimit() {
  static const auto* text = new std::string(StrCat("#!lua flags=allow-oom", kAppendText));
  static const RedisScript script = {"append_event", text->c_str()};
  return script;
}
constexpr size_t kMaxBytesAtLimit = 8192;

// KEYS: stream, keys. ARGV: after, maximum events, bytes that end a page. Returns {newest cursor,
// id, key, value, id, key, value, ...}.
constexpr RedisScript kRead = {"read_events", R"lua(
local left, bytes, limit = tonumber(ARGV[2]), 0, tonumber(ARGV[3])
local answer = {tonumber(redis.call('HGET', KEYS[2], 'n') or '0')}
local from = '(' .. ARGV[1] .. '-0'
while left > 0 and bytes < limit do
  local rows = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', math.min(left, 16))
  if #rows == 0 then break end
  for _, row in ipairs(rows) do
    answer[#answer + 1] = row[1]
    answer[#answer + 1] = row[2][2]
    answer[#answer + 1] = row[2][4]
    bytes = bytes + #row[2][4]
    if bytes >= limit then break end
  end
  left = left - #rows
  from = '(' .. rows[#rows][1]
end
return answer
)lua"};

std::string KeysOf(const std::string& stream) { return stream + ":keys"; }

}  // namespace

absl::StatusOr<std::unique_ptr<RedisEventLog>> RedisEventLog::Create(
    std::shared_ptr<RedisClient> client, EventLogOptions options) {
  FRESHET_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<RedisEventLog>(new RedisEventLog(std::move(client), options));
}

absl::StatusOr<std::vector<int64_t>> RedisEventLog::AppendAll(const std::vector<NewEvent>& events) {
  std::vector<std::vector<std::string>> commands;
  for (const NewEvent& event : events) {
    FRESHET_RETURN_IF_ERROR(ValidateEventAppend(event.stream, event.key, event.value));
    const bool small = event.key.size() + event.value.size() <= kMaxBytesAtLimit;
    commands.push_back(client_->ScriptCommand(
        small ? AppendAtLimit() : kAppend, {event.stream, KeysOf(event.stream)},
        {event.key, event.value, std::to_string(options_.max_length),
         std::to_string(options_.recent_keys), std::to_string(options_.max_bytes)}));
  }
  FRESHET_ASSIGN_OR_RETURN(const auto replies, client_->Pipeline(commands));
  std::vector<int64_t> cursors;
  for (size_t i = 0; i < replies.size(); ++i) {
    FRESHET_RETURN_IF_ERROR(replies[i].status());
    if (replies[i]->kind != RedisReply::Kind::kInteger) {
      return DataLoss("redis: append to ", events[i].stream, ": unexpected reply");
    }
    cursors.push_back(replies[i]->integer);
  }
  return cursors;
}

absl::StatusOr<EventPage> RedisEventLog::ReadNow(const std::string& stream, int64_t after,
                                                 int64_t max) {
  FRESHET_ASSIGN_OR_RETURN(RedisReply reply,
                           client_->Run(kRead, {stream, KeysOf(stream)},
                                        {std::to_string(after), std::to_string(max),
                                         std::to_string(kMaxEventPageBytes)}));
  if (reply.items.size() % 3 != 1) {
    return DataLoss("redis: read of ", stream, ": unexpected reply");
  }
  const int64_t newest = reply.items[0].integer;
  if (after > newest) return EventCursorError(stream, after, newest);
  EventPage page;
  for (size_t i = 1; i < reply.items.size(); i += 3) {
    StoredEvent event;
    const std::string& id = reply.items[i].text;  // "N-0"
    if (std::from_chars(id.data(), id.data() + id.size(), event.cursor).ec != std::errc()) {
      return DataLoss(stream, " in redis has an entry with the invalid id '", id, "'");
    }
    event.key = std::move(reply.items[i + 1].text);
    event.value = std::move(reply.items[i + 2].text);
    page.events.push_back(std::move(event));
  }
  page.gap = !page.events.empty() && page.events.front().cursor > after + 1;
  return page;
}

absl::StatusOr<EventPage> RedisEventLog::Read(const std::string& stream, int64_t after, int64_t max,
                                              absl::Duration wait) {
  FRESHET_RETURN_IF_ERROR(ValidateEventRead(stream, after, max));
  FRESHET_ASSIGN_OR_RETURN(EventPage page, ReadNow(stream, after, max));
  wait = absl::Ceil(std::min(wait, kMaxEventWait), absl::Milliseconds(1));
  if (!page.events.empty() || wait <= absl::ZeroDuration()) return page;
  FRESHET_ASSIGN_OR_RETURN(
      const RedisReply woken,
      client_->BlockingCommand(
          {"XREAD", "COUNT", "1", "BLOCK", std::to_string(absl::ToInt64Milliseconds(wait)),
           "STREAMS", stream, StrCat(after, "-0")},
          wait));
  if (woken.IsNil()) return page;
  return ReadNow(stream, after, max);
}

absl::StatusOr<int64_t> RedisEventLog::Newest(const std::string& stream) {
  FRESHET_RETURN_IF_ERROR(ValidateEventRead(stream, /*after=*/0, /*max=*/1));
  FRESHET_ASSIGN_OR_RETURN(const RedisReply reply, client_->Command({"HGET", KeysOf(stream), "n"}));
  if (reply.IsNil()) return 0;
  int64_t newest = 0;
  const char* end = reply.text.data() + reply.text.size();
  const auto [rest, error] = std::from_chars(reply.text.data(), end, newest);
  if (error != std::errc() || rest != end) {
    return DataLoss(stream, " in redis has the invalid newest cursor '", reply.text, "'");
  }
  return newest;
}

absl::Status RedisEventLog::Delete(const std::string& stream) {
  FRESHET_RETURN_IF_ERROR(ValidateEventRead(stream, /*after=*/0, /*max=*/1));
  return client_->Command({"UNLINK", stream, KeysOf(stream)}).status();
}

}  // namespace freshet
