#include "cli/commands/completion.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// One command ("checkpoint list"; "" is the program) and its completions.
struct Completions {
  std::string path;
  std::string help;
  std::vector<std::pair<std::string, std::string>> children;  // name, help
  std::vector<std::pair<std::string, std::string>> flags;     // "--id", help
  std::vector<std::string> shells;                            // values of its first argument
  bool takes_job = false;
  bool takes_file = false;
};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void Collect(const CommandHelp& described, const std::string& path,
             std::vector<Completions>& commands) {
  Completions command;
  command.path = path;
  command.help = FirstLine(described.help);
  for (const CommandHelp::Option& option : described.options) {
    for (const std::string& flag : option.flags) {
      command.flags.emplace_back(flag, FirstLine(option.help));
    }
    const std::string& name = option.positional;
    command.takes_job =
        command.takes_job || (name == "JOB" && path != "validate" && path != "local");
    command.takes_file = command.takes_file || name == "FILE" || name == "RUN" || name == "DIR" ||
                         name == "MODEL" || (name == "JOB" && !command.takes_job);
    if (name == "SHELL") command.shells = {"bash", "zsh", "fish"};
  }
  for (const CommandHelp& child : described.commands) {
    command.children.emplace_back(child.name, FirstLine(child.help));
  }
  commands.push_back(std::move(command));
  for (const CommandHelp& child : described.commands) {
    Collect(child, path.empty() ? child.name : path + " " + child.name, commands);
  }
}

// Text in single quotes, safe in all three shells.
std::string Quoted(std::string_view text) {
  return StrCat("'", absl::StrReplaceAll({text.data(), text.size()}, {{"'", "'\\''"}}), "'");
}

std::string Words(const Completions& command) {
  std::string words;
  for (const auto& [name, help] : command.children) words += name + " ";
  for (const auto& [name, help] : command.flags) words += name + " ";
  for (const std::string& shell : command.shells) words += shell + " ";
  if (!words.empty()) words.pop_back();
  return words;
}

// A shell pattern that matches "PATH WORD" of every command; the path of a first word is empty.
std::string Known(const std::vector<Completions>& commands) {
  std::vector<std::string> known;
  for (const Completions& command : commands) {
    if (command.path.empty()) continue;
    known.push_back(
        Quoted((command.path.find(' ') == std::string::npos ? " " : "") + command.path));
  }
  return absl::StrJoin(known, "|");
}

constexpr const char* kJobs = "$(freshet list -o name 2>/dev/null)";

// The longest prefix of words that is a command decides; words starting with '-' are skipped.
std::string BashScript(const std::vector<Completions>& commands) {
  std::string text =
      "# bash completion of freshet: source <(freshet completion bash)\n"
      "_freshet() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} path= word words=\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$path $word\" in\n";
  text += "      " + Known(commands) + ") path=\"${path:+$path }$word\" ;;\n    esac\n  done\n";
  text += "  case \"$path\" in\n";
  for (const Completions& command : commands) {
    text += StrCat("    ", Quoted(command.path), ") words=", Quoted(Words(command)));
    if (command.takes_job) text += StrCat("; [[ $cur == -* ]] || words+=\" ", kJobs, "\"");
    text += " ;;\n";
  }
  return text +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
         "}\n"
         "complete -o default -F _freshet freshet\n";
}

std::string ZshScript(const std::vector<Completions>& commands) {
  std::string text =
      "#compdef freshet\n"
      "# zsh completion of freshet: source <(freshet completion zsh)\n"
      "_freshet() {\n"
      "  local cur=${words[CURRENT]} path_= word\n"
      "  local -a choices\n"
      "  for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
      "    case \"$path_ $word\" in\n";
  text += "      " + Known(commands) + ") path_=\"${path_:+$path_ }$word\" ;;\n    esac\n  done\n";
  text += "  case \"$path_\" in\n";
  const auto entry = [](const std::string& name, const std::string& help) {
    return " " + Quoted(name + ":" + absl::StrReplaceAll(help, {{":", ","}}));
  };
  for (const Completions& command : commands) {
    text += StrCat("    ", Quoted(command.path), ") choices=(");
    for (const auto& [name, help] : command.children) text += entry(name, help);
    for (const auto& [name, help] : command.flags) text += entry(name, help);
    for (const std::string& shell : command.shells) text += entry(shell, shell);
    if (command.takes_job) text += StrCat(" ", kJobs);
    text += " ) ;;\n";
  }
  return text +
         "  esac\n"
         "  _describe 'freshet' choices\n"
         "  _files\n"
         "}\n"
         "compdef _freshet freshet\n";
}

std::string FishScript(const std::vector<Completions>& commands) {
  std::string text =
      "# fish completion of freshet: freshet completion fish | source\n"
      "function __freshet_words\n"
      "  string match -v -- '-*' (commandline -opc)[2..-1]\n"
      "end\n"
      // Matches exactly these words, or these as a prefix.
      "function __freshet_exactly\n"
      "  test (string join ' ' (__freshet_words)) = \"$argv\"\n"
      "end\n"
      "function __freshet_within\n"
      "  set -l have (__freshet_words)\n"
      "  test (count $have) -ge (count $argv)\n"
      "  and test (string join ' ' $have[1..(count $argv)]) = \"$argv\"\n"
      "end\n";
  for (const Completions& command : commands) {
    const std::string at = Quoted(StrCat(
        command.children.empty() ? "__freshet_within " : "__freshet_exactly ", command.path));
    const auto add = [&](const std::string& what, const std::string& help) {
      text += StrCat("complete -c freshet -n ", at, " ", what, help.empty() ? "" : " -d ",
                     help.empty() ? "" : Quoted(help), "\n");
    };
    for (const auto& [name, help] : command.children) add("-f -a " + name, help);
    for (const auto& [name, help] : command.flags) {
      add(name.starts_with("--") ? "-l " + name.substr(2) : "-s " + name.substr(1), help);
    }
    for (const std::string& shell : command.shells) add("-f -a " + shell, "");
    if (command.takes_job) add("-f -a '(freshet list -o name 2>/dev/null)'", "job");
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CommandHelp& program, const std::string& shell) {
  std::vector<Completions> commands;
  Collect(program, "", commands);
  if (shell == "zsh") return ZshScript(commands);
  if (shell == "fish") return FishScript(commands);
  return BashScript(commands);
}

}  // namespace freshet
