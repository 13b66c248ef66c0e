#ifndef FRESHET_PROTO_FRESHET_JOB_V1_JOB_SPEC_SOURCE_H_
#define FRESHET_PROTO_FRESHET_JOB_V1_JOB_SPEC_SOURCE_H_

#include <string_view>

namespace freshet {

// A serialized google.protobuf.FileDescriptorSet of job_spec.proto with its source info, that is
// with the comments, which generated code does not carry. Static storage.
std::string_view JobSpecSource();

}  // namespace freshet

#endif  // FRESHET_PROTO_FRESHET_JOB_V1_JOB_SPEC_SOURCE_H_
