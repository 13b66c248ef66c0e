#ifndef FRESHET_ROLLOUT_OPENAI_TOOL_CALLS_H_
#define FRESHET_ROLLOUT_OPENAI_TOOL_CALLS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace freshet::openai {

// How a model writes tool calls.
enum class ToolCallFormat {
  kNone,
  // <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>, anywhere in the text.
  kHermes,
  // {"name": NAME, "parameters": ARGUMENTS} at the start of the text or after <|python_tag|>,
  // several separated by ';'. "arguments" is accepted for "parameters".
  kLlama3Json,
};

struct ToolCallChoice {
  ToolCallFormat format = ToolCallFormat::kNone;
  std::string reason;  // why, for the log
};

// The format that a model with this chat template ("": none) uses. `is_token` tells whether its
// vocabulary has a token with this text.
ToolCallChoice DetectToolCallFormat(std::string_view chat_template,
                                    const std::function<bool(std::string_view)>& is_token);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, byte for byte as the model wrote it
};

// Separates the tool calls in a growing text from its content, as vLLM's parsers of the same names
// do. A malformed call is content. Content keeps every character but the white space and
// separators next to calls that no other content follows. Time is linear in the text. Confined to
// one thread.
class ToolCallParser {
 public:
  // What is decided: content, and calls that are complete, in order.
  struct Parsed {
    std::string content;
    std::vector<ToolCall> calls;
  };

  explicit ToolCallParser(ToolCallFormat format);

  // Takes the next piece of the text, which may end within a character. Holds back what may become
  // a call, up to 1 MiB.
  Parsed Push(std::string_view piece);
  // The text has ended. Call once. A last Hermes call needs no </tool_call>.
  Parsed Finish();

 private:
  enum class State {
    kOutside,  // of calls
    kObject,   // in the JSON object of a call, or in the white space before it
    kAfter,    // the object
    kPlain,    // everything that follows is content
  };
  enum class Step { kAgain, kWait };

  Parsed Run(bool ended);
  Step FindHermesCall(bool ended, Parsed& parsed);
  Step FindLlamaCall(bool ended);
  Step BeginObject(size_t at);
  Step ScanObject(bool ended, Parsed& parsed);
  Step EndHermesCall(bool ended, Parsed& parsed);
  // Takes the object as a call, of whose syntax `end` is the end.
  Step EndCall(size_t end, Parsed& parsed);
  // What has been examined is no call.
  Step Reject(Parsed& parsed);
  // held_ is content up to `end`.
  void Release(size_t end, Parsed& parsed);

  const ToolCallFormat format_;
  State state_;
  std::string held_;
  size_t begin_ = 0;         // of the undecided text in held_
  bool after_call_ = false;  // only white space and separators follow the latest call
  // Of the call that state_ is in, as positions in held_.
  size_t object_ = 0;
  size_t object_end_ = 0;
  size_t next_ = 0;  // not examined yet
  int depth_ = 0;
  bool opened_ = false;  // the object's first member has not begun
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_TOOL_CALLS_H_
