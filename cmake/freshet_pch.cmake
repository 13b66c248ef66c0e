# Precompiled headers, each built once and reused by every target of its kind. They only save time:
# every file still includes what it uses.
foreach(kind base test wire wire_test)
  if(kind MATCHES "test" AND NOT BUILD_TESTING)
    continue()
  endif()
  add_library(freshet_${kind}_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/pch/owner.cc")
  target_link_libraries(freshet_${kind}_pch PUBLIC freshet_flags)
  if(kind MATCHES "wire")
    target_link_libraries(freshet_${kind}_pch PUBLIC freshet::services_proto gRPC::grpc++)
  endif()
  if(kind MATCHES "test")
    target_link_libraries(freshet_${kind}_pch PUBLIC GTest::gmock)
    target_compile_options(freshet_${kind}_pch PRIVATE ${FRESHET_TEST_OPTIONS})
  endif()
  target_precompile_headers(freshet_${kind}_pch PRIVATE
    "${PROJECT_SOURCE_DIR}/cmake/pch/${kind}.h")
endforeach()

# freshet_reuse_pch(TARGET KIND)  Reuses the precompiled header of KIND. It is compiled with -fPIC,
# so executables that reuse it must be too, instead of -fPIE.
function(freshet_reuse_pch TARGET KIND)
  get_target_property(type ${TARGET} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${TARGET} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${TARGET} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${TARGET} REUSE_FROM freshet_${KIND}_pch)
endfunction()
