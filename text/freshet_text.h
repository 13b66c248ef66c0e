#ifndef FRESHET_TEXT_FRESHET_TEXT_H_
#define FRESHET_TEXT_FRESHET_TEXT_H_

// C ABI of the Rust library in text/src. C++ code uses text/tokenizer.h.
//
// A function that returns bool stores its result in `out` and returns true, or stores a message in
// `error` and returns false; the caller frees whichever was stored. Nothing unwinds. Strings are
// UTF-8 with a length, not terminated. Handles may be used by several threads at once, except a
// stream.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FreshetTokenizer FreshetTokenizer;
typedef struct FreshetStream FreshetStream;
typedef struct FreshetTemplate FreshetTemplate;

typedef struct FreshetBytes {
  uint8_t* data;
  size_t size;
} FreshetBytes;
typedef struct FreshetIds {
  uint32_t* data;
  size_t size;
} FreshetIds;
void freshet_text_free_bytes(FreshetBytes bytes);
void freshet_text_free_ids(FreshetIds ids);

// From the content of tokenizer.json.
bool freshet_tokenizer_parse(const uint8_t* json, size_t size, FreshetTokenizer** out,
                             FreshetBytes* error);
void freshet_tokenizer_free(FreshetTokenizer* tokenizer);
// `plain_special`: special tokens in the text are encoded like any other text. `add_special`: adds
// the tokens of the post-processor.
bool freshet_tokenizer_encode(const FreshetTokenizer* tokenizer, const uint8_t* text, size_t size,
                              bool plain_special, bool add_special, FreshetIds* out,
                              FreshetBytes* error);
bool freshet_tokenizer_decode(const FreshetTokenizer* tokenizer, const uint32_t* ids, size_t size,
                              bool skip_special, FreshetBytes* out, FreshetBytes* error);
// Largest id + 1.
uint32_t freshet_tokenizer_vocab_size(const FreshetTokenizer* tokenizer);
// Bytes of the text that one token stands for, at most.
size_t freshet_tokenizer_longest_token(const FreshetTokenizer* tokenizer);
// -1: no such token.
int64_t freshet_tokenizer_token_id(const FreshetTokenizer* tokenizer, const uint8_t* token,
                                   size_t size);

// Decodes token by token; see text/tokenizer.h.
FreshetStream* freshet_stream_new(bool skip_special);
void freshet_stream_free(FreshetStream* stream);
bool freshet_stream_push(FreshetStream* stream, const FreshetTokenizer* tokenizer, uint32_t id,
                         FreshetBytes* out, FreshetBytes* error);
bool freshet_stream_finish(FreshetStream* stream, const FreshetTokenizer* tokenizer,
                           FreshetBytes* out, FreshetBytes* error);

typedef struct FreshetRenderOptions {
  bool continue_final;  // the text ends within the last message
  int64_t now_seconds;  // since the epoch; for strftime_now
  uint64_t fuel;        // steps of the template engine
  size_t output_bytes;  // of the text
  size_t memory_bytes;  // that the template engine may use
  uint64_t timeout_ms;  // of the template engine
} FreshetRenderOptions;

// Whether so many templates exceed their time or memory that no other one is rendered. One that
// exceeds its time counts until it ends, one that exceeds its memory for good.
bool freshet_template_busy(void);

bool freshet_template_parse(const uint8_t* source, size_t size, FreshetTemplate** out,
                            FreshetBytes* error);
void freshet_template_free(FreshetTemplate* chat_template);
// `variables` is a JSON object. `busy` is set to whether freshet_template_busy() is the error.
bool freshet_template_render(const FreshetTemplate* chat_template, const uint8_t* variables,
                             size_t size, FreshetRenderOptions options, bool* busy,
                             FreshetBytes* out, FreshetBytes* error);
// Renders and encodes. Special tokens within messages, tools and documents are encoded like any
// other text.
bool freshet_template_encode(const FreshetTemplate* chat_template,
                             const FreshetTokenizer* tokenizer, const uint8_t* variables,
                             size_t size, FreshetRenderOptions options, bool* busy, FreshetIds* out,
                             FreshetBytes* error);

#ifdef __cplusplus
}
#endif

#endif  // FRESHET_TEXT_FRESHET_TEXT_H_
