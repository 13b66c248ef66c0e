#include "text/tokenizer.h"

#include <map>
#include <utility>

#include "absl/time/time.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "text/rust_result.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
// Eight times the largest known vocabulary.
constexpr uint32_t kMaxVocabSize = uint32_t{1} << 21;
constexpr uint64_t kTemplateSteps = 2'000'000;
constexpr size_t kTemplateBytes = size_t{256} << 20;
constexpr absl::Duration kTemplateTimeout = absl::Seconds(10);
constexpr char kTokenizerJson[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
// Members of tokenizer_config.json. The first two need an id.
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
constexpr char kChatTemplate[] = "chat_template.jinja";

struct FreeTokenizer {
  void operator()(FreshetTokenizer* tokenizer) const { freshet_tokenizer_free(tokenizer); }
};
struct FreeTemplate {
  void operator()(FreshetTemplate* chat_template) const { freshet_template_free(chat_template); }
};
struct FreeStream {
  void operator()(FreshetStream* stream) const { freshet_stream_free(stream); }
};

using TokenizerHandle = std::unique_ptr<FreshetTokenizer, FreeTokenizer>;
using TemplateHandle = std::unique_ptr<FreshetTemplate, FreeTemplate>;
using NamedTokens = std::map<std::string, std::string>;  // "eos_token" -> "</s>"

std::optional<int32_t> TokenId(const FreshetTokenizer& tokenizer, std::string_view token) {
  const int64_t id = freshet_tokenizer_token_id(&tokenizer, Data(token), token.size());
  if (id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

class LibraryStreamDecoder final : public StreamDecoder {
 public:
  LibraryStreamDecoder(const FreshetTokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), stream_(freshet_stream_new(skip_special)) {}

  std::string Push(int32_t id) override {
    return CallText<FreshetBytes>([&](FreshetBytes* out, FreshetBytes* error) {
             return freshet_stream_push(stream_.get(), &tokenizer_, static_cast<uint32_t>(id), out,
                                        error);
           })
        .value_or("");
  }
  std::string Finish() override {
    return CallText<FreshetBytes>([&](FreshetBytes* out, FreshetBytes* error) {
             return freshet_stream_finish(stream_.get(), &tokenizer_, out, error);
           })
        .value_or("");
  }

 private:
  const FreshetTokenizer& tokenizer_;
  const std::unique_ptr<FreshetStream, FreeStream> stream_;
};

// What the files of a tokenizer hold.
struct TokenizerParts {
  TokenizerHandle tokenizer;
  TemplateHandle chat_template;  // may be null
  TemplateHandle tool_template;  // of conversations with tools; null: chat_template
  NamedTokens named;
  // With add_bos_token or add_eos_token in tokenizer_config.json, they replace the post-processor.
  bool adds_by_flag = false;
  bool adds_bos = false;
  bool adds_eos = false;
  std::vector<TokenizerFile> files;
};

// A tokenizer of the tokenizers library.
class LibraryTokenizer final : public Tokenizer {
 public:
  explicit LibraryTokenizer(TokenizerParts parts)
      : parts_(std::move(parts)),
        vocab_size_(static_cast<int32_t>(freshet_tokenizer_vocab_size(parts_.tokenizer.get()))) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              SpecialTokens special) const override {
    return Encode(text, special, /*add_special=*/false);
  }
  absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text,
                                                         SpecialTokens special) const override {
    if (!parts_.adds_by_flag) return Encode(text, special, /*add_special=*/true);
    FRESHET_ASSIGN_OR_RETURN(std::vector<int32_t> ids, Encode(text, special, false));
    if (parts_.adds_bos && bos_id().has_value()) ids.insert(ids.begin(), *bos_id());
    if (parts_.adds_eos && eos_id().has_value()) ids.push_back(*eos_id());
    return ids;
  }

  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    const auto* data = reinterpret_cast<const uint32_t*>(ids.data());
    return CallText<FreshetBytes>([&](FreshetBytes* out, FreshetBytes* error) {
             return freshet_tokenizer_decode(parts_.tokenizer.get(), data, ids.size(), skip_special,
                                             out, error);
           })
        .value_or("");
  }
  std::unique_ptr<StreamDecoder> MakeStreamDecoder(bool skip_special) const override {
    return std::make_unique<LibraryStreamDecoder>(*parts_.tokenizer, skip_special);
  }

  absl::StatusOr<std::string> RenderChat(const ChatRequest& request) const override {
    return CallTemplate<FreshetBytes>(
        request, [&](const std::string& variables, bool* busy, auto* out, auto* error) {
          return freshet_template_render(Template(request), Data(variables), variables.size(),
                                         RenderOptions(request), busy, out, error);
        });
  }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatRequest& request) const override {
    return CallTemplate<FreshetIds>(request, [&](const std::string& variables, bool* busy,
                                                 auto* out, auto* error) {
      return freshet_template_encode(Template(request), parts_.tokenizer.get(), Data(variables),
                                     variables.size(), RenderOptions(request), busy, out, error);
    });
  }
  bool ChatAvailable() const override { return !freshet_template_busy(); }

  int32_t vocab_size() const override { return vocab_size_; }
  int64_t longest_token_bytes() const override {
    return static_cast<int64_t>(freshet_tokenizer_longest_token(parts_.tokenizer.get()));
  }
  std::optional<int32_t> bos_id() const override { return NamedId("bos_token"); }
  std::optional<int32_t> eos_id() const override { return NamedId("eos_token"); }
  const std::vector<TokenizerFile>& Files() const override { return parts_.files; }

 private:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, SpecialTokens special,
                                              bool add_special) const {
    if (text.size() > kMaxTextBytes) {
      return InvalidArgument("the text has ", text.size(), " bytes, want at most ", kMaxTextBytes);
    }
    return CallText<FreshetIds>([&](FreshetIds* out, FreshetBytes* error) {
      return freshet_tokenizer_encode(parts_.tokenizer.get(), Data(text), text.size(),
                                      special == SpecialTokens::kPlain, add_special, out, error);
    });
  }

  // CallText on `call(variables, &busy, &out, &error)`.
  template <typename Out, typename Call>
  auto CallTemplate(const ChatRequest& request, const Call& call) const
      -> absl::StatusOr<decltype(Take(Out()))> {
    FRESHET_ASSIGN_OR_RETURN(const std::string variables, Variables(request));
    bool busy = false;
    auto result = CallText<Out>(
        [&](Out* out, FreshetBytes* error) { return call(variables, &busy, out, error); });
    if (busy) return absl::UnavailableError(result.status().message());
    return result;
  }

  // What the template sees, as one JSON object.
  absl::StatusOr<std::string> Variables(const ChatRequest& request) const {
    if (Template(request) == nullptr) {
      return FailedPrecondition(
          "the model has no chat template (chat_template.jinja, or "
          "chat_template in tokenizer_config.json)");
    }
    const size_t bytes = request.messages.size() + request.tools.size() + request.kwargs.size();
    if (bytes > request.max_bytes) {
      return InvalidArgument("the conversation has ", bytes, " bytes, want at most ",
                             request.max_bytes);
    }
    std::string variables =
        StrCat("{\"messages\":", request.messages, ",\"tools\":", request.tools,
               ",\"documents\":null,\"kwargs\":", request.kwargs,
               ",\"add_generation_prompt\":", request.add_generation_prompt ? "true" : "false");
    for (const auto& [name, token] : parts_.named) {
      variables += StrCat(",\"", name, "\":", nlohmann::json(token).dump());
    }
    return variables + "}";
  }
  static FreshetRenderOptions RenderOptions(const ChatRequest& request) {
    return {request.continue_final_message,
            absl::ToUnixSeconds(request.now),
            kTemplateSteps,
            request.max_bytes,
            kTemplateBytes,
            static_cast<uint64_t>(absl::ToInt64Milliseconds(kTemplateTimeout))};
  }

  std::optional<int32_t> NamedId(const char* name) const {
    const auto found = parts_.named.find(name);
    return found == parts_.named.end() ? std::nullopt : TokenId(*parts_.tokenizer, found->second);
  }

  const FreshetTemplate* Template(const ChatRequest& request) const {
    const bool tools = parts_.tool_template != nullptr && request.tools != "null";
    return tools ? parts_.tool_template.get() : parts_.chat_template.get();
  }

  const TokenizerParts parts_;
  const int32_t vocab_size_;
};

const std::string* Find(const std::vector<TokenizerFile>& files, std::string_view name) {
  for (const TokenizerFile& file : files) {
    if (file.name == name) return &file.content;
  }
  return nullptr;
}

absl::StatusOr<TokenizerHandle> ParseLibraryTokenizer(const std::string& json,
                                                      const std::string& path) {
  FreshetTokenizer* parsed = nullptr;
  FreshetBytes error = {};
  if (!freshet_tokenizer_parse(Data(json), json.size(), &parsed, &error)) {
    return InvalidArgument(path, ": ", Take(error));
  }
  TokenizerHandle tokenizer(parsed);
  const uint32_t size = freshet_tokenizer_vocab_size(parsed);
  if (size == 0) return InvalidArgument(path, ": the vocabulary is empty");
  if (size > kMaxVocabSize) {
    return InvalidArgument(path, ": has id ", size - 1, ", want at most ", kMaxVocabSize - 1);
  }
  return tokenizer;
}

absl::StatusOr<TemplateHandle> ParseTemplate(const std::string& source, const std::string& path) {
  FreshetTemplate* parsed = nullptr;
  FreshetBytes error = {};
  if (!freshet_template_parse(Data(source), source.size(), &parsed, &error)) {
    return InvalidArgument(path, ": chat template: ", Take(error));
  }
  return TemplateHandle(parsed);
}

// A member that is a string, or an object with `content`; nullopt if absent or null.
absl::StatusOr<std::optional<std::string>> NamedToken(const nlohmann::json& config,
                                                      const char* name, const std::string& path) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return std::nullopt;
  const nlohmann::json content =
      found->is_object() ? found->value("content", nlohmann::json()) : *found;
  if (!content.is_string()) {
    return InvalidArgument(path, ": ", name, " is ", JsonExcerpt(*found), ", want a string");
  }
  return content.get<std::string>();
}

// The template in tokenizer_config.json: a string, which is the default one, or a list of named
// ones; nullopt if there is none of that name.
std::optional<std::string> TemplateInConfig(const nlohmann::json& config, const char* name) {
  const nlohmann::json member = config.value("chat_template", nlohmann::json());
  if (member.is_string() && name == std::string_view("default")) return member.get<std::string>();
  if (!member.is_array()) return std::nullopt;
  for (const nlohmann::json& entry : member) {
    if (!entry.is_object() || entry.value("name", nlohmann::json()) != name) continue;
    const nlohmann::json source = entry.value("template", nlohmann::json());
    if (source.is_string()) return source.get<std::string>();
  }
  return std::nullopt;
}

// Tokens of added_tokens_decoder must be those of tokenizer.json; transformers would add others.
absl::Status CheckAddedTokens(const nlohmann::json& config, const FreshetTokenizer& tokenizer,
                              const std::string& path) {
  const nlohmann::json added = config.value("added_tokens_decoder", nlohmann::json());
  if (!added.is_object()) return absl::OkStatus();
  for (const auto& [id, entry] : added.items()) {
    const nlohmann::json content =
        entry.is_object() ? entry.value("content", nlohmann::json()) : nlohmann::json();
    if (!content.is_string()) continue;
    const std::optional<int32_t> found = TokenId(tokenizer, content.get<std::string>());
    if (found.has_value() && StrCat(*found) == id) continue;
    return InvalidArgument(path, ": added_tokens_decoder has ", JsonExcerpt(content), " with id ",
                           id.substr(0, 20), ", tokenizer.json ",
                           found.has_value() ? StrCat("with id ", *found) : "does not have it",
                           "; save the tokenizer again with transformers");
  }
  return absl::OkStatus();
}

// Reads tokenizer_config.json into `parts`, whose tokenizer is set.
absl::Status ReadConfig(const std::string& content, const std::string& path,
                        TokenizerParts& parts) {
  FRESHET_ASSIGN_OR_RETURN(const nlohmann::json config, ParseJson(content, path));
  if (!config.is_object()) {
    return InvalidArgument(path, ": is ", JsonExcerpt(config), ", want an object");
  }
  FRESHET_RETURN_IF_ERROR(CheckAddedTokens(config, *parts.tokenizer, path));
  for (const char* name : kNamedTokens) {
    FRESHET_ASSIGN_OR_RETURN(std::optional<std::string> token, NamedToken(config, name, path));
    if (!token.has_value()) continue;
    const bool needs_id = name == kNamedTokens[0] || name == kNamedTokens[1];
    if (needs_id && !TokenId(*parts.tokenizer, *token).has_value()) {
      return InvalidArgument(path, ": ", name, " ", JsonExcerpt(*token),
                             " is not in the vocabulary");
    }
    parts.named[name] = *std::move(token);
  }
  parts.adds_bos = config.value("add_bos_token", nlohmann::json()) == true;
  parts.adds_eos = config.value("add_eos_token", nlohmann::json()) == true;
  parts.adds_by_flag = config.contains("add_bos_token") || config.contains("add_eos_token");
  for (const auto& [name, handle] :
       {std::pair("default", &parts.chat_template), std::pair("tool_use", &parts.tool_template)}) {
    const std::optional<std::string> source = TemplateInConfig(config, name);
    if (!source.has_value()) continue;
    FRESHET_ASSIGN_OR_RETURN(*handle, ParseTemplate(*source, path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::vector<TokenizerFile> files,
                                                          const std::string& source) {
  const std::string path = StrCat(source, "/", kTokenizerJson);
  const std::string* json = Find(files, kTokenizerJson);
  if (json == nullptr) {
    return NotFound(source, ": there is no tokenizer.json (save a fast tokenizer there)");
  }
  TokenizerParts parts;
  FRESHET_ASSIGN_OR_RETURN(parts.tokenizer, ParseLibraryTokenizer(*json, path));
  if (const std::string* config = Find(files, kTokenizerConfig); config != nullptr) {
    FRESHET_RETURN_IF_ERROR(ReadConfig(*config, StrCat(source, "/", kTokenizerConfig), parts));
  }
  if (const std::string* own = Find(files, kChatTemplate); own != nullptr) {
    FRESHET_ASSIGN_OR_RETURN(parts.chat_template,
                             ParseTemplate(*own, StrCat(source, "/", kChatTemplate)));
    parts.tool_template = nullptr;
  }
  parts.files = std::move(files);
  return std::make_unique<LibraryTokenizer>(std::move(parts));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory,
                                                         const DataRoots& roots) {
  std::vector<TokenizerFile> files;
  for (const char* name :
       {kTokenizerJson, kTokenizerConfig, "special_tokens_map.json", kChatTemplate}) {
    const std::string path = StrCat(directory, "/", name);
    if (!roots.Exists(path)) continue;
    FRESHET_ASSIGN_OR_RETURN(std::string content, roots.ReadFile(path, kMaxFileBytes));
    files.push_back({name, std::move(content)});
  }
  return ParseTokenizer(std::move(files), directory);
}

}  // namespace freshet
