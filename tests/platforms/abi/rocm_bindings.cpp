// HIP 7 as AMD's Python bindings declare it: functions alone, in a header that the test writes.

#include "hip_declarations.h"
#include "rocm_functions.h"
