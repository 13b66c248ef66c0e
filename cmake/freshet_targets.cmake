# The functions with which every folder declares its targets. Include root is the repository.

add_library(freshet_flags INTERFACE)
target_compile_features(freshet_flags INTERFACE cxx_std_20)
target_include_directories(freshet_flags INTERFACE "${PROJECT_SOURCE_DIR}")
# As hiredis asks: a precompiled header serves only targets that define the same.
target_compile_definitions(freshet_flags INTERFACE _FILE_OFFSET_BITS=64)
target_compile_options(freshet_flags INTERFACE
  -pthread -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  $<$<BOOL:${FRESHET_WERROR}>:-Werror>)
if(FRESHET_SANITIZE)
  string(REPLACE ";" "," freshet_sanitizers "${FRESHET_SANITIZE}")
  target_compile_options(freshet_flags INTERFACE
    "-fsanitize=${freshet_sanitizers}" -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(freshet_flags INTERFACE "-fsanitize=${freshet_sanitizers}")
endif()

# freshet_library(NAME [TORCH | WIRE] SRCS ... [PUBLIC ...] [PRIVATE ...])
# A static library freshet_NAME with alias freshet::NAME. TORCH: sees LibTorch; WIRE: most of it sees
# gRPC or protobuf. Either decides which precompiled header it reuses.
function(freshet_library NAME)
  cmake_parse_arguments(ARG "TORCH;WIRE" "" "SRCS;PUBLIC;PRIVATE" ${ARGN})
  add_library(freshet_${NAME} STATIC ${ARG_SRCS})
  add_library(freshet::${NAME} ALIAS freshet_${NAME})
  target_link_libraries(freshet_${NAME} PUBLIC freshet_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_TORCH)
    target_link_libraries(freshet_${NAME} PUBLIC freshet_torch)
    freshet_reuse_pch(freshet_${NAME} torch)
  elseif(ARG_WIRE)
    freshet_reuse_pch(freshet_${NAME} wire)
  else()
    freshet_reuse_pch(freshet_${NAME} base)
  endif()
endfunction()

# What users run, without the tests and what they need.
add_custom_target(freshet_programs)

# freshet_binary(NAME [TORCH | WIRE] SRCS ... LIBS ...)  The executable build/bin/NAME.
function(freshet_binary NAME)
  cmake_parse_arguments(ARG "TORCH;WIRE" "" "SRCS;LIBS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE freshet_flags ${ARG_LIBS})
  if(ARG_TORCH)
    target_link_libraries(${NAME} PRIVATE freshet_torch)
    freshet_reuse_pch(${NAME} torch)
  elseif(ARG_WIRE)
    freshet_reuse_pch(${NAME} wire)
  else()
    freshet_reuse_pch(${NAME} base)
  endif()
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests/")
    add_dependencies(freshet_programs ${NAME})
  endif()
endfunction()

# What TSan builds: it runs no test that enters torch, gRPC or other processes.
add_custom_target(freshet_unit_tests)

# freshet_test(NAME [TORCH | WIRE] SRCS ... LIBS ... [LABELS ...] [DEPENDS ...])
# One GoogleTest executable; each TEST is a ctest case. LABELS: unit (default), e2e, redis, grpc.
function(freshet_test NAME)
  cmake_parse_arguments(ARG "TORCH;WIRE" "" "SRCS;LIBS;LABELS;DEPENDS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE freshet_flags ${ARG_LIBS} GTest::gmock_main)
  if(ARG_TORCH)
    target_link_libraries(${NAME} PRIVATE freshet_torch)
    freshet_reuse_pch(${NAME} torch)
    list(APPEND ARG_LABELS torch)
  else()
    target_compile_options(${NAME} PRIVATE ${FRESHET_TEST_OPTIONS})
    if(ARG_WIRE)
      freshet_reuse_pch(${NAME} wire_test)
    else()
      freshet_reuse_pch(${NAME} test)
    endif()
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${NAME} ${ARG_DEPENDS})
  endif()
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(freshet_unit_tests ${NAME})
  endif()
  target_compile_definitions(${NAME} PRIVATE
    "FRESHET_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"" "FRESHET_BIN_DIR=\"${PROJECT_BINARY_DIR}/bin\"")
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  gtest_discover_tests(${NAME} TEST_PREFIX "${NAME}." DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()

# freshet_proto_library(NAME SRCS ... [PUBLIC ...])  C++ code for .proto files under proto/;
# headers are found as "freshet/job/v1/job.pb.h".
function(freshet_proto_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;PUBLIC" ${ARGN})
  set(out "${PROJECT_BINARY_DIR}/proto_gen")
  file(MAKE_DIRECTORY "${out}")
  set(generated)
  foreach(src ${ARG_SRCS})
    string(REGEX REPLACE "\\.proto$" "" stem "${src}")
    add_custom_command(
      OUTPUT "${out}/${stem}.pb.cc" "${out}/${stem}.pb.h"
      COMMAND protobuf::protoc "--cpp_out=${out}" "-I${PROJECT_SOURCE_DIR}/proto" "${src}"
      DEPENDS "${PROJECT_SOURCE_DIR}/proto/${src}" VERBATIM)
    list(APPEND generated "${out}/${stem}.pb.cc")
  endforeach()
  add_library(freshet_${NAME} STATIC ${generated})
  add_library(freshet::${NAME} ALIAS freshet_${NAME})
  target_compile_features(freshet_${NAME} PUBLIC cxx_std_20)
  target_include_directories(freshet_${NAME} SYSTEM PUBLIC "${out}")
  target_link_libraries(freshet_${NAME} PUBLIC protobuf::libprotobuf ${ARG_PUBLIC})
  if(FRESHET_SANITIZE)
    string(REPLACE ";" "," freshet_sanitizers "${FRESHET_SANITIZE}")
    target_compile_options(freshet_${NAME} PRIVATE "-fsanitize=${freshet_sanitizers}")
  endif()
endfunction()

# freshet_grpc_library(NAME SRCS ... [PUBLIC ...])  Like freshet_proto_library, with the services:
# headers are found as "freshet/job/v1/job_service.grpc.pb.h".
function(freshet_grpc_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;PUBLIC" ${ARGN})
  freshet_proto_library(${NAME} SRCS ${ARG_SRCS} PUBLIC ${ARG_PUBLIC} gRPC::grpc++)
  set(out "${PROJECT_BINARY_DIR}/proto_gen")
  foreach(src ${ARG_SRCS})
    string(REGEX REPLACE "\\.proto$" "" stem "${src}")
    add_custom_command(
      OUTPUT "${out}/${stem}.grpc.pb.cc" "${out}/${stem}.grpc.pb.h"
      COMMAND protobuf::protoc "--grpc_out=${out}"
              "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>"
              "-I${PROJECT_SOURCE_DIR}/proto" "${src}"
      DEPENDS "${PROJECT_SOURCE_DIR}/proto/${src}" VERBATIM)
    target_sources(freshet_${NAME} PRIVATE
      "${out}/${stem}.grpc.pb.cc" "${out}/${stem}.grpc.pb.h")
  endforeach()
endfunction()
