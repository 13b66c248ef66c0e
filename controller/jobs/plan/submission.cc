#include "controller/jobs/plan/submission.h"

#include <utility>

#include "base/str_cat.h"
#include "controller/jobs/plan/service_check.h"
#include "dataset/dataset_setup.h"
#include "job/job_mode.h"
#include "job/job_parser.h"
#include "job/job_yaml.h"
#include "job/loss_setup.h"

namespace freshet {
namespace {

CheckedSubmission Refuse(const std::string& file, std::string message) {
  CheckedSubmission checked;
  checked.errors.push_back({file, 0, "", std::move(message)});
  return checked;
}

}  // namespace

CheckedSubmission CheckSubmission(const Submission& submission, const DataRoots& roots) {
  const std::string file = submission.file_name.empty() ? "job" : submission.file_name;
  const bool has_spec = submission.spec != nullptr;
  if (has_spec == !submission.yaml.empty()) {
    return Refuse(file, has_spec ? "give either the text of a job file or a spec, not both"
                                 : "the job is empty; give the text of a job file or a spec");
  }
  if (submission.overrides.size() > kMaxOverrides) {
    return Refuse("--set", StrCat(submission.overrides.size(), " overrides are more than ",
                                  kMaxOverrides, "; put them into the job file"));
  }
  JobResult result = ParseJob(has_spec ? WriteJobYaml(*submission.spec) : submission.yaml, file,
                              submission.overrides, submission.policy);
  CheckedSubmission checked;
  checked.spec = std::move(result.spec);
  checked.errors = std::move(result.errors);
  const auto add = [&checked](std::vector<ConfigError> errors) {
    for (ConfigError& error : errors) checked.errors.push_back(std::move(error));
  };
  if (checked.errors.empty()) {
    LossSpec loss;
    add(CheckLoss(checked.spec, result.places, loss));
    add(CheckMode(checked.spec, result.places, JobMode::kCluster));
    add(CheckServices(checked.spec, result.places));
  }
  if (checked.errors.empty()) {
    const auto data = OpenDatasets(checked.spec, roots);
    if (!data.ok()) checked.errors.push_back(result.places.At("dataset", Message(data.status())));
  }
  SortConfigErrors(checked.errors);
  return checked;
}

}  // namespace freshet
