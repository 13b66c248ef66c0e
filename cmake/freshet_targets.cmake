# Functions that declare the targets of every folder. The include root is the repository.

add_library(freshet_flags INTERFACE)
target_compile_features(freshet_flags INTERFACE cxx_std_20)
target_include_directories(freshet_flags INTERFACE "${PROJECT_SOURCE_DIR}")
# hiredis defines it, and all targets that share a precompiled header need the same definitions.
target_compile_definitions(freshet_flags INTERFACE _FILE_OFFSET_BITS=64)
target_compile_options(freshet_flags INTERFACE
  -pthread -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  # Less garbage collection: it takes a tenth of the compile time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000>
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>
  $<$<BOOL:${FRESHET_WERROR}>:-Werror>)
if(FRESHET_SANITIZE)
  string(REPLACE ";" "," freshet_sanitizers "${FRESHET_SANITIZE}")
  target_compile_options(freshet_flags INTERFACE
    "-fsanitize=${freshet_sanitizers}" -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(freshet_flags INTERFACE "-fsanitize=${freshet_sanitizers}")
endif()

# freshet_share_headers(TARGET)  Unity build: compiles up to 16 files of the target as one.
# freshet_compile_alone(FILE...) excludes files whose anonymous namespaces clash with others.
function(freshet_share_headers TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  # gcc takes the included files for headers.
  target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
function(freshet_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# freshet_library(NAME [TORCH | WIRE] SRCS ... [PUBLIC ...] [PRIVATE ...])
# A library freshet_NAME with alias freshet::NAME: static, or shared with BUILD_SHARED_LIBS. TORCH:
# uses LibTorch; WIRE: mostly uses gRPC or protobuf. Both select the precompiled header to reuse.
function(freshet_library NAME)
  cmake_parse_arguments(ARG "TORCH;WIRE" "" "SRCS;PUBLIC;PRIVATE" ${ARGN})
  add_library(freshet_${NAME} ${ARG_SRCS})
  add_library(freshet::${NAME} ALIAS freshet_${NAME})
  # Targets that share a precompiled header need the same definitions.
  set_target_properties(freshet_${NAME} PROPERTIES DEFINE_SYMBOL "")
  target_link_libraries(freshet_${NAME} PUBLIC freshet_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(FRESHET_UNITY STREQUAL "all")
    freshet_share_headers(freshet_${NAME})
  endif()
  if(ARG_TORCH)
    target_link_libraries(freshet_${NAME} PUBLIC freshet_torch)
    freshet_reuse_pch(freshet_${NAME} torch)
  elseif(ARG_WIRE)
    freshet_reuse_pch(freshet_${NAME} wire)
  else()
    freshet_reuse_pch(freshet_${NAME} base)
  endif()
endfunction()

# freshet_embedded_files(NAME HEADER FILE...)  A library with the bytes of files of this folder.
# HEADER declares a function for each: PageCss() returns the bytes of "page.css".
function(freshet_embedded_files NAME HEADER)
  set(sources)
  foreach(file ${ARGN})
    string(REGEX REPLACE "^(.)(.*)\\.(.)(.*)$" "\\1;\\2;\\3;\\4" parts "${file}")
    list(TRANSFORM parts TOUPPER AT 0 2)
    list(JOIN parts "" function)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${function}.cc")
    add_custom_command(
      OUTPUT "${source}"
      COMMAND "${CMAKE_COMMAND}" "-DINPUT=${CMAKE_CURRENT_SOURCE_DIR}/${file}" "-DOUTPUT=${source}"
              "-DHEADER=${HEADER}" "-DNAME=${function}"
              -P "${PROJECT_SOURCE_DIR}/proto/embed_bytes.cmake"
      DEPENDS "${file}" "${PROJECT_SOURCE_DIR}/proto/embed_bytes.cmake"
      VERBATIM)
    list(APPEND sources "${source}")
  endforeach()
  freshet_library(${NAME} SRCS ${sources})
  freshet_compile_alone(${sources})
endfunction()

# The programs that users run, without tests and test programs.
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

# Built with TSan: tests with threads that use neither torch nor gRPC.
add_custom_target(freshet_thread_tests)
# Built with ASan: every test except those that start whole clusters.
add_custom_target(freshet_quick_tests)

# Aborts a test that starts a thread without THREADS. Sanitizers replace pthread_create themselves.
if(BUILD_TESTING AND NOT FRESHET_SANITIZE)
  add_library(freshet_no_threads OBJECT "${PROJECT_SOURCE_DIR}/tests/testing/no_threads.cc")
  target_link_libraries(freshet_no_threads PRIVATE freshet_flags)
endif()

# freshet_test(NAME [TORCH | WIRE] [THREADS] SRCS ... LIBS ... [LABEL ...] [DEPENDS ...])
# One GoogleTest executable; each TEST is a ctest case. With LibTorch or a sanitizer the executable
# is one case, because starting it takes longer than most tests. LABEL: unit (default), grpc, redis,
# e2e. THREADS: a unit test that starts threads; it runs with TSan and has the label unit_threads.
function(freshet_test NAME)
  cmake_parse_arguments(ARG "TORCH;WIRE;THREADS" "LABEL" "SRCS;LIBS;DEPENDS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(ARG_THREADS)
    if(ARG_LABEL)
      message(FATAL_ERROR "${NAME}: THREADS is for unit tests; TSan does not see through gRPC or Redis.")
    endif()
    set(ARG_LABEL unit_threads)
  elseif(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE freshet_flags ${ARG_LIBS} GTest::gmock_main)
  if(FRESHET_UNITY)
    freshet_share_headers(${NAME})
  endif()
  if(ARG_TORCH)
    target_link_libraries(${NAME} PRIVATE freshet_torch)
    freshet_reuse_pch(${NAME} torch)
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
  if(ARG_THREADS)
    add_dependencies(freshet_thread_tests ${NAME})
  elseif(ARG_LABEL STREQUAL "unit" AND NOT ARG_TORCH AND TARGET freshet_no_threads)
    target_link_libraries(${NAME} PRIVATE freshet_no_threads)
  endif()
  if(NOT ARG_LABEL STREQUAL "e2e")
    add_dependencies(freshet_quick_tests ${NAME})
  endif()
  target_compile_definitions(${NAME} PRIVATE
    "FRESHET_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"" "FRESHET_BIN_DIR=\"${PROJECT_BINARY_DIR}/bin\"")
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(FRESHET_SANITIZE OR ARG_TORCH)
    add_test(NAME ${NAME} COMMAND ${NAME})
    set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 1200)
    return()
  endif()
  gtest_discover_tests(${NAME} TEST_PREFIX "${NAME}." DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 600)
endfunction()

# freshet_proto_library(NAME SRCS ... [PUBLIC ...])  C++ code for .proto files under proto/;
# headers are included as "freshet/job/v1/job.pb.h".
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
  add_library(freshet_${NAME} ${generated})
  add_library(freshet::${NAME} ALIAS freshet_${NAME})
  target_compile_features(freshet_${NAME} PUBLIC cxx_std_20)
  target_include_directories(freshet_${NAME} SYSTEM PUBLIC "${out}")
  target_link_libraries(freshet_${NAME} PUBLIC protobuf::libprotobuf ${ARG_PUBLIC})
endfunction()

# freshet_grpc_library(NAME SRCS ... [PUBLIC ...])  freshet_proto_library plus gRPC services;
# their headers are included as "freshet/job/v1/job_service.grpc.pb.h".
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
  # The code of services is compiled as one file. Static names of messages' code would clash.
  set_target_properties(freshet_${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  list(TRANSFORM ARG_SRCS REPLACE "(.*)\\.proto$" "${out}/\\1.pb.cc" OUTPUT_VARIABLE messages)
  freshet_compile_alone(${messages})
endfunction()
