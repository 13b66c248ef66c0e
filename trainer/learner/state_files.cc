#include "trainer/learner/state_files.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/model_weights.h"
#include "trainer/checkpoint/checkpoint.h"

namespace freshet {
namespace {

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> OpenOptimizer(
    const std::string& checkpoint_dir) {
  return SafetensorsFile::Open(checkpoint_dir + "/optimizer.safetensors");
}

// A fp32 tensor of optimizer.safetensors.
absl::StatusOr<std::string_view> FindFloats(const SafetensorsFile& file, const std::string& name,
                                            const std::vector<int64_t>& shape) {
  const TensorInfo* info = file.Find(name);
  if (info == nullptr || info->dtype != Dtype::kF32 || info->shape != shape) {
    return DataLoss(file.path(), ": tensor ", name, " is missing or misshapen");
  }
  return file.Data(*info);
}

absl::Status CopyFloats(const SafetensorsFile& file, const std::string& name,
                        const std::vector<int64_t>& shape, float* to) {
  FRESHET_ASSIGN_OR_RETURN(const std::string_view data, FindFloats(file, name, shape));
  std::memcpy(to, data.data(), data.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadColumn(StateBlocks& state, StateColumn column,
                        const std::vector<ShardLayout::Block>& blocks, const at::Tensor& arena) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    FRESHET_ASSIGN_OR_RETURN(const at::Tensor block, state.Read(column, b));
    arena.narrow(0, blocks[b].begin, blocks[b].size).copy_(block);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StateFiles>> StateFiles::OfModel(
    std::shared_ptr<const ModelFiles> files, const ParameterLayout& layout) {
  FRESHET_RETURN_IF_ERROR(CheckShapes(*files, layout));
  return std::shared_ptr<StateFiles>(new StateFiles(std::move(files), layout));
}

absl::StatusOr<std::shared_ptr<StateFiles>> StateFiles::OfMasters(const std::string& checkpoint_dir,
                                                                  const ParameterLayout& layout) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const ModelFiles> opened,
                           ModelFiles::Open(checkpoint_dir));
  FRESHET_ASSIGN_OR_RETURN(auto files, OfModel(std::move(opened), layout));
  const bool rounded = std::ranges::any_of(layout.entries, [&](const ParameterEntry& entry) {
    return files->files_->Find(entry.name)->dtype != Dtype::kF32;
  });
  if (!rounded) return files;
  FRESHET_ASSIGN_OR_RETURN(files->masters_, OpenOptimizer(checkpoint_dir));
  for (const ParameterEntry& entry : layout.entries) {
    FRESHET_RETURN_IF_ERROR(
        FindFloats(*files->masters_, kMasterPrefix + entry.name, entry.shape).status());
  }
  return files;
}

absl::Status StateFiles::AddMoments(const std::string& checkpoint_dir, int64_t optimizer_steps,
                                    std::vector<Parameter> parameters) {
  FRESHET_ASSIGN_OR_RETURN(auto moments, OpenOptimizer(checkpoint_dir));
  for (const Parameter& parameter : parameters) {
    for (const char* const prefix : {kExpAvgPrefix, kExpAvgSqPrefix}) {
      FRESHET_RETURN_IF_ERROR(
          FindFloats(*moments, prefix + parameter.range.name, parameter.shape).status());
    }
  }
  moments_ = std::move(moments);
  parameters_ = std::move(parameters);
  optimizer_steps_ = optimizer_steps;
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> StateFiles::Read(StateColumn column, size_t block) {
  const ShardLayout::Block& range = blocks_[block];
  const at::Tensor numbers = at::zeros({range.size}, at::kFloat);
  float* const data = numbers.mutable_data_ptr<float>();
  const auto within = [&range](int64_t begin) {
    return begin >= range.begin && begin < range.begin + range.size;
  };
  if (column != StateColumn::kMasters) {
    const char* const prefix = column == StateColumn::kExpAvg ? kExpAvgPrefix : kExpAvgSqPrefix;
    for (const Parameter& parameter : parameters_) {
      const int64_t begin = parameter.range.begin;
      if (!within(begin)) continue;
      FRESHET_RETURN_IF_ERROR(CopyFloats(*moments_, prefix + parameter.range.name, parameter.shape,
                                         data + (begin - range.begin)));
    }
    return numbers;
  }
  if (masters_ == nullptr) {
    FRESHET_RETURN_IF_ERROR(FillArena(*files_, layout_, numbers, range.begin));
    return numbers;
  }
  for (const ParameterEntry& entry : layout_.entries) {
    if (!within(entry.offset)) continue;
    FRESHET_RETURN_IF_ERROR(CopyFloats(*masters_, kMasterPrefix + entry.name, entry.shape,
                                       data + (entry.offset - range.begin)));
  }
  return numbers;
}

}  // namespace freshet
