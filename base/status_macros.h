#ifndef FRESHET_BASE_STATUS_MACROS_H_
#define FRESHET_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function if it is not OK.
#define FRESHET_RETURN_IF_ERROR(expr)      \
  do {                                     \
    absl::Status freshet_status_ = (expr); \
    if (!freshet_status_.ok()) {           \
      return freshet_status_;              \
    }                                      \
  } while (false)

#define FRESHET_CONCAT_INNER_(a, b) a##b
#define FRESHET_CONCAT_(a, b) FRESHET_CONCAT_INNER_(a, b)

// Evaluates `expr`, a StatusOr<T>. Returns its status on error, otherwise assigns the value to
// `lhs` (which may be a declaration).
#define FRESHET_ASSIGN_OR_RETURN(lhs, expr) \
  FRESHET_ASSIGN_OR_RETURN_IMPL_(FRESHET_CONCAT_(freshet_statusor_, __LINE__), lhs, expr)
#define FRESHET_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) {                                     \
    return tmp.status();                               \
  }                                                    \
  lhs = std::move(tmp).value()

#endif  // FRESHET_BASE_STATUS_MACROS_H_
