#ifndef FRESHET_SERVICES_SANDBOX_WORKER_INTERPRETER_FILE_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_INTERPRETER_FILE_H_

#include <string_view>

namespace freshet {

// The text of interpreter.py.
std::string_view InterpreterPy();

}  // namespace freshet

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_INTERPRETER_FILE_H_
