/* Preloaded into a program, this library makes one of its changes to files go wrong.
 *   RENORM_FAULT_DIR  only changes below this folder count
 *   RENORM_FAULT_AT   the change that goes wrong, counted from 1
 *   RENORM_FAULT      full: the disk is full from this change on; a write still does half of its bytes
 *                     io:   this change fails as by a broken device
 *                     kill: a write does half of its bytes, then the program is killed
 *                     term: the program receives SIGTERM, and the change is made; with
 *                           RENORM_FAULT_AT=0 while its libraries are initialized
 *                     lock: no file can be locked, as on a file system without locks
 *   RENORM_FAULT_LOG  gets a line "NUMBER CALL PATH" for every change that counts
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum verdict { GO_ON, FAIL, HALF };
enum space { NEEDS_SPACE, NEEDS_NONE };

static atomic_long counted;
static atomic_int disk_is_full;

static int below(const char* path) {
  const char* folder = getenv("RENORM_FAULT_DIR");
  if (folder == NULL || *folder == '\0') return 0;
  const size_t length = strlen(folder);
  return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static void note(long number, const char* call, const char* path) {
  const char* log = getenv("RENORM_FAULT_LOG");
  if (log == NULL) return;
  char line[PATH_MAX + 64];
  const int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  syscall(SYS_write, file, line, length < (int)sizeof line ? length : (int)sizeof line - 1);
  syscall(SYS_close, file);
}

/* What becomes of a change of `path`. Sets errno for FAIL. HALF is for writes: do half of it, then call
 * half_done. */
static enum verdict judge(const char* call, const char* path, enum space space, int is_write) {
  if (!below(path)) return GO_ON;
  const long number = atomic_fetch_add(&counted, 1) + 1;
  note(number, call, path);
  const char* kind = getenv("RENORM_FAULT");
  const char* at = getenv("RENORM_FAULT_AT");
  if (kind == NULL || at == NULL) return GO_ON;
  const int now = number == atol(at);
  if (strcmp(kind, "full") == 0) {
    if (atomic_load(&disk_is_full) && space == NEEDS_SPACE) {
      errno = ENOSPC;
      return FAIL;
    }
    if (!now) return GO_ON;
    atomic_store(&disk_is_full, 1);
    if (space == NEEDS_NONE) return GO_ON;
    errno = ENOSPC;
    return is_write ? HALF : FAIL;
  }
  if (!now) return GO_ON;
  if (strcmp(kind, "io") == 0) {
    errno = EIO;
    return FAIL;
  }
  if (strcmp(kind, "kill") == 0) {
    if (is_write) return HALF;
    kill(getpid(), SIGKILL);
  }
  if (strcmp(kind, "term") == 0) kill(getpid(), SIGTERM);
  return GO_ON;
}

/* Only in renorm: `env`, which starts it, loads this library too. */
__attribute__((constructor)) static void start(void) {
  if (strcmp(program_invocation_short_name, "renorm") != 0) return;
  const char* kind = getenv("RENORM_FAULT");
  const char* at = getenv("RENORM_FAULT_AT");
  if (kind != NULL && at != NULL && strcmp(kind, "term") == 0 && atol(at) == 0) kill(getpid(), SIGTERM);
}

static enum verdict judge_file(const char* call, int file, enum space space, int is_write) {
  char link[64];
  char path[PATH_MAX];
  struct stat status;
  if (fstat(file, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return GO_ON;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return GO_ON;
  path[length] = '\0';
  return judge(call, path, space, is_write);
}

/* The path with its folder resolved; the last part may be absent or a link and stays as it is. */
static void resolve(int folder, const char* path, char* out, size_t size) {
  char whole[PATH_MAX];
  if (path[0] == '/' || folder == AT_FDCWD) {
    snprintf(whole, sizeof whole, "%s", path);
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t length = readlink(link, whole, sizeof whole - 1);
    if (length < 0)
      whole[0] = '\0';
    else
      snprintf(whole + length, sizeof whole - (size_t)length, "/%s", path);
  }
  size_t end = strlen(whole);
  while (end > 1 && whole[end - 1] == '/') whole[--end] = '\0';
  char* slash = strrchr(whole, '/');
  char resolved[PATH_MAX];
  const char* name = slash == NULL ? whole : slash + 1;
  if (slash == NULL) {
    if (realpath(".", resolved) == NULL) resolved[0] = '\0';
  } else {
    *slash = '\0';
    if (realpath(*whole == '\0' ? "/" : whole, resolved) == NULL) resolved[0] = '\0';
  }
  snprintf(out, size, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, name);
}

static enum verdict judge_path(const char* call, int folder, const char* path, enum space space) {
  if (path == NULL) return GO_ON;
  const int saved = errno;
  char whole[2 * PATH_MAX];
  resolve(folder, path, whole, sizeof whole);
  errno = saved;
  return judge(call, whole, space, 0);
}

/* A write of which half was done: the count of a full disk, or the end of the program. Of a single byte
 * nothing is done. */
static ssize_t half_done(ssize_t done) {
  const char* kind = getenv("RENORM_FAULT");
  if (kind != NULL && strcmp(kind, "kill") == 0) kill(getpid(), SIGKILL);
  if (done > 0) return done;
  errno = ENOSPC;
  return -1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void* bytes, size_t count) {
  switch (judge_file("write", file, NEEDS_SPACE, 1)) {
    case FAIL:
      return -1;
    case HALF:
      return half_done(count < 2 ? 0 : NEXT(write)(file, bytes, count / 2));
    default:
      return NEXT(write)(file, bytes, count);
  }
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  switch (judge_file("pwrite", file, NEEDS_SPACE, 1)) {
    case FAIL:
      return -1;
    case HALF:
      return half_done(count < 2 ? 0 : NEXT(pwrite)(file, bytes, count / 2, offset));
    default:
      return NEXT(pwrite)(file, bytes, count, offset);
  }
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return pwrite(file, bytes, count, offset);
}

ssize_t writev(int file, const struct iovec* pieces, int count) {
  switch (judge_file("writev", file, NEEDS_SPACE, 1)) {
    case FAIL:
      return -1;
    case HALF:
      return half_done(count < 2 ? 0 : NEXT(writev)(file, pieces, count / 2));
    default:
      return NEXT(writev)(file, pieces, count);
  }
}

int flock(int file, int operation) {
  const char* kind = getenv("RENORM_FAULT");
  if (kind == NULL || strcmp(kind, "lock") != 0) return NEXT(flock)(file, operation);
  errno = EOPNOTSUPP;
  return -1;
}

#define BY_FILE(name, space, parameters, arguments)           \
  int name parameters {                                       \
    if (judge_file(#name, file, space, 0) == FAIL) return -1; \
    return NEXT(name) arguments;                              \
  }
BY_FILE(fsync, NEEDS_SPACE, (int file), (file))
BY_FILE(fdatasync, NEEDS_SPACE, (int file), (file))
BY_FILE(ftruncate, NEEDS_NONE, (int file, off_t length), (file, length))
BY_FILE(ftruncate64, NEEDS_NONE, (int file, off64_t length), (file, length))

#define BY_PATH(name, space, folder, path, parameters, arguments)  \
  int name parameters {                                            \
    if (judge_path(#name, folder, path, space) == FAIL) return -1; \
    return NEXT(name) arguments;                                   \
  }
BY_PATH(rename, NEEDS_SPACE, AT_FDCWD, to, (const char* from, const char* to), (from, to))
BY_PATH(renameat, NEEDS_SPACE, to_folder, to, (int folder, const char* from, int to_folder, const char* to),
        (folder, from, to_folder, to))
BY_PATH(renameat2, NEEDS_SPACE, to_folder, to,
        (int folder, const char* from, int to_folder, const char* to, unsigned flags),
        (folder, from, to_folder, to, flags))
BY_PATH(truncate, NEEDS_NONE, AT_FDCWD, path, (const char* path, off_t length), (path, length))
BY_PATH(mkdir, NEEDS_SPACE, AT_FDCWD, path, (const char* path, mode_t mode), (path, mode))
BY_PATH(mkdirat, NEEDS_SPACE, folder, path, (int folder, const char* path, mode_t mode), (folder, path, mode))
BY_PATH(link, NEEDS_SPACE, AT_FDCWD, to, (const char* from, const char* to), (from, to))
BY_PATH(symlink, NEEDS_SPACE, AT_FDCWD, path, (const char* target, const char* path), (target, path))
BY_PATH(symlinkat, NEEDS_SPACE, folder, path, (const char* target, int folder, const char* path),
        (target, folder, path))
BY_PATH(unlink, NEEDS_NONE, AT_FDCWD, path, (const char* path), (path))
BY_PATH(unlinkat, NEEDS_NONE, folder, path, (int folder, const char* path, int flags), (folder, path, flags))
BY_PATH(rmdir, NEEDS_NONE, AT_FDCWD, path, (const char* path), (path))
BY_PATH(remove, NEEDS_NONE, AT_FDCWD, path, (const char* path), (path))

/* Opening counts only if it makes or empties a file. */
#define OPENING(name, folder, parameters, arguments)                                                      \
  int name parameters {                                                                                   \
    va_list list;                                                                                         \
    va_start(list, flags);                                                                                \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, mode_t) : 0;                       \
    va_end(list);                                                                                         \
    if ((flags & (O_CREAT | O_TRUNC)) && judge_path(#name, folder, path, NEEDS_SPACE) == FAIL) return -1; \
    return NEXT(name) arguments;                                                                          \
  }
OPENING(open, AT_FDCWD, (const char* path, int flags, ...), (path, flags, mode))
OPENING(open64, AT_FDCWD, (const char* path, int flags, ...), (path, flags, mode))
OPENING(openat, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
OPENING(openat64, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
