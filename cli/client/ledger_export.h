#ifndef FRESHET_CLI_CLIENT_LEDGER_EXPORT_H_
#define FRESHET_CLI_CLIENT_LEDGER_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "cli/client/job_client.h"

namespace freshet {

// Writes the ledger of a job of the cluster, and its resolved job file, into the folder `run_dir`,
// which exists: what the verifier of run folders needs. A row that is no single line is DATA_LOSS.
absl::Status ExportLedger(JobClient& client, const std::string& job_id, const std::string& run_dir);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_LEDGER_EXPORT_H_
