#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace freshet {
namespace {

double Llama3Scaled(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double longest_kept = original / scaling.high_freq_factor;
  const double shortest_divided = original / scaling.low_freq_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_divided) return frequency / scaling.factor;
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<double> RopeInverseFrequencies(const ModelConfig& config) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(config.head_dim);
    double frequency = std::pow(config.rope_theta, -exponent);
    switch (config.rope_scaling.kind) {
      case RopeScaling::Kind::kNone:
        break;
      case RopeScaling::Kind::kLinear:
        frequency /= config.rope_scaling.factor;
        break;
      case RopeScaling::Kind::kLlama3:
        frequency = Llama3Scaled(frequency, config.rope_scaling);
        break;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RopeTables MakeRopeTables(const ModelConfig& config) {
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  RopeTables tables;
  tables.cos.reserve(static_cast<size_t>(config.max_position_embeddings) * frequencies.size());
  tables.sin.reserve(tables.cos.capacity());
  for (int64_t t = 0; t < config.max_position_embeddings; ++t) {
    for (const double frequency : frequencies) {
      const float angle = static_cast<float>(t) * static_cast<float>(frequency);
      tables.cos.push_back(std::cos(angle));
      tables.sin.push_back(std::sin(angle));
    }
  }
  return tables;
}

}  // namespace freshet
