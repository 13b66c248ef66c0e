#ifndef FRESHET_BASE_COMMAND_LINE_H_
#define FRESHET_BASE_COMMAND_LINE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

// CLI11 takes seconds to compile, so only command_line.cc includes it.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace freshet {

// A flag or a positional argument. A handle that is valid as long as its CommandLine; every method
// returns it. Values that fail a check are reported when parsed.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Required() const;
  Option Needs(Option other) const;
  Option Excludes(Option other) const;
  // T: int, int64_t or double. Both ends are allowed.
  template <typename T>
  Option Range(T low, T high) const;
  Option Positive() const;
  Option NotNegative() const;
  Option OneOf(std::vector<std::string> words) const;
  Option ExistingFolder() const;
  // `check` returns what is wrong with a value, "" for nothing.
  Option Check(std::function<std::string(const std::string&)> check) const;

  // For lists: a flag takes one value each time it is given, not all that follow.
  Option OneValueEach() const;
  // For lists: values may be joined by commas.
  Option SplitAtCommas() const;
  // The default, from an environment variable.
  Option Variable(const std::string& name) const;

  // The heading in the help.
  Option Group(const std::string& heading) const;
  Option Hidden() const { return Group(""); }
  // Shows the value at the time of the call as the default.
  Option ShowDefault() const;

  // Whether it was on the command line.
  bool given() const;

 private:
  CLI::Option* option_;
};

// What the help says about a command, without hidden flags.
struct CommandHelp {
  struct Option {
    std::vector<std::string> flags;  // such as "--help", "-h"
    std::string positional;          // "" for flags
    std::string help;
  };
  std::string name, help;
  std::vector<Option> options;
  std::vector<CommandHelp> commands;
};

// A command or the whole program. A handle that is valid as long as its CommandLine.
class Command {
 public:
  Command AddCommand(const std::string& name, const std::string& help) const;
  // The user must name one of the commands of this one.
  void RequireCommand() const;

  // Adds "--name", "-n,--name" or a positional "NAME" for `value`, which must outlive the parsing.
  // T: std::string, int, int64_t, double or std::vector<std::string>.
  template <typename T>
  Option Add(const std::string& names, T& value, const std::string& help = "") const;
  Option AddFlag(const std::string& names, bool& value, const std::string& help = "") const;
  void AddVersionFlag(const std::string& text) const;

  // A value that lives as long as the CommandLine.
  template <typename T>
  T& Keep(T value = T()) const {
    auto kept = std::make_shared<T>(std::move(value));
    KeepAlive(kept);
    return *kept;
  }

  // Runs after a command line with this command was parsed. Its error is shown like a wrong flag.
  void AfterParsing(std::function<absl::Status()> check) const;
  // Runs the command; returns the program's exit code.
  void OnRun(std::function<int()> run) const;

  const std::string& name() const;
  bool HasCommand(const std::string& name) const;
  CommandHelp Describe() const;

 protected:
  struct State;
  Command(CLI::App* app, State* state) : app_(app), state_(state) {}
  void KeepAlive(std::shared_ptr<void> value) const;

  CLI::App* app_;
  State* state_;
};

// The command line of a program, with --help. Its constructor calls ExitWhenOutOfMemory. Not
// thread-safe.
class CommandLine : public Command {
 public:
  CommandLine(const std::string& description, const std::string& program);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Parses and runs the command. Returns its exit code; kExitDone after --help or --version;
  // kExitCommandLine after an error, printed on stderr with a hint at --help.
  int Run(int argc, const char* const* argv);

  // Parses. Returns an exit code if the process must exit: kExitDone after --help or --version,
  // kExitCommandLine after an error, printed on stderr as one line "PROGRAM: ...".
  std::optional<int> Parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<State> owned_;
};

}  // namespace freshet

#endif  // FRESHET_BASE_COMMAND_LINE_H_
