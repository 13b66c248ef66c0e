#ifndef FRESHET_TESTS_RUNLOG_MARKUP_CHECK_H_
#define FRESHET_TESTS_RUNLOG_MARKUP_CHECK_H_

#include <cctype>
#include <string>
#include <vector>

namespace freshet {

// What makes `markup` ill-formed as XML (tags unbalanced, attributes unquoted, stray < or &); empty
// when nothing does. Ignores a doctype and the contents of <style>.
inline std::string MarkupError(const std::string& markup) {
  std::vector<std::string> open;
  for (size_t at = 0; at < markup.size();) {
    if (markup[at] == '&') {
      const size_t end = markup.find(';', at);
      if (end == std::string::npos || end - at > 7) return "stray & at " + markup.substr(at, 30);
      at = end + 1;
      continue;
    }
    if (markup[at] != '<') {
      ++at;
      continue;
    }
    size_t end = at + 1;
    for (bool quoted = false; end < markup.size() && (quoted || markup[end] != '>'); ++end) {
      if (markup[end] == '"') quoted = !quoted;
      if (markup[end] == '<') return "stray < at " + markup.substr(end, 30);
    }
    if (end >= markup.size()) return "unfinished tag at " + markup.substr(at, 30);
    const std::string tag = markup.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.empty()) return "empty tag";
    if (tag[0] == '!' || tag.back() == '/') continue;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1))
        return "unexpected </" + tag.substr(1) + ">";
      open.pop_back();
      continue;
    }
    open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    for (size_t i = tag.find('='); i != std::string::npos; i = tag.find('=', i)) {
      if (i + 1 >= tag.size() || tag[i + 1] != '"') return "unquoted attribute in <" + tag + ">";
      i = tag.find('"', i + 2);
      if (i == std::string::npos) return "unfinished attribute in <" + tag + ">";
    }
    if (open.back() == "style") at = markup.find("</style>", at);
  }
  return open.empty() ? "" : "unclosed <" + open.back() + ">";
}

}  // namespace freshet

#endif  // FRESHET_TESTS_RUNLOG_MARKUP_CHECK_H_
