// The format of the fault file is described at the top of slowfs.c.
#define _GNU_SOURCE
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kMaxRules = 32, kMaxFileBytes = 4096 };

atomic_long faults_met, faults_hanging;

struct rule {
  char op[16], glob[128];
  int what;  // as fault_of answers, or FAULT_HANG
  long every, seen;
};

// The parsed fault file. Its text is compared at every request, so that an edit counts at once.
static struct {
  const char* path;
  bool (*stopping)(void);
  pthread_mutex_t lock;
  char text[kMaxFileBytes];
  struct rule rules[kMaxRules];
  int count;
  long edition;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int parse_what(const char* word) {
  static const struct {
    const char* name;
    int what;
  } kNames[] = {{"short", FAULT_SHORT},
                {"eof", FAULT_EOF},
                {"flip", FAULT_FLIP},
                {"hang", FAULT_HANG},
                {"EIO", -EIO},
                {"EINVAL", -EINVAL},
                {"EACCES", -EACCES},
                {"EPERM", -EPERM},
                {"ENOENT", -ENOENT},
                {"ENOSPC", -ENOSPC},
                {"EDQUOT", -EDQUOT},
                {"EROFS", -EROFS},
                {"ESTALE", -ESTALE},
                {"ETIMEDOUT", -ETIMEDOUT},
                {"EAGAIN", -EAGAIN},
                {"EINTR", -EINTR},
                {"EOPNOTSUPP", -EOPNOTSUPP},
                {"EMFILE", -EMFILE},
                {"EFAULT", -EFAULT},
                {"ENOTCONN", -ENOTCONN}};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; i++) {
    if (!strcmp(word, kNames[i].name)) return kNames[i].what;
  }
  char* end;
  long number = strtol(word, &end, 10);
  return *end || number <= 0 || number > 4095 ? -EBADMSG : (int)-number;
}

static void parse_faults(void) {  // with faults.lock held
  char copy[kMaxFileBytes], *rest = copy;
  memcpy(copy, faults.text, sizeof copy);
  faults.count = 0;
  faults.edition++;
  for (char* line; (line = strsep(&rest, "\n"));) {
    if (!line[strspn(line, " \t")] || faults.count == kMaxRules) continue;
    struct rule* rule = &faults.rules[faults.count++];
    char what[16] = "";
    *rule = (struct rule){.glob = "*"};
    int fields = sscanf(line, "%15s %15s %ld %127s", rule->op, what, &rule->every, rule->glob);
    rule->what = parse_what(what);
    if (fields < 3 || rule->every <= 0) {
      rule->what = -EBADMSG;
      rule->every = 1;
    }
  }
}

static void refresh_faults(void) {  // with faults.lock held
  char text[kMaxFileBytes] = "";
  int fd = open(faults.path, O_RDONLY | O_CLOEXEC);
  if (fd != -1) {
    ssize_t length = read(fd, text, sizeof text - 1);
    if (length < 0) text[0] = 0;
    close(fd);
  }
  if (strcmp(text, faults.text)) {
    memcpy(faults.text, text, sizeof text);
    parse_faults();
  }
}

static bool matches(const struct rule* rule, const char* op, const char* path) {
  if (strcmp(rule->op, op)) return false;
  const char* name = strchr(rule->glob, '/') ? path + 1 : strrchr(path, '/') + 1;
  return !fnmatch(rule->glob, name, 0);
}

// The fault that this request meets; `*edition` is the fault file's at that moment.
static int find_fault(const char* op, const char* path, long* edition) {
  int what = NO_FAULT;
  pthread_mutex_lock(&faults.lock);
  refresh_faults();
  *edition = faults.edition;
  for (int i = 0; i < faults.count && what == NO_FAULT; i++) {
    struct rule* rule = &faults.rules[i];
    if (matches(rule, op, path) && ++rule->seen % rule->every == 0) what = rule->what;
  }
  pthread_mutex_unlock(&faults.lock);
  return what;
}

static bool still_hangs(const char* op, const char* path, long* edition) {
  pthread_mutex_lock(&faults.lock);
  refresh_faults();
  bool hangs = *edition == faults.edition;
  for (int i = 0; i < faults.count && !hangs; i++) {
    hangs = faults.rules[i].what == FAULT_HANG && matches(&faults.rules[i], op, path);
  }
  *edition = faults.edition;
  pthread_mutex_unlock(&faults.lock);
  return hangs;
}

void faults_init(const char* path, bool (*stopping)(void)) {
  faults.path = path;
  faults.stopping = stopping;
}

int fault_of(const char* op, const char* path) {
  if (!faults.path) return NO_FAULT;
  long edition;
  int what = find_fault(op, path, &edition);
  if (what == NO_FAULT) return NO_FAULT;
  atomic_fetch_add(&faults_met, 1);
  if (what != FAULT_HANG) return what;
  atomic_fetch_add(&faults_hanging, 1);
  while (still_hangs(op, path, &edition) && !faults.stopping()) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  atomic_fetch_sub(&faults_hanging, 1);
  return NO_FAULT;
}

bool faults_include(int what) {
  if (!faults.path) return false;
  bool included = false;
  pthread_mutex_lock(&faults.lock);
  refresh_faults();
  for (int i = 0; i < faults.count; i++) included |= faults.rules[i].what == what;
  pthread_mutex_unlock(&faults.lock);
  return included;
}
