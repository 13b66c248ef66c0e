#include "services/sandbox/worker/languages.h"

#include <unistd.h>

#include <algorithm>

namespace freshet::sandbox {

const std::vector<Language>& Languages() {
  static const auto& languages =
      *new std::vector<Language>{{"python", "main.py", {}, {}, false},
                                 {"cpp",
                                  "main.cpp",
                                  {"/usr/bin/g++", "-std=c++20", "-O2", "-o", "main", "main.cpp"},
                                  {"FOLDER/main"},
                                  false},
                                 {"nodejs", "main.js", {}, {"/usr/bin/node", "main.js"}, true},
                                 {"bash", "main.sh", {}, {"/bin/bash", "main.sh"}, false}};
  return languages;
}

const Language* FindLanguage(std::string_view name) {
  const auto found = std::ranges::find(Languages(), name, &Language::name);
  return found == Languages().end() ? nullptr : &*found;
}

bool IsInstalled(const Language& language, const std::string& python) {
  const std::string* program = &python;
  if (!language.compile.empty()) {
    program = &language.compile.front();
  } else if (!language.run.empty()) {
    program = &language.run.front();
  }
  return !program->empty() && ::access(program->c_str(), X_OK) == 0;
}

}  // namespace freshet::sandbox
