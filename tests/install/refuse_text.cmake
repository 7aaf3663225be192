# cmake -DFILE= -DFORBIDDEN= -P refuse_text.cmake: fails if the file contains the text.
file(READ ${FILE} content)
string(FIND "${content}" "${FORBIDDEN}" place)
if(NOT place EQUAL -1)
  message(FATAL_ERROR "${FILE} contains ${FORBIDDEN}")
endif()
