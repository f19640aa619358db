// Linked into a program that runs under qemu-user, which answers success to every madvise that it
// does not know, and does nothing. For memory that is to be populated that would be a lie that no
// kernel tells: one that cannot do it answers EINVAL, as this does.
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kMadvPopulateRead = 22, kMadvPopulateWrite = 23 };

int madvise(void* address, size_t length, int advice) {
  if (advice == kMadvPopulateRead || advice == kMadvPopulateWrite) {
    errno = EINVAL;
    return -1;
  }
  return (int)syscall(SYS_madvise, address, length, advice);
}
