#ifndef FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_
#define FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_

#include <string>
#include <utility>
#include <vector>

#include "base/command_line.h"

namespace freshet::runtime {

// An HTTP server that reward workers ask.
struct HttpServerFlags {
  std::string
      address;  // http(s)://HOST[:PORT]; judge and reward_model: with an optional path; "": none
  std::string ca_file;     // for https
  std::string token_file;  // "": none
};

// What the operator of reward workers offers to jobs.
struct RewardFlags {
  std::string python_rewards;    // a loopback HOST:PORT; "": none
  HttpServerFlags sandbox;       // runs model-written programs
  HttpServerFlags judge;         // an OpenAI-compatible server
  HttpServerFlags reward_model;  // a server with vLLM's POST /pooling
};

// Adds --python-rewards, and --sandbox, --judge and --reward-model, each with -ca and -token-file.
// Plaintext is only allowed to loopback addresses.
void AddRewardFlags(const Command& app, RewardFlags& flags);

// The flags of reward workers that give them what `offered` says, as name and value.
std::vector<std::pair<std::string, std::string>> RewardArguments(const RewardFlags& offered);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_
