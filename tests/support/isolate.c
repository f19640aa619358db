// isolate: runs a command as another user, with other limits, or with system calls refused, as
// it would run in a container, under an older kernel, or without root's privileges.
//
//   cc -O2 isolate.c -o isolate
//   ./isolate --uid 65534 --see /root/python --limit memlock=0 --refuse io_uring -- command ...
//
// --refuse NAME    repeatable; the kernel answers as if it had no such thing:
//                    io_uring     io_uring_setup, _enter, _register: EPERM
//                    io_uring_enosys                         the same: ENOSYS
//                    io_uring_enter                          that one alone: EPERM
//                    cachestat    cachestat: EPERM
//                    dioalign     statx that asks for STATX_DIOALIGN: EPERM
//                    populate     madvise(MADV_POPULATE_WRITE): EINVAL
//                    memfd        memfd_create: EPERM
// --limit NAME=N   repeatable; sets a resource limit (memlock, as, nofile, nproc, fsize) to N
// --uid N          user and group, without supplementary groups or capabilities (needs root)
// --see PATH       repeatable, with --uid: PATH stays reachable although a folder above it is
//                  closed to others. In a mount namespace of the command's own, an empty folder
//                  takes the place of that closed one, and PATH is put back into it.
//
// Exits 125 when it cannot do what it was asked to, otherwise as the command does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#error "isolate knows x86-64 and aarch64"
#endif

// Older headers lack some of these numbers, which are the same on both architectures.
enum {
  kIoUringSetup = 425,
  kIoUringRegister = 427,
  kOpenTree = 428,
  kMoveMount = 429,
  kCachestat = 451,
  kOpenTreeClone = 1,
  kMoveMountEmptyFrom = 4,
  kMadvPopulateWrite = 23,
  kStatxDioalign = 0x2000,
  kMaxPaths = 16,
  kMaxInstructions = 64,
};

static void die(const char* what, const char* which) {
  fprintf(stderr, "isolate: %s %s: %s\n", what, which, strerror(errno));
  exit(125);
}

static void misuse(const char* what) {
  fprintf(stderr, "isolate: %s\n", what);
  exit(125);
}

// ---- Refused system calls -----------------------------------------------------------------

static struct sock_filter program[kMaxInstructions];
static unsigned short program_length;

static void emit(uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false) {
  if (program_length == kMaxInstructions) misuse("too many --refuse");
  program[program_length++] = (struct sock_filter){code, if_true, if_false, k};
}

static void emit_load(size_t offset) { emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }

static void emit_return(uint32_t action) { emit(BPF_RET | BPF_K, action, 0, 0); }

static void refuse_range(uint32_t first, uint32_t last, uint32_t error) {
  emit_load(offsetof(struct seccomp_data, nr));
  emit(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2);
  emit(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0);
  emit_return(SECCOMP_RET_ERRNO | error);
}

// `test` (BPF_JEQ or BPF_JSET) compares the low half of an argument; both machines that this
// runs on are little-endian.
static void refuse_argument(uint32_t call, int argument, uint16_t test, uint32_t value,
                            uint32_t error) {
  emit_load(offsetof(struct seccomp_data, nr));
  emit(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3);
  emit_load(offsetof(struct seccomp_data, args) + (size_t)argument * sizeof(uint64_t));
  emit((uint16_t)(BPF_JMP | test | BPF_K), value, 0, 1);
  emit_return(SECCOMP_RET_ERRNO | error);
}

static void start_filter(void) {
  emit_load(offsetof(struct seccomp_data, arch));
  emit(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
  emit_return(SECCOMP_RET_KILL_PROCESS);
}

static void refuse(const char* name) {
  if (!program_length) start_filter();
  if (!strcmp(name, "io_uring")) {
    refuse_range(kIoUringSetup, kIoUringRegister, EPERM);
  } else if (!strcmp(name, "io_uring_enosys")) {
    refuse_range(kIoUringSetup, kIoUringRegister, ENOSYS);
  } else if (!strcmp(name, "io_uring_enter")) {
    refuse_range(kIoUringSetup + 1, kIoUringSetup + 1, EPERM);
  } else if (!strcmp(name, "cachestat")) {
    refuse_range(kCachestat, kCachestat, EPERM);
  } else if (!strcmp(name, "dioalign")) {
    refuse_argument(SYS_statx, 3, BPF_JSET, kStatxDioalign, EPERM);
  } else if (!strcmp(name, "populate")) {
    refuse_argument(SYS_madvise, 2, BPF_JEQ, kMadvPopulateWrite, EINVAL);
  } else if (!strcmp(name, "memfd")) {
    refuse_range(SYS_memfd_create, SYS_memfd_create, EPERM);
  } else {
    misuse("--refuse io_uring|io_uring_enosys|io_uring_enter|cachestat|dioalign|populate|memfd");
  }
}

static void install_filter(void) {
  if (!program_length) return;
  emit_return(SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {program_length, program};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) die("seccomp", "");
}

// ---- Limits -------------------------------------------------------------------------------

static void set_limit(const char* text) {
  static const struct {
    const char* name;
    int resource;
  } kLimits[] = {{"memlock", RLIMIT_MEMLOCK},
                 {"as", RLIMIT_AS},
                 {"nofile", RLIMIT_NOFILE},
                 {"nproc", RLIMIT_NPROC},
                 {"fsize", RLIMIT_FSIZE}};
  const char* value = strchr(text, '=');
  for (size_t i = 0; value && i < sizeof kLimits / sizeof *kLimits; i++) {
    if (strncmp(text, kLimits[i].name, (size_t)(value - text))) continue;
    rlim_t size = strtoull(value + 1, NULL, 10);
    if (setrlimit(kLimits[i].resource, &(struct rlimit){size, size})) die("limit", text);
    return;
  }
  misuse("--limit memlock|as|nofile|nproc|fsize=N");
}

// ---- Another user's view ------------------------------------------------------------------

// The topmost folder above `path` that others may not pass, cut out of `path` in `out`.
static bool closed_folder(const char* path, char out[PATH_MAX]) {
  struct stat info;
  for (const char* end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
    snprintf(out, PATH_MAX, "%.*s", (int)(end - path), path);
    if (stat(out, &info)) die("--see", out);
    if (!(info.st_mode & S_IXOTH)) return true;
  }
  return false;
}

static void make_folders(const char* path) {
  char part[PATH_MAX];
  for (const char* end = strchr(path + 1, '/');; end = strchr(end + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", end ? (int)(end - path) : PATH_MAX - 1, path);
    if (mkdir(part, 0755) && errno != EEXIST) die("mkdir", part);
    if (!end) return;
  }
}

static void keep_visible(char paths[][PATH_MAX], int count) {
  if (unshare(CLONE_NEWNS)) die("unshare", "");
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) die("mount", "/");
  int trees[kMaxPaths];
  for (int i = 0; i < count; i++) {
    trees[i] = (int)syscall(kOpenTree, AT_FDCWD, paths[i], kOpenTreeClone | O_CLOEXEC);
    if (trees[i] == -1) die("open_tree", paths[i]);
  }
  char closed[PATH_MAX];
  bool covered[kMaxPaths] = {false};
  for (int i = 0; i < count; i++) {
    // A path below a folder that is covered already may be gone from sight: put it back too.
    bool gone = access(paths[i], F_OK) != 0;
    if (!gone && closed_folder(paths[i], closed)) {
      if (mount("tmpfs", closed, "tmpfs", 0, "mode=755,size=1m")) die("mount", closed);
      gone = true;
    }
    covered[i] = gone;
  }
  for (int i = 0; i < count; i++) {
    if (!covered[i]) continue;
    make_folders(paths[i]);
    if (syscall(kMoveMount, trees[i], "", AT_FDCWD, paths[i], kMoveMountEmptyFrom))
      die("move_mount", paths[i]);
  }
}

static void become(const char* text) {
  uid_t id = (uid_t)strtoul(text, NULL, 10);
  if (setgroups(0, NULL)) die("setgroups", "");
  if (setresgid(id, id, id)) die("setresgid", text);
  if (setresuid(id, id, id)) die("setresuid", text);
}

int main(int argc, char** argv) {
  static char visible[kMaxPaths][PATH_MAX];
  const char* user = NULL;
  int visible_count = 0, i = 1;
  for (; i + 1 < argc && strcmp(argv[i], "--"); i += 2) {
    const char* value = argv[i + 1];
    if (!strcmp(argv[i], "--refuse")) {
      refuse(value);
    } else if (!strcmp(argv[i], "--limit")) {
      set_limit(value);
    } else if (!strcmp(argv[i], "--uid")) {
      user = value;
    } else if (!strcmp(argv[i], "--see") && visible_count < kMaxPaths) {
      if (!realpath(value, visible[visible_count++])) die("--see", value);
    } else {
      misuse("isolate [--refuse|--limit|--uid|--see VALUE]... -- COMMAND...");
    }
  }
  if (i + 1 >= argc) misuse("no command");
  if (visible_count) keep_visible(visible, visible_count);
  if (user) become(user);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs", "");
  install_filter();
  execvp(argv[i + 1], argv + i + 1);
  die("exec", argv[i + 1]);
}
