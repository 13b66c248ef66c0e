#ifndef FRESHET_BASE_TEXT_TEMPLATE_H_
#define FRESHET_BASE_TEXT_TEMPLATE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// Text with {field} placeholders. A field name consists of ASCII letters, digits and '_' and does
// not start with a digit. "{{field}}" produces the literal "{field}"; other braces are literal.
// Inserted values are not expanded again. Thread-compatible: const methods may run concurrently.
class TextTemplate {
 public:
  // INVALID_ARGUMENT: longer than 1 MiB.
  static absl::StatusOr<TextTemplate> Parse(std::string_view text);

  // Distinct field names, in order of first use.
  const std::vector<std::string>& fields() const { return fields_; }

  // NOT_FOUND: `values` lacks a field; the message names the first one.
  absl::StatusOr<std::string> Render(const std::map<std::string, std::string>& values) const;

 private:
  struct Piece {
    bool is_field = false;
    std::string text;  // literal text or field name
  };
  void AddLiteral(std::string_view text);
  void AddField(std::string name);

  std::vector<Piece> pieces_;
  std::vector<std::string> fields_;
};

}  // namespace freshet

#endif  // FRESHET_BASE_TEXT_TEMPLATE_H_
