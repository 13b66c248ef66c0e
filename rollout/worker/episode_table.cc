#include "rollout/worker/episode_table.h"

#include "base/log.h"
#include "base/str_cat.h"
#include "base/trace.h"

namespace freshet {

bool CountFailure(const EpisodeGroup& spec, const absl::Status& why, const EpisodeRetries& retries,
                  EpisodeSlot& episode, EpisodeCounters& counters) {
  const bool full = absl::IsResourceExhausted(why);
  if (full) ++counters.refused;
  if (!full || ++episode.refusals >= retries.max_refusals) {
    ++episode.failures;
    episode.refusals = 0;
    FRESHET_LOG(Warning) << "event=episode_failed "
                         << (episode.uid.empty() ? StrCat("ordinal=", spec.ordinal)
                                                 : TraceWords(episode.uid))
                         << " failures=" << episode.failures
                         << " reason=" << LogQuoted(Message(why));
  }
  if (absl::IsInvalidArgument(why) || episode.failures >= retries.max_failures) return false;
  if (!full) ++counters.restarted;
  return true;
}

}  // namespace freshet
