#ifndef FRESHET_COLLECTIVE_GLOO_BACKEND_H_
#define FRESHET_COLLECTIVE_GLOO_BACKEND_H_

#include <memory>

#include "collective/communicator_backend.h"

namespace freshet {

// Groups of processes of one user on one host, by Gloo over the loopback interface, unencrypted.
// They find each other through a file in a folder of this user, freshet-groups-UID, in the folder
// for temporary files. Connect returns UNAVAILABLE also if that folder cannot be used. After
// `stop` or the timeout, a background thread keeps connecting until Gloo gives up. Thread-safe.
std::shared_ptr<CommunicatorBackend> MakeGlooBackend();

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_GLOO_BACKEND_H_
