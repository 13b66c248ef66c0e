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

std::map<std::string, PooledSuccess> SuccessPool::Newest(int64_t max_bytes) const {
  std::map<std::string, PooledSuccess> newest;
  for (auto it = oldest_.rbegin(); it != oldest_.rend() && max_bytes > 0; ++it) {
    const PooledSuccess& success = by_prompt_.at(it->second);
    const Response& response = *success.response;
    const auto bytes = static_cast<int64_t>(response.response_ids.size() * sizeof(int32_t) +
                                            response.behavior_logprobs.size() * sizeof(float));
    if (bytes > max_bytes) continue;
    max_bytes -= bytes;
    newest.emplace(it->second, success);
  }
  return newest;
}

}  // namespace freshet
