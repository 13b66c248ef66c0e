#include "services/runtime/reward_flags.h"

#include <string_view>

#include "base/str_cat.h"
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

// The server of an http or https URL is HOST:PORT; of a model's, the port may be left out.
std::string CheckServer(const std::string& given, bool model) {
  if (given.empty()) return "";
  const char* const form = model ? "https://HOST/PATH" : "https://HOST:PORT";
  const bool tls = given.starts_with(kTls);
  if (!tls && !given.starts_with(kPlain)) return StrCat(given, " is not ", form);
  if (given.find_first_of("?#@\\ \t\r\n") != std::string::npos) {
    return StrCat(given, " has a query, a user or a space; want ", form);
  }
  std::string host = given.substr(tls ? kTls.size() : kPlain.size());
  if (model) host = host.substr(0, host.find('/'));
  const bool has_port = ParseHostPort(host).has_value();
  if (!has_port && !(model && ParseHostPort(host + ":443").has_value())) {
    return StrCat(given, " is not ", form);
  }
  // IsLoopback takes "unix:PATH" too, which in a URL is the host "unix".
  const bool local = !host.starts_with("unix") && IsLoopback(has_port ? host : host + ":80");
  return tls || local ? "" : given + " is not a loopback address: use https";
}

std::string CheckSandbox(const std::string& given) { return CheckServer(given, false); }
std::string CheckModel(const std::string& given) { return CheckServer(given, true); }

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
  app.Add("--judge", flags.judge.address,
          "https://HOST/PATH (http:// on loopback) of an OpenAI-compatible server for rewards of "
          "type judge, such as https://example.com/v1; default: none")
      .Check(CheckModel);
  app.Add("--judge-ca", flags.judge.ca_file,
          "PEM file: roots of the judge's certificate; default: the system's");
  app.Add("--judge-token-file", flags.judge.token_file, "file with the judge's API key");
  app.Add("--reward-model", flags.reward_model.address,
          "https://HOST (http:// on loopback) of a server with vLLM's POST /pooling, for rewards "
          "of type "
          "reward_model; default: none")
      .Check(CheckModel);
  app.Add("--reward-model-ca", flags.reward_model.ca_file,
          "PEM file: roots of the reward model server's certificate; default: the system's");
  app.Add("--reward-model-token-file", flags.reward_model.token_file,
          "file with the reward model server's API key");
}

std::vector<std::pair<std::string, std::string>> RewardArguments(const RewardFlags& offered) {
  std::vector<std::pair<std::string, std::string>> given;
  const std::pair<std::string, std::string> flags[] = {
      {"--python-rewards", offered.python_rewards},
      {"--sandbox", offered.sandbox.address},
      {"--sandbox-ca", offered.sandbox.ca_file},
      {"--sandbox-token-file", offered.sandbox.token_file},
      {"--judge", offered.judge.address},
      {"--judge-ca", offered.judge.ca_file},
      {"--judge-token-file", offered.judge.token_file},
      {"--reward-model", offered.reward_model.address},
      {"--reward-model-ca", offered.reward_model.ca_file},
      {"--reward-model-token-file", offered.reward_model.token_file}};
  for (const auto& flag : flags) {
    if (!flag.second.empty()) given.push_back(flag);
  }
  return given;
}

}  // namespace freshet::runtime
