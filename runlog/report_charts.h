#ifndef FRESHET_RUNLOG_REPORT_CHARTS_H_
#define FRESHET_RUNLOG_REPORT_CHARTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "runlog/metrics_log.h"

namespace freshet {

// All charts of a report, as consecutive <figure> elements. `bound`: the staleness bound, if known.
std::string RenderCharts(const MetricsHistory& surviving, std::optional<int64_t> bound);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_REPORT_CHARTS_H_
