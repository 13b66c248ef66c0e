#ifndef FRESHET_SERVICES_SANDBOX_WORKER_LANGUAGES_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_LANGUAGES_H_

#include <string>
#include <string_view>
#include <vector>

namespace freshet::sandbox {

// How programs of a language are run.
struct Language {
  std::string name;
  std::string file;  // with the program's text
  // Absolute path and arguments; a word "FOLDER" is replaced with the path of the built folder.
  std::vector<std::string> compile;  // empty: not compiled
  std::vector<std::string> run;      // empty: in the warm Python process
  // Its processes reserve more addresses than memory.
  bool reserves_addresses = false;
};

// "python", "cpp", "nodejs" and "bash". Null: the language is unknown.
const Language* FindLanguage(std::string_view name);
const std::vector<Language>& Languages();

// Whether the language's programs exist on this machine.
bool IsInstalled(const Language& language, const std::string& python);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_LANGUAGES_H_
