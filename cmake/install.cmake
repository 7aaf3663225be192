# Installs the library, its headers and a CMake package: find_package(renorm CONFIG) -> renorm::renorm. The command
# installs itself where it is built, and cmake/python.cmake installs the Python package. Components: runtime,
# development, python.
option(RENORM_INSTALL "Create the install rules" ${PROJECT_IS_TOP_LEVEL})

file(STRINGS ${PROJECT_SOURCE_DIR}/include/renorm/version.h renorm_header_version REGEX "define RENORM_VERSION \"")
if(NOT renorm_header_version MATCHES "\"${PROJECT_VERSION}\"")
  message(FATAL_ERROR "include/renorm/version.h has ${renorm_header_version}, the project is ${PROJECT_VERSION}")
endif()

if(NOT RENORM_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(renorm_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/renorm)

# The public headers are C++17; renorm::torch requires more where LibTorch does.
target_compile_features(renorm PUBLIC cxx_std_17)
# The interface target of LibTorch goes along by name only: the package finds LibTorch again where it is used.
set_target_properties(renorm_torch PROPERTIES EXPORT_NAME torch)

install(TARGETS renorm renorm_torch EXPORT renorm_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/renorm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(EXPORT renorm_targets NAMESPACE renorm:: FILE renorm-targets.cmake DESTINATION ${renorm_package_dir}
  COMPONENT development)

# LibTorch changes its binary interface between minor versions, so the package insists on the one it was built with.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" RENORM_TORCH_VERSION "${Torch_VERSION}")
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/renorm-config.cmake.in
  ${PROJECT_BINARY_DIR}/renorm-config.cmake INSTALL_DESTINATION ${renorm_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/renorm-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/renorm-config.cmake ${PROJECT_BINARY_DIR}/renorm-config-version.cmake
  DESTINATION ${renorm_package_dir} COMPONENT development)
