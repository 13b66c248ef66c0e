#include "base/exit_code.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMostLines = 5;

std::terminate_handler former_handler = nullptr;

void OnTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_array_new_length&) {  // a wrong size, not a lack of memory
  } catch (const std::bad_alloc&) {
    std::fputs("freshet: out of memory\n", stderr);
    std::_Exit(kExitContent);
  } catch (...) {
  }
  former_handler();
}

}  // namespace

ExitCode ContentExitCode(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  return status.code() == absl::StatusCode::kInternal ? kExitInternal : kExitContent;
}

void PrintError(const absl::Status& status) {
  const std::vector<std::string> lines = absl::StrSplit(Message(status), '\n', absl::SkipEmpty());
  for (size_t i = 0; i < lines.size(); ++i) {
    // Collected errors already end in "and N more"; keep that line.
    const bool counts_rest = i + 1 == lines.size() && lines[i].rfind("and ", 0) == 0;
    if (i < kMostLines || counts_rest) {
      std::fprintf(stderr, "freshet: %s\n", lines[i].c_str());
    } else {
      std::fprintf(stderr, "freshet: and %zu more\n", lines.size() - i);
      return;
    }
  }
  if (lines.empty()) std::fprintf(stderr, "freshet: %s\n", status.ToString().c_str());
}

ExitCode FailContent(const absl::Status& status) {
  PrintError(status);
  return ContentExitCode(status);
}

void ExitWhenOutOfMemory() {
  if (former_handler != nullptr) return;
  former_handler = std::get_terminate();
  std::set_terminate(OnTerminate);
}

}  // namespace freshet
