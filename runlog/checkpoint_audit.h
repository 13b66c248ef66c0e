#ifndef FRESHET_RUNLOG_CHECKPOINT_AUDIT_H_
#define FRESHET_RUNLOG_CHECKPOINT_AUDIT_H_

#include <cstdint>
#include <string>

#include "runlog/ledger_history.h"
#include "runlog/violations.h"

namespace freshet {

struct CheckpointAudit {
  int64_t checkpoints = 0;
  int64_t files = 0;
};

// Checks every checkpoints/step-N and step-N.epoch-E of a run folder against its manifest.json and
// the history: the manifest's digest, its SHA-256 against the durable row of the same lineage and
// version, and the size and SHA-256 of every listed file. Ignores other folders.
CheckpointAudit AuditCheckpoints(const std::string& run_dir, const LedgerHistory& history,
                                 Violations& violations);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_CHECKPOINT_AUDIT_H_
