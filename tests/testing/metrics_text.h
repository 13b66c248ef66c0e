#ifndef FRESHET_TESTS_TESTING_METRICS_TEXT_H_
#define FRESHET_TESTS_TESTING_METRICS_TEXT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace freshet {

using MetricLabels = std::map<std::string, std::string>;

// Strict parser and linter for Prometheus' text format. Checks syntax, HELP and TYPE, metric names
// (base units, _total on counters only, no type in the name), label names against a fixed list, the
// number of values per label, duplicate series and histogram consistency. Stricter than `promtool
// check metrics`.
class MetricsText {
 public:
  explicit MetricsText(const std::string& text);

  // One "NAME: problem" line each; empty for a valid text.
  const std::vector<std::string>& problems() const { return problems_; }
  // Value of a series, or nullopt if absent. Names as in the text: "x_count", "x_bucket".
  std::optional<double> Find(const std::string& name, const MetricLabels& labels = {}) const;
  // Sum over the series of `name` that have all of `labels`; nullopt if there are none.
  std::optional<double> Sum(const std::string& name, const MetricLabels& labels = {}) const;
  bool Has(const std::string& name) const { return Sum(name).has_value(); }

 private:
  struct Series {
    MetricLabels labels;
    double value = 0;
  };
  struct Family {
    std::string help;
    std::string type;
    bool closed = false;                                // a series of another family followed
    std::map<std::string, std::vector<Series>> series;  // by name: x_bucket, x_sum, x_count
  };

  void TakeLine(const std::string& line);
  void TakeComment(const std::string& line);
  void TakeSeries(const std::string& line);
  // Parses "{LABELS} VALUE" from position `at`. Returns false on a syntax error.
  static bool ReadLabels(const std::string& line, size_t& at, MetricLabels& labels);
  // Family of the series `name`, or null.
  Family* FamilyOf(const std::string& name, std::string& family);
  void CheckFamily(const std::string& name, const Family& family);
  void CheckName(const std::string& name, const std::string& type);
  void CheckLabels(const std::string& name, const Family& family);
  void CheckHistogram(const std::string& name, const Family& family);
  void Problem(const std::string& name, const std::string& what) {
    problems_.push_back(name + ": " + what);
  }

  std::map<std::string, Family> families_;
  std::string open_;  // family of the last series
  std::vector<std::string> problems_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_METRICS_TEXT_H_
