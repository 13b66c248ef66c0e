#ifndef FRESHET_LOCAL_CURATION_FILE_H_
#define FRESHET_LOCAL_CURATION_FILE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "datastore/memory/in_memory_trajectory_store.h"

namespace freshet {

// The file of a checkpoint that has the store's CurationState, which would otherwise be lost with
// the process (curation_blob.h).
inline constexpr char kCurationFile[] = "curation.bin";

// Name and bytes of the file. Logs how many successes there was no room for.
std::pair<std::string, std::string> MakeCurationFile(InMemoryTrajectoryStore& store);

// Restores the state in the checkpoint's file, if there is one; checkpoints of jobs that curate
// nothing have none. Errors name the file: DATA_LOSS if it is malformed, INVALID_ARGUMENT if it
// does not fit the store, UNAVAILABLE if it cannot be read.
absl::Status RestoreCurationFile(const std::string& checkpoint, InMemoryTrajectoryStore& store);

}  // namespace freshet

#endif  // FRESHET_LOCAL_CURATION_FILE_H_
