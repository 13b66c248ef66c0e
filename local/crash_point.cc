#include "local/crash_point.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

class CrashPoint final : public FaultPoints {
 public:
  CrashPoint(std::string point, int64_t hit) : point_(std::move(point)), hit_(hit), left_(hit) {}
  void Reach(std::string_view point) override {
    if (point != point_ || --left_ != 0) return;
    std::fprintf(stderr, "freshet: crash at fault point %s, hit %lld\n", point_.c_str(),
                 static_cast<long long>(hit_));
    std::fflush(nullptr);
    std::raise(SIGKILL);
  }

 private:
  const std::string point_;
  const int64_t hit_;
  std::atomic<int64_t> left_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FaultPoints>> MakeFaultPoints(const std::string& crash_at) {
  if (crash_at.empty()) return std::make_unique<FaultPoints>();
  const size_t colon = crash_at.find(':');
  int64_t hit = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(crash_at.substr(colon + 1), &hit) ||
      hit < 1) {
    return InvalidArgument("--crash-at ", crash_at, ": not of the form POINT:N with N at least 1");
  }
  return std::make_unique<CrashPoint>(crash_at.substr(0, colon), hit);
}

}  // namespace freshet
