#ifndef FRESHET_CLI_CLIENT_LEDGER_EXPORT_H_
#define FRESHET_CLI_CLIENT_LEDGER_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "cli/client/job_client.h"

namespace freshet {

// Writes a cluster job's ledger and resolved job file into the existing folder `run_dir`, as
// required by the verifier of run folders. DATA_LOSS for a row that is not a single line.
absl::Status ExportLedger(JobClient& client, const std::string& job_id, const std::string& run_dir);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_LEDGER_EXPORT_H_
