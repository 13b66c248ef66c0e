#ifndef FRESHET_ROLLOUT_OPENAI_BODY_MEMBERS_H_
#define FRESHET_ROLLOUT_OPENAI_BODY_MEMBERS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace freshet::openai {

// Keeps the order of members: a chat template may print it.
using Json = nlohmann::ordered_json;

// Reads typed members of a request's body. An absent or null member leaves the value as it is. The
// first error stays; later reads then do nothing. The object must outlive the reader.
class BodyMembers {
 public:
  explicit BodyMembers(const Json& object) : object_(object) {}

  // Null if the member is absent or null. The member then counts as known.
  const Json* Find(const std::string& name);

  void Read(const std::string& name, bool& value);
  void Read(const std::string& name, std::string& value);
  void Read(const std::string& name, double& value, double min, double max);
  void Read(const std::string& name, int32_t& value, int64_t min, int64_t max);
  void Read(const std::string& name, std::optional<int32_t>& value, int64_t min, int64_t max);
  void Read(const std::string& name, std::optional<uint64_t>& value);
  // An error unless the member is absent, null or `harmless`.
  void Refuse(const std::string& name, const Json& harmless = nullptr);
  // An error if a member that is not null is unknown: neither looked for before nor in `ignored`.
  void RefuseUnknown(const std::set<std::string>& ignored);

  void Fail(const std::string& name, const std::string& message);
  const absl::Status& status() const { return status_; }

 private:
  // Calls Fail with "is VALUE, want WANT".
  void FailValue(const std::string& name, const Json& value, const std::string& want);
  std::optional<int64_t> Int(const std::string& name, int64_t min, int64_t max);

  const Json& object_;
  std::set<std::string> known_;
  absl::Status status_;
};

// `value` as JSON, truncated to fit in a message.
std::string Excerpt(const Json& value);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_BODY_MEMBERS_H_
