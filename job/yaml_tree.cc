#include "job/yaml_tree.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace freshet {
namespace {

// Limits checked on the raw bytes, quoted text included: yaml-cpp's scanner keeps every token of an
// unclosed bracket in memory (150 bytes each), so such text is rejected before scanning.
constexpr int kMaxOpenBrackets = 1000;
constexpr size_t kMaxSeparators = 500000;

std::optional<YamlError> CheckBytes(std::string_view text) {
  if (text.size() > kMaxYamlBytes) {
    return YamlError{0, StrCat("is ", text.size(), " bytes; a job file has at most ", kMaxYamlBytes,
                               ", put rows into a jsonl file")};
  }
  int line = 1;
  int open = 0;
  size_t separators = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const size_t size = DecodeUtf8(text, i).size;
    if (size == 0 || (byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F) {
      return YamlError{line, StrCat("is not text: byte ", absl::Hex(byte, absl::kZeroPad2),
                                    " (hexadecimal) is not allowed in YAML")};
    }
    if (c == '\n') ++line;
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    if (open > kMaxOpenBrackets) {
      return YamlError{
          line, StrCat("more than ", kMaxOpenBrackets,
                       " brackets are open; a job file nests at most ", kMaxYamlDepth, " levels")};
    }
    if (c == ',' || c == '[' || c == '{') ++separators;
    if (separators > kMaxSeparators) {
      return YamlError{line, StrCat("more than ", kMaxSeparators,
                                    " commas and brackets; put rows into a jsonl file")};
    }
    i += size;
  }
  return std::nullopt;
}

// Exception that stops the parser: the only way out of its recursion.
class Refusal : public YAML::ParserException {
 public:
  using YAML::ParserException::ParserException;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Add(mark, {YamlNode::Kind::kNull, mark.line + 1, "", false, {}, {}});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw Refusal(mark, "aliases are not supported; write the value again");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& value) override {
    CheckTag(mark, tag);
    Add(mark, {YamlNode::Kind::kScalar, mark.line + 1, value, tag == "!", {}, {}});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    CheckTag(mark, tag);
    Open(mark, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    CheckTag(mark, tag);
    Open(mark, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct OpenNode {
    YamlNode node;
    std::optional<YamlEntry> entry;  // of a map: key read, value pending
  };

  // "" and "?" mean no tag; "!" marks a quoted scalar.
  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refusal(mark, "tags are not supported; remove the word with '!'");
    }
  }

  void Open(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().entry) {
      throw Refusal(mark, "a key must be text, not a list or a map");
    }
    if (open_.size() >= static_cast<size_t>(kMaxYamlDepth)) {
      throw Refusal(mark,
                    StrCat("nested more than ", kMaxYamlDepth, " levels deep; no key is so deep"));
    }
    OpenNode opened;
    opened.node.kind = kind;
    opened.node.line = mark.line + 1;
    open_.push_back(std::move(opened));
  }

  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Attach(std::move(node));
  }

  void Add(const YAML::Mark& mark, YamlNode node) {
    if (++num_values_ > kMaxYamlValues) {
      throw Refusal(mark,
                    StrCat("more than ", kMaxYamlValues, " values; put rows into a jsonl file"));
    }
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().entry) {
      if (node.kind != YamlNode::Kind::kScalar) {
        throw Refusal(mark, "a key must be text, and here it is missing");
      }
      open_.back().entry = YamlEntry{std::move(node.text), node.line, {}};
      return;
    }
    Attach(std::move(node));
  }

  void Attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().node.kind == YamlNode::Kind::kList) {
      open_.back().node.items.push_back(std::move(node));
    } else {
      open_.back().entry->value = std::move(node);
      open_.back().node.entries.push_back(*std::move(open_.back().entry));
      open_.back().entry.reset();
    }
  }

  YamlNode root_;
  std::vector<OpenNode> open_;
  size_t num_values_ = 0;
};

}  // namespace

YamlTree ParseYamlTree(std::string_view text) {
  YamlTree tree;
  if (std::optional<YamlError> error = CheckBytes(text)) {
    tree.error = std::move(error);
    return tree;
  }
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (parser.HandleNextDocument(builder)) {
      tree.root = builder.TakeRoot();
      TreeBuilder next;
      if (parser.HandleNextDocument(next)) {
        tree.error = YamlError{0, "holds several YAML documents; a job file is one, without '---'"};
      }
    }
  } catch (const Refusal& e) {
    tree.error = YamlError{e.mark.line + 1, e.msg};
  } catch (const YAML::Exception& e) {
    tree.error = YamlError{std::max(0, e.mark.line + 1), StrCat("is not valid YAML: ", e.msg)};
  } catch (const std::exception& e) {
    tree.error = YamlError{0, StrCat("cannot be read as YAML: ", e.what())};
  }
  if (tree.error) {
    tree.root = YamlNode{};
  }
  return tree;
}

}  // namespace freshet
