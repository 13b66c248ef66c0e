// Measures how small the difference between two versions is, and how fast one core encodes and
// decodes it. The versions are files of equal size, such as model.safetensors of two checkpoints
// with checkpoint.dtype bf16; every byte is taken as weights. bench/weights.py --delta prints the
// table.
//
//   delta_bench BASE VERSION [--piece B] [--seconds S]
//
// Prints one JSON object. Times are those of the thread's CPU.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "weights/delta_codec.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 30;

double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct DeltaBench {
  std::string base_path, path;
  int64_t piece = 1 << 20;
  double seconds = 3;

  int Run() const {
    const auto base = ReadFile(base_path, kMaxFileBytes);
    const auto version = ReadFile(path, kMaxFileBytes);
    for (const auto& file : {&base, &version}) {
      if (file->ok()) continue;
      std::fprintf(stderr, "delta_bench: %s\n", Message(file->status()).c_str());
      return 2;
    }
    if (base->size() != version->size() || base->empty()) {
      std::fprintf(stderr, "delta_bench: %s and %s must have the same size, not 0\n",
                   base_path.c_str(), path.c_str());
      return 2;
    }
    WeightManifest manifest;
    manifest.entries = {{"all", "BF16", {}, 0}};
    DeltaCodec codec(manifest);
    const auto part = [&](const std::string& bytes, size_t at) {
      const size_t size = std::min(static_cast<size_t>(piece), bytes.size() - at);
      return std::span(reinterpret_cast<const std::byte*>(bytes.data()) + at, size);
    };
    size_t sent = 0, changed = 0, passes = 0;
    double encode = 0, decode = 0;
    for (; encode + decode < seconds; ++passes) {
      sent = 0;
      for (size_t at = 0; at < base->size(); at += static_cast<size_t>(piece)) {
        const auto was = part(*base, at), is = part(*version, at);
        const double start = ThreadSeconds();
        const std::optional<std::string> encoded = codec.Encode(is, was);
        const double middle = ThreadSeconds();
        encode += middle - start;
        sent += encoded.has_value() ? encoded->size() : is.size();
        if (!encoded.has_value()) continue;
        const auto decoded = codec.Decode(*encoded, was);
        decode += ThreadSeconds() - middle;
        FRESHET_CHECK(decoded.ok() && std::memcmp(decoded->data(), is.data(), is.size()) == 0);
      }
    }
    for (size_t at = 0; at + 2 <= base->size(); at += 2) {
      changed += std::memcmp(base->data() + at, version->data() + at, 2) != 0 ? 1 : 0;
    }
    const auto bytes = static_cast<double>(base->size());
    const nlohmann::json result = {
        {"bytes", base->size()},
        {"piece", piece},
        {"changed", 2 * static_cast<double>(changed) / bytes},
        {"sent", static_cast<double>(sent) / bytes},
        {"encode_bytes_per_second", bytes * static_cast<double>(passes) / encode},
        {"decode_bytes_per_second", bytes * static_cast<double>(passes) / decode},
    };
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
};

int DeltaMain(int argc, char** argv) {
  CommandLine app("size and speed of differences between versions", "delta_bench");
  DeltaBench bench;
  app.Add("BASE", bench.base_path).Required();
  app.Add("VERSION", bench.path).Required();
  app.Add("--piece", bench.piece, "bytes of the version in one message").Positive();
  app.Add("--seconds", bench.seconds).Positive();
  app.OnRun([&] { return bench.Run(); });
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::DeltaMain(argc, argv); }
