#include "job/scalar_value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace freshet {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) {
    return std::nullopt;  // rejects inf and nan
  }
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// Words that some YAML readers do not read as text.
bool IsReserved(std::string_view text) {
  constexpr std::array kReserved = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  const std::string lower = absl::AsciiStrToLower({text.data(), text.size()});
  return std::find(kReserved.begin(), kReserved.end(), lower) != kReserved.end();
}

}  // namespace

const char* ScalarTypeName(FieldDescriptor::CppType type) {
  switch (type) {
    case FieldDescriptor::CPPTYPE_INT64:
      return "an integer";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    default:
      return "text";
  }
}

bool StoreScalar(std::string_view text, const FieldDescriptor& field, ProtoMessage& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const bool add = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const auto value = ParseNumber<int64_t>(text);
      if (!value) return false;
      add ? reflection.AddInt64(&message, &field, *value)
          : reflection.SetInt64(&message, &field, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const auto value = ParseNumber<double>(text);
      if (!value) return false;
      add ? reflection.AddDouble(&message, &field, *value)
          : reflection.SetDouble(&message, &field, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      if (text != "true" && text != "false") return false;
      add ? reflection.AddBool(&message, &field, text == "true")
          : reflection.SetBool(&message, &field, text == "true");
      return true;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      add ? reflection.AddString(&message, &field, std::string(text))
          : reflection.SetString(&message, &field, std::string(text));
      return true;
    }
    default:
      return false;
  }
}

std::string QuoteText(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (!text.empty() && text.size() <= 60 &&
      std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
      std::all_of(text.begin(), text.end(), is_plain) && !IsReserved(text)) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += absl::StrFormat("\\x%02x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace freshet
