#ifndef FRESHET_BASE_TRACE_H_
#define FRESHET_BASE_TRACE_H_

#include <optional>
#include <string>
#include <string_view>

namespace freshet {

// W3C trace context of a sample. One sample is one trace; its id is derived from the sample's uid,
// so it need not be stored or passed along.
struct TraceContext {
  std::string trace_id;  // 32 lower-case hex digits, not all 0
  std::string span_id;   // 16 lower-case hex digits, not all 0; the caller's span
  bool sampled = false;  // each stage of the sample is logged
};

// The first 16 bytes of the SHA-256 of the uid.
std::string TraceIdOf(std::string_view uid);
// Whether the sample is in the logged share `ratio` (0 to 1). Depends only on the uid, so all roles
// choose the same samples.
bool IsTraced(std::string_view uid, double ratio);
// Log words for a sample: "trace=TRACE sample=UID".
std::string TraceWords(std::string_view uid);

// Trace context of sample `uid` for stage `span` ("rollout", "reward").
TraceContext MakeTraceContext(std::string_view uid, std::string_view span, double ratio);

// Formats a version 00 `traceparent` header.
std::string Traceparent(const TraceContext& context);
// Returns nullopt if `header` is malformed. Versions above 00 may have more fields after the flags.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// gRPC metadata key.
inline constexpr char kTraceparentKey[] = "traceparent";

}  // namespace freshet

#endif  // FRESHET_BASE_TRACE_H_
