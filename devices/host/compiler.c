/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the compiler of static kernels in a separate process, in a temporary directory of its own.
 *
 * The process inherits nothing of the daemon: no descriptor, no environment, no signal mask. There is no shell, and all
 * arguments are ours. It leads a process group, so that what it starts ends with it. Limits on time, memory and file
 * size are set before its first instruction. It has the priority of the calling thread, which is low.
 */
#include "base/log.h"
#include "base/mem.h"
#include "devices/host/host.h"
#include "devices/host/static.h"
#include "devices/host/static_flags.inc"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OBJECT_MAX (16u << 20)
#define MEMORY_MAX ((rlim_t)2 << 30)
#define FILE_MAX   ((rlim_t)64 << 20)
#define POLL_NS    5000000
#define ARGS_MAX   64
#define PATH_BYTES 512

/* All flags that affect the object. They are those of the daemon's own kernels, except that those have -O3, which does
 * not change results. */
static const char *const common_flags[] = {"-std=gnu11",          "-D_GNU_SOURCE",    "-O2", "-fPIC", "-shared", "-w",
                                           "-fvisibility=hidden", "-ffp-contract=off"};

static const char *isa_flags(ngd_isa_t isa)
{
#if defined(NGD_HAVE_AVX512)
    if (isa >= NGD_ISA_AVX512)
        return NGD_STATIC_AVX512_CFLAGS;
#endif
#if defined(NGD_HAVE_AVX2)
    if (isa == NGD_ISA_AVX2)
        return NGD_STATIC_AVX2_CFLAGS;
#endif
    (void)isa;
    return "";
}

void ngd_host_static_toolchain(void *dev_v, const char *compiler, struct ngd_strbuf *lines)
{
    const struct host_device *dev = dev_v;
    struct ngd_digest digest;
    char hex[NGD_DIGEST_HEX];
    struct ngd_strbuf all;
    struct stat st = {0};

    ngd_strbuf_init(&all);
    for (const struct ngd_static_file *f = ngd_static_files; f->path; f++)
        ngd_strbuf_printf(&all, "%s\n%s", f->path, f->text);
    ngd_digest_of(ngd_strbuf_str(&all), all.len, &digest);
    lines->failed |= all.failed;
    ngd_strbuf_fini(&all);
    ngd_digest_hex(&digest, hex);
    (void)stat(compiler, &st); /* a compiler that is replaced has another size or time */
    ngd_strbuf_printf(lines, "kernels %s\ncompiler %s %lld bytes of %lld.%09ld\nflags", hex, compiler,
                      (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    for (size_t i = 0; i < sizeof(common_flags) / sizeof(common_flags[0]); i++)
        ngd_strbuf_printf(lines, " %s", common_flags[i]);
    ngd_strbuf_printf(lines, " %s\n", isa_flags(dev->isa));
}

/* ---- the directory ------------------------------------------------------------------------------------- */

static const char *const folders[] = {"base", "graphs", "devices", "devices/host", "devices/host/kernels"};
#define N_FOLDERS (sizeof(folders) / sizeof(folders[0]))

bool ngd_static_write(int fd, const char *data, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, data, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}

static bool write_file(int dir, const char *name, const char *text, size_t n)
{
    const int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool ok = fd >= 0 && ngd_static_write(fd, text, n);

    if (fd >= 0)
        close(fd);
    return ok;
}

struct files {
    uint32_t n;
    char name[NGD_STATIC_FAMILIES + 1][32];
};

/* Writes the text behind each mark to the file that the mark names. */
static bool write_source(int dir, const char *source, struct files *files)
{
    const size_t mark = strlen(NGD_STATIC_FILE_MARK);

    files->n = 0;
    while (*source) {
        const char *name = source + mark, *text = strchr(source, '\n'), *end;
        char *to = files->name[files->n];

        if (strncmp(source, NGD_STATIC_FILE_MARK, mark) != 0 || !text || files->n > NGD_STATIC_FAMILIES ||
            (size_t)(text - name) >= sizeof(files->name[0]))
            return false;
        snprintf(to, sizeof(files->name[0]), "%.*s", (int)(text - name), name);
        end = strstr(text, "\n" NGD_STATIC_FILE_MARK);
        end = end ? end + 1 : text + strlen(text);
        if (!write_file(dir, to, text + 1, (size_t)(end - text - 1)))
            return false;
        files->n++;
        source = end;
    }
    return files->n > 0;
}

static bool write_sources(int dir, const char *source, struct files *files)
{
    for (size_t i = 0; i < N_FOLDERS; i++)
        if (mkdirat(dir, folders[i], 0700) != 0)
            return false;
    for (const struct ngd_static_file *f = ngd_static_files; f->path; f++)
        if (!write_file(dir, f->path, f->text, strlen(f->text)))
            return false;
    return write_source(dir, source, files);
}

/* Removes all files of the directory. A compiler that was killed leaves its temporary files behind. */
static void remove_files(int dir)
{
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *e;

    while (d && (e = readdir(d)))
        (void)unlinkat(dir, e->d_name, 0);
    if (d)
        closedir(d);
    else if (copy >= 0)
        close(copy);
}

static void remove_all(int dir, const char *path)
{
    for (const struct ngd_static_file *f = ngd_static_files; f->path; f++)
        (void)unlinkat(dir, f->path, 0);
    for (size_t i = N_FOLDERS; i-- > 0;)
        (void)unlinkat(dir, folders[i], AT_REMOVEDIR);
    remove_files(dir);
    if (rmdir(path) != 0)
        ngd_debug("devices", "directory %s of a compilation stays: %s", path, strerror(errno));
}

/* ---- the process --------------------------------------------------------------------------------------- */

struct args {
    char *v[ARGS_MAX + 1];
    uint32_t n;
    struct ngd_arena arena;
};

static void add_arg(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_arg(struct args *a, const char *fmt, ...)
{
    char text[PATH_BYTES + 256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (a->n < ARGS_MAX)
        a->v[a->n++] = ngd_arena_strdup(&a->arena, text);
}

static void make_args(const struct host_device *dev, const char *compiler, const char *source, const char *dir,
                      const struct files *files, struct args *a)
{
    const char *flag = isa_flags(dev->isa);
    struct ngd_digest digest;
    char hex[NGD_DIGEST_HEX];

    ngd_digest_of(source, strlen(source), &digest);
    ngd_digest_hex(&digest, hex);
    add_arg(a, "%s", compiler);
    for (size_t i = 0; i < sizeof(common_flags) / sizeof(common_flags[0]); i++)
        add_arg(a, "%s", common_flags[i]);
    while (*flag) {
        const size_t n = strcspn(flag, " ");

        if (n)
            add_arg(a, "%.*s", (int)n, flag);
        flag += n + (flag[n] == ' ');
    }
    add_arg(a, "-DNGD_STATIC_SOURCE=\"%s\"", hex);
    add_arg(a, "-I%s", dir);
    add_arg(a, "-o");
    add_arg(a, "%s/object.so", dir);
    for (uint32_t i = 0; i < files->n; i++)
        add_arg(a, "%s/%s", dir, files->name[i]);
    add_arg(a, "-lm");
}

/* What become_compiler() needs. The caller prepares all of it, since the new process makes only system calls. */
struct start {
    char **argv, **env;
    int fds[3]; /* descriptors for 0, 1 and 2 of the new process; all above 2 here */
    struct rlimit cpu, memory, file, core;
    volatile int err; /* errno if the compiler could not be started; 0: it runs */
};

/*
 * Turns the new process into the compiler. It still runs in the daemon's memory, while the calling thread waits, so it
 * makes only system calls. It sets the limits here, so that they hold for the compiler's first instruction and for
 * everything that it starts.
 */
static void become_compiler(struct start *s)
{
    const struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    bool ok = setpgid(0, 0) == 0;

    for (int i = 1; i < NSIG; i++)
        (void)sigaction(i, &dfl, NULL); /* fails for SIGKILL and SIGSTOP */
    for (int i = 0; i < 3; i++)
        ok = ok && dup2(s->fds[i], i) == i;
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, 3u, ~0u, 0u); /* our descriptors are close-on-exec; a library's may not be */
#endif
    ok = ok && setrlimit(RLIMIT_CPU, &s->cpu) == 0 && setrlimit(RLIMIT_AS, &s->memory) == 0 &&
         setrlimit(RLIMIT_FSIZE, &s->file) == 0 && setrlimit(RLIMIT_CORE, &s->core) == 0;
    sigemptyset(&none);
    if (ok && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execve(s->argv[0], s->argv, s->env);
    s->err = errno ? errno : EINVAL;
    _exit(127);
}

/* Calls vfork in a stack frame of its own, so that the caller keeps nothing in it across vfork. */
static pid_t __attribute__((noinline)) start_compiler(struct start *s)
{
    const pid_t pid = vfork();

    if (pid == 0)
        become_compiler(s);
    return pid;
}

/* Blocks all signals meanwhile: no handler may run in the new process, in the daemon's memory. */
static int start_masked(struct start *s, pid_t *pid_p)
{
    sigset_t all, old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    *pid_p = start_compiler(s);
    err = *pid_p < 0 ? errno : s->err;
    /* The process does so itself, but may not have come to it where a sanitizer makes a fork of vfork: it could not be
     * killed by its group yet. */
    if (*pid_p > 0)
        (void)setpgid(*pid_p, *pid_p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    while (*pid_p > 0 && err && waitpid(*pid_p, NULL, 0) < 0 && errno == EINTR)
        ;
    return err;
}

/* Opens a file on a descriptor above 2, so that dup2 does not overwrite it. */
static int open_high(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    int high;

    if (fd < 0 || fd > 2)
        return fd;
    high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return high;
}

/* Lowers the limit to the daemon's own hard limit, above which setrlimit would fail. */
static struct rlimit resource_limit(int what, rlim_t most)
{
    struct rlimit now;

    if (getrlimit(what, &now) == 0 && now.rlim_max < most)
        most = now.rlim_max;
    return (struct rlimit){most, most};
}

static int spawn(char **argv, const char *dir, ngd_nsec_t timeout, pid_t *pid_p)
{
    char tmp[PATH_BYTES + 16], log[PATH_BYTES + 16];
    char *env[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin", (char *)(uintptr_t) "LC_ALL=C", tmp, NULL};
    struct start s = {.argv = argv, .env = env};
    int err = 0;

    snprintf(tmp, sizeof(tmp), "TMPDIR=%s", dir);
    snprintf(log, sizeof(log), "%s/log", dir);
    s.cpu = resource_limit(RLIMIT_CPU, (rlim_t)(timeout / NGD_SEC) + 1);
    s.memory = resource_limit(RLIMIT_AS, MEMORY_MAX);
    s.file = resource_limit(RLIMIT_FSIZE, FILE_MAX);
    s.core = resource_limit(RLIMIT_CORE, 0);
    s.fds[0] = open_high("/dev/null", O_RDONLY);
    s.fds[1] = open_high("/dev/null", O_WRONLY);
    s.fds[2] = open_high(log, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    for (int i = 0; i < 3 && !err; i++)
        err = s.fds[i] < 0 ? errno : 0;
    if (!err)
        err = start_masked(&s, pid_p);
    for (int i = 0; i < 3; i++)
        if (s.fds[i] >= 0)
            close(s.fds[i]);
    return err;
}

/* Checks whether the process has ended, without reaping it. Until it is reaped, its id and that of its group cannot be
 * used again. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Waits until the compiler has ended, or kills it at the timeout or a stop. Then kills what is left of its group. */
static ngd_static_result_t await_compiler(pid_t pid, const struct ngd_static_work *work, int *status_p)
{
    const ngd_nsec_t end = ngd_now() + work->timeout;
    const struct timespec pause = {0, POLL_NS};
    ngd_static_result_t result = NGD_STATIC_COMPILED;

    while (result == NGD_STATIC_COMPILED && !has_ended(pid)) {
        if (work->stop && atomic_load(work->stop))
            result = NGD_STATIC_STOPPED;
        else if (ngd_now() >= end)
            result = NGD_STATIC_TIMEOUT;
        else
            nanosleep(&pause, NULL);
    }
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, status_p, 0) < 0 && errno == EINTR)
        ;
    return result;
}

static bool read_object(int dir, const char *name, size_t max, struct ngd_strbuf *sb)
{
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char buf[4096];
    ssize_t n = -1;
    size_t total = 0;

    while (fd >= 0 && total < max && (n = read(fd, buf, sizeof(buf))) > 0) {
        ngd_strbuf_append_n(sb, buf, (size_t)n);
        total += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    return n == 0 && total > 0 && !sb->failed;
}

/* Called if the compiler reported success, but wrote no object, an empty one, or one that is too large for kernels. */
static void tell_missing(const char *compiler, struct ngd_diag *diag)
{
    ngd_diag_set(diag, NGD_ERR_INTERNAL,
                 "%.100s ended with status 0 and wrote no object, or one above %u MiB: is it a C compiler?", compiler,
                 OBJECT_MAX >> 20);
}

/* Puts the first error that the compiler wrote into the diagnosis. */
static void tell_compiler_failure(int dir, const char *compiler, int status, struct ngd_diag *diag)
{
    struct ngd_strbuf log;
    const char *error;

    ngd_strbuf_init(&log);
    (void)read_object(dir, "log", 16384, &log);
    error = strstr(ngd_strbuf_str(&log), "error");
    error = error ? error : ngd_strbuf_str(&log);
    ngd_diag_set(diag, NGD_ERR_INTERNAL, "%.100s ended with %s %d: %.*s", compiler,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                 error[0] ? (int)strcspn(error, "\n") : 100, error[0] ? error : "it said nothing");
    ngd_strbuf_fini(&log);
}

static ngd_static_result_t run_compiler(const struct host_device *dev, const struct ngd_static_work *work, int dir,
                                        const char *path, const struct files *files, struct ngd_strbuf *object,
                                        struct ngd_diag *diag)
{
    ngd_static_result_t result;
    struct args args = {.n = 0};
    int err, status = 0;
    pid_t pid = -1;

    ngd_arena_init(&args.arena, 4096);
    make_args(dev, work->compiler, work->source, path, files, &args);
    err = spawn(args.v, path, work->timeout, &pid);
    ngd_arena_fini(&args.arena);
    if (err) {
        ngd_diag_set(diag, NGD_ERR_UNAVAILABLE, "%.200s cannot be run: %s", work->compiler, strerror(err));
        return NGD_STATIC_NO_COMPILER;
    }
    result = await_compiler(pid, work, &status);
    if (result != NGD_STATIC_COMPILED) {
        ngd_diag_set(diag, NGD_ERR_CANCELLED, "%.200s was killed: %s", work->compiler, ngd_static_result_text(result));
        return result;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        tell_compiler_failure(dir, work->compiler, status, diag);
    else if (!read_object(dir, "object.so", OBJECT_MAX, object))
        tell_missing(work->compiler, diag);
    else
        return NGD_STATIC_COMPILED;
    return NGD_STATIC_FAILED;
}

ngd_static_result_t ngd_host_static_compile(void *dev, const struct ngd_static_work *work, struct ngd_strbuf *object,
                                            struct ngd_diag *diag)
{
    ngd_static_result_t result = NGD_STATIC_NO_DIRECTORY;
    struct files files;
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/npugraph-static-XXXXXX", work->dir), dir = -1;

    if (access(work->compiler, X_OK) != 0) {
        ngd_diag_set(diag, NGD_ERR_UNAVAILABLE, "%.200s cannot be run: %s", work->compiler, strerror(errno));
        return NGD_STATIC_NO_COMPILER;
    }
    if (n > 0 && (size_t)n < sizeof(path) && mkdtemp(path))
        dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        ngd_diag_set(diag, NGD_ERR_IO, "cannot create a directory for a compilation in %.200s: %s", work->dir,
                     strerror(errno));
        return result;
    }
    if (write_sources(dir, work->source, &files))
        result = run_compiler(dev, work, dir, path, &files, object, diag);
    else
        ngd_diag_set(diag, NGD_ERR_IO, "cannot write the sources of static kernels to %.200s: %s", path,
                     strerror(errno));
    remove_all(dir, path);
    close(dir);
    return result;
}
