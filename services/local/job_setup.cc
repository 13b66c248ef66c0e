#include "services/local/job_setup.h"

#include <utility>
#include <vector>

#include "controller/jobs/loss_check.h"
#include "controller/jobs/service_check.h"
#include "controller/jobs/store_setup.h"
#include "rollout/rollout_setup.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<JobSetup>> PrepareJob(const JobSpec& spec, const KeyPlaces& places,
                                                     const RemoteScorerFactory& remote) {
  auto setup = std::make_unique<JobSetup>();
  setup->spec = spec;
  std::vector<Fault> faults = CheckLoss(spec, places, setup->loss);
  for (Fault& fault : CheckServices(spec, places)) faults.push_back(std::move(fault));
  SortFaults(faults);
  if (!faults.empty()) return InvalidArgument(FormatFaults(faults));
  FRESHET_ASSIGN_OR_RETURN(setup->model, OpenModel(spec, DataRoots::Unlimited()));
  const ModelSetup& model = setup->model;
  FRESHET_ASSIGN_OR_RETURN(setup->data, OpenDatasets(spec, DataRoots::Unlimited()));
  FRESHET_ASSIGN_OR_RETURN(setup->scorer, MakeJobScorer(spec, remote));
  setup->sampling = MakeSampling(spec, model.config, *model.tokenizer);
  setup->eval_sampling = MakeEvalSampling(spec, model.config, *model.tokenizer);
  setup->store = MakeStoreOptions(spec, spec.name());
  FRESHET_RETURN_IF_ERROR(setup->store.Validate());
  FRESHET_ASSIGN_OR_RETURN(setup->prompts, CheckRows(spec, setup->data, *model.tokenizer,
                                                     model.config.max_position_embeddings));
  return setup;
}

}  // namespace freshet
