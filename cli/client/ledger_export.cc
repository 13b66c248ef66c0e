#include "cli/client/ledger_export.h"

#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/job_yaml.h"

namespace freshet {

absl::Status ExportLedger(JobClient& client, const std::string& job_id,
                          const std::string& run_dir) {
  FRESHET_ASSIGN_OR_RETURN(const job::v1::Job job, client.Get(job_id));
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically(run_dir + "/job.yaml", WriteJobYaml(job.spec())));
  FRESHET_ASSIGN_OR_RETURN(LineAppender ledger, LineAppender::Open(run_dir + "/ledger.jsonl"));
  return client.ReadLedger(job_id, [&](const job::v1::LedgerChunk& chunk) -> absl::Status {
    std::string lines;
    for (const std::string& row : chunk.rows()) {
      const size_t end = row.find('\n');
      if (end != std::string::npos && end + 1 != row.size()) {
        return DataLoss("the server sent a ledger row that is not a single line");
      }
      lines += row;
      if (end == std::string::npos) lines += '\n';
    }
    return ledger.Append(lines);
  });
}

}  // namespace freshet
