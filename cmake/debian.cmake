# `cpack -G DEB` makes three packages, one per component: renorm (command and library), librenorm-dev (headers and
# CMake package) and python3-renorm. `make deb` runs it on the preset `deb`.
if(NOT RENORM_INSTALL OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(renorm_debian_names runtime renorm development librenorm-dev python python3-renorm)
set(CPACK_COMPONENTS_ALL runtime development python)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PACKAGE_CONTACT "The renorm authors <authors@renorm.invalid>")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
while(renorm_debian_names)
  list(POP_FRONT renorm_debian_names component name)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  # Only packages have this file: it is not part of `cmake --install`.
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name} RENAME copyright
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endwhile()

set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The command renorm and the shared library.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
# The command requires the library of its own package, which dpkg-shlibdeps finds in the build tree.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)
# The reference BLAS that satisfies LibTorch is 20 to 30 times slower.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS libopenblas0-openmp)

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers and CMake package of the library.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "renorm (= ${PROJECT_VERSION}), libtorch-dev")

set(CPACK_COMPONENT_PYTHON_DESCRIPTION "The Python package, for PyTorch.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
# LibTorch changes its binary interface between minor versions.
string(REGEX MATCH "^([0-9]+)[.]([0-9]+)" renorm_torch_minor ${RENORM_TORCH_HEADER_VERSION})
math(EXPR renorm_torch_next "${CMAKE_MATCH_2} + 1")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "renorm (= ${PROJECT_VERSION}), python3:any, \
python3-torch (>= ${renorm_torch_minor}), python3-torch (<< ${CMAKE_MATCH_1}.${renorm_torch_next}~)")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/cmake/debian/postinst ${PROJECT_SOURCE_DIR}/cmake/debian/prerm)
include(CPack)
