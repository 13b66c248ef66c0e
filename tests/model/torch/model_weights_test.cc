#include "model/model_weights.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/dtype.h"
#include "model/safetensors.h"
#include "tests/model/test_directory.h"
#include "tests/testing/tiny_model.h"

namespace freshet {
namespace {

at::ScalarType ScalarTypeOf(Dtype dtype) {
  return dtype == Dtype::kF32 ? at::kFloat : dtype == Dtype::kBf16 ? at::kBFloat16 : at::kHalf;
}

TEST(FillArena, ConvertsEveryStoredFormatToFp32AndToBf16) {
  const ModelConfig config = TinyModel();
  const ParameterLayout layout = MakeParameterLayout(config);
  const at::Tensor numbers = at::linspace(-1, 1, layout.num_elements, at::kFloat);
  for (const Dtype stored : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    const TestDirectory dir;
    dir.Write("config.json", config.ToJson());
    const at::Tensor kept = numbers.to(ScalarTypeOf(stored));
    std::vector<TensorToWrite> tensors;
    for (const ParameterEntry& entry : layout.entries) {
      const at::Tensor part = kept.narrow(0, entry.offset, entry.size);
      tensors.push_back({entry.name, stored, entry.shape, part.const_data_ptr(), part.nbytes()});
    }
    ASSERT_TRUE(WriteSafetensors(dir.File("model.safetensors"), tensors, {}).ok());
    const auto files = ModelFiles::Open(dir.path());
    ASSERT_TRUE(files.ok()) << files.status();
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor flat = at::zeros({layout.num_elements}, type);
      ASSERT_TRUE(FillArena(**files, layout, flat).ok());
      // bf16 is rounded once, from what is stored.
      const at::Tensor expected = kept.to(at::kFloat).to(type);
      for (const ParameterEntry& entry : layout.entries) {
        EXPECT_TRUE(at::equal(flat.narrow(0, entry.offset, entry.size),
                              expected.narrow(0, entry.offset, entry.size)))
            << entry.name << " of " << DtypeName(stored) << " as " << type;
      }
    }
  }
}

}  // namespace
}  // namespace freshet
