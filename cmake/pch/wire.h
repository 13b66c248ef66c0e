// What adapters of gRPC and protobuf include; precompiled (cmake/freshet_pch.cmake).
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include "cmake/pch/base.h"
