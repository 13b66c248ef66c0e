#include "base/command_line.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>

#include "CLI/CLI.hpp"
#include "base/exit_code.h"
#include "base/str_cat.h"

namespace freshet {

Option Option::Required() const { return Option(option_->required()); }
Option Option::Needs(Option other) const { return Option(option_->needs(other.option_)); }
Option Option::Excludes(Option other) const { return Option(option_->excludes(other.option_)); }
template <typename T>
Option Option::Range(T low, T high) const {
  return Option(option_->check(CLI::Range(low, high)));
}
template Option Option::Range(int, int) const;
template Option Option::Range(int64_t, int64_t) const;
template Option Option::Range(double, double) const;
Option Option::Positive() const { return Option(option_->check(CLI::PositiveNumber)); }
Option Option::NotNegative() const { return Option(option_->check(CLI::NonNegativeNumber)); }
Option Option::OneOf(std::vector<std::string> words) const {
  return Option(option_->check(CLI::IsMember(std::move(words))));
}
Option Option::ExistingFolder() const { return Option(option_->check(CLI::ExistingDirectory)); }
Option Option::Check(std::function<std::string(const std::string&)> check) const {
  return Option(option_->check(std::move(check)));
}
Option Option::OneValueEach() const { return Option(option_->allow_extra_args(false)); }
Option Option::SplitAtCommas() const { return Option(option_->delimiter(',')); }
Option Option::Variable(const std::string& name) const { return Option(option_->envname(name)); }
Option Option::Group(const std::string& heading) const { return Option(option_->group(heading)); }
Option Option::ShowDefault() const { return Option(option_->capture_default_str()); }
bool Option::given() const { return option_->count() > 0; }

// What the handles refer to.
struct Command::State {
  State(const std::string& description, const std::string& program) : app(description, program) {}

  // CLI11 has one final callback per command.
  void Add(CLI::App* command, std::function<void()> action) {
    std::vector<std::function<void()>>& all = actions[command];
    if (all.empty()) {
      command->final_callback([&all] {
        for (const std::function<void()>& each : all) each();
      });
    }
    all.push_back(std::move(action));
  }

  CLI::App app;
  std::map<CLI::App*, std::vector<std::function<void()>>> actions;
  std::vector<std::shared_ptr<void>> kept;
  int exit_code = kExitDone;
};

Command Command::AddCommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help), state_);
}
void Command::RequireCommand() const { app_->require_subcommand(1); }

template <typename T>
Option Command::Add(const std::string& names, T& value, const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
template Option Command::Add(const std::string&, std::string&, const std::string&) const;
template Option Command::Add(const std::string&, int&, const std::string&) const;
template Option Command::Add(const std::string&, int64_t&, const std::string&) const;
template Option Command::Add(const std::string&, double&, const std::string&) const;
template Option Command::Add(const std::string&, std::vector<std::string>&,
                             const std::string&) const;
Option Command::AddFlag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}
void Command::AddVersionFlag(const std::string& text) const {
  app_->set_version_flag("--version", text);
}

void Command::KeepAlive(std::shared_ptr<void> value) const {
  state_->kept.push_back(std::move(value));
}
void Command::AfterParsing(std::function<absl::Status()> check) const {
  state_->Add(app_, [check = std::move(check)] {
    const absl::Status status = check();
    if (!status.ok()) throw CLI::ValidationError(Message(status));
  });
}
void Command::OnRun(std::function<int()> run) const {
  state_->Add(app_, [run = std::move(run), state = state_] { state->exit_code = run(); });
}

const std::string& Command::name() const { return app_->get_name(); }
bool Command::HasCommand(const std::string& name) const {
  const auto named = [&](const CLI::App* command) { return command->check_name(name); };
  return !app_->get_subcommands(named).empty();
}

CommandHelp Command::Describe() const {
  CommandHelp described{app_->get_name(), app_->get_description(), {}, {}};
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;
    CommandHelp::Option& added = described.options.emplace_back();
    for (const std::string& name : option->get_lnames()) added.flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) added.flags.push_back("-" + name);
    if (option->get_positional()) added.positional = option->get_name(/*positional=*/true);
    added.help = option->get_description();
  }
  for (CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; })) {
    described.commands.push_back(Command(command, state_).Describe());
  }
  return described;
}

CommandLine::CommandLine(const std::string& description, const std::string& program)
    : Command(nullptr, nullptr), owned_(std::make_unique<State>(description, program)) {
  app_ = &owned_->app;
  state_ = owned_.get();
  ExitWhenOutOfMemory();
}
CommandLine::~CommandLine() = default;

int CommandLine::Run(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? kExitDone : kExitCommandLine;
  }
  return state_->exit_code;
}

std::optional<int> CommandLine::Parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    app_->exit(request);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::fprintf(stderr, "%s: %s\n", name().c_str(), text.c_str());
    return kExitCommandLine;
  }
  return std::nullopt;
}

}  // namespace freshet
