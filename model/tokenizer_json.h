#ifndef FRESHET_MODEL_TOKENIZER_JSON_H_
#define FRESHET_MODEL_TOKENIZER_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/bpe_tokenizer.h"

namespace freshet {

// Parses tokenizer.json: a BPE model over characters with added tokens; normalizers Prepend,
// Replace (of a string) and Sequence; pre-tokenizers Metaspace and Sequence; post-processor
// TemplateProcessing; decoders Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence. Ignores
// truncation and padding settings, as transformers' encode() does.
// INVALID_ARGUMENT, starting with `source`: malformed content, or another kind (named).
absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view text, const std::string& source);

// Reads bos_token and eos_token from tokenizer_config.json into `spec`. Each is a string, an object
// with `content`, or null.
absl::Status ParseTokenizerConfig(std::string_view text, const std::string& source, BpeSpec& spec);

}  // namespace freshet

#endif  // FRESHET_MODEL_TOKENIZER_JSON_H_
