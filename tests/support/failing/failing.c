// Preloaded into a program, makes the n-th write below a folder fail, and all that follow if asked.
//
// What counts as a write is whatever needs a disk that takes something: opening a file for it,
// writing, renaming, linking, making folders, synchronising, changing a length.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static atomic_long writes;
static long failing_from, failing_until;
static int failing_error;

// Counts anew from here on, of what is below `path`; from the n-th write on `error` is given,
// 0 for never, and only once unless `stays`.
void failing_arm(const char *path, long n, int error, int stays)
{
	snprintf(folder, sizeof(folder), "%s", path);
	failing_from = n;
	failing_until = stays ? LONG_MAX : n;
	failing_error = error;
	atomic_store(&writes, 0);
}

long failing_count(void)
{
	return atomic_load(&writes);
}

static int below(const char *path)
{
	size_t length = strlen(folder);
	return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

// Whether a write to `path` fails; what is no path from the root lies in the working folder.
static int fails_at(const char *path)
{
	char whole[2 * PATH_MAX];
	long n;

	if (!folder[0] || !path)
		return 0;
	if (path[0] != '/') {
		if (!getcwd(whole, PATH_MAX))
			return 0;
		strcat(whole, "/");
		strncat(whole, path, PATH_MAX - 1);
		path = whole;
	}
	if (!below(path))
		return 0;
	n = atomic_fetch_add(&writes, 1) + 1;
	if (!failing_from || n < failing_from || n > failing_until)
		return 0;
	errno = failing_error;
	return 1;
}

static int fails_on(int descriptor)
{
	char link[64], path[PATH_MAX];
	ssize_t length;

	if (!folder[0])
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return path[0] == '/' && fails_at(path);
}

// What is no path from the root lies in the folder behind the descriptor `at`.
static int fails_in(int at, const char *path)
{
	char link[64], whole[2 * PATH_MAX];
	ssize_t length;

	if (!folder[0] || !path || path[0] == '/' || at == AT_FDCWD)
		return fails_at(path);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
	length = readlink(link, whole, PATH_MAX - 1);
	if (length < 0)
		return 0;
	snprintf(whole + length, sizeof(whole) - length, "/%s", path);
	return fails_at(whole);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY || ((flags) & O_CREAT))

#define OPEN(name)                                                             \
	int name(const char *path, int flags, ...)                             \
	{                                                                      \
		va_list rest;                                                  \
		mode_t mode;                                                   \
		va_start(rest, flags);                                         \
		mode = va_arg(rest, mode_t);                                   \
		va_end(rest);                                                  \
		if (WRITES(flags) && fails_at(path))                           \
			return -1;                                             \
		return REAL(name)(path, flags, mode);                          \
	}
#define OPENAT(name)                                                           \
	int name(int at, const char *path, int flags, ...)                     \
	{                                                                      \
		va_list rest;                                                  \
		mode_t mode;                                                   \
		va_start(rest, flags);                                         \
		mode = va_arg(rest, mode_t);                                   \
		va_end(rest);                                                  \
		if (WRITES(flags) && fails_in(at, path))                       \
			return -1;                                             \
		return REAL(name)(at, path, flags, mode);                      \
	}
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define OF_DESCRIPTOR(result, name, parameters, arguments)                     \
	result name parameters                                                 \
	{                                                                      \
		return fails_on(descriptor) ? -1 : REAL(name) arguments;       \
	}
OF_DESCRIPTOR(ssize_t, write, (int descriptor, const void *data, size_t length),
	      (descriptor, data, length))
OF_DESCRIPTOR(ssize_t, pwrite, (int descriptor, const void *data, size_t length, off_t at),
	      (descriptor, data, length, at))
OF_DESCRIPTOR(ssize_t, pwrite64, (int descriptor, const void *data, size_t length, off64_t at),
	      (descriptor, data, length, at))
OF_DESCRIPTOR(ssize_t, writev, (int descriptor, const struct iovec *parts, int count),
	      (descriptor, parts, count))
OF_DESCRIPTOR(int, fsync, (int descriptor), (descriptor))
OF_DESCRIPTOR(int, fdatasync, (int descriptor), (descriptor))
OF_DESCRIPTOR(int, ftruncate, (int descriptor, off_t length), (descriptor, length))
OF_DESCRIPTOR(int, ftruncate64, (int descriptor, off64_t length), (descriptor, length))

#define OF_NAME(name, parameters, in, path, arguments)                         \
	int name parameters                                                    \
	{                                                                      \
		return fails_in(in, path) ? -1 : REAL(name) arguments;         \
	}
OF_NAME(rename, (const char *from, const char *to), AT_FDCWD, to, (from, to))
OF_NAME(renameat, (int at, const char *from, int there, const char *to), there, to,
	(at, from, there, to))
OF_NAME(link, (const char *from, const char *to), AT_FDCWD, to, (from, to))
OF_NAME(linkat, (int at, const char *from, int there, const char *to, int flags), there, to,
	(at, from, there, to, flags))
OF_NAME(symlink, (const char *from, const char *to), AT_FDCWD, to, (from, to))
OF_NAME(symlinkat, (const char *from, int at, const char *to), at, to, (from, at, to))
OF_NAME(mkdir, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
OF_NAME(mkdirat, (int at, const char *path, mode_t mode), at, path, (at, path, mode))
