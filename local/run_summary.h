#ifndef FRESHET_LOCAL_RUN_SUMMARY_H_
#define FRESHET_LOCAL_RUN_SUMMARY_H_

#include <string>

#include "absl/status/status.h"
#include "datastore/trajectory_store.h"
#include "local/job_setup.h"
#include "runlog/display_format.h"

namespace freshet {

// Contents of the display before a run starts.
SetupView DescribeSetup(const JobSetup& setup, const std::string& run_dir, int64_t parameters,
                        int trainer_threads, const StoreOrigin& origin);

// Contents of the display at the end, read back from the run folder. `failure` OK: finished or
// interrupted.
SummaryView DescribeEnd(const JobSpec& spec, const std::string& run_dir,
                        const absl::Status& failure);

}  // namespace freshet

#endif  // FRESHET_LOCAL_RUN_SUMMARY_H_
