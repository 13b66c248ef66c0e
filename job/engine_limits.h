#ifndef FRESHET_JOB_ENGINE_LIMITS_H_
#define FRESHET_JOB_ENGINE_LIMITS_H_

namespace freshet {

// Limits of inference servers that both the rules of jobs and the engines check.

constexpr double kMinVllmTemperature = 0.01;  // above 0; the server raises lower ones

}  // namespace freshet

#endif  // FRESHET_JOB_ENGINE_LIMITS_H_
