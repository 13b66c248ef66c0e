#ifndef FRESHET_ROLLOUT_OPENAI_ANSWER_H_
#define FRESHET_ROLLOUT_OPENAI_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/openai/api_request.h"
#include "rollout/openai/body_members.h"
#include "rollout/openai/tool_calls.h"
#include "text/tokenizer.h"

namespace freshet::openai {

// What every object of an answer repeats.
struct AnswerHead {
  std::string id;       // "cmpl-...", "chatcmpl-..." or "pooling-..."
  std::string model;    // the served name
  int64_t created = 0;  // seconds since 1970
};

// The label of a policy version in weight_versions: "LINEAGE.VERSION".
std::string VersionLabel(PolicyVersion policy);

// "data: JSON\n\n"
std::string Event(const std::string& json);

// The answer to one request, built from its tokens as they arrive: one JSON object, or the events
// of a stream. The shapes are those of vLLM. Confined to one thread at a time.
class Answer {
 public:
  // `prompts` are the ids of the request's prompts, `stop_ids` those that end a response, and
  // `tool_format` is how the model calls tools. The tokenizer must outlive this object.
  Answer(AnswerHead head, std::shared_ptr<const ApiRequest> request,
         std::vector<std::vector<int32_t>> prompts, std::vector<int32_t> stop_ids,
         const Tokenizer& tokenizer, ToolCallFormat tool_format = ToolCallFormat::kNone);
  ~Answer();

  // Adds the next token of a sample of prompt number `prompt`. Returns the events that it makes
  // visible; "" unless the request asks for a stream.
  std::string Add(size_t prompt, const GeneratedToken& token);
  // Sets the score of prompt number `prompt` of a pooling request.
  void AddScore(size_t prompt, float score);
  // The events after the last token: usage if asked for, and the end mark.
  std::string EndOfStream() const;
  // The events after an error in mid-stream.
  static std::string FailedStream(const absl::Status& status);
  // The whole answer, once every sample has finished.
  std::string Body() const;

 private:
  struct Choice;

  void AddText(Choice& choice, const GeneratedToken& token);
  // Divides visible text into content and calls of tools.
  void Show(Choice& choice, const std::string& text, bool last) const;
  std::string Flush(size_t prompt, size_t index, Choice& choice);
  std::string PoolingBody() const;
  Json Object(const char* kind) const;
  Json Message(size_t index, const Choice& choice, bool delta) const;
  Json ChoiceJson(size_t index, const Choice& choice, bool delta) const;
  Json Logprobs(const Choice& choice) const;
  Json CompletionLogprobs(const Choice& choice) const;
  Json ChatLogprobs(const Choice& choice) const;
  std::string Name(int32_t id) const;
  Json Usage() const;

  const AnswerHead head_;
  const std::shared_ptr<const ApiRequest> request_;
  const std::vector<std::vector<int32_t>> prompts_;
  const std::vector<int32_t> stop_ids_;
  const Tokenizer& tokenizer_;
  std::vector<Choice> choices_;  // by prompt, then sample; of /pooling, none
  std::vector<float> scores_;    // by prompt; of /pooling
  int64_t completion_tokens_ = 0;
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_ANSWER_H_
