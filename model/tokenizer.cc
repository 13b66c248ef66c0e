#include "model/tokenizer.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/bpe_tokenizer.h"
#include "model/tokenizer_json.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr char kTokenizerJson[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::vector<TokenizerFile> files,
                                                          const std::string& source) {
  const TokenizerFile* tokenizer = nullptr;
  const TokenizerFile* config = nullptr;
  for (const TokenizerFile& file : files) {
    if (file.name == kTokenizerJson) tokenizer = &file;
    if (file.name == kTokenizerConfig) config = &file;
  }
  if (tokenizer == nullptr) {
    return NotFound(source, ": there is no tokenizer.json (save a fast tokenizer there)");
  }
  const std::string path = StrCat(source, "/", kTokenizerJson);
  FRESHET_ASSIGN_OR_RETURN(BpeSpec spec, ParseTokenizerJson(tokenizer->content, path));
  if (config != nullptr) {
    FRESHET_RETURN_IF_ERROR(
        ParseTokenizerConfig(config->content, StrCat(source, "/", kTokenizerConfig), spec));
  }
  spec.files = std::move(files);
  return BpeTokenizer::Create(std::move(spec), path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory,
                                                         const DataRoots& roots) {
  std::vector<TokenizerFile> files;
  for (const char* name :
       {kTokenizerJson, kTokenizerConfig, "special_tokens_map.json", "chat_template.jinja"}) {
    const std::string path = StrCat(directory, "/", name);
    if (!roots.Exists(path)) continue;
    FRESHET_ASSIGN_OR_RETURN(std::string content, roots.ReadFile(path, kMaxFileBytes));
    files.push_back({name, std::move(content)});
  }
  return ParseTokenizer(std::move(files), directory);
}

}  // namespace freshet
