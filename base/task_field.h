#ifndef FRESHET_BASE_TASK_FIELD_H_
#define FRESHET_BASE_TASK_FIELD_H_

#include <map>
#include <string>

namespace freshet {

// The field of a row that names its task, in jobs with `tasks`.
inline constexpr char kTaskField[] = "task";

// The task of a row with these fields; "" if they name none. Pure and thread-safe.
inline std::string TaskOfRow(const std::map<std::string, std::string>& fields) {
  const auto task = fields.find(kTaskField);
  return task == fields.end() ? "" : task->second;
}

}  // namespace freshet

#endif  // FRESHET_BASE_TASK_FIELD_H_
