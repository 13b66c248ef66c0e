#ifndef FRESHET_SERVICES_LOCAL_JOB_SETUP_H_
#define FRESHET_SERVICES_LOCAL_JOB_SETUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/dataset/dataset.h"
#include "controller/job/fault.h"
#include "controller/job/job_schema.h"
#include "datastore/trajectory_store.h"
#include "model/model_config.h"
#include "model/model_files.h"
#include "model/tokenizer.h"
#include "rollout/sampling.h"
#include "services/reward/composite_scorer.h"
#include "trainer/learning_rate.h"
#include "trainer/loss_spec.h"

namespace freshet {

// Everything that a job file names, opened and checked: what the roles are made from.
struct JobSetup {
  JobSpec spec;
  ModelConfig model;
  std::unique_ptr<ModelFiles> model_files;  // null when the model starts from random weights
  std::unique_ptr<Tokenizer> tokenizer;
  DatasetSplit data;  // held_out is null without evaluation
  std::unique_ptr<CompositeScorer> scorer;
  LossSpec loss;
  SamplingParams sampling;
  SamplingParams eval_sampling;
  StoreOptions store;
  LearningRateSchedule schedule;
  int64_t max_prompt_tokens = 0;      // most that leaves room for the response
  int64_t longest_prompt_tokens = 0;  // of the training rows
};

// Pure part: the loss that the job's keys expand to, or the faults in them.
std::vector<Fault> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss);

// Opens model, tokenizer and datasets, and checks every prompt. Writes nothing.
// Errors have one line per fault, each naming file or field and the fix.
absl::StatusOr<std::unique_ptr<JobSetup>> PrepareJob(const JobSpec& spec, const KeyPlaces& places);

// Ids of a row's gold answer, ended by the end token if there is one. INVALID_ARGUMENT, beginning
// with `where`, without an answer or for one that cannot be encoded.
absl::StatusOr<std::vector<int32_t>> EncodeAnswer(const JobSetup& setup, const DatasetRow& row,
                                                  const std::string& where);

// Ids of a prompt as the model is to see it: with the special tokens that its tokenizer adds.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const JobSetup& setup, const std::string& text);

}  // namespace freshet

#endif  // FRESHET_SERVICES_LOCAL_JOB_SETUP_H_
