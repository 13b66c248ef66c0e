#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_PROTOCOL_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_PROTOCOL_H_

#include <vector>

#include "base/policy_version.h"
#include "rollout/server_engine/server_protocol.h"

namespace freshet {

// vLLM 0.32, started as in its supervise.sh. Weights are loaded between two steps of the server,
// while its samples are frozen; the spans of their answers tell the versions.
const ServerProtocol& VllmProtocol();

// The steps before and after new weights, between which the server generates nothing.
ControlStep PauseVllm(bool recompute_kv);
std::vector<ControlStep> ResumeVllm(const PolicyVersion& policy, bool recompute_kv);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_PROTOCOL_H_
