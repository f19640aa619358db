// What the fault file asks of a request. Thread-safe.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

enum { NO_FAULT = 0, FAULT_SHORT = 1, FAULT_EOF = 2, FAULT_FLIP = 3, FAULT_HANG = 4 };

extern atomic_long faults_met;      // requests that the fault file touched
extern atomic_long faults_hanging;  // requests held at this moment

// Call once, before the first request. `path` NULL: no faults. `stopping` ends every hang.
void faults_init(const char* path, bool (*stopping)(void));

// NO_FAULT, FAULT_SHORT, FAULT_EOF, FAULT_FLIP or a negative errno. `path` starts with '/'.
// Holds a request that is to hang, and then answers NO_FAULT.
int fault_of(const char* op, const char* path);

// Whether the fault file, as it is now, holds a line with this WHAT.
bool faults_include(int what);
