#ifndef FRESHET_LOCAL_JOB_SETUP_H_
#define FRESHET_LOCAL_JOB_SETUP_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "dataset/dataset.h"
#include "dataset/dataset_setup.h"
#include "datastore/trajectory_store.h"
#include "job/config_error.h"
#include "job/job_schema.h"
#include "job/loss_spec.h"
#include "model/model_setup.h"
#include "rollout/engine/sampling.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/worker/reward_setup.h"

namespace freshet {

// Everything that a job file names, opened and checked, for a process that runs all roles.
struct JobSetup {
  JobSpec spec;
  ModelSetup model;
  JobDatasets data;
  PromptBounds prompts;
  std::unique_ptr<CompositeScorer> scorer;
  LossSpec loss;
  SamplingParams sampling;
  std::vector<SamplingParams> eval_sampling;  // by evaluation set
  StoreOptions store;
};

// Opens model, tokenizer and datasets, and checks every prompt. Writes nothing and opens no
// connection. `services` creates the scorers that ask services. Errors have one line per error,
// each naming the file or field and the fix.
absl::StatusOr<std::unique_ptr<JobSetup>> PrepareJob(
    const JobSpec& spec, const KeyPlaces& places,
    const ServiceScorers& services = UnconnectedScorers());

}  // namespace freshet

#endif  // FRESHET_LOCAL_JOB_SETUP_H_
