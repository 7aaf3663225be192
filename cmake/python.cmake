# The Python package: `library.json` beside the built library, and the install rules.
#
# `library.json` has the versions of renorm and LibTorch, for the loader to compare with the torch of the process.
# The installed one also has `library`, the path of the shared library relative to the package: one process must not
# load two copies, because each registers the same operators.
set(RENORM_PYTHON_DIR lib/python3/dist-packages CACHE STRING "Folder of the Python package below the install prefix")

# Torch_VERSION is the version of the package, which may differ from that of the headers. Newer LibTorch moved them.
foreach(header torch/headeronly/version.h torch/version.h)
  find_file(renorm_torch_version_header ${header} PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH NO_CACHE)
  if(renorm_torch_version_header)
    file(STRINGS ${renorm_torch_version_header} renorm_torch_defines
      REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCHALL "[0-9]+" RENORM_TORCH_HEADER_VERSION "${renorm_torch_defines}")
    list(JOIN RENORM_TORCH_HEADER_VERSION "." RENORM_TORCH_HEADER_VERSION)
  endif()
  if(RENORM_TORCH_HEADER_VERSION MATCHES "^[0-9]+[.][0-9]+[.][0-9]+$")
    break()
  endif()
  unset(renorm_torch_version_header)
endforeach()
if(NOT RENORM_TORCH_HEADER_VERSION MATCHES "^[0-9]+[.][0-9]+[.][0-9]+$")
  message(FATAL_ERROR "no torch/version.h with TORCH_VERSION_MAJOR, MINOR and PATCH in ${TORCH_INCLUDE_DIRS}")
endif()

set(renorm_versions "\"renorm\": \"${PROJECT_VERSION}\", \"torch\": \"${RENORM_TORCH_HEADER_VERSION}\"")
file(GENERATE OUTPUT $<TARGET_FILE_DIR:renorm>/library.json CONTENT "{${renorm_versions}}\n")

if(NOT RENORM_INSTALL)
  return()
endif()

cmake_path(ABSOLUTE_PATH RENORM_PYTHON_DIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE renorm_python_folder)
file(RELATIVE_PATH renorm_library_path ${renorm_python_folder}/renorm
  ${CMAKE_INSTALL_FULL_LIBDIR}/$<TARGET_SONAME_FILE_NAME:renorm>)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/python/library.json CONTENT
  "{${renorm_versions}, \"library\": \"${renorm_library_path}\"}\n")
# A package that pip installed as editable has files of another build here.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/renorm DESTINATION ${RENORM_PYTHON_DIR} COMPONENT python
  FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/python/library.json DESTINATION ${RENORM_PYTHON_DIR}/renorm COMPONENT python)
