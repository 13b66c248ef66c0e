#include "local/job_setup.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/plan/service_check.h"
#include "controller/jobs/plan/store_setup.h"
#include "job/eval_sets.h"
#include "job/loss_setup.h"
#include "model/kv_cache_size.h"
#include "rollout/worker/rollout_setup.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<JobSetup>> PrepareJob(const JobSpec& spec, const KeyPlaces& places,
                                                     const ServiceScorers& services) {
  auto setup = std::make_unique<JobSetup>();
  setup->spec = spec;
  std::vector<ConfigError> errors = CheckLoss(spec, places, setup->loss);
  for (ConfigError& error : CheckServices(spec, places)) errors.push_back(std::move(error));
  SortConfigErrors(errors);
  if (!errors.empty()) return InvalidArgument(FormatConfigErrors(errors));
  FRESHET_ASSIGN_OR_RETURN(setup->model, OpenModel(spec, DataRoots::Unlimited()));
  const ModelSetup& model = setup->model;
  FRESHET_ASSIGN_OR_RETURN(setup->data, OpenDatasets(spec, DataRoots::Unlimited()));
  FRESHET_ASSIGN_OR_RETURN(setup->scorer, MakeCompositeScorer(spec.reward(), services));
  setup->sampling = MakeSampling(spec, model.config, *model.tokenizer);
  for (const job::v1::EvalSet& set : EvalSets(spec)) {
    setup->eval_sampling.push_back(MakeEvalSampling(spec, set, model.config, *model.tokenizer));
  }
  setup->store = MakeStoreOptions(spec, spec.name());
  FRESHET_RETURN_IF_ERROR(setup->store.Validate());
  FRESHET_ASSIGN_OR_RETURN(setup->prompts, CheckRows(spec, setup->data, *model.tokenizer,
                                                     model.config.max_position_embeddings));
  FRESHET_RETURN_IF_ERROR(CheckKvCacheBytes(spec, model.config, setup->prompts.longest));
  return setup;
}

}  // namespace freshet
