# LibTorch from an unpacked PyPI wheel. FRESHET_TORCH_DIR holds:
#   torch/lib          the wheel's libraries
#   nvidia/cu13/lib    libcudart.so.13 and libcupti.so.13, which libtorch_cpu.so needs, GPU or not
#   include            the wheel's headers without the google/protobuf copy that it bundles
# The wheel's TorchConfig.cmake is not used because it requires a CUDA toolkit.
set(FRESHET_TORCH_DIR "$ENV{HOME}/.cache/freshet/libtorch-2.11.0" CACHE PATH
    "unpacked LibTorch (./dev installs it)")
if(NOT EXISTS "${FRESHET_TORCH_DIR}/torch/lib/libtorch_cpu.so")
  message(FATAL_ERROR
    "LibTorch not found in ${FRESHET_TORCH_DIR}: run ./dev build, which installs it")
endif()

add_library(freshet_torch INTERFACE)
target_include_directories(freshet_torch SYSTEM INTERFACE
  "${FRESHET_TORCH_DIR}/include"
  "${FRESHET_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(freshet_torch INTERFACE
  "${FRESHET_TORCH_DIR}/torch/lib/libtorch_cpu.so" "${FRESHET_TORCH_DIR}/torch/lib/libc10.so")
target_link_options(freshet_torch INTERFACE
  "LINKER:-rpath-link,${FRESHET_TORCH_DIR}/nvidia/cu13/lib"
  "LINKER:-rpath,${FRESHET_TORCH_DIR}/torch/lib"
  "LINKER:-rpath,${FRESHET_TORCH_DIR}/nvidia/cu13/lib"
  "LINKER:--disable-new-dtags")

# The precompiled ATen and autograd headers, reused by every target that uses torch.
add_library(freshet_torch_pch OBJECT "${PROJECT_SOURCE_DIR}/model/torch_pch.cc")
target_link_libraries(freshet_torch_pch PUBLIC freshet_torch freshet_flags)
target_precompile_headers(freshet_torch_pch PRIVATE "${PROJECT_SOURCE_DIR}/model/torch.h")
