#include "services/runtime/reward_flags.h"

#include <string_view>

#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {
namespace {

constexpr std::string_view kPlain = "http://";
constexpr std::string_view kTls = "https://";

std::string CheckPython(const std::string& given) {
  return given.empty() || IsLoopback(given)
             ? ""
             : given + " is not a loopback address: run the server on the same machine";
}

std::string CheckSandbox(const std::string& given) {
  if (given.empty()) return "";
  const bool tls = given.starts_with(kTls);
  if (!tls && !given.starts_with(kPlain)) {
    return given + " is not http://HOST:PORT or https://HOST:PORT";
  }
  const std::string host = given.substr(tls ? kTls.size() : kPlain.size());
  if (!ParseHostPort(host).has_value()) return given + " has no HOST:PORT";
  return tls || IsLoopback(host) ? "" : given + " is not a loopback address: use https";
}

}  // namespace

void AddRewardFlags(const Command& app, RewardFlags& flags) {
  app.Add(
         "--python-rewards", flags.python_rewards,
         "loopback HOST:PORT of freshet.reward_server, whose functions jobs may use; default: none")
      .Check(CheckPython);
  app.Add("--sandbox", flags.sandbox.address,
          "http://HOST:PORT (loopback) or https://HOST:PORT of a sandbox for rewards of type code; "
          "default: none")
      .Check(CheckSandbox);
  app.Add("--sandbox-ca", flags.sandbox.ca_file, "PEM file: roots of the sandbox's certificate");
  app.Add("--sandbox-token-file", flags.sandbox.token_file, "file with the sandbox's token");
}

}  // namespace freshet::runtime
