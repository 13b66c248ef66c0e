#ifndef FRESHET_JOB_JOB_OVERRIDES_H_
#define FRESHET_JOB_JOB_OVERRIDES_H_

#include <string>
#include <vector>

#include "job/config_error.h"
#include "job/yaml_tree.h"

namespace freshet {

// Applies the `a.b=c` arguments of --set to `root`, a map or null, in order; later ones win. A path
// component is a key, a map entry's name or a list index (an index equal to the list's size
// appends). Text keys take all of `c` literally; numbers and booleans are read as in the file;
// blocks, lists and maps are YAML flow style ("{low: 0.2}"); `null` removes them. Unknown names are
// reported later, when the tree is read.
std::vector<ConfigError> ApplyOverrides(const std::vector<std::string>& overrides, YamlNode& root);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_OVERRIDES_H_
