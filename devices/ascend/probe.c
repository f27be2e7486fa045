/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the questions in child processes, and writes the file of facts. See probe.h.
 *
 * This process loads nothing of CANN. A child opens the device, and says through a pipe what it asks and what it was
 * answered. One that says nothing for too long is killed, and one that ends early has crashed: both cost the question
 * at hand, and the next child goes on behind it. A child that a driver keeps from ending is left behind. Each answer is
 * on the disk before the next question, so that a machine that goes down loses one. The file has its name when it is
 * whole: a good one is not lost to a probe that is cut.
 */
#include "devices/ascend/probe.h"
#include "base/log.h"
#include "devices/ascend/facts.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS     30000 /* of one question */
#define OPEN_FACTOR  4     /* the opening of a device may take as much longer */
#define BAD_MOST     4     /* answers in a row that end a process's questions */
#define CLOSED_MOST  3     /* times in a row that the device does not open before the rest is skipped */
#define REAP_TRIES   1000  /* times that a killed child is waited for, */
#define REAP_WAIT_NS 10000000
#define EXIT_CLOSED  3 /* of a child: the device did not open */

enum message_kind { MESSAGE_ABOUT, MESSAGE_MISSING, MESSAGE_OPEN, MESSAGE_CLOSED, MESSAGE_QUESTION, MESSAGE_ANSWER };

struct message {
    enum message_kind kind;
    uint32_t question;
    int cann;
    char chip[64], runtime[32];
    struct ascend_reply reply; /* CLOSED: why; MISSING: its text is the name */
};
_Static_assert(sizeof(struct message) <= PIPE_BUF, "a message is written at once");

struct probe {
    const struct ngd_device_params *params;
    int out; /* the file */
    const char *path;
    char part[PATH_MAX]; /* the file's name until it is whole */
    int limit_ms;
    bool about;      /* the head is written */
    bool known;      /* it has the chip and versions, since the first child opened the device */
    uint32_t next;   /* question */
    uint32_t bad;    /* answers in a row of this process number that end badly */
    uint32_t closed; /* children in a row that could not open the device */
    uint32_t left;   /* children left behind */
    uint32_t counts[ASCEND_ANSWER_MAX];
    struct ascend_secrets secrets;
    char why[ASCEND_REPLY_TEXT]; /* the device did not open, the first time */
    struct ngd_diag *diag;
};

struct child {
    pid_t pid;
    int pipe;
    bool open;          /* it has opened the device */
    bool asking;        /* it was told which question, and has not answered */
    ngd_nsec_t since;   /* of its last message */
    struct message why; /* CLOSED */
};

/* ---- the child --------------------------------------------------------------------------------------- */

static void send_message(int fd, const struct message *m)
{
    if (write(fd, m, sizeof(*m)) != (ssize_t)sizeof(*m))
        _exit(1);
}

static void send_missing(void *ctx, const char *name)
{
    struct message m = {.kind = MESSAGE_MISSING};

    snprintf(m.reply.text, sizeof(m.reply.text), "%s", name);
    send_message(*(int *)ctx, &m);
}

static ngd_status_t open_asker(struct ascend_asker *a, const struct probe *p, bool nz, struct ngd_diag *diag)
{
    struct ngd_device_params params = *p->params;
    ngd_status_t status;

    a->hold.only_way = ASCEND_WAY_MAX;
    params.probe = &a->hold;
    params.nz_weights = nz;
    params.device_facts = NULL;
    status = ngd_device_open(&params, &a->device.dev, diag);
    if (status == NGD_OK)
        status = ngd_doctor_bench_open(&a->device, diag);
    return status ? status : ngd_doctor_bench_reference(&a->reference, diag);
}

static void send_about(const struct ascend_asker *a, int fd)
{
    const struct ngd_acl *acl = a->hold.dev->acl;
    const char *soc = acl->aclrtGetSocName();
    struct message m = {.kind = MESSAGE_ABOUT, .cann = a->hold.dev->cann};

    snprintf(m.chip, sizeof(m.chip), "%s", soc ? soc : "unknown");
    snprintf(m.runtime, sizeof(m.runtime), "%d.%d.%d", (int)acl->version[0], (int)acl->version[1],
             (int)acl->version[2]);
    send_message(fd, &m);
}

/* It ends with the probe, leaves no core, and gives up on the device before the probe gives up on it. */
static void prepare_child(const struct probe *p)
{
    const struct rlimit none = {0, 0};
    char limit[16];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    setrlimit(RLIMIT_CORE, &none);
    snprintf(limit, sizeof(limit), "%d", p->limit_ms / 2);
    setenv("NGD_ASCEND_LIMIT_MS", limit, 1);
}

static void close_asker(struct ascend_asker *a)
{
    ngd_doctor_bench_close(&a->device);
    ngd_doctor_bench_close(&a->reference);
    ngd_device_close(a->device.dev);
    ngd_device_close(a->reference.dev);
}

/* Asks the questions from p->next to end - 1. A child whose stream has an error leaves the rest to the next one. */
static void run_child(const struct probe *p, uint32_t end, int fd)
{
    struct ascend_asker *a = ngd_calloc(1, sizeof(*a));
    struct message m = {.kind = MESSAGE_CLOSED};
    struct ascend_question q;
    struct ngd_diag diag = {0};
    ngd_status_t status;
    bool sound = true;

    prepare_child(p);
    ngd_ascend_question(p->next, &q);
    status = a ? open_asker(a, p, q.nz, &diag) : NGD_ERR_NO_MEMORY;
    if (!p->about) {
        if (status == NGD_OK)
            send_about(a, fd);
        ngd_acl_for_each_missing(send_missing, &fd);
    }
    if (status) {
        ngd_ascend_reply_error(&m.reply, status, &diag, true);
        send_message(fd, &m);
        _exit(EXIT_CLOSED);
    }
    m.kind = MESSAGE_OPEN;
    send_message(fd, &m);
    for (uint32_t i = p->next; i < end && sound; i++) {
        ngd_nsec_t begin = ngd_now();

        m = (struct message){.kind = MESSAGE_QUESTION, .question = i};
        send_message(fd, &m);
        ngd_ascend_question(i, &q);
        ngd_ascend_ask(a, &q, &m.reply);
        m.kind = MESSAGE_ANSWER;
        m.reply.took = ngd_now() - begin;
        send_message(fd, &m);
        sound = ngd_stream_status(a->device.stream) == NGD_OK && m.reply.answer != ASCEND_ANSWER_HANG;
    }
    if (sound)
        close_asker(a);
    _exit(0);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

/* Keeps the characters that a field of the head may have. */
static void clean_field(char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

    for (char *p = text; *p; p++)
        if (!strchr(allowed, *p))
            *p = '_';
    if (!*text)
        memcpy(text, "unknown", sizeof("unknown"));
}

static ngd_status_t put_text(struct probe *p, struct ngd_strbuf *sb)
{
    const char *text = ngd_strbuf_str(sb);
    size_t n = strlen(text), at = 0;
    ngd_status_t status = sb->failed ? NGD_ERR_NO_MEMORY : NGD_OK;

    while (at < n && status == NGD_OK) {
        ssize_t wrote = write(p->out, text + at, n - at);

        if (wrote < 0 && errno != EINTR)
            status = ngd_diag_set(p->diag, ngd_status_from_errno(errno), "%.300s: %s", p->part, strerror(errno));
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    fdatasync(p->out); /* what matters is said by write */
    ngd_strbuf_fini(sb);
    return status;
}

static ngd_status_t put_about(struct probe *p, const struct message *m)
{
    struct ascend_facts_about about = {.maker = "npugraphd " PACKAGE_VERSION, .cann = m->cann};
    const time_t now = time(NULL);
    struct ngd_strbuf sb;
    struct tm utc;

    p->about = true;
    memcpy(about.chip, m->chip, sizeof(about.chip));
    memcpy(about.runtime, m->runtime, sizeof(about.runtime));
    ngd_ascend_driver_version(about.driver, sizeof(about.driver));
    clean_field(about.chip);
    clean_field(about.runtime);
    clean_field(about.driver);
    strftime(about.date, sizeof(about.date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    ngd_strbuf_init(&sb);
    ngd_ascend_facts_print_about(&about, &sb);
    return put_text(p, &sb);
}

static ngd_status_t put_missing(struct probe *p, struct message *m)
{
    struct ngd_strbuf sb;

    clean_field(m->reply.text);
    ngd_strbuf_init(&sb);
    ngd_ascend_facts_print_missing(m->reply.text, &sb);
    return put_text(p, &sb);
}

static ngd_status_t put_reply(struct probe *p, struct ascend_reply *reply)
{
    const bool bad = reply->answer == ASCEND_ANSWER_FAILED || reply->answer == ASCEND_ANSWER_HANG ||
                     reply->answer == ASCEND_ANSWER_CRASH;
    struct ngd_strbuf sb;

    p->bad = bad ? p->bad + 1 : 0;
    p->counts[reply->answer]++;
    ngd_ascend_clean_words(&p->secrets, reply->text);
    ngd_strbuf_init(&sb);
    ngd_ascend_facts_print_reply(p->next++, reply, &sb);
    return put_text(p, &sb);
}

static ngd_status_t skip_to(struct probe *p, uint32_t end, const char *why)
{
    ngd_status_t status = NGD_OK;

    while (p->next < end && status == NGD_OK) {
        struct ascend_reply reply = {.answer = ASCEND_ANSWER_SKIPPED, .value = -1};

        snprintf(reply.text, sizeof(reply.text), "%s", why);
        status = put_reply(p, &reply);
    }
    return status;
}

/* ---- listening --------------------------------------------------------------------------------------- */

static ngd_status_t start_child(struct probe *p, uint32_t end, struct child *c)
{
    int fds[2];

    memset(c, 0, sizeof(*c));
    if (pipe2(fds, O_CLOEXEC))
        return ngd_diag_set(p->diag, ngd_status_from_errno(errno), "a pipe: %s", strerror(errno));
    c->pid = fork();
    if (c->pid == 0) {
        close(fds[0]);
        run_child(p, end, fds[1]);
    }
    close(fds[1]);
    c->pipe = fds[0];
    c->since = ngd_now();
    if (c->pid > 0)
        return NGD_OK;
    close(fds[0]);
    return ngd_diag_set(p->diag, ngd_status_from_errno(errno), "a process: %s", strerror(errno));
}

/* 1: a message; 0: the child closed its end; -1: it said nothing for too long. */
static int receive_message(const struct probe *p, const struct child *c, struct message *m)
{
    const ngd_nsec_t limit = (ngd_nsec_t)p->limit_ms * (c->open ? 1 : OPEN_FACTOR) * NGD_MSEC;
    size_t at = 0;

    while (at < sizeof(*m)) {
        struct pollfd fd = {.fd = c->pipe, .events = POLLIN};
        const ngd_nsec_t rest = c->since + limit - ngd_now();
        ssize_t got;

        if (rest <= 0)
            return -1;
        if (poll(&fd, 1, (int)(rest / NGD_MSEC) + 1) <= 0)
            continue;
        got = read(c->pipe, (char *)m + at, sizeof(*m) - at);
        if (got == 0)
            return 0;
        at += got > 0 ? (size_t)got : 0;
    }
    m->reply.text[sizeof(m->reply.text) - 1] = m->chip[sizeof(m->chip) - 1] = m->runtime[sizeof(m->runtime) - 1] = '\0';
    return m->reply.answer < ASCEND_ANSWER_MAX ? 1 : 0;
}

static ngd_status_t take_child_message(struct probe *p, struct child *c, struct message *m)
{
    c->since = ngd_now();
    switch (m->kind) {
    case MESSAGE_ABOUT:
        if (p->about)
            return NGD_OK;
        p->known = true;
        return put_about(p, m);
    case MESSAGE_MISSING:
        if (!p->about) { /* the device did not open */
            static const struct message nothing = {.chip = "unknown", .runtime = "unknown"};
            ngd_status_t status = put_about(p, &nothing);

            if (status)
                return status;
        }
        return put_missing(p, m);
    case MESSAGE_OPEN:
        c->open = true;
        p->closed = 0;
        return NGD_OK;
    case MESSAGE_CLOSED:
        c->why = *m;
        return NGD_OK;
    case MESSAGE_QUESTION:
        c->asking = m->question == p->next;
        return NGD_OK;
    case MESSAGE_ANSWER:
        c->asking = false;
        return put_reply(p, &m->reply);
    }
    return NGD_OK;
}

/* Leaves it as it is, so that its process group keeps its number. */
static bool child_has_ended(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Ends the child if it has not ended, and the processes that libraries have started in it. Returns its exit status; -1:
 * it was left behind. */
static int reap_child(struct probe *p, const struct child *c, bool kill_it)
{
    const struct timespec wait = {.tv_nsec = REAP_WAIT_NS};
    int status = 0;

    close(c->pipe);
    for (int i = 0; i < REAP_TRIES; i++) {
        const bool ended = child_has_ended(c->pid);

        if (ended || kill_it || i == REAP_TRIES / 2) { /* one that closes the device slowly has half of the time */
            kill(-c->pid, SIGKILL);
            kill(c->pid, SIGKILL);
        }
        if (ended && waitpid(c->pid, &status, 0) == c->pid)
            return status;
        nanosleep(&wait, NULL);
    }
    p->left++;
    return -1;
}

/* What the end of a child means for the question at hand, or for the device. */
static ngd_status_t judge_end(struct probe *p, struct child *c, bool silent, int status, uint32_t end)
{
    struct ascend_reply reply = {.answer = ASCEND_ANSWER_CRASH, .value = -1, .took = ngd_now() - c->since};

    if (c->open && !c->asking)
        return NGD_OK;
    if (silent)
        ngd_ascend_reply(&reply, ASCEND_ANSWER_HANG, "%s said nothing for %d ms and was %s", c->open ? "it" : "opening",
                         p->limit_ms * (c->open ? 1 : OPEN_FACTOR), status == -1 ? "left behind" : "killed");
    else if (c->why.kind == MESSAGE_CLOSED)
        reply = c->why.reply;
    else if (WIFSIGNALED(status))
        reply.code = WTERMSIG(status);
    else
        ngd_ascend_reply(&reply, ASCEND_ANSWER_CRASH, "the process ended with status %d", WEXITSTATUS(status));
    if (c->open)
        return put_reply(p, &reply);
    p->closed++;
    if (!p->why[0])
        snprintf(p->why, sizeof(p->why), "%s%s%.180s", ngd_ascend_answer_name(reply.answer), reply.text[0] ? ", " : "",
                 reply.text);
    if (!p->about) {
        static const struct message nothing = {.chip = "unknown", .runtime = "unknown"};
        ngd_status_t written = put_about(p, &nothing);

        if (written)
            return written;
    }
    if (p->next == 0) { /* the question is whether it opens */
        reply.value = -1;
        return put_reply(p, &reply);
    }
    return skip_to(p, p->closed >= CLOSED_MOST ? ngd_ascend_question_count() : end, "the device did not open");
}

static uint32_t end_of_process(uint32_t first)
{
    const uint32_t count = ngd_ascend_question_count();
    struct ascend_question q, other;
    uint32_t end = first + 1;

    ngd_ascend_question(first, &q);
    for (; end < count; end++) {
        ngd_ascend_question(end, &other);
        if (other.process != q.process)
            break;
    }
    return end;
}

/* Asks questions until one child has ended. */
static ngd_status_t ask_some(struct probe *p)
{
    const uint32_t first = p->next, end = end_of_process(p->next);
    struct message m;
    struct child c;
    int got = 0, exit_status;
    ngd_status_t status = start_child(p, end, &c);

    if (status)
        return status;
    while (status == NGD_OK && p->next < end && (got = receive_message(p, &c, &m)) > 0)
        status = take_child_message(p, &c, &m);
    exit_status = reap_child(p, &c, got < 0 || status);
    if (status == NGD_OK && p->next < end)
        status = judge_end(p, &c, got < 0, exit_status, end);
    if (status == NGD_OK && p->next == first)
        status = skip_to(p, first + 1, "the process ended before it was asked");
    if (status == NGD_OK && p->bad >= BAD_MOST)
        status = skip_to(p, end, "questions before it ended badly");
    if (p->next >= end)
        p->bad = 0;
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------- */

static int question_limit_ms(void)
{
    const char *text = getenv("NGD_PROBE_LIMIT_MS");
    long v = text ? strtol(text, NULL, 10) : 0;

    return v >= 10 && v <= 3600000 ? (int)v : LIMIT_MS;
}

static ngd_status_t open_part(struct probe *p)
{
    struct stat st;

    if ((size_t)snprintf(p->part, sizeof(p->part), "%s.part", p->path) >= sizeof(p->part))
        return ngd_diag_set(p->diag, NGD_ERR_INVALID_ARGUMENT, "the file's name is longer than %zu characters",
                            sizeof(p->part) - sizeof(".part"));
    if (!p->path[0] || (stat(p->path, &st) == 0 && !S_ISREG(st.st_mode)))
        return ngd_diag_set(p->diag, NGD_ERR_INVALID_ARGUMENT,
                            "the probe cannot write to \"%.300s\"; name a file that it may make or replace", p->path);
    p->out = open(p->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (p->out < 0)
        return ngd_diag_set(p->diag, ngd_status_from_errno(errno), "%.300s: %s", p->part, strerror(errno));
    return NGD_OK;
}

static ngd_status_t ask_questions(struct probe *p)
{
    const uint32_t count = ngd_ascend_question_count();
    ngd_status_t status = NGD_OK;
    struct ngd_strbuf sb;

    while (p->next < count && status == NGD_OK) {
        struct ascend_question q;
        char text[ASCEND_QUESTION_TEXT];

        ngd_ascend_question(p->next, &q);
        ngd_ascend_question_print(&q, text);
        ngd_info("probe", "question %u of %u: %s", (unsigned)p->next + 1, (unsigned)count, text);
        status = ask_some(p);
    }
    if (status)
        return status;
    ngd_strbuf_init(&sb);
    ngd_ascend_facts_print_end(&sb);
    return put_text(p, &sb);
}

/* Gives the file its name if it says what it is about. */
static ngd_status_t keep_file(const struct probe *p)
{
    if (!p->known)
        return ngd_diag_set(p->diag, NGD_ERR_UNAVAILABLE,
                            "device ascend:%u did not open when it was first asked (%.180s); %.200s is as it was. Send "
                            "%.200s, which has what was found",
                            (unsigned)p->params->index, p->why, p->path, p->part);
    if (rename(p->part, p->path))
        return ngd_diag_set(p->diag, ngd_status_from_errno(errno), "%.300s: %s", p->path, strerror(errno));
    return NGD_OK;
}

static void say_result(const struct probe *p)
{
    char list[200] = "";
    size_t n = 0;

    for (int i = 0; i < ASCEND_ANSWER_MAX; i++)
        if (p->counts[i])
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%u %s", n ? ", " : "", (unsigned)p->counts[i],
                                  ngd_ascend_answer_name((ascend_answer_t)i));
    ngd_notice("probe", "%u questions: %s; %s", (unsigned)p->next, list, p->path);
}

ngd_status_t ngd_ascend_probe(const struct ngd_device_params *params, const char *path, struct ngd_diag *diag)
{
    struct probe p = {.params = params, .path = path, .limit_ms = question_limit_ms(), .diag = diag};
    ngd_status_t status = open_part(&p);

    if (status)
        return status;
    ngd_ascend_find_secrets(&p.secrets);
    status = ask_questions(&p);
    if (close(p.out) && status == NGD_OK)
        status = ngd_diag_set(diag, ngd_status_from_errno(errno), "%.300s: %s", p.part, strerror(errno));
    if (status == NGD_OK)
        status = keep_file(&p);
    if (status == NGD_OK)
        say_result(&p);
    if (p.left)
        ngd_warning("probe", "%u processes did not end when they were killed, and were left behind", (unsigned)p.left);
    return status;
}
