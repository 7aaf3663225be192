# cmake -DBUILD= -DSOURCE= -DPREFIX= -P install.cmake
# Installs BUILD into an empty PREFIX and checks that no installed text names the source or build tree.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)

file(GLOB_RECURSE texts ${PREFIX}/*.cmake ${PREFIX}/*.h)
if(NOT texts)
  message(FATAL_ERROR "no headers or CMake files in ${PREFIX}")
endif()
foreach(text ${texts})
  file(READ ${text} content)
  # PREFIX may lie inside the build tree; a relocatable package does not name it either.
  foreach(tree ${SOURCE} ${BUILD} ${PREFIX})
    string(FIND "${content}" "${tree}" place)
    if(NOT place EQUAL -1)
      message(SEND_ERROR "${text} names ${tree}")
    endif()
  endforeach()
  if(content MATCHES "renorm_options|renorm_kernels|hwy|fsanitize|Werror")
    message(SEND_ERROR "${text} hands on a private setting: ${CMAKE_MATCH_0}")
  endif()
endforeach()
