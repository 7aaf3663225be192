# cmake -DTORCH= -DSCRIPT= [-DARGUMENTS=] -P python.cmake
# Runs the script by a Python whose torch is the LibTorch of this build (the file TORCH): two copies of LibTorch in one
# process would clash.
set(has_this_torch [=[
import os, sys, torch
folder = os.path.dirname(os.path.realpath(sys.argv[1]))
sys.exit(0 if any(folder + "/libtorch_cpu" in line for line in open("/proc/self/maps")) else 1)
]=])
foreach(python python3 /usr/bin/python3)
  execute_process(COMMAND ${python} -c "${has_this_torch}" ${TORCH} RESULT_VARIABLE unfit OUTPUT_QUIET ERROR_QUIET)
  if(unfit EQUAL 0)
    execute_process(COMMAND ${python} ${SCRIPT} ${ARGUMENTS} COMMAND_ERROR_IS_FATAL ANY)
    return()
  endif()
endforeach()
message(STATUS "skipped: no Python with this torch")
