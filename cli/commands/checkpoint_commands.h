#ifndef FRESHET_CLI_COMMANDS_CHECKPOINT_COMMANDS_H_
#define FRESHET_CLI_COMMANDS_CHECKPOINT_COMMANDS_H_

#include "cli/client/session.h"

namespace freshet {

// Writes a job's ledger and resolved job file into the new folder `folder`, as read by `ledger
// verify` and other checkers. Returns the exit code; on error the folder is removed.
int ExportJobLedger(const ConnectionFlags& connection, const std::string& job_id,
                    const std::string& folder);

// Adds checkpoint list and export. Arguments as for AddSubmitCommands.
void AddCheckpointCommands(const Command& app, ConnectionFlags& connection);

// ledger verify for a cluster job: downloads its ledger into a temporary run folder and verifies
// that. Returns the exit code; 3 if no server was named and the default one is unreachable, because
// then the argument was more likely meant as a folder.
int VerifyJobLedger(const ConnectionFlags& connection, const std::string& job_id);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_CHECKPOINT_COMMANDS_H_
