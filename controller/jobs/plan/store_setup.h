#ifndef FRESHET_CONTROLLER_JOBS_PLAN_STORE_SETUP_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_STORE_SETUP_H_

#include <string>

#include "datastore/trajectory_store.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Options of the trajectory store of a resolved job; `job` is its id. Pure; thread-safe.
StoreOptions MakeStoreOptions(const job::v1::JobSpec& spec, const std::string& job);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_STORE_SETUP_H_
