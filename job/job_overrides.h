#ifndef FRESHET_JOB_JOB_OVERRIDES_H_
#define FRESHET_JOB_JOB_OVERRIDES_H_

#include <string>
#include <vector>

#include "job/config_error.h"
#include "job/yaml_tree.h"

namespace freshet {

// Writes each `a.b=c` of --set into `root`, a map (or null), in order; a later one wins. A part of
// the path is a key, the name of a map's entry, or the index of a list's item (the number of items
// itself appends one). For a key that holds text, all of `c` is the text; a number or a truth
// value is read as in the file; blocks, lists and maps are YAML in flow style ("{low: 0.2}"), and
// `null` removes them. Names are not checked here: what the schema does not know is found when
// the tree is read.
std::vector<ConfigError> ApplyOverrides(const std::vector<std::string>& overrides, YamlNode& root);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_OVERRIDES_H_
