/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared object for LD_PRELOAD: makes the n-th allocation or system call of npugraphd fail.
 *
 * A page of a file, shared with the program that tests (NGD_FAILING names it), says what fails. Each call is counted if
 * its kind is armed and its caller's library is one of those that are armed. `left` counts down to the first call that
 * fails. What failed last, with its callers, is in the page as well. Libraries are told apart by the return address.
 *
 * Fast where nothing is armed: a load and a branch. Not for processes that the daemon starts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define OWN     1u /* npugraphd */
#define HELPERS 2u /* jansson, libevent, protobuf-c, systemd */
#define LIBC    4u /* what libc allocates for its callers */
#define GRPC    8u /* gRPC and all that it brings */
#define ALLOC   1u /* kinds: memory */
#define CALLS   2u /* system calls on files, sockets and threads */
#define KILLS   4u /* SIGKILL before the n-th call that changes a file */
#define FRAMES  24
#define MODULES 128

/* tests/campaign/failing.py knows this layout: all are 64 bits. */
struct page {
    _Atomic uint64_t kinds, callers;
    _Atomic int64_t left;  /* calls until the first that fails */
    _Atomic int64_t times; /* how many fail from there on */
    _Atomic uint64_t pick; /* which of a call's errors */
    _Atomic uint64_t counted, failed;
    _Atomic uint64_t error;
    char name[32];
    uint64_t n_frames, base;
    uint64_t frames[FRAMES];
};

static struct page *page;
static struct {
    uintptr_t begin, end;
    unsigned kind;
} modules[MODULES];
static unsigned n_modules;
static _Thread_local bool inside;

/* ---- who calls ---- */

static unsigned kind_of(const char *name)
{
    static const char *const helpers[] = {"libjansson", "libevent", "libprotobuf-c", "libsystemd"};
    static const char *const libc[] = {"libc.so", "ld-linux", "libm.so", "libjemalloc"};

    if (*name == '\0')
        return OWN;
    for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
        if (strstr(name, helpers[i]))
            return HELPERS;
    for (size_t i = 0; i < sizeof(libc) / sizeof(libc[0]); i++)
        if (strstr(name, libc[i]))
            return LIBC;
    return strstr(name, "libngd-failing") ? 0 : GRPC;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    if (n_modules == 0)
        page->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum && n_modules < MODULES; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];

        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        modules[n_modules].begin = info->dlpi_addr + p->p_vaddr;
        modules[n_modules].end = modules[n_modules].begin + p->p_memsz;
        modules[n_modules++].kind = kind_of(info->dlpi_name);
    }
    return 0;
}

static unsigned caller_of(const void *address)
{
    for (unsigned i = 0; i < n_modules; i++)
        if ((uintptr_t)address >= modules[i].begin && (uintptr_t)address < modules[i].end)
            return modules[i].kind;
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("NGD_FAILING");
    const int fd =
        path && strcmp(program_invocation_short_name, "npugraphd") == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *frames[FRAMES], *p;

    if (fd < 0)
        return;
    p = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return;
    backtrace(frames, FRAMES); /* allocates the first time */
    page = p;
    dl_iterate_phdr(add_module, NULL);
}

/* ---- whether it fails ---- */

static void note(const char *name, int error)
{
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);

    strncpy(page->name, name, sizeof(page->name) - 1);
    page->error = (uint64_t)error;
    page->n_frames = (uint64_t)n;
    for (int i = 0; i < n; i++)
        page->frames[i] = (uintptr_t)frames[i];
}

/* libc allocates for others: theirs is the first of the callers that is not libc. */
static unsigned caller_behind_libc(void)
{
    void *frames[FRAMES];
    int n;

    inside = true;
    n = backtrace(frames, FRAMES);
    inside = false;
    for (int i = 1; i < n; i++) {
        const unsigned kind = caller_of(frames[i]);

        if (kind == GRPC)
            return GRPC;
        if (kind == OWN || kind == HELPERS)
            return LIBC;
    }
    return LIBC;
}

/* Counts a call of a kind that is armed. */
static bool hits(unsigned kind, const void *caller)
{
    unsigned by;

    if (!page || !(atomic_load_explicit(&page->kinds, memory_order_relaxed) & kind) || inside)
        return false;
    by = caller_of(caller);
    if (by == LIBC)
        by = caller_behind_libc();
    if (!(by & atomic_load(&page->callers)))
        return false;
    atomic_fetch_add(&page->counted, 1);
    if (atomic_fetch_sub(&page->left, 1) > 0 || atomic_fetch_sub(&page->times, 1) <= 0)
        return false;
    return true;
}

static bool no_memory(const char *name, const void *caller)
{
    if (!hits(ALLOC, caller))
        return false;
    inside = true;
    note(name, ENOMEM);
    inside = false;
    atomic_fetch_add(&page->failed, 1);
    errno = ENOMEM;
    return true;
}

#define SHORT -1 /* instead of an error: fewer bytes than were asked for */

/* 0, an error, or SHORT. */
static int call_fails(const char *name, const void *caller, const int *errors, size_t n)
{
    int e;

    if (!hits(CALLS, caller))
        return 0;
    e = errors[atomic_load(&page->pick) % n];
    inside = true;
    note(name, e);
    inside = false;
    atomic_fetch_add(&page->failed, 1);
    if (e != SHORT)
        errno = e;
    return e;
}

/* Dies before a call that changes files. */
static void die_at(const char *name, const void *caller)
{
    if (!hits(KILLS, caller))
        return;
    note(name, 0);
    atomic_fetch_add(&page->failed, 1);
    syscall(SYS_kill, getpid(), SIGKILL);
}

/* ---- memory ---- */

static char early[65536]; /* for what dlsym allocates while it looks for calloc */
static size_t early_used;

static bool is_early(const void *p)
{
    return (const char *)p >= early && (const char *)p < early + sizeof(early);
}

static void *take_early(size_t n)
{
    void *p = early + early_used;

    early_used += (n + 15) & ~(size_t)15;
    return early_used <= sizeof(early) ? p : NULL;
}

#define REAL(name)                                 \
    static __typeof__(name) *real;                 \
                                                   \
    if (!real) {                                   \
        *(void **)&real = dlsym(RTLD_NEXT, #name); \
    }

void *malloc(size_t n)
{
    REAL(malloc)
    return no_memory("malloc", __builtin_return_address(0)) ? NULL : real(n);
}

void *calloc(size_t n, size_t size)
{
    static __typeof__(calloc) *real;
    static bool looking;

    if (!real) {
        if (looking)
            return take_early(n * size);
        looking = true;
        *(void **)&real = dlsym(RTLD_NEXT, "calloc");
        looking = false;
    }
    return no_memory("calloc", __builtin_return_address(0)) ? NULL : real(n, size);
}

void *realloc(void *p, size_t n)
{
    REAL(realloc)
    if (is_early(p)) {
        void *q = malloc(n);

        return q ? memcpy(q, p, n) : NULL;
    }
    if (no_memory("realloc", __builtin_return_address(0)))
        return NULL;
    return real(p, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    REAL(posix_memalign)
    if (no_memory("posix_memalign", __builtin_return_address(0)))
        return ENOMEM;
    return real(p, align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    REAL(aligned_alloc)
    return no_memory("aligned_alloc", __builtin_return_address(0)) ? NULL : real(align, n);
}

void *memalign(size_t align, size_t n)
{
    REAL(memalign)
    return no_memory("memalign", __builtin_return_address(0)) ? NULL : real(align, n);
}

void free(void *p)
{
    REAL(free)
    if (!is_early(p))
        real(p);
}

/* ---- system calls ---- */

#define ERRORS(...) ((const int[]){__VA_ARGS__})
#define FAILS(name, ...) \
    call_fails(#name, __builtin_return_address(0), ERRORS(__VA_ARGS__), sizeof(ERRORS(__VA_ARGS__)) / sizeof(int))

/* A function of the C library that answers -1 and errno. */
#define WRAP(type, name, parameters, arguments, ...)                 \
    type name parameters                                             \
    {                                                                \
        REAL(name)                                                   \
        return FAILS(name, __VA_ARGS__) ? (type)-1 : real arguments; \
    }

/* One that moves up to n bytes: a short one moves 1. */
#define WRAP_MOVE(name, parameters, arguments, ...)    \
    ssize_t name parameters                            \
    {                                                  \
        REAL(name)                                     \
        const int e = FAILS(name, SHORT, __VA_ARGS__); \
                                                       \
        if (e == SHORT && n > 1)                       \
            n = 1;                                     \
        return e && e != SHORT ? -1 : real arguments;  \
    }

/* One that changes files: the process may end before it. */
#define WRAP_CHANGE(type, name, parameters, arguments, ...)          \
    type name parameters                                             \
    {                                                                \
        REAL(name)                                                   \
        die_at(#name, __builtin_return_address(0));                  \
        return FAILS(name, __VA_ARGS__) ? (type)-1 : real arguments; \
    }

static int open_mode(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
}

static int open_fails(const char *name, const void *caller, int flags)
{
    const int errors[] = {EMFILE, ENFILE, EACCES, flags & O_CREAT ? ENOSPC : ENOENT, EINTR, EIO};

    if (flags & O_CREAT)
        die_at(name, caller);
    return call_fails(name, caller, errors, sizeof(errors) / sizeof(errors[0]));
}

int open(const char *path, int flags, ...)
{
    REAL(open)
    va_list more;

    va_start(more, flags);
    const int mode = open_mode(flags, more);

    va_end(more);
    return open_fails("open", __builtin_return_address(0), flags) ? -1 : real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    REAL(openat)
    va_list more;

    va_start(more, flags);
    const int mode = open_mode(flags, more);

    va_end(more);
    return open_fails("openat", __builtin_return_address(0), flags) ? -1 : real(dir, path, flags, mode);
}

WRAP_MOVE(read, (int fd, void *to, size_t n), (fd, to, n), EINTR, EIO, EAGAIN)
WRAP_MOVE(pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), EINTR, EIO)
/* No short one: a socket gives what has come. */
WRAP(ssize_t, recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags), EINTR, ECONNRESET, EAGAIN, ENOMEM)

ssize_t write(int fd, const void *from, size_t n)
{
    REAL(write)
    int e;

    if (n == sizeof(uint64_t)) /* an eventfd: it takes all of it, at once */
        return real(fd, from, n);
    die_at("write", __builtin_return_address(0));
    e = FAILS(write, SHORT, EINTR, ENOSPC, EIO, EPIPE);
    return e && e != SHORT ? -1 : real(fd, from, e && n > 1 ? 1 : n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    REAL(pwrite)
    die_at("pwrite", __builtin_return_address(0));
    const int e = FAILS(pwrite, SHORT, EINTR, ENOSPC, EIO);

    return e && e != SHORT ? -1 : real(fd, from, e && n > 1 ? 1 : n, at);
}

WRAP_MOVE(send, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags), EINTR, EPIPE, EAGAIN, ENOBUFS)
WRAP(ssize_t, readv, (int fd, const struct iovec *to, int n), (fd, to, n), EINTR, EIO, EAGAIN)
WRAP(ssize_t, writev, (int fd, const struct iovec *from, int n), (fd, from, n), EINTR, EIO, ENOSPC)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), EINTR, ECONNRESET, ENOMEM, EAGAIN)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), EINTR, EPIPE, ENOBUFS, ECONNRESET)
WRAP_CHANGE(int, fsync, (int fd), (fd), EIO, ENOSPC, EINTR)
WRAP_CHANGE(int, fdatasync, (int fd), (fd), EIO, ENOSPC)
WRAP_CHANGE(int, ftruncate, (int fd, off_t n), (fd, n), EIO, ENOSPC)
WRAP_CHANGE(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), EACCES, ENOSPC, EIO)
WRAP_CHANGE(int, linkat, (int a, const char *from, int b, const char *to, int f), (a, from, b, to, f), EACCES, ENOSPC)
WRAP_CHANGE(int, unlink, (const char *path), (path), EACCES, EIO, ENOENT)
WRAP_CHANGE(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), EACCES, EIO, ENOENT)
WRAP_CHANGE(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode), EACCES, ENOSPC, EROFS)
WRAP_CHANGE(int, futimens, (int fd, const struct timespec t[2]), (fd, t), EPERM, EROFS)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), EIO, ENOMEM)
WRAP(int, fstatat, (int dir, const char *path, struct stat *st, int f), (dir, path, st, f), EIO, EACCES)
WRAP(int, flock, (int fd, int how), (fd, how), EINTR, ENOLCK)
WRAP(int, eventfd, (unsigned value, int flags), (value, flags), EMFILE, ENFILE, ENOMEM)
WRAP(int, pipe2, (int fds[2], int flags), (fds, flags), EMFILE, ENFILE)
WRAP(int, socketpair, (int d, int t, int p, int fds[2]), (d, t, p, fds), EMFILE, ENFILE, ENOBUFS)
WRAP(int, socket, (int d, int t, int p), (d, t, p), EMFILE, ENFILE, ENOBUFS, EACCES)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), EADDRINUSE, EACCES)
WRAP(int, listen, (int fd, int n), (fd, n), EADDRINUSE)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), EMFILE, ENFILE, ECONNABORTED,
     EINTR, ENOMEM, EPERM)
WRAP(int, epoll_create1, (int flags), (flags), EMFILE, ENFILE, ENOMEM)
WRAP(int, epoll_ctl, (int fd, int op, int on, struct epoll_event *e), (fd, op, on, e), ENOMEM, ENOSPC)
WRAP(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms), EINTR)
WRAP(int, getsockopt, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n), EINVAL, ENOBUFS)
WRAP(int, setsockopt, (int fd, int l, int o, const void *v, socklen_t n), (fd, l, o, v, n), EINVAL, ENOMEM)
WRAP(int, getpeername, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), ENOTCONN, ENOBUFS)
WRAP(int, mprotect, (void *p, size_t n, int prot), (p, n, prot), ENOMEM, EACCES)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, ENOMEM)

int fcntl(int fd, int op, ...)
{
    REAL(fcntl)
    va_list more;

    va_start(more, op);
    void *argument = va_arg(more, void *);

    va_end(more);
    return FAILS(fcntl, EINVAL, ENOMEM, EMFILE) ? -1 : real(fd, op, argument);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    const void *caller = __builtin_return_address(0);

    /*
     * Not for the allocator: jemalloc 5.3 crashes in malloc when it cannot map an arena for a new thread. The system
     * call itself, since the allocator maps before there is anything to look up.
     */
    if (page && caller_of(caller) != LIBC &&
        (no_memory("mmap", caller) || call_fails("mmap", caller, ERRORS(ENOMEM, EAGAIN), 2)))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset); // NOLINT
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *ctx)
{
    REAL(pthread_create)
    const void *caller = __builtin_return_address(0);

    if (no_memory("pthread_create", caller) || call_fails("pthread_create", caller, ERRORS(EAGAIN), 1))
        return EAGAIN;
    return real(thread, attr, fn, ctx);
}
