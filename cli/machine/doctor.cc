#include "cli/machine/doctor.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "cli/format/paint.h"
#include "runlog/display_format.h"

namespace freshet {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
// Minimum for a cluster with a small model: five roles with LibTorch, and Redis.
constexpr int64_t kMinMemoryBytes = 4 * kGiB;
constexpr int64_t kMinDiskBytes = 1 * kGiB;
constexpr int kMinRedisMajor = 7;

std::string Bytes(int64_t bytes) { return HumanCount(static_cast<double>(bytes)) + "B"; }

class Findings {
 public:
  void Good(std::string_view subject, std::string text) {
    list_.push_back({Finding::Grade::kGood, std::string(subject), std::move(text)});
  }
  void Warn(std::string_view subject, std::string text) {
    list_.push_back({Finding::Grade::kWarning, std::string(subject), std::move(text)});
  }
  void Problem(std::string_view subject, std::string text) {
    list_.push_back({Finding::Grade::kError, std::string(subject), std::move(text)});
  }
  std::vector<Finding> Take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
};

void JudgeCpu(const MachineFacts& facts, Findings& findings) {
  const auto has = [&](const char* flag) { return facts.cpu_flags.count(flag) > 0; };
  std::string text = StrCat(facts.cores, " core", facts.cores == 1 ? "" : "s");
  for (const char* flag : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (has(flag)) text += StrCat(", ", flag);
  }
  if (!has("avx2")) {
    findings.Problem("cpu", text + "; AVX2 is needed by LibTorch's kernels: use another machine");
  } else if (facts.cores < 2) {
    findings.Warn("cpu", text + "; two or more let generation and training overlap");
  } else if (!has("amx_bf16")) {
    findings.Good("cpu", text + " (no AMX: use model.dtype fp32)");
  } else {
    findings.Good("cpu", text);
  }
}

void JudgeRoom(const MachineFacts& facts, Findings& findings) {
  const std::string memory = Bytes(facts.memory_available_bytes) + " available";
  if (facts.memory_available_bytes < kMinMemoryBytes) {
    findings.Warn("memory", memory + "; a local cluster needs " + Bytes(kMinMemoryBytes) +
                                ": use fewer workers, or freshet local");
  } else {
    findings.Good("memory", memory);
  }
  // Weights are passed in memory files between processes on one host.
  if (facts.memory_file_error.empty()) {
    findings.Good("memfd", "processes can share memory files: weights are passed in them");
  } else {
    findings.Warn("memfd",
                  StrCat("memory files cannot be shared: ", OneLine(facts.memory_file_error),
                         "; weights then travel by gRPC, with a copy per worker"));
  }
  const std::string disk = StrCat(Bytes(facts.state_disk_bytes), " free at ", facts.state_folder);
  if (facts.state_disk_bytes < kMinDiskBytes) {
    findings.Problem("disk", disk + "; make room, or set XDG_STATE_HOME to another disk");
  } else {
    findings.Good("disk", disk);
  }
}

void JudgePrograms(const MachineFacts& facts, Findings& findings) {
  if (facts.redis_path.empty()) {
    findings.Problem("redis", "redis-server is not found; apt install redis-server");
  } else if (std::atoi(facts.redis_version.c_str()) < kMinRedisMajor) {
    findings.Problem("redis", StrCat(facts.redis_path, " is version ", facts.redis_version,
                                     "; version ", kMinRedisMajor, " or newer is needed"));
  } else {
    findings.Good("redis", StrCat(facts.redis_path, ", version ", facts.redis_version));
  }
  if (facts.missing_binaries.empty()) {
    findings.Good("binaries", "all roles are built");
    return;
  }
  findings.Problem("binaries", StrCat(absl::StrJoin(facts.missing_binaries, ", "),
                                      " missing next to freshet; build with ./dev build"));
}

void JudgeServer(const MachineFacts& facts, Findings& findings) {
  if (facts.server_reached) {
    findings.Good("server", StrCat(facts.server, " answers, ", facts.workers, " workers"));
  } else {
    findings.Warn("server", StrCat(facts.server, " is not reachable: ", OneLine(facts.server_error),
                                   "; start one with freshet cluster up"));
  }
  if (facts.port_free) {
    findings.Good("ports", StrCat("127.0.0.1:", facts.port, " is free for a cluster"));
  } else if (facts.server_reached) {
    findings.Good("ports", StrCat("127.0.0.1:", facts.port, " is in use"));
  } else {
    findings.Warn("ports", StrCat("127.0.0.1:", facts.port,
                                  " is taken by another program; freshet cluster up --port P"));
  }
}

}  // namespace

std::vector<Finding> Diagnose(const MachineFacts& facts) {
  Findings findings;
  JudgeCpu(facts, findings);
  JudgeRoom(facts, findings);
  JudgePrograms(facts, findings);
  JudgeServer(facts, findings);
  if (!facts.model_path.empty()) {
    if (facts.model_errors.empty()) {
      findings.Good("model", StrCat(facts.model_path, ": ", facts.model_text));
    }
    for (const std::string& error : facts.model_errors) findings.Problem("model", OneLine(error));
  }
  return findings.Take();
}

std::string FormatFindings(const std::vector<Finding>& findings, bool color) {
  std::string text;
  int errors = 0;
  int warnings = 0;
  for (const Finding& finding : findings) {
    const bool error = finding.grade == Finding::Grade::kError;
    const bool warning = finding.grade == Finding::Grade::kWarning;
    errors += error ? 1 : 0;
    warnings += warning ? 1 : 0;
    const char* grade = error ? "FAULT" : warning ? "warn " : "ok   ";
    std::string subject = finding.subject;
    subject.resize(10, ' ');
    text += StrCat(Paint(grade,
                         error     ? kPaintRed
                         : warning ? kPaintYellow
                                   : kPaintGreen,
                         color),
                   "  ", subject, finding.text, "\n");
  }
  text += errors > 0 ? StrCat(errors, " error", errors == 1 ? "" : "s", ", ")
                     : std::string("no error, ");
  return text + StrCat(warnings, " warning", warnings == 1 ? "" : "s", "\n");
}

}  // namespace freshet
