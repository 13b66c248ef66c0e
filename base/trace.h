#ifndef FRESHET_BASE_TRACE_H_
#define FRESHET_BASE_TRACE_H_

#include <optional>
#include <string>
#include <string_view>

namespace freshet {

// The life of a sample as a trace (W3C Trace Context): one sample is one trace, whose id is a
// function of the sample's uid, so that whoever knows the sample knows its trace and nothing has to
// be stored or passed on with it.
struct TraceContext {
  std::string trace_id;  // 32 lower-case hex digits, not all 0
  std::string span_id;   // 16, of the caller's span; not all 0
  bool sampled = false;  // each stage of the life is logged
};

// The trace of a sample: the first 16 bytes of the SHA-256 of its uid.
std::string TraceIdOf(std::string_view uid);
// Whether the sample of that uid is one of the share `ratio` (0 to 1) of samples whose lives are
// logged. A function of the uid: all roles of a job choose the same ones.
bool IsTraced(std::string_view uid, double ratio);
// How a line of the log names a sample: "trace=TRACE sample=UID".
std::string TraceWords(std::string_view uid);

// Of a sample of that uid, called by the stage `span` ("rollout", "reward").
TraceContext MakeTraceContext(std::string_view uid, std::string_view span, double ratio);

// The header `traceparent` in version 00.
std::string Traceparent(const TraceContext& context);
// Nothing for what is none. A version other than 00 may have more behind the flags.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// Name of the header, as gRPC metadata.
inline constexpr char kTraceparentKey[] = "traceparent";

}  // namespace freshet

#endif  // FRESHET_BASE_TRACE_H_
