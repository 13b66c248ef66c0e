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

#include "base/command_line.h"
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
  CommandLine app("how fast samples go through the Redis datastore", "datastore_bench");
  app.RequireCommand();
  RlMixOptions mix;
  RedisSetOptions set;
  int claims = 10;
  const auto add_mix_flags = [&mix](const Command& command) {
    command.Add("--samples", mix.samples).Positive();
    command.Add("--producers", mix.producers).Range(1, 64);
    command.Add("--group-size", mix.group_size).Range(1, 1024);
    command.Add("--groups-per-step", mix.groups_per_step).Range(1, 4096);
    command.Add("--staleness", mix.staleness).Range(0, 100);
    command.Add("--samples-per-second", mix.samples_per_second);
    command.AddFlag("--scorer", mix.scorer, "a scorer of its own scores the samples");
  };
  const Command mix_command = app.AddCommand("mix", "the RL mix");
  const Command claims_command = app.AddCommand("claims", "server time of a claim");
  const Command set_command = app.AddCommand("set", "pipelined SET");
  const Command size_command = app.AddCommand("size", "mean bytes of a sample");
  for (const Command& command : {mix_command, claims_command, size_command}) add_mix_flags(command);
  for (const Command& command : {mix_command, claims_command}) {
    command.Add("--port", mix.redis.port).Required();
  }
  claims_command.Add("--claims", claims).Range(1, 1000);
  set_command.Add("--port", set.port).Required();
  set_command.Add("--samples", set.sets).Positive();
  set_command.Add("--bytes", set.value_bytes).Required().Positive();
  mix_command.OnRun([&mix] { return Mix(mix); });
  claims_command.OnRun([&] { return Reservations(mix, claims); });
  set_command.OnRun([&set] { return Set(set); });
  size_command.OnRun([&mix] { return Print({{"bytes", MeanRecordBytes(mix)}}); });
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
