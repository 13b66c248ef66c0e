// Checks PolicyLoss against a second implementation with plain loops over doubles, and its autograd
// gradient against central differences of that one, for all combinations of loss keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "trainer/loss/loss.h"

namespace freshet {
namespace {

struct Token {
  double proximal, behavior, ref, advantage, entropy;
  int64_t sequence;
  bool loss;
};

struct Batch {
  std::vector<Token> tokens;
  std::vector<double> logprobs;
  LossNormalizer normalizer{0, 4, 7};
};

Batch MakeBatch(uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Batch batch;
  const int64_t lengths[] = {4, 1, 6, 3};
  for (int64_t s = 0; s < 4; ++s) {
    const double advantage = (s % 2 == 0 ? 1 : -1) * (0.3 + std::abs(normal(engine)));
    for (int64_t t = 0; t < lengths[s]; ++t) {
      const double x = -0.2 - std::abs(normal(engine));
      const double proximal = x + 0.5 * normal(engine);
      batch.logprobs.push_back(x);
      batch.tokens.push_back({proximal, proximal + 0.9 * normal(engine), x + 0.5 * normal(engine),
                              advantage, std::abs(normal(engine)), s, t == 0 || t != 2});
      batch.normalizer.total_tokens += batch.tokens.back().loss ? 1 : 0;
    }
  }
  return batch;
}

// Mean or sum of f(token index) over the loss-bearing tokens of sequence s.
template <typename Function>
double OverSequence(const Batch& batch, int64_t s, bool mean, Function f) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.tokens[i].sequence == s && batch.tokens[i].loss) {
      sum += f(i);
      count += 1;
    }
  }
  return mean ? sum / count : sum;
}

double RatioOf(const LossSpec& spec, const Batch& batch, const std::vector<double>& x, size_t i) {
  const auto log_ratio = [&](size_t j) {
    return x[j] - (spec.anchor == AnchorKind::kProximal ? batch.tokens[j].proximal
                                                        : batch.tokens[j].behavior);
  };
  return std::exp(spec.ratio == RatioLevel::kToken
                      ? log_ratio(i)
                      : OverSequence(batch, batch.tokens[i].sequence, true, log_ratio));
}

double WeightOf(const LossSpec& spec, const Batch& batch, size_t i) {
  const auto log_rho = [&](size_t j) {
    return batch.tokens[j].proximal - batch.tokens[j].behavior;
  };
  const double rho = std::exp(log_rho(i));
  switch (spec.correction.kind) {
    case CorrectionKind::kNone:
      return 1;
    case CorrectionKind::kTis:
      return std::clamp(rho, spec.correction.low, spec.correction.cap);
    case CorrectionKind::kMask:
      return rho >= spec.correction.low && rho <= spec.correction.cap ? rho : 0;
    case CorrectionKind::kSeqTis:
      return std::clamp(std::exp(OverSequence(batch, batch.tokens[i].sequence, false, log_rho)),
                        spec.correction.low, spec.correction.cap);
  }
  return 0;
}

// `x` are the log-probs, `frozen` the ones inside stop-gradients.
double SurrogateOf(const LossSpec& spec, const Batch& batch, const std::vector<double>& x,
                   const std::vector<double>& frozen, size_t i) {
  const double advantage = batch.tokens[i].advantage;
  if (spec.anchor == AnchorKind::kNone) {
    return -advantage * x[i];
  }
  const auto clip = [&](double r) {
    return std::min(std::max(r, 1 - spec.clip.low), 1 + spec.clip.high);
  };
  if (spec.surrogate == SurrogateKind::kCispo) {
    return -advantage * clip(RatioOf(spec, batch, frozen, i)) * x[i];
  }
  const double r = RatioOf(spec, batch, x, i);
  double objective = std::min(r * advantage, clip(r) * advantage);
  if (spec.clip.dual && advantage < 0) {
    objective = std::max(objective, *spec.clip.dual * advantage);
  }
  return -objective;
}

double KlOf(const LossSpec& spec, const Batch& batch, const std::vector<double>& x, size_t i) {
  const double log_r = batch.tokens[i].ref - x[i];
  switch (spec.kl.kind) {
    case KlKind::kNone:
      return 0;
    case KlKind::kK1:
      return -log_r;
    case KlKind::kK2:
      return log_r * log_r / 2;
    case KlKind::kK3:
      return std::exp(log_r) - 1 - log_r;
  }
  return 0;
}

double ReferenceLoss(const LossSpec& spec, const Batch& batch, const std::vector<double>& x,
                     const std::vector<double>& frozen) {
  double loss = 0;
  for (int64_t s = 0; s < 4; ++s) {
    const auto term = [&](size_t i) {
      return WeightOf(spec, batch, i) * SurrogateOf(spec, batch, x, frozen, i) +
             spec.kl.coef * KlOf(spec, batch, x, i) - spec.entropy_coef * batch.tokens[i].entropy;
    };
    const LossNormalizer& by = batch.normalizer;
    switch (spec.aggregate) {
      case AggregateKind::kTokenMean:
        loss += OverSequence(batch, s, false, term) / by.total_tokens;
        break;
      case AggregateKind::kSequenceMean:
        loss += OverSequence(batch, s, true, term) / by.total_sequences;
        break;
      case AggregateKind::kSequenceSumNorm:
        loss += OverSequence(batch, s, false, term) / by.max_tokens / by.total_sequences;
        break;
    }
  }
  return loss;
}

LossInputs InputsOf(const Batch& batch) {
  const auto column = [&](auto member) {
    std::vector<double> values;
    for (const Token& token : batch.tokens) {
      values.push_back(static_cast<double>(token.*member));
    }
    return at::tensor(values, at::kDouble);
  };
  LossInputs in;
  in.logprobs_N = at::tensor(batch.logprobs, at::kDouble).set_requires_grad(true);
  in.proximal_logprobs_N = column(&Token::proximal);
  in.behavior_logprobs_N = column(&Token::behavior);
  in.ref_logprobs_N = column(&Token::ref);
  in.advantages_N = column(&Token::advantage);
  in.entropy_N = column(&Token::entropy);
  in.loss_mask_N = column(&Token::loss);
  in.sequence_index_N = column(&Token::sequence).to(at::kLong);
  in.num_sequences = 4;
  return in;
}

struct Seen {
  int64_t losses = 0, clipped = 0, limited = 0;
};

// Compares the value to 1e-12 and the gradient to 1e-7 of central differences with step 1e-5.
void Check(const LossSpec& spec, const Batch& batch, Seen& seen) {
  SCOPED_TRACE(DescribeLoss(spec));
  const LossInputs in = InputsOf(batch);
  const auto out = PolicyLoss(spec, in, batch.normalizer);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_NEAR(out->loss_value, ReferenceLoss(spec, batch, batch.logprobs, batch.logprobs), 1e-12);
  out->loss.backward();
  const at::Tensor grad = in.logprobs_N.grad();
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < batch.logprobs.size(); ++i) {
    std::vector<double> up = batch.logprobs, down = batch.logprobs;
    up[i] += kStep;
    down[i] -= kStep;
    const double slope = (ReferenceLoss(spec, batch, up, batch.logprobs) -
                          ReferenceLoss(spec, batch, down, batch.logprobs)) /
                         (2 * kStep);
    EXPECT_NEAR(grad[static_cast<int64_t>(i)].item<double>(), slope, 1e-7) << "token " << i;
  }
  ++seen.losses;
  seen.clipped += out->clipped_tokens;
  seen.limited += out->correction_limited_tokens;
}

std::vector<LossSpec> Surrogates() {
  std::vector<LossSpec> specs(1);
  specs[0].anchor = AnchorKind::kNone;
  for (const AnchorKind anchor : {AnchorKind::kProximal, AnchorKind::kBehavior}) {
    for (const RatioLevel ratio : {RatioLevel::kToken, RatioLevel::kSequence}) {
      LossSpec spec;
      spec.anchor = anchor;
      spec.ratio = ratio;
      spec.clip = {0.2, 0.28, std::nullopt};
      specs.push_back(spec);
      spec.clip.dual = 1.5;
      specs.push_back(spec);
      spec.clip = {0.9, 0.5, std::nullopt};
      spec.surrogate = SurrogateKind::kCispo;
      specs.push_back(spec);
    }
  }
  return specs;
}

std::vector<CorrectionSpec> CorrectionsFor(const LossSpec& spec) {
  if (spec.anchor != AnchorKind::kProximal) {
    return {CorrectionSpec{}};
  }
  return {CorrectionSpec{},
          {CorrectionKind::kTis, 1.5, 0.0},
          {CorrectionKind::kTis, 1.5, 0.7},
          {CorrectionKind::kMask, 2.0, 0.5},
          {CorrectionKind::kSeqTis, 1.5, 0.2}};
}

TEST(PolicyLossGradient, EveryCombinationAgreesWithFiniteDifferences) {
  const Batch batch = MakeBatch(17);
  Seen seen;
  for (LossSpec spec : Surrogates()) {
    for (const CorrectionSpec& correction : CorrectionsFor(spec)) {
      for (const KlKind kl : {KlKind::kNone, KlKind::kK1, KlKind::kK2, KlKind::kK3}) {
        for (const AggregateKind aggregate :
             {AggregateKind::kTokenMean, AggregateKind::kSequenceMean,
              AggregateKind::kSequenceSumNorm}) {
          spec.correction = correction;
          spec.kl = {kl, kl == KlKind::kNone ? 0.0 : 0.1};
          spec.aggregate = aggregate;
          spec.entropy_coef = kl == KlKind::kK2 ? 0.03 : 0.0;
          Check(spec, batch, seen);
        }
      }
    }
  }
  EXPECT_EQ(seen.losses, 12 * (1 + 6 * 5 + 6));  // 12 tails; none, proximal x corrections, behavior
  EXPECT_GT(seen.clipped, 0);
  EXPECT_GT(seen.limited, 0);
}

TEST(PolicyLossGradient, EveryPresetAgreesWithFiniteDifferences) {
  for (const LossPreset& preset : LossPresets()) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      Seen seen;
      Check(*ExpandPreset(preset.name), MakeBatch(seed), seen);
    }
  }
}

}  // namespace
}  // namespace freshet
