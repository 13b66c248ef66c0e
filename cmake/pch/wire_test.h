// What tests of adapters of gRPC and protobuf include; precompiled (cmake/freshet_pch.cmake).
#include "cmake/pch/test.h"
#include "cmake/pch/wire.h"
