#include "services/local/job_setup.h"

#include <vector>

#include "controller/jobs/loss_check.h"
#include "controller/jobs/store_setup.h"
#include "env_workers/environment.h"
#include "rollout/rollout_setup.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// The options of an environment that Freshet has itself; a row's fields may still change them.
absl::Status CheckEnvironment(const JobSpec& spec) {
  if (!spec.has_environment() || spec.environment().type() == "grpc") return absl::OkStatus();
  const auto& options = spec.environment().options();
  const absl::Status status = BuiltinEnvironments().CheckOptions(spec.environment().type(),
                                                                 {options.begin(), options.end()});
  return status.ok() ? status : InvalidArgument("environment.", Message(status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobSetup>> PrepareJob(const JobSpec& spec, const KeyPlaces& places,
                                                     const RemoteScorerFactory& remote) {
  auto setup = std::make_unique<JobSetup>();
  setup->spec = spec;
  const std::vector<Fault> faults = CheckLoss(spec, places, setup->loss);
  if (!faults.empty()) return InvalidArgument(FormatFaults(faults));
  FRESHET_ASSIGN_OR_RETURN(setup->model, OpenModel(spec));
  const ModelSetup& model = setup->model;
  FRESHET_ASSIGN_OR_RETURN(setup->data, OpenDatasets(spec));
  FRESHET_ASSIGN_OR_RETURN(setup->scorer, MakeJobScorer(spec, remote));
  FRESHET_RETURN_IF_ERROR(CheckEnvironment(spec));
  setup->sampling = MakeSampling(spec, model.config, *model.tokenizer);
  setup->eval_sampling = MakeEvalSampling(spec, model.config, *model.tokenizer);
  setup->store = MakeStoreOptions(spec, spec.name());
  FRESHET_RETURN_IF_ERROR(setup->store.Validate());
  FRESHET_ASSIGN_OR_RETURN(setup->prompts, CheckRows(spec, setup->data, *model.tokenizer,
                                                     model.config.max_position_embeddings));
  return setup;
}

}  // namespace freshet
