#include "runlog/checkpoint_audit.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "base/file.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;

std::optional<int64_t> ParseNumber(std::string_view digits) {
  if (digits.empty() || digits.size() > 18) return std::nullopt;
  int64_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  return number;
}

// N of a folder named step-N or step-N.epoch-E; nullopt for other names.
std::optional<int64_t> StepOfFolder(std::string_view name) {
  constexpr std::string_view kPrefix = "step-", kEpoch = ".epoch-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t end = name.find(kEpoch);
  if (end != name.npos && !ParseNumber(name.substr(end + kEpoch.size()))) return std::nullopt;
  return ParseNumber(name.substr(0, end));
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

void AuditFile(const std::string& folder, const std::string& label, const Json& entry,
               Violations& violations) {
  const auto name = entry.at("name").get<std::string>();
  if (!IsPlainName(name)) {
    violations.Add(label, ": names a file outside itself: \"", name.substr(0, 80), "\"");
    return;
  }
  const std::string path = folder + "/" + name;
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) {
    violations.Add(label, "/", name, ": is missing");
    return;
  }
  const auto expected_bytes = entry.at("bytes").get<uint64_t>();
  if (bytes != expected_bytes) {
    violations.Add(label, "/", name, ": has ", bytes, " bytes; its manifest says ", expected_bytes);
    return;
  }
  const absl::StatusOr<std::string> sha256 = Sha256File(path);
  if (!sha256.ok() || *sha256 != entry.at("sha256").get<std::string>()) {
    violations.Add(label, "/", name, ": its SHA-256 is not that of its manifest");
  }
}

// Throws Json::exception on a missing key or wrong type.
int64_t AuditManifest(const std::string& folder, const std::string& label, int64_t step,
                      const std::string& text, const LedgerHistory& history,
                      Violations& violations) {
  const Json manifest = Json::parse(text);
  const auto lineage = manifest.at("lineage").get<int64_t>();
  const auto version = manifest.at("version").get<int64_t>();
  const auto digest = manifest.at("digest").get<std::string>();
  const auto job = manifest.at("job").get<std::string>();
  if (manifest.at("step").get<int64_t>() != step || version != step) {
    violations.Add(label, ": its manifest is that of step ", manifest.at("step").get<int64_t>(),
                   ", version ", version);
  }
  if (history.open() && job != history.open()->job) {
    violations.Add(label, ": belongs to job \"", job, "\", the ledger to \"", history.open()->job,
                   "\"");
  }
  const std::string expected = history.lineages().DigestAt(lineage, version);
  if (expected.empty()) {
    violations.Add(label, ": lineage ", lineage, " never reached version ", version,
                   " in the ledger");
  } else if (digest != expected) {
    violations.Add(label, ": its digest is ", digest.substr(0, 12), ", but the ledger's rows give ",
                   expected.substr(0, 12));
  }
  const std::string* durable = history.DurableSha256(lineage, version);
  if (durable != nullptr && *durable != Sha256Hex(text)) {
    violations.Add(label, ": the SHA-256 of its manifest is not that of the durable row");
  }
  int64_t files = 0;
  for (const Json& entry : manifest.at("files")) {
    AuditFile(folder, label, entry, violations);
    ++files;
  }
  return files;
}

}  // namespace

CheckpointAudit AuditCheckpoints(const std::string& run_dir, const LedgerHistory& history,
                                 Violations& violations) {
  CheckpointAudit audit;
  std::vector<std::pair<int64_t, std::string>> folders;
  std::error_code error;
  for (fs::directory_iterator entry(run_dir + "/checkpoints", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const std::optional<int64_t> step = StepOfFolder(name)) folders.emplace_back(*step, name);
  }
  std::sort(folders.begin(), folders.end());
  for (const auto& [step, name] : folders) {
    ++audit.checkpoints;
    const std::string label = "checkpoints/" + name;
    const std::string folder = run_dir + "/" + label;
    const absl::StatusOr<std::string> text = ReadFile(folder + "/manifest.json", kMaxManifestBytes);
    if (!text.ok()) {
      violations.Add(label, ": has no readable manifest.json");
      continue;
    }
    try {
      audit.files += AuditManifest(folder, label, step, *text, history, violations);
    } catch (const Json::exception& exception) {
      violations.Add(label, ": malformed manifest.json: ", exception.what());
    }
  }
  return audit;
}

}  // namespace freshet
