// What the tests include; precompiled (cmake/freshet_pch.cmake).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/pch/base.h"
