# Text files as string constants of a program, so that it needs no files beside it.
#
# renorm_embed(TARGET NAMESPACE NAME=FILE...) adds to TARGET a source, made anew when a file changes, that defines for
# each pair `extern const std::string_view NAME` in NAMESPACE. A line that points at a source map is left out. A file
# that could not stand inside <script> or <style> stops the build.
set(renorm_embed_script ${CMAKE_CURRENT_LIST_FILE})

function(renorm_embed target namespace)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded.cpp)
  set(files "")
  foreach(pair ${ARGN})
    string(REGEX REPLACE "^[^=]*=" "" file "${pair}")
    list(APPEND files "${file}")
  endforeach()
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${output}" "-DNAMESPACE=${namespace}" "-DPAIRS=${ARGN}" -P ${renorm_embed_script}
    DEPENDS ${files} ${renorm_embed_script}
    COMMENT "Embedding text files into ${target}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  return()
endif()

file(WRITE ${OUTPUT}.new "#include <string_view>\n\nnamespace ${NAMESPACE} {\n\nusing namespace std::string_view_literals;\n\n")
foreach(pair ${PAIRS})
  string(REGEX MATCH "^[^=]*" name "${pair}")
  string(REGEX REPLACE "^[^=]*=" "" file "${pair}")
  file(READ ${file} text)
  string(REGEX REPLACE "\n//# sourceMappingURL=[^\n]*" "" text "${text}")
  string(TOLOWER "${text}" lower)
  foreach(forbidden "</script" "</style" "<!--" ")embedded\"")
    string(FIND "${lower}" "${forbidden}" place)
    if(NOT place EQUAL -1)
      message(FATAL_ERROR "${file}: holds '${forbidden}', which would end the place where it is put")
    endif()
  endforeach()
  file(APPEND ${OUTPUT}.new "extern const std::string_view ${name};\nconst std::string_view ${name} = R\"embedded(")
  file(APPEND ${OUTPUT}.new "${text}")
  file(APPEND ${OUTPUT}.new ")embedded\"sv;\n\n")
endforeach()
file(APPEND ${OUTPUT}.new "}  // namespace ${NAMESPACE}\n")
file(RENAME ${OUTPUT}.new ${OUTPUT})
