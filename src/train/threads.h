// The threads of LibTorch and BLAS.
#pragma once

namespace renorm::train {

// Sets their number, starts them and makes BLAS allocate its buffers. Throws MemoryError if a limit of memory
// ('ulimit -v') leaves too little for that. Later there is no error to report: OpenBLAS would try again
// without end, and OpenMP would end the process.
void use_threads(int count);

// `count`, or the number of CPUs if that is smaller: for work whose result does not depend on the threads.
int at_most_cpus(int count);

}  // namespace renorm::train
