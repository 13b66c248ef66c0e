#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_SGLANG_PROTOCOL_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_SGLANG_PROTOCOL_H_

#include "rollout/server_engine/server_protocol.h"

namespace freshet {

// SGLang with pause modes (later than 0.5.5), started with --skip-tokenizer-init and
// --incremental-streaming-output. Tested against a fake only.
//
// Versions. An event has one weight_version: the server's when it sent the event, which need not be
// that of each token. So no answer lasts longer than the weights: samples are aborted before new
// weights are loaded, and their kept tokens become part of the next call's prompt. Thus all tokens
// of an answer have one version, and an answer that reports another one is an error.
//
// Keys and values of kept tokens are always computed again: weight_sync.kv has no effect.
//
// Answers. Tokens are those of meta_info.output_token_logprobs, which lists either all tokens so
// far or those since the last event; completion_tokens tells which, and output_ids must agree.
// Log-probs are those before truncation. If a log-prob is NaN, the server replaces the token by a
// stop token; such answers are errors.
//
// Stop tokens. The server ignores stop_token_ids if ignore_eos is set. So they always come with the
// model's own end tokens, which a request with stop tokens must have among them.
const ServerProtocol& SglangProtocol();

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_SGLANG_PROTOCOL_H_
