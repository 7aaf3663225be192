# Settings that every target of the project shares, as one interface target.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Executables are compiled like libraries, so that all targets can share one precompiled header.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)
set(CMAKE_CXX_VISIBILITY_PRESET default)

add_library(renorm_options INTERFACE)
target_compile_features(renorm_options INTERFACE cxx_std_17)
target_compile_options(renorm_options INTERFACE -Wall -Wextra)
if(RENORM_WERROR)
  target_compile_options(renorm_options INTERFACE -Werror)
endif()
if(RENORM_SANITIZE)
  target_compile_options(renorm_options INTERFACE -fsanitize=${RENORM_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(renorm_options INTERFACE -fsanitize=${RENORM_SANITIZE})
  # With these checks GCC does not take the address of a function for a constant other than null, as LibTorch's
  # registration of operators requires. AddressSanitizer reports null pointers too.
  if(RENORM_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(renorm_options INTERFACE -fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()
