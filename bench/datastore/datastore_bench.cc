// Measures the throughput of samples through the Redis datastore, one kind per run.
// bench/datastore.py starts the servers, runs all kinds in alternating order and prints the table.
//
//   datastore_bench mix --port P [...]      the RL mix, unthrottled or at an offered rate
//   datastore_bench set --port P --bytes N  pipelined SET, the baseline
//   datastore_bench claims --port P         server time of a claim
//   datastore_bench size                    mean bytes of a sample
//
// Prints one JSON object.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/str_cat.h"
#include "bench/datastore/redis_set.h"
#include "bench/datastore/rl_mix.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "datastore_bench: %s\n", Message(status).c_str());
  return 1;
}

int Print(const nlohmann::json& json) {
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

int Mix(const RlMixOptions& options) {
  const absl::StatusOr<RlMixResult> result = RunRlMix(options);
  if (!result.ok()) return Fail(result.status());
  return Print({{"samples", result->samples},
                {"seconds", result->seconds},
                {"client_cpu_seconds", result->client_cpu_seconds},
                {"server_cpu_seconds", result->server_cpu_seconds},
                {"claim_seconds", result->claim_seconds},
                {"batch_seconds", result->batch_seconds},
                {"violations", result->violations}});
}

int Set(const RedisSetOptions& options) {
  const absl::StatusOr<RedisSetResult> result = RunRedisSet(options);
  if (!result.ok()) return Fail(result.status());
  return Print({{"samples", result->sets},
                {"seconds", result->seconds},
                {"client_cpu_seconds", result->client_cpu_seconds},
                {"server_cpu_seconds", result->server_cpu_seconds}});
}

int Reservations(const RlMixOptions& options, int claims) {
  const absl::StatusOr<std::vector<double>> seconds = ServerTimeOfClaims(options, claims);
  if (!seconds.ok()) return Fail(seconds.status());
  return Print({{"groups", options.groups_per_step}, {"server_seconds", *seconds}});
}

int Main(int argc, char** argv) {
  CLI::App app("how fast samples go through the Redis datastore", "datastore_bench");
  app.require_subcommand(1);
  RlMixOptions mix;
  RedisSetOptions set;
  int claims = 10;
  const auto add_mix_flags = [&mix](CLI::App& command) {
    command.add_option("--samples", mix.samples)->check(CLI::PositiveNumber);
    command.add_option("--producers", mix.producers)->check(CLI::Range(1, 64));
    command.add_option("--group-size", mix.group_size)->check(CLI::Range(1, 1024));
    command.add_option("--groups-per-step", mix.groups_per_step)->check(CLI::Range(1, 4096));
    command.add_option("--staleness", mix.staleness)->check(CLI::Range(0, 100));
    command.add_option("--samples-per-second", mix.samples_per_second);
    command.add_flag("--scorer", mix.scorer, "a scorer of its own scores the samples");
  };
  CLI::App* mix_command = app.add_subcommand("mix", "the RL mix");
  CLI::App* claims_command = app.add_subcommand("claims", "server time of a claim");
  CLI::App* set_command = app.add_subcommand("set", "pipelined SET");
  CLI::App* size_command = app.add_subcommand("size", "mean bytes of a sample");
  for (CLI::App* command : {mix_command, claims_command, size_command}) add_mix_flags(*command);
  for (CLI::App* command : {mix_command, claims_command}) {
    command->add_option("--port", mix.redis.port)->required();
  }
  claims_command->add_option("--claims", claims)->check(CLI::Range(1, 1000));
  set_command->add_option("--port", set.port)->required();
  set_command->add_option("--samples", set.sets)->check(CLI::PositiveNumber);
  set_command->add_option("--bytes", set.value_bytes)->required()->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (mix_command->parsed()) return Mix(mix);
  if (claims_command->parsed()) return Reservations(mix, claims);
  if (set_command->parsed()) return Set(set);
  return Print({{"bytes", MeanRecordBytes(mix)}});
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
