// slowfs: a FUSE view of a folder in which every request takes a fixed time and all of them
// share one bandwidth, as requests to an array across a network do; and which fails on demand.
// Keep SLOWFS_ROOT on tmpfs, or the disk under it is measured too.
//
//   cc -O2 slowfs.c faults.c -o slowfs $(pkg-config --cflags --libs fuse3)
//   SLOWFS_ROOT=/data/models SLOWFS_LATENCY_US=2000 SLOWFS_MBPS=1200 ./slowfs -f /mnt/fx
//   fusermount3 -u /mnt/fx
//
// SLOWFS_ROOT        the folder shown (absolute)
// SLOWFS_LATENCY_US  time each read, write or fsync takes before its data moves (default 2000)
// SLOWFS_MBPS        bandwidth that all requests share, MB/s; 0 = unlimited (default 0)
// SLOWFS_META_US     time a metadata request takes: lookup, open, create, ... (default 0)
// SLOWFS_ATTR_S      how long the kernel may believe attributes and names (default 1)
// SLOWFS_CACHE       1: the kernel may keep file pages between opens, 0: it may not (default 1)
// SLOWFS_FAULT       optional: the fault file, read anew for every request
// SLOWFS_WITH_PARENT 1: end, and unmount, when the process that started slowfs ends (default 0)
//
// What crosses is counted: read the file .slowfs at the top of the mount, one JSON object with
// reads, direct_reads, read_bytes, writes, written_bytes, opens, metadata, faults (requests that
// the fault file touched) and hanging (requests held at this moment).
//
// The fault file holds one fault a line; the first one that is due for a request decides.
//
//   OP WHAT EVERY_N [GLOB]
//
//   OP       read, write, open, create, getattr, readdir, fsync, mkdir, rename, unlink, truncate;
//            direct-open and direct-read match only files opened with O_DIRECT
//   WHAT     an errno, by number or name (5, EIO): the request fails with it
//            hang: it is held until the line has left the fault file, or until unmount; then it
//            goes on as if nothing had happened
//            short: a read returns half of what was asked; eof: it returns nothing; flip: one bit
//            of what it returns is wrong. To a short answer that is not for an O_DIRECT file the
//            kernel adds zeros, and keeps them as the file's content. A file opened with O_DIRECT
//            while a line says short bypasses the page cache for good: without that the kernel
//            asks for the rest of a short direct read through its page cache, and takes a second
//            short answer for the file's new size
//   EVERY_N  every N-th matching request, counted for each line since the file last changed
//   GLOB     of the file's name (of its path from the top of the mount, if GLOB has a '/')
//
// A line that is otherwise wrong fails its OP with EBADMSG: a typing error is no success.
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"

// Set in main, constant afterwards.
static int root_fd;
static double latency_ns, meta_ns, bytes_per_ns;  // bytes_per_ns 0: unlimited
static double attr_timeout_s;
static bool keep_cache;

static atomic_long n_reads, n_direct_reads, n_writes, n_opens, n_meta;
static atomic_long read_bytes, written_bytes;

static const char kStatsPath[] = "/.slowfs";
static const uint64_t kStatsHandle = UINT64_MAX;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static bool stopping(void) {
  return fuse_session_exited(fuse_get_session(fuse_get_context()->fuse));
}

// Sleeps in short steps, so that an unmount does not wait for requests that take an hour.
static void sleep_until(double when_ns) {
  for (double now = now_ns(); now < when_ns && !stopping(); now = now_ns()) {
    const double step_ns = 50e6;
    double until = when_ns - now < step_ns ? when_ns : now + step_ns;
    struct timespec t = {(time_t)(until / 1e9), 0};
    t.tv_nsec = (long)(until - t.tv_sec * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
  }
}

// One request of `size` bytes crosses the link.
static void charge(size_t size) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static double link_free_at_ns;
  double done = now_ns() + latency_ns;
  if (bytes_per_ns > 0) {
    pthread_mutex_lock(&lock);
    double now = now_ns();
    double start = link_free_at_ns > now ? link_free_at_ns : now;
    link_free_at_ns = start + size / bytes_per_ns;
    if (link_free_at_ns + latency_ns > done) done = link_free_at_ns + latency_ns;
    pthread_mutex_unlock(&lock);
  }
  sleep_until(done);
}

static void charge_meta(void) {
  atomic_fetch_add(&n_meta, 1);
  if (meta_ns > 0) sleep_until(now_ns() + meta_ns);
}

// A fault of a request that moves no data: an errno or nothing.
static int refusal(const char* op, const char* path) {
  int what = fault_of(op, path);
  return what < 0 ? what : 0;
}

static const char* below_root(const char* path) { return path[1] ? path + 1 : "."; }

static int status(int result) { return result == -1 ? -errno : 0; }

// What root creates for another user belongs to that user.
static int give_to_caller(const char* path) {
  if (geteuid() != 0) return 0;
  const struct fuse_context* caller = fuse_get_context();
  return status(fchownat(root_fd, below_root(path), caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW));
}

static int stats_text(char* out, size_t size) {
  return snprintf(out, size,
                  "{\"reads\": %ld, \"direct_reads\": %ld, \"read_bytes\": %ld, \"writes\": %ld, "
                  "\"written_bytes\": %ld, \"opens\": %ld, \"metadata\": %ld, \"faults\": %ld, "
                  "\"hanging\": %ld}\n",
                  (long)n_reads, (long)n_direct_reads, (long)read_bytes, (long)n_writes,
                  (long)written_bytes, (long)n_opens, (long)n_meta, (long)faults_met,
                  (long)faults_hanging);
}

// Always of one length: who reads on to the end of the file finds it where the first read stopped,
// though the counters have grown in between.
static int read_stats(char* buf, size_t size, off_t off) {
  char text[1024];
  memset(text, ' ', sizeof text);
  text[stats_text(text, sizeof text)] = ' ';
  const off_t length = sizeof text;
  if (off >= length) return 0;
  if (size > (size_t)(length - off)) size = (size_t)(length - off);
  memcpy(buf, text + off, size);
  return (int)size;
}

static int sf_getattr(const char* path, struct stat* st, struct fuse_file_info* fi) {
  if (!strcmp(path, kStatsPath)) {
    *st = (struct stat){.st_mode = S_IFREG | 0444, .st_nlink = 1, .st_size = 4096};
    return 0;
  }
  charge_meta();
  int refused = refusal("getattr", path);
  if (refused) return refused;
  if (fi) return status(fstat((int)fi->fh, st));
  return status(fstatat(root_fd, below_root(path), st, AT_SYMLINK_NOFOLLOW));
}

static int sf_readlink(const char* path, char* out, size_t size) {
  ssize_t length = readlinkat(root_fd, below_root(path), out, size - 1);
  if (length == -1) return -errno;
  out[length] = 0;
  return 0;
}

static int sf_readdir(const char* path, void* buf, fuse_fill_dir_t fill, off_t off,
                      struct fuse_file_info* fi, enum fuse_readdir_flags flags) {
  (void)off, (void)fi, (void)flags;
  charge_meta();
  int refused = refusal("readdir", path);
  if (refused) return refused;
  int fd = openat(root_fd, below_root(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd == -1) return -errno;
  DIR* dir = fdopendir(fd);
  if (!dir) {
    close(fd);
    return -ENOMEM;
  }
  for (struct dirent* entry; (entry = readdir(dir));) fill(buf, entry->d_name, NULL, 0, 0);
  closedir(dir);
  return 0;
}

static int open_at(const char* path, int flags, mode_t mode, struct fuse_file_info* fi) {
  if (!strcmp(path, kStatsPath)) {
    fi->direct_io = 1;
    fi->fh = kStatsHandle;
    return 0;
  }
  charge_meta();
  atomic_fetch_add(&n_opens, 1);
  int refused = flags & O_DIRECT ? refusal("direct-open", path) : 0;
  if (!refused) refused = refusal(flags & O_CREAT ? "create" : "open", path);
  if (refused) return refused;
  // The kernel's side of the mount honours O_DIRECT; the folder below need not support it.
  int fd = openat(root_fd, below_root(path), (flags & ~O_DIRECT) | O_CLOEXEC, mode);
  if (fd == -1) return -errno;
  fi->fh = (uint64_t)fd;
  return 0;
}

static int sf_open(const char* path, struct fuse_file_info* fi) {
  fi->direct_io = fi->flags & O_DIRECT && faults_include(FAULT_SHORT);
  return open_at(path, fi->flags, 0, fi);
}

static int sf_create(const char* path, mode_t mode, struct fuse_file_info* fi) {
  int result = open_at(path, fi->flags | O_CREAT, mode, fi);
  return result ? result : give_to_caller(path);
}

static int sf_read(const char* path, char* buf, size_t size, off_t off, struct fuse_file_info* fi) {
  if (fi->fh == kStatsHandle) return read_stats(buf, size, off);
  atomic_fetch_add(&n_reads, 1);
  int what = NO_FAULT;
  if (fi->flags & O_DIRECT) {
    atomic_fetch_add(&n_direct_reads, 1);
    what = fault_of("direct-read", path);
  }
  if (what == NO_FAULT) what = fault_of("read", path);
  charge(size);
  if (what < 0) return what;
  if (what == FAULT_EOF) return 0;
  ssize_t n = pread((int)fi->fh, buf, what == FAULT_SHORT ? size / 2 : size, off);
  if (n == -1) return -errno;
  if (n > 0 && what == FAULT_FLIP) buf[n / 2] ^= 1;
  atomic_fetch_add(&read_bytes, n);
  return (int)n;
}

static int sf_write(const char* path, const char* buf, size_t size, off_t off,
                    struct fuse_file_info* fi) {
  atomic_fetch_add(&n_writes, 1);
  int refused = refusal("write", path);
  charge(size);
  if (refused) return refused;
  ssize_t n = pwrite((int)fi->fh, buf, size, off);
  if (n == -1) return -errno;
  atomic_fetch_add(&written_bytes, n);
  return (int)n;
}

static int sf_release(const char* path, struct fuse_file_info* fi) {
  (void)path;
  return fi->fh == kStatsHandle ? 0 : status(close((int)fi->fh));
}

static int sf_fsync(const char* path, int data_only, struct fuse_file_info* fi) {
  int refused = refusal("fsync", path);
  charge(0);
  if (refused) return refused;
  return status(data_only ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static int sf_mkdir(const char* path, mode_t mode) {
  charge_meta();
  int refused = refusal("mkdir", path);
  if (refused) return refused;
  int result = status(mkdirat(root_fd, below_root(path), mode));
  return result ? result : give_to_caller(path);
}

static int sf_symlink(const char* target, const char* path) {
  charge_meta();
  int result = status(symlinkat(target, root_fd, below_root(path)));
  return result ? result : give_to_caller(path);
}

static int sf_link(const char* from, const char* to) {
  charge_meta();
  return status(linkat(root_fd, below_root(from), root_fd, below_root(to), 0));
}

static int remove_at(const char* path, int flags) {
  charge_meta();
  int refused = refusal("unlink", path);
  return refused ? refused : status(unlinkat(root_fd, below_root(path), flags));
}

static int sf_unlink(const char* path) { return remove_at(path, 0); }

static int sf_rmdir(const char* path) { return remove_at(path, AT_REMOVEDIR); }

static int sf_rename(const char* from, const char* to, unsigned flags) {
  charge_meta();
  int refused = refusal("rename", to);
  if (refused) return refused;
  return status(renameat2(root_fd, below_root(from), root_fd, below_root(to), flags));
}

static int sf_chmod(const char* path, mode_t mode, struct fuse_file_info* fi) {
  if (fi) return status(fchmod((int)fi->fh, mode));
  return status(fchmodat(root_fd, below_root(path), mode, 0));
}

static int sf_chown(const char* path, uid_t uid, gid_t gid, struct fuse_file_info* fi) {
  (void)fi;
  return status(fchownat(root_fd, below_root(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int sf_utimens(const char* path, const struct timespec times[2], struct fuse_file_info* fi) {
  (void)fi;
  return status(utimensat(root_fd, below_root(path), times, AT_SYMLINK_NOFOLLOW));
}

static int sf_truncate(const char* path, off_t size, struct fuse_file_info* fi) {
  int refused = refusal("truncate", path);
  if (refused) return refused;
  if (fi) return status(ftruncate((int)fi->fh, size));
  int fd = openat(root_fd, below_root(path), O_WRONLY | O_CLOEXEC);
  if (fd == -1) return -errno;
  int result = status(ftruncate(fd, size));
  close(fd);
  return result;
}

static int sf_fallocate(const char* path, int mode, off_t off, off_t length,
                        struct fuse_file_info* fi) {
  (void)path;
  return status(fallocate((int)fi->fh, mode, off, length));
}

static int sf_statfs(const char* path, struct statvfs* out) {
  (void)path;
  return status(fstatvfs(root_fd, out));
}

static void* sf_init(struct fuse_conn_info* connection, struct fuse_config* config) {
  config->kernel_cache = keep_cache;
  config->attr_timeout = config->entry_timeout = attr_timeout_s;
  connection->max_background = connection->congestion_threshold = 1024;
  if (connection->capable & FUSE_CAP_ASYNC_DIO) connection->want |= FUSE_CAP_ASYNC_DIO;
  return NULL;
}

static double setting(const char* name, double otherwise) {
  const char* text = getenv(name);
  return text ? atof(text) : otherwise;
}

int main(int argc, char** argv) {
  const char* root = getenv("SLOWFS_ROOT");
  if (!root || root[0] != '/') {
    fprintf(stderr, "slowfs: set SLOWFS_ROOT to an absolute path\n");
    return 2;
  }
  root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root_fd == -1) {
    fprintf(stderr, "slowfs: %s: %s\n", root, strerror(errno));
    return 2;
  }
  umask(0);  // the kernel has applied the caller's
  if (setting("SLOWFS_WITH_PARENT", 0) != 0) prctl(PR_SET_PDEATHSIG, SIGTERM);
  faults_init(getenv("SLOWFS_FAULT"), stopping);
  latency_ns = setting("SLOWFS_LATENCY_US", 2000) * 1e3;
  meta_ns = setting("SLOWFS_META_US", 0) * 1e3;
  bytes_per_ns = setting("SLOWFS_MBPS", 0) * 1e-3;
  attr_timeout_s = setting("SLOWFS_ATTR_S", 1);
  keep_cache = setting("SLOWFS_CACHE", 1) != 0;
  static const struct fuse_operations kOperations = {
      .init = sf_init,
      .getattr = sf_getattr,
      .readlink = sf_readlink,
      .readdir = sf_readdir,
      .open = sf_open,
      .create = sf_create,
      .read = sf_read,
      .write = sf_write,
      .release = sf_release,
      .fsync = sf_fsync,
      .mkdir = sf_mkdir,
      .symlink = sf_symlink,
      .link = sf_link,
      .unlink = sf_unlink,
      .rmdir = sf_rmdir,
      .rename = sf_rename,
      .chmod = sf_chmod,
      .chown = sf_chown,
      .utimens = sf_utimens,
      .truncate = sf_truncate,
      .fallocate = sf_fallocate,
      .statfs = sf_statfs,
  };
  char* arguments[argc + 3];
  memcpy(arguments, argv, (size_t)argc * sizeof *argv);
  arguments[argc] = "-o";
  arguments[argc + 1] = "max_threads=512,max_idle_threads=512";
  arguments[argc + 2] = NULL;
  return fuse_main(argc + 2, arguments, &kOperations, NULL);
}
