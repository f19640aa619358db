#pragma once

#include <cstddef>
#include <mutex>

namespace fxload {

// Whether fresh memory is better taken in huge pages or in small ones.
//
// Huge pages are several times cheaper where the host backs them, as on bare metal. A virtual
// machine that gives free memory back (free page reporting) hands out exactly its unbacked memory
// as huge pages: touching them then costs up to 2 CPU seconds a GB, six times as much as small
// pages, which come from memory that was used before. Which of the two it is shows within a few
// megabytes. Counted in processor time, which a busy machine does not distort. Thread-safe.
class PageChoice {
 public:
  // Takes what touching some fresh memory in huge pages has cost. True once, when that has become
  // too much: from now on small pages are to be used.
  bool record(size_t bytes, double cpu_s);

 private:
  std::mutex mutex_;
  size_t bytes_ = 0;
  double cpu_s_ = 0;
  bool small_ = false;
};

// Processor time of the calling thread.
double thread_cpu_s();

}  // namespace fxload
