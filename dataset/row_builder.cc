#include "dataset/row_builder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Fields = std::map<std::string, std::string>;
using OrderedJson = nlohmann::ordered_json;  // templates print names in the order of the file

constexpr size_t kMaxNamesShown = 8;
constexpr size_t kMaxNameBytes = 40;
constexpr std::array<std::array<std::string_view, 4>, 2> kAliasSets = {{
    {"question", "problem", "input", "prompt"},
    {"answer", "solution", "target", "ground_truth"},
}};

// Aliases of `field` in the row.
std::vector<std::string> AliasesIn(const Fields& fields, const std::string& field) {
  std::vector<std::string> found;
  for (const auto& set : kAliasSets) {
    if (std::find(set.begin(), set.end(), field) == set.end()) continue;
    for (const std::string_view name : set) {
      if (name != field && fields.count(std::string(name)) > 0) found.emplace_back(name);
    }
  }
  return found;
}

// Field names are untrusted: non-printable and non-ASCII bytes become '?'.
std::string Printable(const std::string& name) {
  std::string result = name.substr(0, kMaxNameBytes);
  for (char& c : result) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return name.size() > kMaxNameBytes ? result + "..." : result;
}

std::string ListNames(const Fields& fields) {
  if (fields.empty()) return "no fields";
  std::string result;
  size_t shown = 0;
  for (const auto& [name, value] : fields) {
    if (++shown > kMaxNamesShown) return StrCat(result, ", ...");
    result += StrCat(shown == 1 ? "" : ", ", Printable(name));
  }
  return result;
}

absl::StatusOr<OrderedJson> ParseList(const Fields& fields, const std::string& field) {
  absl::StatusOr<OrderedJson> list = ParseOrderedJson(fields.at(field), "JSON");
  if (list.ok() && list->is_array()) return list;
  return InvalidArgument("field '", field, "' is not a JSON list",
                         list.ok() ? "" : StrCat(": ", Message(list.status())));
}

}  // namespace

RowBuilder::RowBuilder(TextTemplate prompt, const job::v1::Dataset& dataset,
                       const std::vector<std::string>& required)
    : prompt_(std::move(prompt)),
      answer_(dataset.answer()),
      names_(dataset.fields().begin(), dataset.fields().end()),
      wanted_(prompt_.fields()) {
  if (dataset.has_chat()) chat_ = dataset.chat();
  if (!answer_.empty()) wanted_.push_back(answer_);
  if (chat_.has_value() && chat_->has_messages()) wanted_.push_back(chat_->messages());
  for (const auto& [name, in_row] : names_) wanted_.push_back(name);
  wanted_.insert(wanted_.end(), required.begin(), required.end());
}

absl::StatusOr<RowBuilder> RowBuilder::Create(const job::v1::Dataset& dataset,
                                              const std::vector<std::string>& required) {
  absl::StatusOr<TextTemplate> parsed = TextTemplate::Parse(dataset.prompt());
  if (!parsed.ok()) return InvalidArgument("dataset.prompt: ", Message(parsed.status()));
  return RowBuilder(*std::move(parsed), dataset, required);
}

absl::StatusOr<std::string> RowBuilder::Resolve(const std::string& field,
                                                const Fields& fields) const {
  const auto named = names_.find(field);
  const std::string& name = named == names_.end() ? field : named->second;
  const auto it = fields.find(name);
  if (it != fields.end()) return it->second;
  const std::vector<std::string> aliases =
      named == names_.end() ? AliasesIn(fields, name) : std::vector<std::string>();
  if (aliases.size() == 1) return fields.at(aliases.front());
  if (aliases.empty()) {
    return InvalidArgument("field '", name, "' is missing; the row has ", ListNames(fields));
  }
  return InvalidArgument("field '", name, "' is missing, and both '", aliases[0], "' and '",
                         aliases[1], "' could stand for it; name the one to use");
}

absl::StatusOr<std::string> RowBuilder::MakeConversation(const Fields& fields,
                                                         const std::string& text) const {
  OrderedJson messages =
      OrderedJson::array({OrderedJson::object({{"role", "user"}, {"content", text}})});
  if (chat_->has_messages()) {
    FRESHET_ASSIGN_OR_RETURN(messages, ParseList(fields, chat_->messages()));
    if (messages.empty()) return InvalidArgument("field '", chat_->messages(), "' is empty");
    for (const OrderedJson& message : messages) {
      if (message.is_object() && message.contains("role")) continue;
      return InvalidArgument("field '", chat_->messages(), "' has a message without a role");
    }
  }
  if (chat_->has_system() && messages.front()["role"] != "system") {
    messages.insert(messages.begin(),
                    OrderedJson::object({{"role", "system"}, {"content", chat_->system()}}));
  }
  OrderedJson conversation;
  conversation["messages"] = std::move(messages);
  if (chat_->has_tools() && fields.count(chat_->tools()) > 0) {
    FRESHET_ASSIGN_OR_RETURN(conversation["tools"], ParseList(fields, chat_->tools()));
  }
  return conversation.dump();
}

absl::StatusOr<DatasetRow> RowBuilder::Build(const Fields& fields) const {
  // Looks up every name in the original row, so that aliases do not affect each other.
  Fields resolved = fields;
  for (const std::string& field : wanted_) {
    FRESHET_ASSIGN_OR_RETURN(resolved[field], Resolve(field, fields));
  }
  DatasetRow row;
  FRESHET_ASSIGN_OR_RETURN(row.prompt, prompt_.Render(resolved));
  const bool has_messages = chat_.has_value() && chat_->has_messages();
  if (row.prompt.empty() && !has_messages) return InvalidArgument("the prompt is empty");
  if (chat_.has_value()) {
    FRESHET_ASSIGN_OR_RETURN(row.prompt, MakeConversation(resolved, row.prompt));
  }
  if (!answer_.empty()) resolved["answer"] = resolved[answer_];
  row.attributes = std::move(resolved);
  return row;
}

}  // namespace freshet
