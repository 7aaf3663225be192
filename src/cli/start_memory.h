// One sentence where libraries do not get the memory that they need.
#pragma once

namespace renorm::cli {

// Under 'ulimit -v', an allocation that fails inside of a library is the probable reason of a fault: a
// sentence says so, and the code is kExitInternal. With 256 MB still free a fault ends the process by its
// signal, as it does without a limit. To be called by main(), because libraries set handlers of
// their own when they are initialized.
void explain_faults_under_a_limit();

}  // namespace renorm::cli
