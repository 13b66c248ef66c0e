#include "controller/jobs/driver/job_inputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/eval_sets.h"
#include "model/bundle_proto.h"
#include "model/kv_cache_size.h"

namespace freshet {
namespace {

// Per reply, well below the gRPC message limit.
constexpr size_t kMaxReplyBytes = size_t{8} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const JobInputs>> OpenJobInputs(const job::v1::JobSpec& spec,
                                                               trainer::v1::ModelBundle bundle,
                                                               const DataRoots& roots) {
  auto inputs = std::make_shared<JobInputs>();
  FRESHET_ASSIGN_OR_RETURN(ModelSetup model, OpenModelBundle(spec, FromProto(bundle)));
  inputs->tokenizer = std::move(model.tokenizer);
  FRESHET_ASSIGN_OR_RETURN(inputs->data, OpenDatasets(spec, roots));
  FRESHET_ASSIGN_OR_RETURN(inputs->bounds, CheckRows(spec, inputs->data, *inputs->tokenizer,
                                                     model.config.max_position_embeddings));
  FRESHET_RETURN_IF_ERROR(CheckKvCacheBytes(spec, model.config, inputs->bounds.longest));
  inputs->model = std::make_shared<const trainer::v1::ModelBundle>(std::move(bundle));
  return inputs;
}

RowSource TrainingRows(const JobInputs& inputs) {
  const JobDatasets& data = inputs.data;
  // The warm-up uses no rows that appear while it runs: they are not checked for it.
  return {data.train.get(),
          data.growing == nullptr ? data.train->size() : data.growing->first_size()};
}

absl::StatusOr<RowSource> HeldOutRowsOf(const job::v1::JobSpec& spec, const JobInputs& inputs,
                                        std::string_view eval_set) {
  const std::vector<job::v1::EvalSet> sets = EvalSets(spec);
  for (size_t i = 0; i < sets.size(); ++i) {
    if (!eval_set.empty() && sets[i].name() != eval_set) continue;
    const Dataset& rows = *inputs.data.held_out[i];
    return RowSource{&rows, std::min(sets[i].rows(), rows.size())};
  }
  return NotFound("eval_set: the job has no evaluation set '", eval_set, "'");
}

absl::StatusOr<std::vector<trajectory::v1::DatasetRow>> FetchRows(const RowSource& source,
                                                                  int64_t first, int64_t count) {
  const auto& [data, total] = source;
  if (first < 0 || first > total) {
    return StatusOf(absl::StatusCode::kOutOfRange, "first: ", first, " is not between 0 and ",
                    total);
  }
  if (count < 0 || count > kMaxRowsPerFetch) {
    return InvalidArgument("count: ", count, " is not between 0 and ", kMaxRowsPerFetch);
  }
  std::vector<trajectory::v1::DatasetRow> rows;
  size_t bytes = 0;
  for (int64_t i = first; i < std::min(first + count, total) && bytes < kMaxReplyBytes; ++i) {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow row, data->Get(i));
    trajectory::v1::DatasetRow proto;
    proto.set_prompt(std::move(row.prompt));
    for (auto& [name, value] : row.attributes) {
      (*proto.mutable_attributes())[name] = std::move(value);
    }
    proto.set_where(data->Where(i));
    bytes += proto.ByteSizeLong();
    rows.push_back(std::move(proto));
  }
  return rows;
}

}  // namespace freshet
