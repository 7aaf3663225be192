# LibTorch as one interface target, and the precompiled header of everything that includes it.
find_package(Torch REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

add_library(renorm_torch INTERFACE)
target_link_libraries(renorm_torch INTERFACE torch torch_cpu c10)
# at::parallel_for is serial in a file that is compiled without OpenMP.
target_link_libraries(renorm_torch INTERFACE OpenMP::OpenMP_CXX)
target_include_directories(renorm_torch SYSTEM INTERFACE "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
# Instrumented, GCC 12 takes LibTorch's empty optionals for uninitialised memory.
if(RENORM_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(renorm_torch INTERFACE -Wno-maybe-uninitialized)
endif()
# Newer LibTorch requires C++20 in its headers.
if(Torch_VERSION VERSION_GREATER_EQUAL 2.7)
  target_compile_features(renorm_torch INTERFACE cxx_std_20)
endif()

# Compiled once, reused by every target through renorm_use_torch().
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp CONTENT "")
add_library(renorm_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(renorm_torch_pch PRIVATE renorm_options renorm_torch)
target_precompile_headers(renorm_torch_pch PRIVATE <torch/torch.h> <torch/library.h>)

function(renorm_use_torch target)
  target_link_libraries(${target} PUBLIC renorm_torch PRIVATE renorm_options)
  target_precompile_headers(${target} REUSE_FROM renorm_torch_pch)
endfunction()
