#include "controller/jobs/driver/job_inputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/bundle_proto.h"

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
  inputs->model = std::make_shared<const trainer::v1::ModelBundle>(std::move(bundle));
  return inputs;
}

int64_t NumRows(const job::v1::JobSpec& spec, const JobInputs& inputs, bool held_out) {
  if (!held_out) return inputs.data.train->size();
  if (inputs.data.held_out == nullptr) return 0;
  return std::min(spec.eval().rows(), inputs.data.held_out->size());
}

absl::StatusOr<std::vector<trajectory::v1::DatasetRow>> FetchRows(const job::v1::JobSpec& spec,
                                                                  const JobInputs& inputs,
                                                                  bool held_out, int64_t first,
                                                                  int64_t count) {
  const int64_t total = NumRows(spec, inputs, held_out);
  if (first < 0 || first > total) {
    return StatusOf(absl::StatusCode::kOutOfRange, "first: ", first, " is not between 0 and ",
                    total);
  }
  if (count < 0 || count > kMaxRowsPerFetch) {
    return InvalidArgument("count: ", count, " is not between 0 and ", kMaxRowsPerFetch);
  }
  const Dataset& data = held_out && total > 0 ? *inputs.data.held_out : *inputs.data.train;
  std::vector<trajectory::v1::DatasetRow> rows;
  size_t bytes = 0;
  for (int64_t i = first; i < std::min(first + count, total) && bytes < kMaxReplyBytes; ++i) {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow row, data.Get(i));
    trajectory::v1::DatasetRow proto;
    proto.set_prompt(std::move(row.prompt));
    for (auto& [name, value] : row.attributes) {
      (*proto.mutable_attributes())[name] = std::move(value);
    }
    proto.set_where(data.Where(i));
    bytes += proto.ByteSizeLong();
    rows.push_back(std::move(proto));
  }
  return rows;
}

}  // namespace freshet
