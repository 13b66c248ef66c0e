# cmake -DOUT=FILE.cc -DDIR=scripts -P embed_scripts.cmake
# Writes the trajectory store's scripts as constants: each is the parts that it needs, then its own
# file. A script that frees memory, takes none, or moves the job on runs at the memory limit too
# (allow-oom).
cmake_policy(VERSION 3.20)
set(none)
set(job job.lua)
set(groups ${job} groups.lua ends.lua curation.lua)
set(steps ${groups} steps.lua)
set(durability ${steps} durability.lua)
set(evaluation ${job} evaluation.lua)
set(table
  "PutPrompts|groups|put_prompts|deny"
  "LeasePrompts|groups|lease_prompts|deny"
  "RenewLeases|groups|renew_leases|allow"
  "ReturnLease|groups|return_lease|allow"
  "FailLease|groups|fail_lease|allow"
  "PutSamples|groups|put_samples|deny"
  "CountGeneration|job|count_generation|allow"
  "SpendCall|job|spend_call|allow"
  "LeaseRows|groups|lease_rows|allow"
  "PutRows|groups|put_rows|allow"
  "EndRow|groups|end_row|allow"
  "RevokeWorker|groups|revoke_worker|allow"
  "OpenEpoch|durability|open_epoch|allow"
  "NextBatch|durability|next_batch|allow"
  "ReadSamples|groups|read_samples|allow"
  "CommitStep|durability|commit_step|allow"
  "MarkDurable|durability|mark_durable|allow"
  "DropCorrupt|durability|drop_corrupt|allow"
  "RecordResume|job|record_resume|deny"
  "Sweep|groups|sweep|allow"
  "Collect|groups|collect|allow"
  "Stats|job|stats|deny"
  "Explain|steps|explain|allow"
  "Cursor|steps|cursor|deny"
  "ReadLedger|job|read_ledger|deny"
  "TrimLedger|job|trim_ledger|allow"
  "PackLedger|job|pack_ledger|allow"
  "PutEvaluation|evaluation|put_evaluation|deny"
  "Evaluate|evaluation|evaluate|allow"
  "Create|none|create|deny")
string(CONCAT code
  "#include \"datastore/redis/trajectory_scripts.h\"\n\n"
  "namespace freshet::trajectory_scripts {\n")
foreach(entry IN LISTS table)
  string(REPLACE "|" ";" columns "${entry}")
  list(GET columns 0 name)
  list(GET columns 1 parts)
  list(GET columns 2 file)
  list(GET columns 3 oom)
  set(text "")
  if(oom STREQUAL "allow")
    set(text "#!lua flags=allow-oom\n")
  endif()
  foreach(part ${${parts}} ${file}.lua)
    file(READ "${DIR}/${part}" source)
    string(APPEND text "${source}")
  endforeach()
  string(APPEND code
    "\nconst RedisScript k${name} = {\"${file}\", R\"__lua__(${text})__lua__\"};\n")
endforeach()
string(APPEND code "\n}  // namespace freshet::trajectory_scripts\n")
file(WRITE "${OUT}" "${code}")
