#include "rollout/engine/prefix_cache.h"

namespace freshet {

int32_t PrefixCache::Allocate() {
  const int32_t block = pool_.Allocate();
  index_.Erase(block);
  return block;
}

void PrefixCache::Release(const std::vector<int32_t>& table) {
  for (auto block = table.rbegin(); block != table.rend(); ++block) pool_.Release(*block);
}

void PrefixCache::Reuse(Lane lane, const std::vector<int32_t>& tokens, int64_t skip,
                        std::vector<int32_t>& table) {
  if (!shares_) return;
  const std::vector<int32_t> before_last(tokens.begin(), tokens.end() - 1);
  const std::vector<int32_t> found = index_.Find(static_cast<int>(lane), before_last);
  for (size_t b = static_cast<size_t>(skip); b < found.size(); ++b) {
    pool_.AddReference(found[b]);
    table.push_back(found[b]);
  }
}

void PrefixCache::Retain(Lane lane, const std::vector<int32_t>& tokens,
                         const std::vector<int32_t>& table) {
  if (!shares_) return;
  for (const int32_t block : index_.Insert(static_cast<int>(lane), tokens, table)) {
    pool_.SetRetained(block, true);
  }
}

void PrefixCache::Clear(Lane lane) {
  for (const int32_t block : index_.Clear(static_cast<int>(lane))) pool_.SetRetained(block, false);
}

}  // namespace freshet
