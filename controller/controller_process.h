#ifndef FRESHET_CONTROLLER_CONTROLLER_PROCESS_H_
#define FRESHET_CONTROLLER_CONTROLLER_PROCESS_H_

#include "controller/controller_role.h"

namespace freshet {

// main() of a controller process. Returns the exit code.
int RunControllerProcess(int argc, char** argv, const ControllerHooks& hooks = {});

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CONTROLLER_PROCESS_H_
