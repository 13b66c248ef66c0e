#include "datastore/memory/success_pool.h"

namespace freshet {

const PooledSuccess* SuccessPool::Find(const std::string& prompt) const {
  const auto it = by_prompt_.find(prompt);
  return it == by_prompt_.end() ? nullptr : &it->second;
}

void SuccessPool::Add(const std::string& prompt, PooledSuccess success,
                      const ReplayOptions& options, int64_t version) {
  const PooledSuccess* known = Find(prompt);
  if (known == nullptr || known->oldest <= success.oldest) {
    if (known != nullptr) oldest_.erase({known->oldest, prompt});
    oldest_.emplace(success.oldest, prompt);
    by_prompt_[prompt] = std::move(success);
  }
  while (!oldest_.empty() &&
         (size() > options.capacity || oldest_.begin()->first < version - options.max_age)) {
    by_prompt_.erase(oldest_.begin()->second);
    oldest_.erase(oldest_.begin());
  }
}

}  // namespace freshet
