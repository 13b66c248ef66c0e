#ifndef FRESHET_DATASTORE_REDIS_TRAJECTORY_SCRIPTS_H_
#define FRESHET_DATASTORE_REDIS_TRAJECTORY_SCRIPTS_H_

#include "datastore/redis/redis_client.h"

// Server-side operations of RedisTrajectoryStore, embedded from scripts/*.lua at build time. Each
// file documents its arguments and reply.
namespace freshet::trajectory_scripts {

extern const RedisScript kPutPrompts;
extern const RedisScript kLeasePrompts;
extern const RedisScript kRenewLeases;
extern const RedisScript kReturnLease;
extern const RedisScript kFailLease;
extern const RedisScript kPutSamples;
extern const RedisScript kCountGeneration;
extern const RedisScript kSpendCall;
extern const RedisScript kLeaseRows;
extern const RedisScript kPutRows;
extern const RedisScript kEndRow;
extern const RedisScript kRevokeWorker;
extern const RedisScript kOpenEpoch;
extern const RedisScript kNextBatch;
extern const RedisScript kReadSamples;
extern const RedisScript kCommitStep;
extern const RedisScript kMarkDurable;
extern const RedisScript kDropCorrupt;
extern const RedisScript kRecordResume;
extern const RedisScript kSweep;
extern const RedisScript kCollect;
extern const RedisScript kStats;
extern const RedisScript kExplain;
extern const RedisScript kCursor;
extern const RedisScript kReadLedger;
extern const RedisScript kTrimLedger;
extern const RedisScript kPackLedger;
extern const RedisScript kPutEvaluation;
extern const RedisScript kEvaluate;
extern const RedisScript kCreate;

}  // namespace freshet::trajectory_scripts

#endif  // FRESHET_DATASTORE_REDIS_TRAJECTORY_SCRIPTS_H_
