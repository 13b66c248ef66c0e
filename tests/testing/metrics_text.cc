#include "tests/testing/metrics_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

namespace freshet {
namespace {

constexpr size_t kMaxValuesPerLabel = 100;

// All allowed labels. Each must have few values.
const std::set<std::string>& KnownLabels() {
  static const auto* labels = new std::set<std::string>{
      "component", "limit",       "task",      "cache",     "cause",       "device",       "edge",
      "end",       "environment", "eval_name", "grpc_code", "grpc_method", "grpc_service", "job",
      "kind",      "le",          "name",      "outcome",   "phase",       "pool",         "queue",
      "reason",    "result",      "role",      "route",     "state",       "version"};
  return *labels;
}

// Name parts that are a type or a unit other than a base unit.
const std::set<std::string>& BadWords() {
  static const auto* words = new std::set<std::string>{
      "s",           "ms",      "us",        "ns",        "sec",          "secs",
      "min",         "minutes", "hours",     "days",      "milliseconds", "microseconds",
      "nanoseconds", "b",       "kb",        "mb",        "gb",           "kib",
      "mib",         "gib",     "kilobytes", "megabytes", "bits",         "percent",
      "pct",         "gauge",   "counter",   "histogram", "summary",      "metric"};
  return *words;
}

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsNameChar(char c) { return IsLower(c) || (c >= '0' && c <= '9') || c == '_'; }

bool IsName(const std::string& text) {
  return !text.empty() && IsLower(text[0]) && std::all_of(text.begin(), text.end(), IsNameChar);
}

std::vector<std::string> Words(const std::string& name) {
  std::vector<std::string> words;
  std::istringstream stream(name);
  for (std::string word; std::getline(stream, word, '_');) words.push_back(word);
  return words;
}

std::optional<double> ReadNumber(const std::string& text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "Nan" || text == "NaN") return std::nan("");
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return value;
}

bool Contains(const MetricLabels& all, const MetricLabels& some) {
  return std::all_of(some.begin(), some.end(), [&all](const auto& label) {
    const auto found = all.find(label.first);
    return found != all.end() && found->second == label.second;
  });
}

MetricLabels WithoutLe(MetricLabels labels) {
  labels.erase("le");
  return labels;
}

std::string Show(const MetricLabels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) text += (text.empty() ? "" : ",") + name + "=" + value;
  return "{" + text + "}";
}

}  // namespace

MetricsText::MetricsText(const std::string& text) {
  if (text.empty() || text.back() != '\n') Problem("text", "does not end with a line feed");
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) TakeLine(line);
  for (const auto& [name, family] : families_) CheckFamily(name, family);
}

void MetricsText::TakeLine(const std::string& line) {
  if (line.empty()) return;
  if (line[0] == '#') return TakeComment(line);
  TakeSeries(line);
}

void MetricsText::TakeComment(const std::string& line) {
  std::istringstream stream(line);
  std::string hash, keyword, name, rest;
  stream >> hash >> keyword >> name;
  std::getline(stream >> std::ws, rest);
  if (keyword != "HELP" && keyword != "TYPE") return;
  Family& family = families_[name];
  std::string& field = keyword == "HELP" ? family.help : family.type;
  if (!field.empty()) Problem(name, "a second " + keyword);
  if (!family.series.empty()) Problem(name, keyword + " after its series");
  field = rest;
}

bool MetricsText::ReadLabels(const std::string& line, size_t& at, MetricLabels& labels) {
  ++at;  // skip '{'
  while (at < line.size() && line[at] != '}') {
    const size_t equals = line.find("=\"", at);
    if (equals == std::string::npos) return false;
    const std::string name = line.substr(at, equals - at);
    std::string value;
    for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
      if (line[at] == '\\' && ++at == line.size()) return false;
      value += line[at];
    }
    if (at == line.size() || !IsName(name) || !labels.emplace(name, value).second) return false;
    ++at;
    if (at < line.size() && line[at] == ',') ++at;
  }
  return at < line.size() && ++at > 0;
}

void MetricsText::TakeSeries(const std::string& line) {
  size_t at = line.find_first_of("{ ");
  const std::string name = line.substr(0, at);
  Series series;
  if (at == std::string::npos || (line[at] == '{' && !ReadLabels(line, at, series.labels)) ||
      at >= line.size() || line[at] != ' ') {
    return Problem(name, "a line that cannot be read: " + line);
  }
  const std::optional<double> value = ReadNumber(line.substr(at + 1));
  if (!value.has_value()) return Problem(name, "no number: " + line);
  series.value = *value;
  std::string family_name;
  Family* family = FamilyOf(name, family_name);
  if (family == nullptr) return Problem(name, "a series without HELP and TYPE before it");
  if (open_ != family_name) {
    if (!open_.empty()) families_[open_].closed = true;
    if (family->closed) Problem(name, "its series do not stand together");
    open_ = family_name;
  }
  std::vector<Series>& all = family->series[name];
  for (const Series& other : all) {
    if (other.labels == series.labels) Problem(name, "twice with labels " + Show(series.labels));
  }
  all.push_back(std::move(series));
}

MetricsText::Family* MetricsText::FamilyOf(const std::string& name, std::string& family) {
  const auto exact = families_.find(name);
  if (exact != families_.end() && exact->second.type != "histogram") {
    family = name;
    return &exact->second;
  }
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    family = name.substr(0, name.size() - suffix.size());
    const auto found = families_.find(family);
    if (found != families_.end() && found->second.type == "histogram") return &found->second;
  }
  return nullptr;
}

void MetricsText::CheckFamily(const std::string& name, const Family& family) {
  static const std::set<std::string> kTypes = {"counter", "gauge", "histogram"};
  if (family.help.empty()) Problem(name, "no HELP");
  if (!kTypes.contains(family.type)) Problem(name, "TYPE is \"" + family.type + "\"");
  CheckName(name, family.type);
  CheckLabels(name, family);
  if (family.type == "histogram") CheckHistogram(name, family);
  for (const auto& [series_name, all] : family.series) {
    for (const Series& series : all) {
      if (family.type == "gauge") continue;
      // The sum of a histogram may be negative, as rewards may.
      if (!std::isfinite(series.value) || (series.value < 0 && !series_name.ends_with("_sum"))) {
        Problem(series_name, "counts " + std::to_string(series.value));
      }
    }
  }
}

void MetricsText::CheckName(const std::string& name, const std::string& type) {
  if (!IsName(name)) Problem(name, "a name is lower-case letters, digits and '_'");
  if (!name.starts_with("freshet_") && !name.starts_with("process_")) {
    Problem(name, "begins neither with freshet_ nor with process_");
  }
  if (name.ends_with("_total") != (type == "counter")) {
    Problem(name, "counters end with _total, and nothing else does");
  }
  for (const char* suffix : {"_bucket", "_count", "_sum"}) {
    if (name.ends_with(suffix)) Problem(name, "ends as the series of a histogram do");
  }
  for (const std::string& word : Words(name)) {
    if (BadWords().contains(word)) Problem(name, "\"" + word + "\" does not belong into a name");
  }
}

void MetricsText::CheckLabels(const std::string& name, const Family& family) {
  std::map<std::string, std::set<std::string>> values;
  for (const auto& [series_name, all] : family.series) {
    for (const Series& series : all) {
      for (const auto& [label, value] : series.labels) {
        values[label].insert(value);
        if (!KnownLabels().contains(label)) Problem(name, "label \"" + label + "\" is not known");
        if (value.empty()) Problem(name, "label \"" + label + "\" has no value");
        if (value.size() > 128) Problem(name, "label \"" + label + "\" has a long value");
        if (label == "le" && !series_name.ends_with("_bucket")) Problem(name, "a label le");
      }
    }
  }
  for (const auto& [label, different] : values) {
    if (different.size() > kMaxValuesPerLabel) {
      Problem(name, "label \"" + label + "\" has " + std::to_string(different.size()) + " values");
    }
  }
}

void MetricsText::CheckHistogram(const std::string& name, const Family& family) {
  std::map<MetricLabels, std::vector<std::pair<double, double>>> buckets;  // (bound, count)
  const auto found = family.series.find(name + "_bucket");
  if (found != family.series.end()) {
    for (const Series& series : found->second) {
      const auto le = series.labels.find("le");
      const auto bound = le == series.labels.end() ? std::nullopt : ReadNumber(le->second);
      if (!bound.has_value()) return Problem(name, "a bucket without bound");
      buckets[WithoutLe(series.labels)].emplace_back(*bound, series.value);
    }
  }
  for (auto& [labels, all] : buckets) {
    std::sort(all.begin(), all.end());
    const std::optional<double> count = Find(name + "_count", labels);
    if (!count.has_value() || !Find(name + "_sum", labels).has_value()) {
      Problem(name, "no _count or no _sum with labels " + Show(labels));
      continue;
    }
    if (!std::isinf(all.back().first) || all.back().second != *count) {
      Problem(name, "the last bucket is not the count");
    }
    for (size_t i = 1; i < all.size(); ++i) {
      if (all[i].second < all[i - 1].second) Problem(name, "its buckets fall");
    }
  }
}

std::optional<double> MetricsText::Find(const std::string& name, const MetricLabels& labels) const {
  for (const auto& [family_name, family] : families_) {
    const auto found = family.series.find(name);
    if (found == family.series.end()) continue;
    for (const Series& series : found->second) {
      if (series.labels == labels) return series.value;
    }
  }
  return std::nullopt;
}

std::optional<double> MetricsText::Sum(const std::string& name, const MetricLabels& labels) const {
  std::optional<double> sum;
  for (const auto& [family_name, family] : families_) {
    const auto found = family.series.find(name);
    if (found == family.series.end()) continue;
    for (const Series& series : found->second) {
      if (Contains(series.labels, labels)) sum = sum.value_or(0) + series.value;
    }
  }
  return sum;
}

}  // namespace freshet
