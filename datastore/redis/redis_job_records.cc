#include "datastore/redis/redis_job_records.h"

#include <algorithm>
#include <charconv>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr char kRecordsKey[] = "{freshet}:jobs";
constexpr size_t kListSlice = 32;  // records per reply: at most 32 x kMaxRecordBytes

// Also runs at the memory limit (allow-oom): a job that stalls there must be able to report it and
// be cancelled. Records are few and bounded.
// KEYS: records, meta. ARGV: operation, id, fence, expected revision, value, maximum records.
// Returns {outcome, number}.
constexpr RedisScript kWrite = {"write_job_record", R"lua(#!lua flags=allow-oom
local operation, id, fence = ARGV[1], ARGV[2], tonumber(ARGV[3])
local seen = tonumber(redis.call('HGET', KEYS[2], 'fence') or '0')
if fence < seen then return {'fenced', seen} end
if fence > seen then redis.call('HSET', KEYS[2], 'fence', ARGV[3]) end
if operation == 'fence' then return {'ok', 0} end
if operation == 'delete' then
  redis.call('HDEL', KEYS[1], id)
  return {'ok', 0}
end
local row = redis.call('HGET', KEYS[1], id)
local revision = row and (tonumber(string.match(row, '^%d+')) or -1)
if operation == 'create' then
  if row then return {'exists', revision} end
  if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then return {'full', 0} end
else
  if not row then return {'missing', 0} end
  if revision ~= tonumber(ARGV[4]) then return {'revision', revision} end
end
local made = redis.call('HINCRBY', KEYS[2], 'revision', 1)
redis.call('HSET', KEYS[1], id, string.format('%.0f ', made) .. ARGV[5])
return {'ok', made}
)lua"};

absl::StatusOr<StoredRecord> ParseRecord(const std::string& id, const std::string& row) {
  StoredRecord record;
  record.id = id;
  const char* end = row.data() + row.size();
  const auto [rest, error] = std::from_chars(row.data(), end, record.revision);
  if (error != std::errc() || rest == end || *rest != ' ' || record.revision < 1) {
    return DataLoss("job record '", id, "' in redis has no revision");
  }
  record.value.assign(rest + 1, end);
  return record;
}

}  // namespace

absl::StatusOr<int64_t> RedisJobRecords::Write(const char* operation, const std::string& id,
                                               int64_t fence, int64_t expected,
                                               const std::string& value) {
  FRESHET_ASSIGN_OR_RETURN(
      const RedisReply reply,
      client_->Run(kWrite, {kRecordsKey, kRecordsMetaKey},
                   {operation, id, std::to_string(fence), std::to_string(expected), value,
                    std::to_string(kMaxRecords)}));
  if (reply.items.size() != 2) return DataLoss("unexpected redis reply to a job record write");
  const std::string& outcome = reply.items[0].text;
  const int64_t number = reply.items[1].integer;
  if (outcome == "ok") return number;
  if (outcome == "fenced") return RecordFencedError(fence, number);
  if (outcome == "exists") return RecordExistsError(id);
  if (outcome == "full") return TooManyRecordsError();
  if (outcome == "missing") return RecordNotFoundError(id);
  return RecordRevisionError(id, expected, number);
}

absl::StatusOr<int64_t> RedisJobRecords::Create(const std::string& id, const std::string& value,
                                                int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordWrite(id, value, fence));
  return Write("create", id, fence, 0, value);
}

absl::StatusOr<int64_t> RedisJobRecords::Update(const std::string& id, int64_t expected_revision,
                                                const std::string& value, int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordWrite(id, value, fence));
  return Write("update", id, fence, expected_revision, value);
}

absl::StatusOr<StoredRecord> RedisJobRecords::Get(const std::string& id) {
  FRESHET_ASSIGN_OR_RETURN(const RedisReply reply, client_->Command({"HGET", kRecordsKey, id}));
  if (reply.IsNil()) return RecordNotFoundError(id);
  return ParseRecord(id, reply.text);
}

absl::StatusOr<std::vector<StoredRecord>> RedisJobRecords::List() {
  FRESHET_ASSIGN_OR_RETURN(const RedisReply keys, client_->Command({"HKEYS", kRecordsKey}));
  std::vector<std::string> ids;
  for (const RedisReply& key : keys.items) ids.push_back(key.text);
  std::sort(ids.begin(), ids.end());
  std::vector<StoredRecord> records;
  records.reserve(ids.size());
  for (size_t begin = 0; begin < ids.size(); begin += kListSlice) {
    const size_t end = std::min(ids.size(), begin + kListSlice);
    std::vector<std::string> command = {"HMGET", kRecordsKey};
    for (size_t i = begin; i < end; ++i) command.push_back(ids[i]);
    FRESHET_ASSIGN_OR_RETURN(const RedisReply rows, client_->Command(command));
    if (rows.items.size() != end - begin) return DataLoss("unexpected redis reply to HMGET");
    for (size_t i = begin; i < end; ++i) {
      if (rows.items[i - begin].IsNil()) continue;  // deleted in the meantime
      FRESHET_ASSIGN_OR_RETURN(StoredRecord record,
                               ParseRecord(ids[i], rows.items[i - begin].text));
      records.push_back(std::move(record));
    }
  }
  return records;
}

absl::Status RedisJobRecords::Delete(const std::string& id, int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordWrite(id, "", fence));
  return Write("delete", id, fence, 0, "").status();
}

absl::Status RedisJobRecords::Fence(int64_t fence) {
  FRESHET_RETURN_IF_ERROR(ValidateRecordFence(fence));
  return Write("fence", "", fence, 0, "").status();
}

}  // namespace freshet
