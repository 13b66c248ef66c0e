#include "services/sandbox/worker/program_runner.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/sandbox/worker/succeeded.h"

namespace freshet::sandbox {

using v1::CommandResult;
using v1::Outcome;
using v1::Program;

namespace {

constexpr int64_t kMaxFetchedBytes = 16 << 20;  // together
// What compilers write; see languages.cc.
constexpr char kCompiled[] = "main";
constexpr int64_t kMaxOutputBytes = 32 << 20;  // of all runs of a program

std::vector<std::string> WithFolder(const std::vector<std::string>& words,
                                    const std::string& folder) {
  std::vector<std::string> filled;
  for (const std::string& word : words) {
    filled.push_back(absl::StrReplaceAll(word, {{"FOLDER", folder}}));
  }
  return filled;
}

absl::Status Fetch(const Program& program, const ProgramFolder& folder, Outcome& outcome) {
  int64_t left = kMaxFetchedBytes;
  for (const std::string& path : program.fetch_files()) {
    absl::StatusOr<std::string> content = folder.Read(path, left);
    if (absl::IsInvalidArgument(content.status())) return content.status();
    if (!content.ok()) continue;  // the program has not left it
    left -= std::ssize(*content);
    (*outcome.mutable_files())[path] = *std::move(content);
  }
  return absl::OkStatus();
}

}  // namespace

Outcome ProgramRunner::Run(const Program& program) const {
  Outcome outcome;
  outcome.set_nonce(program.nonce());
  const absl::Status filled = Fill(program, outcome);
  if (absl::IsInvalidArgument(filled)) {
    outcome.set_bad_request(Message(filled));
  } else if (!filled.ok()) {
    outcome.set_error(Message(filled));
  }
  return outcome;
}

absl::StatusOr<std::unique_ptr<ProgramFolder>> ProgramRunner::Prepare(
    const Program& program, const Language& language) const {
  FRESHET_ASSIGN_OR_RETURN(auto folder, ProgramFolder::Create(parent_));
  for (const auto& [path, content] : program.files()) {
    FRESHET_RETURN_IF_ERROR(folder->Write(path, content));
  }
  FRESHET_RETURN_IF_ERROR(folder->Write(language.file, program.code()));
  return folder;
}

absl::Status ProgramRunner::Fill(const Program& program, Outcome& outcome) const {
  const Language* language = FindLanguage(program.language());
  if (language == nullptr) {
    return InvalidArgument("language ", program.language(),
                           " is not supported; use python, cpp, nodejs or bash");
  }
  if (!IsInstalled(*language, python_)) {
    return InvalidArgument("language ", program.language(), " is not installed here");
  }
  std::unique_ptr<ProgramFolder> built;
  if (!language->compile.empty()) {
    FRESHET_ASSIGN_OR_RETURN(built, Prepare(program, *language));
    Command command;
    command.argv = language->compile;
    command.folder = built.get();
    command.limit_address_space = false;
    command.time = absl::Milliseconds(program.compile_ms());
    FRESHET_ASSIGN_OR_RETURN(*outcome.mutable_compilation(), runner_.Run(command));
    if (!Succeeded(outcome.compilation())) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(built->MakeExecutable(kCompiled));
  }
  int64_t output_left = kMaxOutputBytes;
  for (int i = 0; i < program.inputs_size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(const auto folder, Prepare(program, *language));
    Command command;
    command.argv = WithFolder(language->run, built == nullptr ? "" : runner_.PathInside(*built));
    command.input = program.inputs(i);
    command.folder = folder.get();
    command.built = built.get();
    command.limit_address_space = !language->reserves_addresses;
    command.time = absl::Milliseconds(program.run_ms());
    command.output_bytes = std::clamp<int64_t>(output_left, 1, runner_.limits().output_bytes);
    CommandResult& run = *outcome.add_runs();
    FRESHET_ASSIGN_OR_RETURN(run, runner_.Run(command));
    output_left -= std::ssize(run.standard_output()) + std::ssize(run.standard_error());
    if (i + 1 == program.inputs_size()) {
      FRESHET_RETURN_IF_ERROR(Fetch(program, *folder, outcome));
    }
    FRESHET_RETURN_IF_ERROR(folder->Remove());
  }
  return absl::OkStatus();
}

}  // namespace freshet::sandbox
