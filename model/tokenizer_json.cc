#include "model/tokenizer_json.h"

#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr int kMaxSequenceDepth = 8;
constexpr size_t kMaxAddedTokenBytes = 4096;

// Location of an error: "PATH: normalizer".
struct Place {
  const std::string& source;
  const char* part;
};

absl::Status Unsupported(const Place& place, const std::string& type, const char* supported) {
  return InvalidArgument(place.source, ": ", place.part, " type ", type,
                         " is not supported; supported: ", supported);
}

absl::Status Malformed(const Place& place, const std::string& what) {
  return InvalidArgument(place.source, ": ", place.part, " ", what);
}

const Json& Member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(name);
  return it == object.end() ? kNull : *it;
}

absl::StatusOr<std::string> TypeOf(const Json& step, const Place& place) {
  const Json& type = Member(step, "type");
  if (!type.is_string()) return Malformed(place, "has no type");
  const auto name = type.get<std::string>();
  // A type name too long for a message is unknown anyway.
  return name.size() <= 40 ? name : JsonExcerpt(type);
}

absl::StatusOr<std::string> TextOf(const Json& step, const char* name, const Place& place) {
  const Json& value = Member(step, name);
  if (!value.is_string()) {
    return Malformed(place, StrCat(name, " is ", JsonExcerpt(value), ", want a string"));
  }
  return value.get<std::string>();
}

absl::StatusOr<bool> FlagOf(const Json& step, const char* name, bool fallback, const Place& place) {
  const Json& value = Member(step, name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) {
    return Malformed(place, StrCat(name, " is ", JsonExcerpt(value), ", want true or false"));
  }
  return value.get<bool>();
}

absl::StatusOr<int32_t> IdOf(const Json& value, const Place& place, const std::string& token) {
  if (!value.is_number_integer() || value < 0 || value > kMaxTokenId) {
    return Malformed(place, StrCat("id of '", token.substr(0, 60), "' is ", JsonExcerpt(value),
                                   ", want an integer from 0 to ", kMaxTokenId));
  }
  return value.get<int32_t>();
}

// The literal pattern of a Replace step. Regular expressions are rejected.
absl::StatusOr<std::string> PatternOf(const Json& step, const Place& place) {
  const Json& pattern = Member(step, "pattern");
  if (!Member(pattern, "Regex").is_null()) {
    return Malformed(place, "Replace with a Regex pattern is not supported; supported: String");
  }
  FRESHET_ASSIGN_OR_RETURN(std::string text, TextOf(pattern, "String", place));
  if (text.empty()) return Malformed(place, "Replace has an empty pattern");
  return text;
}

// Calls `visit` for every step of a possibly nested Sequence; `list_name` is the key of its steps.
template <typename Visit>
absl::Status VisitSteps(const Json& step, const char* list_name, const Place& place, int depth,
                        const Visit& visit) {
  FRESHET_ASSIGN_OR_RETURN(const std::string type, TypeOf(step, place));
  if (type != "Sequence") return visit(step, type);
  if (depth == kMaxSequenceDepth) {
    return Malformed(place, StrCat("nests Sequences deeper than ", kMaxSequenceDepth, " levels"));
  }
  const Json& list = Member(step, list_name);
  if (!list.is_array()) return Malformed(place, StrCat("Sequence has no list ", list_name));
  for (const Json& inner : list) {
    FRESHET_RETURN_IF_ERROR(VisitSteps(inner, list_name, place, depth + 1, visit));
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizer(const Json& json, const std::string& source, BpeSpec& spec) {
  if (json.is_null()) return absl::OkStatus();
  const Place place{source, "normalizer"};
  return VisitSteps(json, "normalizers", place, 0,
                    [&](const Json& step, const std::string& type) -> absl::Status {
                      NormalizeStep rule;
                      if (type == "Prepend") {
                        rule.kind = NormalizeStep::Kind::kPrepend;
                        FRESHET_ASSIGN_OR_RETURN(rule.content, TextOf(step, "prepend", place));
                      } else if (type == "Replace") {
                        FRESHET_ASSIGN_OR_RETURN(rule.pattern, PatternOf(step, place));
                        FRESHET_ASSIGN_OR_RETURN(rule.content, TextOf(step, "content", place));
                      } else {
                        return Unsupported(place, type, "Prepend, Replace, Sequence");
                      }
                      spec.normalizer.push_back(std::move(rule));
                      return absl::OkStatus();
                    });
}

absl::StatusOr<MetaspaceRule::Scheme> SchemeOf(const Json& step, const Place& place) {
  const Json& scheme = Member(step, "prepend_scheme");
  if (scheme.is_null()) {
    // Files older than prepend_scheme use add_prefix_space.
    FRESHET_ASSIGN_OR_RETURN(const bool add, FlagOf(step, "add_prefix_space", true, place));
    return add ? MetaspaceRule::Scheme::kAlways : MetaspaceRule::Scheme::kNever;
  }
  if (scheme == "first") return MetaspaceRule::Scheme::kFirst;
  if (scheme == "always") return MetaspaceRule::Scheme::kAlways;
  if (scheme == "never") return MetaspaceRule::Scheme::kNever;
  return Malformed(
      place, StrCat("prepend_scheme is ", JsonExcerpt(scheme), ", want first, always or never"));
}

absl::StatusOr<std::string> ReplacementOf(const Json& step, const Place& place) {
  FRESHET_ASSIGN_OR_RETURN(std::string text, TextOf(step, "replacement", place));
  if (text.empty()) return Malformed(place, "Metaspace has an empty replacement");
  return text;
}

absl::Status ReadPreTokenizer(const Json& json, const std::string& source, BpeSpec& spec) {
  if (json.is_null()) return absl::OkStatus();
  const Place place{source, "pre_tokenizer"};
  return VisitSteps(json, "pretokenizers", place, 0,
                    [&](const Json& step, const std::string& type) -> absl::Status {
                      if (type != "Metaspace")
                        return Unsupported(place, type, "Metaspace, Sequence");
                      MetaspaceRule rule;
                      FRESHET_ASSIGN_OR_RETURN(rule.replacement, ReplacementOf(step, place));
                      FRESHET_ASSIGN_OR_RETURN(rule.scheme, SchemeOf(step, place));
                      FRESHET_ASSIGN_OR_RETURN(rule.split, FlagOf(step, "split", true, place));
                      spec.pre_tokenizer.push_back(std::move(rule));
                      return absl::OkStatus();
                    });
}

absl::StatusOr<int64_t> CountOf(const Json& step, const char* name, const Place& place) {
  const Json& value = Member(step, name);
  if (!value.is_number_integer() || value < 0 || value > 1'000'000) {
    return Malformed(place, StrCat("Strip ", name, " is ", JsonExcerpt(value),
                                   ", want an integer from 0 to 1000000"));
  }
  return value.get<int64_t>();
}

absl::StatusOr<DecodeStep> ReadDecodeStep(const Json& step, const std::string& type,
                                          const Place& place) {
  DecodeStep rule;
  if (type == "Replace") {
    rule.kind = DecodeStep::Kind::kReplace;
    FRESHET_ASSIGN_OR_RETURN(rule.pattern, PatternOf(step, place));
    FRESHET_ASSIGN_OR_RETURN(rule.content, TextOf(step, "content", place));
  } else if (type == "ByteFallback") {
    rule.kind = DecodeStep::Kind::kByteFallback;
  } else if (type == "Fuse") {
    rule.kind = DecodeStep::Kind::kFuse;
  } else if (type == "Strip") {
    rule.kind = DecodeStep::Kind::kStrip;
    FRESHET_ASSIGN_OR_RETURN(rule.content, TextOf(step, "content", place));
    if (rule.content.empty()) return Malformed(place, "Strip has an empty content");
    FRESHET_ASSIGN_OR_RETURN(rule.start, CountOf(step, "start", place));
    FRESHET_ASSIGN_OR_RETURN(rule.stop, CountOf(step, "stop", place));
  } else if (type == "Metaspace") {
    rule.kind = DecodeStep::Kind::kMetaspace;
    FRESHET_ASSIGN_OR_RETURN(rule.pattern, ReplacementOf(step, place));
    FRESHET_ASSIGN_OR_RETURN(const MetaspaceRule::Scheme scheme, SchemeOf(step, place));
    rule.strip_first = scheme != MetaspaceRule::Scheme::kNever;
  } else {
    return Unsupported(place, type, "Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
  }
  return rule;
}

absl::Status ReadDecoder(const Json& json, const std::string& source, BpeSpec& spec) {
  if (json.is_null()) return absl::OkStatus();
  const Place place{source, "decoder"};
  spec.decoder.emplace();
  return VisitSteps(json, "decoders", place, 0,
                    [&](const Json& step, const std::string& type) -> absl::Status {
                      FRESHET_ASSIGN_OR_RETURN(DecodeStep rule, ReadDecodeStep(step, type, place));
                      spec.decoder->push_back(std::move(rule));
                      return absl::OkStatus();
                    });
}

// Ids of the special token `name` of a TemplateProcessing post-processor.
absl::Status AddTemplateIds(const Json& processor, const std::string& name, const Place& place,
                            std::vector<int32_t>& out) {
  const Json& ids = Member(Member(Member(processor, "special_tokens"), name.c_str()), "ids");
  if (!ids.is_array()) {
    return Malformed(place, StrCat("uses '", name.substr(0, 60), "' without special_tokens ids"));
  }
  for (const Json& value : ids) {
    FRESHET_ASSIGN_OR_RETURN(const int32_t id, IdOf(value, place, name));
    out.push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const Json& json, const std::string& source, BpeSpec& spec) {
  if (json.is_null()) return absl::OkStatus();
  const Place place{source, "post_processor"};
  FRESHET_ASSIGN_OR_RETURN(const std::string type, TypeOf(json, place));
  if (type != "TemplateProcessing") return Unsupported(place, type, "TemplateProcessing");
  const Json& single = Member(json, "single");
  if (!single.is_array()) return Malformed(place, "has no list single");
  int num_sequences = 0;
  for (const Json& item : single) {
    if (!Member(item, "Sequence").is_null()) {
      ++num_sequences;
      continue;
    }
    FRESHET_ASSIGN_OR_RETURN(const std::string name,
                             TextOf(Member(item, "SpecialToken"), "id", place));
    std::vector<int32_t>& out = num_sequences == 0 ? spec.prefix_ids : spec.suffix_ids;
    FRESHET_RETURN_IF_ERROR(AddTemplateIds(json, name, place, out));
  }
  if (num_sequences != 1) {
    return Malformed(place, StrCat("names the text ", num_sequences, " times, want once"));
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Json& json, const std::string& source, BpeSpec& spec) {
  if (json.is_null()) return absl::OkStatus();
  const Place place{source, "added_tokens"};
  if (!json.is_array()) return Malformed(place, "is not a list");
  for (const Json& item : json) {
    AddedToken token;
    FRESHET_ASSIGN_OR_RETURN(token.content, TextOf(item, "content", place));
    FRESHET_ASSIGN_OR_RETURN(token.id, IdOf(Member(item, "id"), place, token.content));
    if (token.content.size() > kMaxAddedTokenBytes) {
      return Malformed(place, StrCat("content of id ", token.id, " has ", token.content.size(),
                                     " bytes, want at most ", kMaxAddedTokenBytes));
    }
    FRESHET_ASSIGN_OR_RETURN(const bool single_word, FlagOf(item, "single_word", false, place));
    if (single_word) {
      return Malformed(place, StrCat("single_word of id ", token.id, " is not supported"));
    }
    FRESHET_ASSIGN_OR_RETURN(token.lstrip, FlagOf(item, "lstrip", false, place));
    FRESHET_ASSIGN_OR_RETURN(token.rstrip, FlagOf(item, "rstrip", false, place));
    FRESHET_ASSIGN_OR_RETURN(token.special, FlagOf(item, "special", false, place));
    FRESHET_ASSIGN_OR_RETURN(token.normalized, FlagOf(item, "normalized", !token.special, place));
    spec.added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// A merge is a pair of strings, or "LEFT RIGHT".
absl::Status ReadMerges(const Json& json, const Place& place, BpeSpec& spec) {
  if (!json.is_array()) return Malformed(place, "has no list merges");
  spec.merges.reserve(json.size());
  for (const Json& item : json) {
    const size_t rank = spec.merges.size();
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      spec.merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
      continue;
    }
    const std::string text = item.is_string() ? item.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return Malformed(
          place, StrCat("merge ", rank, " is ", JsonExcerpt(item), ", want a pair of strings"));
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& json, const std::string& source, BpeSpec& spec) {
  const Place place{source, "model"};
  if (!json.is_object()) return Malformed(place, "is missing");
  FRESHET_ASSIGN_OR_RETURN(const std::string type, TypeOf(json, place));
  if (type != "BPE") return Unsupported(place, type, "BPE");
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = Member(json, name);
    if (!value.is_null() && value != "" && value != 0) {
      return Malformed(place,
                       StrCat(name, " ", JsonExcerpt(value), " is not supported, want null"));
    }
  }
  if (!Member(json, "unk_token").is_null()) {
    FRESHET_ASSIGN_OR_RETURN(spec.unk_token, TextOf(json, "unk_token", place));
  }
  FRESHET_ASSIGN_OR_RETURN(spec.fuse_unk, FlagOf(json, "fuse_unk", false, place));
  FRESHET_ASSIGN_OR_RETURN(spec.byte_fallback, FlagOf(json, "byte_fallback", false, place));
  FRESHET_ASSIGN_OR_RETURN(spec.ignore_merges, FlagOf(json, "ignore_merges", false, place));
  const Json& vocab = Member(json, "vocab");
  if (!vocab.is_object()) return Malformed(place, "has no object vocab");
  spec.vocab.reserve(vocab.size());
  for (const auto& [text, id] : vocab.items()) {
    FRESHET_ASSIGN_OR_RETURN(spec.vocab[text], IdOf(id, place, text));
  }
  return ReadMerges(Member(json, "merges"), place, spec);
}

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view text, const std::string& source) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseJson(text, source));
  if (!json.is_object()) {
    return InvalidArgument(source, ": is ", JsonExcerpt(json), ", want an object");
  }
  BpeSpec spec;
  // Parse these first, so that unsupported kinds are reported before errors in details.
  FRESHET_RETURN_IF_ERROR(ReadNormalizer(Member(json, "normalizer"), source, spec));
  FRESHET_RETURN_IF_ERROR(ReadPreTokenizer(Member(json, "pre_tokenizer"), source, spec));
  FRESHET_RETURN_IF_ERROR(ReadDecoder(Member(json, "decoder"), source, spec));
  FRESHET_RETURN_IF_ERROR(ReadPostProcessor(Member(json, "post_processor"), source, spec));
  FRESHET_RETURN_IF_ERROR(ReadModel(Member(json, "model"), source, spec));
  FRESHET_RETURN_IF_ERROR(ReadAddedTokens(Member(json, "added_tokens"), source, spec));
  return spec;
}

absl::Status ParseTokenizerConfig(std::string_view text, const std::string& source, BpeSpec& spec) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseJson(text, source));
  if (!json.is_object()) {
    return InvalidArgument(source, ": is ", JsonExcerpt(json), ", want an object");
  }
  for (const auto& [name, token] :
       {std::pair("bos_token", &spec.bos_token), std::pair("eos_token", &spec.eos_token)}) {
    const Json& value = Member(json, name);
    const Json& content = value.is_object() ? Member(value, "content") : value;
    if (value.is_null()) continue;
    if (!content.is_string()) {
      return InvalidArgument(source, ": ", name, " is ", JsonExcerpt(value), ", want a string");
    }
    *token = content.get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace freshet
