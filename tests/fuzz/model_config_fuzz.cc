// A config.json, which is also read as a generation_config.json: an accepted one has a layout and
// is accepted again as it is written into checkpoints.
#include <cstdint>
#include <string_view>

#include "base/log.h"
#include "model/model_config.h"
#include "model/parameter_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto config = freshet::ParseModelConfig(text, "config.json");
  if (!config.ok()) return 0;
  FRESHET_CHECK(config->Errors().empty());
  FRESHET_CHECK(freshet::ParseModelConfig(config->ToJson(), "written").ok());
  freshet::MergeGenerationConfig(text, "generation_config.json", *config).IgnoreError();
  // A layout has an entry for every weight.
  if (config->num_hidden_layers * (config->num_experts + 1) > 1000) return 0;
  const freshet::ParameterLayout layout = freshet::MakeParameterLayout(*config);
  FRESHET_CHECK(layout.num_parameters > 0 && layout.num_elements >= layout.num_parameters);
  return 0;
}
