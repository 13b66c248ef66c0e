#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_PROTOCOL_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_PROTOCOL_H_

#include "rollout/server_engine/server_protocol.h"

namespace freshet {

// vLLM 0.32, started as in its supervise.sh. Weights are loaded between two steps of the server,
// while its samples are frozen; the spans of their answers tell the versions.
const ServerProtocol& VllmProtocol();

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_PROTOCOL_H_
