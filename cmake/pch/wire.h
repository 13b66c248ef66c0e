// What adapters of gRPC and protobuf include; precompiled (cmake/freshet_pch.cmake).
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include "cmake/pch/base.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "freshet/job/v1/job_service.pb.h"
