#include "bench/datastore/redis_set.h"

#include <hiredis/hiredis.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "bench/datastore/cpu_time.h"

namespace freshet {
namespace {

struct ContextDeleter {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, ContextDeleter>;

absl::StatusOr<Context> Connect(const RedisSetOptions& options) {
  Context context(redisConnect(options.host.c_str(), options.port));
  if (context == nullptr || context->err != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, "redis at ", options.host, ":", options.port,
                    ": ", context == nullptr ? "no memory" : context->errstr);
  }
  return context;
}

// Returns the text of the next reply.
absl::StatusOr<std::string> ReadReply(redisContext& context) {
  void* raw = nullptr;
  if (redisGetReply(&context, &raw) != REDIS_OK) return Internal("redis: ", context.errstr);
  const std::unique_ptr<void, void (*)(void*)> owner(raw, freeReplyObject);
  const auto* reply = static_cast<redisReply*>(raw);
  const std::string text = reply->str == nullptr ? "" : std::string(reply->str, reply->len);
  if (reply->type == REDIS_REPLY_ERROR) return Internal("redis: ", text);
  return text;
}

absl::StatusOr<std::string> Ask(redisContext& context, const char* command) {
  if (redisAppendCommand(&context, command) != REDIS_OK) {
    return Internal("redis: ", context.errstr);
  }
  return ReadReply(context);
}

absl::Status SetAll(const RedisSetOptions& options, int connection) {
  FRESHET_ASSIGN_OR_RETURN(const Context context, Connect(options));
  const std::string value(static_cast<size_t>(options.value_bytes), 'v');
  int64_t next = connection;
  while (next < options.sets) {
    int pending = 0;
    for (; pending < options.depth && next < options.sets; ++pending, next += options.connections) {
      const std::string key = StrCat("set:", next);
      std::array<const char*, 3> args = {"SET", key.data(), value.data()};
      const std::array<size_t, 3> sizes = {3, key.size(), value.size()};
      if (redisAppendCommandArgv(context.get(), 3, args.data(), sizes.data()) != REDIS_OK) {
        return Internal("redis: ", context->errstr);
      }
    }
    for (; pending > 0; --pending) FRESHET_RETURN_IF_ERROR(ReadReply(*context).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RedisSetResult> RunRedisSet(const RedisSetOptions& options) {
  std::vector<absl::Status> statuses(static_cast<size_t>(options.connections));
  FRESHET_ASSIGN_OR_RETURN(const Context context, Connect(options));
  FRESHET_ASSIGN_OR_RETURN(const std::string before, Ask(*context, "INFO cpu"));
  const double cpu = CpuSeconds();
  const absl::Time start = absl::Now();
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(options.connections));
    for (int i = 0; i < options.connections; ++i) {
      threads.emplace_back(
          [&options, &statuses, i] { statuses[static_cast<size_t>(i)] = SetAll(options, i); });
    }
  }
  RedisSetResult result;
  result.sets = options.sets;
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  result.client_cpu_seconds = CpuSeconds() - cpu;
  for (const absl::Status& status : statuses) FRESHET_RETURN_IF_ERROR(status);
  FRESHET_ASSIGN_OR_RETURN(const std::string after, Ask(*context, "INFO cpu"));
  result.server_cpu_seconds = RedisCpuSeconds(after) - RedisCpuSeconds(before);
  FRESHET_RETURN_IF_ERROR(Ask(*context, "FLUSHALL").status());
  return result;
}

}  // namespace freshet
