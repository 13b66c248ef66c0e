#include "rollout/engine/engine_batch.h"

#include <exception>
#include <iterator>

namespace freshet {

std::vector<SampledToken> DrawFirst(const EngineBatch& batch, const float* logits,
                                    int64_t vocab_size, ThreadPool& pool) {
  struct Draw {
    const RunningGroup* group;
    const RunningSample* sample;
    const float* row;
  };
  std::vector<Draw> draws;
  for (size_t i = 0; i < batch.wants.size(); ++i) {
    const EngineBatch::Want& want = batch.wants[i];
    const float* row = logits + static_cast<int64_t>(i) * vocab_size;
    if (want.sample != nullptr) {
      draws.push_back({want.group, want.sample, row});
      i += want.sample->draft.size();
      continue;
    }
    for (const RunningSample& sample : want.group->samples) {
      // Kept tokens are fed first.
      if (sample.response.response_ids.empty()) draws.push_back({want.group, &sample, row});
    }
  }
  std::vector<SampledToken> tokens(draws.size());
  std::vector<std::exception_ptr> thrown(draws.size());
  pool.For(std::ssize(draws), [&](int64_t i, int) {
    const auto place = static_cast<size_t>(i);
    const Draw& draw = draws[place];
    try {
      tokens[place] = DrawNext(draw.group->request, *draw.sample, draw.row, vocab_size);
    } catch (...) {
      thrown[place] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : thrown) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  return tokens;
}

}  // namespace freshet
