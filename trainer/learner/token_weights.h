#ifndef FRESHET_TRAINER_LEARNER_TOKEN_WEIGHTS_H_
#define FRESHET_TRAINER_LEARNER_TOKEN_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "job/loss_spec.h"
#include "text/tokenizer.h"
#include "trainer/learner/training_rows.h"

namespace freshet {

// Weights of the tokens in a part of a response, such as a tool call (after TL-Training,
// arXiv:2412.15495, which weighs the tokens of tool calls in supervised training). All pure.

// Bytes [begin, end) of a text that are between the texts of `weights`, with both.
struct WeighedPart {
  size_t begin = 0;
  size_t end = 0;
  double weight = 1;
};

// The parts of a text, from left to right. A part begins with the first of the `begin` texts, in
// the order of `weights` if several are there, and goes to its `end`, or to the end of the text if
// that does not follow. What is in a part begins no other one. Linear in the length of the text.
std::vector<WeighedPart> FindParts(std::string_view text, const std::vector<TokenWeight>& weights);

// Multiplies the advantages of loss-bearing tokens by the weight of the part that they are in, or
// the first such part, and returns how many there are. The loss is proportional to the advantage,
// also where the ratio is clipped, so that a weight is a factor of the token's policy-gradient term
// and changes neither the clipping nor the terms of `kl` and `entropy_coef`.
// Parts are found in the decoded text of each turn, with special tokens, so that it does not matter
// how the texts were tokenized; a token that is only partly in a part counts as in it. What an
// environment wrote is in no part.
int64_t WeighTokens(const std::vector<TokenWeight>& weights, const Tokenizer& tokenizer,
                    TrainingRows& rows);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_TOKEN_WEIGHTS_H_
