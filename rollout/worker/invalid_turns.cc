#include "rollout/worker/invalid_turns.h"

#include <algorithm>

namespace freshet {

void MaskTurns(const std::vector<TokenRange>& turns, Response& response) {
  const auto set = [&response](const TokenRange& turn, uint8_t loss) {
    const auto mask = response.loss_mask.begin();
    std::fill(mask + turn.begin, mask + turn.end, loss);
  };
  for (const TokenRange& turn : turns) set(turn, 0);
  const std::vector<uint8_t>& mask = response.loss_mask;
  const bool some = std::find(mask.begin(), mask.end(), 1) != mask.end();
  if (!turns.empty() && !some) set(turns.back(), 1);
}

}  // namespace freshet
