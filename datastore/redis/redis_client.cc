#include "datastore/redis/redis_client.h"

#include <openssl/evp.h>

#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_client_connection.h"
#include "datastore/redis/redis_client_pool.h"
#include "datastore/redis/redis_subscription_state.h"

namespace freshet {
namespace {

// The id of a script in Redis.
std::string Sha1Hex(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  FRESHET_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) ==
                1);
  constexpr char kHexDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex.push_back(kHexDigits[digest[i] >> 4]);
    hex.push_back(kHexDigits[digest[i] & 15]);
  }
  return hex;
}

bool IsError(const RedisRawReply& reply, std::string_view word) {
  return reply.is_error && std::string_view(reply.reply.text).substr(0, word.size()) == word;
}

absl::StatusOr<RedisReply> Finish(RedisRawReply reply, std::string_view command) {
  if (!reply.is_error) return std::move(reply.reply);
  return RedisErrorStatus(reply.reply.text, command);
}

bool IsScriptCall(const std::vector<std::string>& command) {
  return command.size() > 2 && command[0] == "EVALSHA";
}

}  // namespace

absl::Status RedisOptions::Validate() const {
  if (host.empty()) return InvalidArgument("redis host is empty: give HOST:PORT");
  if (port < 1 || port > 65535) return InvalidArgument("redis port ", port, " is not 1..65535");
  if (connect_timeout <= absl::ZeroDuration() || command_timeout <= absl::ZeroDuration()) {
    return InvalidArgument("redis connect_timeout and command_timeout must be above 0");
  }
  if (!username.empty() && password.empty()) {
    return InvalidArgument("redis user ", username, " has no password: give the file with it");
  }
  FRESHET_RETURN_IF_ERROR(tls.Validate());
  if (max_reply_bytes < 1024) {
    return InvalidArgument("redis max_reply_bytes ", max_reply_bytes, " is below 1024");
  }
  if (max_connections < 1 || max_blocking_connections < 1) {
    return InvalidArgument("redis max_connections ", max_connections,
                           " and max_blocking_connections ", max_blocking_connections,
                           " must be 1 or more");
  }
  if (reconnect_backoff_min <= absl::ZeroDuration() ||
      reconnect_backoff_max < reconnect_backoff_min) {
    return InvalidArgument("redis reconnect backoff must be above 0 and its maximum not below it");
  }
  return absl::OkStatus();
}

struct RedisClient::State {
  explicit State(RedisOptions options)
      : dialer(std::move(options)),
        pool(dialer, dialer.options().max_connections),
        blocking_pool(dialer, dialer.options().max_blocking_connections) {}

  // One exchange on a connection of `from`. Drops the connection on any error.
  absl::StatusOr<std::vector<RedisRawReply>> Call(
      RedisConnectionPool& from, const std::vector<std::vector<std::string>>& commands,
      absl::Duration limit);
  // Sends the commands, including the source of scripts that the server may not have.
  absl::StatusOr<std::vector<RedisRawReply>> Exchange(
      RedisConnection& connection, const std::vector<std::vector<std::string>>& commands,
      absl::Time deadline);
  // Reruns as EVAL the script calls whose replies say that the script is unknown.
  absl::Status RunLostScripts(RedisConnection& connection,
                              const std::vector<std::vector<std::string>>& commands,
                              absl::Time deadline, std::vector<RedisRawReply>& replies);
  const char* SourceOf(const std::string& sha);

  RedisDialer dialer;
  RedisConnectionPool pool;
  RedisConnectionPool blocking_pool;
  Mutex mu;
  std::map<const char*, std::string> sha_by_source ABSL_GUARDED_BY(mu);
  std::map<std::string, const char*> source_by_sha ABSL_GUARDED_BY(mu);
};

const char* RedisClient::State::SourceOf(const std::string& sha) {
  MutexLock lock(mu);
  const auto found = source_by_sha.find(sha);
  return found == source_by_sha.end() ? nullptr : found->second;
}

absl::StatusOr<std::vector<RedisRawReply>> RedisClient::State::Call(
    RedisConnectionPool& from, const std::vector<std::vector<std::string>>& commands,
    absl::Duration limit) {
  const absl::Time deadline = SystemClock::Get().Now() + limit;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> borrowed, from.Borrow(deadline));
  auto replies = Exchange(*borrowed, commands, deadline);
  if (!replies.ok()) {
    from.Drop(std::move(borrowed));
    return replies.status();
  }
  bool unfit = false;
  for (const RedisRawReply& reply : *replies) {
    unfit =
        unfit || (reply.is_error && absl::IsUnavailable(RedisErrorStatus(reply.reply.text, "")));
  }
  if (unfit) {
    // The name may resolve to another server on the next try.
    dialer.NoteUnfit();
    from.Drop(std::move(borrowed));
    from.DropIdle();
  } else {
    dialer.NoteFit();
    from.GiveBack(std::move(borrowed));
  }
  return replies;
}

absl::StatusOr<std::vector<RedisRawReply>> RedisClient::State::Exchange(
    RedisConnection& connection, const std::vector<std::vector<std::string>>& commands,
    absl::Time deadline) {
  std::set<std::string> loaded;
  std::vector<std::vector<std::string>> loads;
  for (const std::vector<std::string>& command : commands) {
    if (!IsScriptCall(command) || connection.known_scripts().count(command[1]) > 0) continue;
    const char* source = SourceOf(command[1]);
    if (source == nullptr || !loaded.insert(command[1]).second) continue;
    loads.push_back({"SCRIPT", "LOAD", source});
  }
  RedisWire wire;
  for (const std::vector<std::string>& load : loads) wire.Append(load);
  for (const std::vector<std::string>& command : commands) wire.Append(command);
  FRESHET_ASSIGN_OR_RETURN(std::vector<RedisRawReply> replies, connection.Exchange(wire, deadline));
  replies.erase(replies.begin(), replies.begin() + static_cast<std::ptrdiff_t>(loaded.size()));
  connection.known_scripts().merge(loaded);
  FRESHET_RETURN_IF_ERROR(RunLostScripts(connection, commands, deadline, replies));
  return replies;
}

absl::Status RedisClient::State::RunLostScripts(
    RedisConnection& connection, const std::vector<std::vector<std::string>>& commands,
    absl::Time deadline, std::vector<RedisRawReply>& replies) {
  RedisWire wire;
  std::vector<std::vector<std::string>> commands_again;
  std::vector<size_t> lost;
  for (size_t i = 0; i < commands.size(); ++i) {
    if (!IsScriptCall(commands[i]) || !IsError(replies[i], "NOSCRIPT")) continue;
    const char* source = SourceOf(commands[i][1]);
    if (source == nullptr) continue;
    std::vector<std::string> command = commands[i];
    command[0] = "EVAL";
    command[1] = source;
    commands_again.push_back(std::move(command));
    lost.push_back(i);
  }
  if (lost.empty()) return absl::OkStatus();
  for (const std::vector<std::string>& command : commands_again) wire.Append(command);
  FRESHET_ASSIGN_OR_RETURN(std::vector<RedisRawReply> again, connection.Exchange(wire, deadline));
  for (size_t i = 0; i < lost.size(); ++i) replies[lost[i]] = std::move(again[i]);
  return absl::OkStatus();
}

RedisClient::RedisClient(std::shared_ptr<State> state) : state_(std::move(state)) {}
RedisClient::~RedisClient() = default;

absl::StatusOr<std::shared_ptr<RedisClient>> RedisClient::Create(RedisOptions options) {
  FRESHET_RETURN_IF_ERROR(options.Validate());
  return std::shared_ptr<RedisClient>(new RedisClient(std::make_shared<State>(std::move(options))));
}

absl::StatusOr<RedisReply> RedisClient::Command(const std::vector<std::string>& args) {
  if (args.empty()) return InvalidArgument("a redis command needs a name");
  FRESHET_ASSIGN_OR_RETURN(std::vector<RedisRawReply> replies,
                           state_->Call(state_->pool, {args}, options().command_timeout));
  return Finish(std::move(replies[0]), args[0]);
}

absl::StatusOr<std::vector<absl::StatusOr<RedisReply>>> RedisClient::Pipeline(
    const std::vector<std::vector<std::string>>& commands) {
  std::vector<absl::StatusOr<RedisReply>> results;
  if (commands.empty()) return results;
  for (const std::vector<std::string>& command : commands) {
    if (command.empty()) return InvalidArgument("a redis command needs a name");
  }
  FRESHET_ASSIGN_OR_RETURN(std::vector<RedisRawReply> replies,
                           state_->Call(state_->pool, commands, options().command_timeout));
  results.reserve(replies.size());
  for (size_t i = 0; i < replies.size(); ++i) {
    results.push_back(Finish(std::move(replies[i]), commands[i][0]));
  }
  return results;
}

absl::StatusOr<RedisReply> RedisClient::Run(const RedisScript& script,
                                            const std::vector<std::string>& keys,
                                            const std::vector<std::string>& args) {
  FRESHET_ASSIGN_OR_RETURN(
      std::vector<RedisRawReply> replies,
      state_->Call(state_->pool, {ScriptCommand(script, keys, args)}, options().command_timeout));
  return Finish(std::move(replies[0]), StrCat("script ", script.name));
}

std::vector<std::string> RedisClient::ScriptCommand(const RedisScript& script,
                                                    const std::vector<std::string>& keys,
                                                    const std::vector<std::string>& args) {
  std::vector<std::string> command;
  command.reserve(3 + keys.size() + args.size());
  command.push_back("EVALSHA");
  {
    MutexLock lock(state_->mu);
    std::string& sha = state_->sha_by_source[script.source];
    if (sha.empty()) {
      sha = Sha1Hex(script.source);
      state_->source_by_sha[sha] = script.source;
    }
    command.push_back(sha);
  }
  command.push_back(std::to_string(keys.size()));
  command.insert(command.end(), keys.begin(), keys.end());
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

absl::StatusOr<RedisReply> RedisClient::BlockingCommand(const std::vector<std::string>& args,
                                                        absl::Duration wait) {
  if (args.empty()) return InvalidArgument("a redis command needs a name");
  FRESHET_ASSIGN_OR_RETURN(
      std::vector<RedisRawReply> replies,
      state_->Call(state_->blocking_pool, {args}, wait + options().command_timeout));
  return Finish(std::move(replies[0]), args[0]);
}

absl::StatusOr<std::unique_ptr<RedisSubscription>> RedisClient::Subscribe(
    const std::vector<std::string>& channels) {
  if (channels.empty()) return InvalidArgument("a redis subscription needs a channel");
  auto state = std::make_unique<RedisSubscription::State>(
      std::shared_ptr<RedisDialer>(state_, &state_->dialer), channels);
  FRESHET_RETURN_IF_ERROR(state->Open(SystemClock::Get().Now() + options().command_timeout));
  return std::make_unique<RedisSubscription>(std::move(state));
}

const RedisOptions& RedisClient::options() const { return state_->dialer.options(); }

}  // namespace freshet
