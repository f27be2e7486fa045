/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/models/live.h"
#include "client/lib/client_int.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_SECONDS 60

static void die(const char *what)
{
    fprintf(stderr, "live: %s: %s\n", what, strerror(errno));
    exit(99);
}

const char *source_dir(void)
{
    return getenv("top_srcdir") != NULL ? getenv("top_srcdir") : ".";
}

/* Runs the daemon, in the child. If the test is killed, its daemon is killed too. */
static void end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the test was killed before prctl() */
        _exit(127);
}

static void run_daemon(const struct live *live, const char *models_dir, const char *const *extra)
{
    const char *argv[64] = {getenv("NPUGRAPHD"), "--listen", live->address, "--stats-listen", "off",
                            "--models-dir",      models_dir};
    const char *isa = getenv("NGD_TEST_ISA");
    char path[4096], log_path[128];
    int n = 7, log;

    if (isa != NULL) {
        argv[n++] = "--isa";
        argv[n++] = isa;
    }
    if (argv[0] == NULL) {
        snprintf(path, sizeof(path), "%s/npugraphd", getenv("top_builddir") != NULL ? getenv("top_builddir") : ".");
        argv[0] = path;
    }
    while (extra != NULL && *extra != NULL && n < 62)
        argv[n++] = *extra++;
    snprintf(log_path, sizeof(log_path), "%s/log", live->dir);
    log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log >= 0)
        dup2(log, STDERR_FILENO);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

static void show_log(const struct live *live)
{
    char path[128], line[1024];
    FILE *f;

    snprintf(path, sizeof(path), "%s/log", live->dir);
    f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        fprintf(stderr, "  %s", line);
    if (f != NULL)
        fclose(f);
}

/* Waits until the daemon listens on its socket, which is the last step of its start. The file exists before that. */
static bool listens(const struct live *live)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes;

    snprintf(to.sun_path, sizeof(to.sun_path), "%s", live->address + strlen("unix:"));
    yes = fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

void live_start(struct live *live, const char *models_dir, const char *const *extra)
{
    const pid_t parent = getpid();
    const char *tmp = getenv("TMPDIR");

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* libcheck's child ends with libcheck, and the daemon with the child */
    memset(live, 0, sizeof(*live));
    /* tests/rpc/harness.py removes the directories of processes that have ended. */
    if (snprintf(live->dir, sizeof(live->dir), "%s/npugraphd-test-p%d-XXXXXX", tmp ? tmp : "/tmp", (int)parent) >=
        (int)sizeof(live->dir)) {
        errno = ENAMETOOLONG;
        die("TMPDIR");
    }
    if (mkdtemp(live->dir) == NULL)
        die("mkdtemp");
    snprintf(live->address, sizeof(live->address), "unix:%s/sock", live->dir);
    live->pid = fork();
    if (live->pid < 0)
        die("fork");
    if (live->pid == 0) {
        end_with(parent);
        run_daemon(live, models_dir, extra);
    }
    for (int i = 0; i < START_SECONDS * 50; i++) {
        struct timespec pause = {0, 20 * 1000 * 1000};

        if (listens(live))
            return;
        if (waitpid(live->pid, NULL, WNOHANG) == live->pid)
            break;
        nanosleep(&pause, NULL);
    }
    show_log(live);
    errno = ETIMEDOUT;
    die("npugraphd did not start");
}

int live_stop(struct live *live)
{
    char command[160];
    int status = 0;

    kill(live->pid, SIGTERM);
    if (waitpid(live->pid, &status, 0) != live->pid)
        status = -1;
    if (status != 0)
        show_log(live);
    snprintf(command, sizeof(command), "rm -rf %s", live->dir);
    if (system(command) != 0)
        fprintf(stderr, "live: %s stays\n", live->dir);
    return status;
}

struct npugraph_client *live_connect(const struct live *live, const char *name)
{
    struct npugraph_connect_params params;
    struct npugraph_client *client = NULL;
    struct npugraph_error err = {0};

    npugraph_connect_params_init(&params);
    params.address = live->address;
    params.client_name = name;
    params.timeout_ms *= 5; /* a slow machine is no failure */
    if (npugraph_connect(&params, &client, &err) != 0) {
        fprintf(stderr, "live: %s\n", err.message);
        show_log(live);
        exit(99);
    }
    return client;
}

json_t *live_stats(struct npugraph_client *client)
{
    Npugraph__V1__StatsRequest req = NPUGRAPH__V1__STATS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    struct npugraph_error err = {0};
    json_t *root;

    req.form = NGD_PB(STATS_FORM, JSON);
    if (npugraph__unary(client, "/npugraph.v1.Admin/Stats", &req.base, &npugraph__v1__stats_response__descriptor,
                        &reply, &err) != 0) {
        fprintf(stderr, "live: %s\n", err.message);
        exit(99);
    }
    root = json_loads(((Npugraph__V1__StatsResponse *)reply)->text, 0, NULL);
    npugraph__free_message(reply);
    return root;
}

/* ---- safetensors ------------------------------------------------------------------------------------------- */

void tensors_open(struct tensors *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t header = 0;
    struct stat sb;
    char *text;

    if (f == NULL || fstat(fileno(f), &sb) != 0 || fread(&header, 8, 1, f) != 1 || header > (uint64_t)sb.st_size)
        die(path);
    text = malloc(header + 1);
    t->n = (size_t)sb.st_size - 8 - header;
    t->data = malloc(t->n + 1);
    if (fread(text, 1, header, f) != header || fread(t->data, 1, t->n, f) != t->n)
        die(path);
    t->header = json_loadb(text, header, 0, NULL);
    free(text);
    fclose(f);
}

void tensors_close(struct tensors *t)
{
    json_decref(t->header);
    free(t->data);
}

const void *tensors_get(const struct tensors *t, const char *name, size_t element, size_t *n_p)
{
    json_t *offsets = json_object_get(json_object_get(t->header, name), "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
           end = (size_t)json_integer_value(json_array_get(offsets, 1));

    if (offsets == NULL || end > t->n || begin > end)
        die(name);
    *n_p = (end - begin) / element;
    return t->data + begin;
}
