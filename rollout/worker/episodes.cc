#include "rollout/worker/episodes.h"

#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kShortSilence = absl::Milliseconds(100);

}  // namespace

void CountEnd(std::optional<EpisodeLimit> limit, EpisodeCounters& counters) {
  if (!limit.has_value()) {
    ++counters.terminated;
    return;
  }
  ++counters.truncated;
  ++counters.truncated_by[*limit];
}

std::string DescribeSilence(const EpisodeCounters& counters, const std::string& label,
                            absl::Time now) {
  absl::Duration silence = now - counters.silent_since;
  if (silence < kShortSilence) return "";
  silence = absl::Trunc(silence, silence < absl::Seconds(1) ? kShortSilence : absl::Seconds(1));
  if (counters.waiting_for_environment == 0) {
    return StrCat("environment ", label, " does not answer since ", absl::FormatDuration(silence));
  }
  return StrCat(counters.waiting_for_environment, " episodes wait for environment ", label,
                " since ", absl::FormatDuration(silence));
}

}  // namespace freshet
