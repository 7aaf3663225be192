# cmake -DSCRIPT= -DTEST= -DFOLDER= -P torchvision.cmake
# Makes reference files in FOLDER with a Python that has torchvision, runs TEST on them, and takes them away.
# `import torchvision` alone also succeeds where an interrupted run left a folder of that name.
set(has_torchvision "import torch, torchvision.models")
foreach(python python3 /usr/bin/python3)
  execute_process(COMMAND ${python} -c "${has_torchvision}" RESULT_VARIABLE unfit OUTPUT_QUIET ERROR_QUIET)
  if(unfit EQUAL 0)
    execute_process(COMMAND ${python} ${SCRIPT} ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env RENORM_TORCHVISION_FOLDER=${FOLDER} ${TEST} RESULT_VARIABLE failed)
    file(REMOVE_RECURSE ${FOLDER})
    if(NOT failed EQUAL 0)
      message(FATAL_ERROR "the nets do not compute what torchvision's compute")
    endif()
    return()
  endif()
endforeach()
message(STATUS "skipped: no Python with torchvision")
