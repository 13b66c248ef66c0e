// A tokenizer.json: an accepted one encodes to ids of its vocabulary, and decodes any ids.
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "text/tokenizer.h"

namespace {

constexpr char kText[] = "Hello, w\xC3\xB6rld 123\n\t</s> \xF0\x9F\x99\x82 aaaaaaaaaaaaaaaa";

void Decode(const freshet::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  tokenizer.Decode(ids, /*skip_special=*/true);
  const auto stream = tokenizer.MakeStreamDecoder(/*skip_special=*/false);
  for (const int32_t id : ids) stream->Push(id);
  stream->Finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = freshet::ParseTokenizer({{"tokenizer.json", std::move(json)}}, "dir");
  if (!tokenizer.ok()) return 0;
  const int32_t vocab_size = (*tokenizer)->vocab_size();
  for (const auto special : {freshet::SpecialTokens::kRecognized, freshet::SpecialTokens::kPlain}) {
    const auto ids = (*tokenizer)->EncodeWithSpecial(kText, special);
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) FRESHET_CHECK(id >= 0 && id < vocab_size);
    Decode(**tokenizer, *ids);
  }
  Decode(**tokenizer, {0, 1, 2, vocab_size - 1, vocab_size, -1});
  return 0;
}
