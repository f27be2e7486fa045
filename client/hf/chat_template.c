/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: Jinja, rendered by Jinja itself (docs/decisions/0033). render_chat.py is a part of this library and
 * runs in a child process of python3, which gets the template and the conversation over a socket and answers with the
 * text. The child bounds its own memory, processor time and text; this side bounds sizes and the wait, and kills a
 * child that does not answer. A child that answered is kept for the next text: to start one takes 0.1 to 0.2 s.
 */
#include "client/hf/gguf.h"
#include "client/hf/tokenizer_text.h"
#include "client/hf/npugraph_hf.h"
#include "client/lib/error.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEMPLATE_MAX (1u << 20)  /* bytes of a template, and of tokenizer_config.json without it */
#define CHAT_MAX     (16u << 20) /* bytes of a conversation */
#define ANSWER_MAX   (32u << 20) /* bytes of the child's answer: its text, escaped */
#define RENDER_MS    15000

extern char **environ;

static const char render_script[] =
#include "client/hf/render_chat_text.inc"
    ;

struct renderer {
    pid_t pid;   /* 0: none runs */
    pid_t owner; /* the process that started it; a fork of that has a child that is not its own */
    int fd;
    int64_t deadline; /* ms; of the text that is being rendered */
};

struct npugraph_chat_template {
    char *source;
    json_t *tokens; /* bos_token and so on, by name */
    struct renderer renderer;
};

/* ---- the checkpoint's files ---- */

/* Reads a file. Returns 0 with *text_p NULL if there is none. The caller frees *text_p. */
static int read_text(const char *path, size_t most, char **text_p, struct npugraph_error *err)
{
    FILE *f = fopen(path, "re");
    bool failed;
    char *text;
    size_t n;

    *text_p = NULL;
    if (f == NULL && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    text = f != NULL ? malloc(most + 2) : NULL;
    if (text == NULL) {
        if (f != NULL)
            fclose(f);
        return npugraph__error(err, 5, "FILE_NOT_FOUND", "%s cannot be read: %s", path, strerror(errno));
    }
    n = fread(text, 1, most + 1, f);
    failed = ferror(f) != 0; /* also a directory, which opens */
    fclose(f);
    text[n] = '\0';
    if (failed) {
        free(text);
        return npugraph__error(err, 5, "FILE_NOT_FOUND", "%s cannot be read", path);
    }
    if (n <= most && strlen(text) == n && npugraph__is_utf8(text, n)) {
        *text_p = text;
        return 0;
    }
    free(text);
    return n > most ? npugraph__error(err, 3, "INVALID_ARGUMENT", "%s has more than %zu bytes", path, most)
                    : npugraph__error(err, 3, "INVALID_ARGUMENT", "%s has a zero byte, or is not UTF-8", path);
}

/* Returns the text of a special token: a string, or an object with its content. */
static const char *token_text(const json_t *value)
{
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static void take_special_tokens(struct npugraph_chat_template *t, const json_t *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = token_text(json_object_get(config, names[i]));

        if (text != NULL)
            json_object_set_new(t->tokens, names[i], json_string(text));
    }
}

/* Returns chat_template of tokenizer_config.json; of a list of named ones, the default. NULL: there is none. */
static const char *config_template(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");

    if (!json_is_array(value))
        return json_string_value(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name != NULL && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(one, "template"));
    }
    return NULL;
}

/* Takes the special tokens, and the template if there is none yet. */
static void take_config(struct npugraph_chat_template *t, const json_t *config)
{
    const char *source = config_template(config);

    take_special_tokens(t, config);
    if (t->source == NULL && source != NULL)
        t->source = strdup(source);
}

static int read_config(struct npugraph_chat_template *t, const char *path, const char *text, struct npugraph_error *err)
{
    json_error_t e;
    json_t *config = json_loads(text, 0, &e);

    if (!json_is_object(config)) {
        json_decref(config);
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "%s is no JSON object: line %d: %s", path, e.line, e.text);
    }
    take_config(t, config);
    json_decref(config);
    return 0;
}

static int find_gguf_template(struct npugraph_chat_template *t, const char *path, struct npugraph_error *err)
{
    struct npugraph__gguf *g = NULL;
    json_t *config = NULL;
    int rc = npugraph__gguf_open(path, &g, err);

    if (rc == 0)
        rc = npugraph__gguf_tokenizer_config(g, &config);
    npugraph__gguf_close(g);
    if (rc != 0)
        return rc;
    take_config(t, config);
    json_decref(config);
    return t->source != NULL
               ? 0
               : npugraph__error(err, 5, "NOT_FOUND",
                                 "%s has no chat template: no tokenizer.chat_template in its metadata", path);
}

/* Copies a path, without its last part if it is that of a file. */
static void directory_of(const char *path, char *dir, size_t size)
{
    char *slash;
    struct stat sb;

    snprintf(dir, size, "%s", path);
    if (stat(dir, &sb) != 0 || S_ISDIR(sb.st_mode))
        return;
    slash = strrchr(dir, '/');
    if (slash != NULL)
        *slash = '\0';
    else
        snprintf(dir, size, ".");
}

static int find_template(struct npugraph_chat_template *t, const char *where, struct npugraph_error *err)
{
    char dir[2048], path[4096], *text = NULL;
    int rc = 0;

    if (npugraph__gguf_is(where))
        return find_gguf_template(t, where, err);
    directory_of(where, dir, sizeof(dir));
    snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
    if (t->source == NULL)
        rc = read_text(path, TEMPLATE_MAX, &t->source, err);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    if (rc == 0)
        rc = read_text(path, 2 * TEMPLATE_MAX, &text, err);
    if (rc == 0 && text != NULL)
        rc = read_config(t, path, text, err);
    free(text);
    if (rc == 0 && t->source == NULL)
        return npugraph__error(err, 5, "NOT_FOUND",
                               "%s has no chat template: neither chat_template.jinja nor a chat_template in "
                               "tokenizer_config.json",
                               dir);
    return rc;
}

int npugraph_chat_template_open(const char *dir, const char *file, struct npugraph_chat_template **template_p,
                                struct npugraph_error *err)
{
    struct npugraph_chat_template *t = calloc(1, sizeof(*t));
    int rc = 0;

    if (t == NULL || (t->tokens = json_object()) == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    if (rc == 0 && file != NULL)
        rc = read_text(file, TEMPLATE_MAX, &t->source, err);
    if (rc == 0 && file != NULL && t->source == NULL)
        rc = npugraph__error(err, 5, "FILE_NOT_FOUND", "%s cannot be read: %s", file, strerror(ENOENT));
    if (rc == 0)
        rc = find_template(t, dir, err);
    if (rc != 0)
        npugraph_chat_template_close(t);
    else
        *template_p = t;
    return rc;
}

/* ---- the child ---- */

static int64_t now_in_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int start_renderer(struct renderer *r, struct npugraph_error *err)
{
    char *const argv[] = {"python3", "-I", "-B", "-c", (char *)(uintptr_t)render_script, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return npugraph__error(err, 8, "NO_MEMORY", "no socket for the renderer of chat templates: %s",
                               strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes); /* a group of its own: ^C on the terminal is not for it */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigemptyset(&none); /* the limit of its time ends it by a signal, whatever this process does with that */
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    rc = posix_spawnp(&r->pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    r->fd = pair[0];
    r->owner = getpid();
    if (rc == 0)
        return 0;
    r->pid = 0;
    close(pair[0]);
    return npugraph__error(err, 9, "FAILED_PRECONDITION",
                           "chat templates are rendered by python3 with jinja2 (packages python3, python3-jinja2), and "
                           "python3 does not start: %s",
                           strerror(rc));
}

static void stop_renderer(struct renderer *r)
{
    if (r->pid == 0)
        return;
    close(r->fd);
    if (r->owner == getpid()) {
        kill(r->pid, SIGKILL); /* one that has ended is not affected */
        while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    r->pid = 0;
}

void npugraph_chat_template_close(struct npugraph_chat_template *t)
{
    if (t == NULL)
        return;
    stop_renderer(&t->renderer);
    json_decref(t->tokens);
    free(t->source);
    free(t);
}

/* Starts the time of a text, and a child unless the one of the last text waits. */
static int prepare_renderer(struct renderer *r, struct npugraph_error *err)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};

    /* One that says something now has ended. One of the process that this is a fork of answers that process, too. */
    if (r->pid != 0 && (r->owner != getpid() || poll(&p, 1, 0) != 0))
        stop_renderer(r);
    r->deadline = now_in_ms() + RENDER_MS;
    return r->pid != 0 ? 0 : start_renderer(r, err);
}

/* Waits until the socket is ready. False: the time is over. */
static bool await_renderer(const struct renderer *r, short events)
{
    for (;;) {
        struct pollfd p = {.fd = r->fd, .events = events};
        const int64_t left = r->deadline - now_in_ms();
        const int n = left > 0 ? poll(&p, 1, (int)left) : 0;

        if (n >= 0 || errno != EINTR)
            return n > 0;
    }
}

static int late_renderer(struct npugraph_error *err)
{
    return npugraph__error(err, 4, "DEADLINE_EXCEEDED",
                           "the chat template was not rendered within %d s: it may never end; give another one with "
                           "chat_template.jinja",
                           RENDER_MS / 1000);
}

static int send_request(const struct renderer *r, const char *text, size_t n, struct npugraph_error *err)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent;

        if (!await_renderer(r, POLLOUT))
            return late_renderer(err);
        sent = send(r->fd, text + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EINTR && errno != EAGAIN)
            break; /* it has ended; its answer says why, or there is none */
        at += sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

/* Receives a line, or all that a child said before it ended. The caller frees *text_p. */
static int receive_answer(const struct renderer *r, char **text_p, size_t *n_p, struct npugraph_error *err)
{
    size_t room = 65536, n = 0;
    char *text = malloc(room);
    ssize_t got = 1;
    int rc = 0;

    while (text != NULL && got > 0 && rc == 0 && (n == 0 || text[n - 1] != '\n')) {
        if (n == room) {
            char *more = room < ANSWER_MAX ? realloc(text, room * 2) : NULL;

            if (more == NULL)
                break;
            text = more;
            room *= 2;
        }
        if (!await_renderer(r, POLLIN))
            rc = late_renderer(err);
        else
            got = recv(r->fd, text + n, room - n, MSG_DONTWAIT);
        if (rc == 0 && got < 0 && (errno == EINTR || errno == EAGAIN))
            got = 1; /* again */
        else if (rc == 0 && got > 0)
            n += (size_t)got;
    }
    if (rc == 0 && (text == NULL || (got > 0 && text[n - 1] != '\n')))
        rc = npugraph__error(err, 8, "NO_MEMORY", "no memory for the text of the chat template");
    *text_p = text;
    *n_p = n;
    return rc;
}

static int take_answer(const char *answer, size_t n, char **text_p, size_t *n_p, struct npugraph_error *err)
{
    json_t *root = json_loadb(answer, n, JSON_ALLOW_NUL, NULL);
    const json_t *text = json_object_get(root, "text"), *error = json_object_get(root, "error");
    int rc = 0;

    if (json_is_string(text)) {
        *n_p = json_string_length(text);
        *text_p = malloc(*n_p + 1);
        if (*text_p == NULL)
            rc = npugraph__error(err, 8, "NO_MEMORY", "no memory for the text of the chat template");
        else
            memcpy(*text_p, json_string_value(text), *n_p + 1);
    } else if (json_is_string(error)) {
        rc = npugraph__error(err, 3, "INVALID_ARGUMENT", "%s", json_string_value(error));
    } else {
        rc = npugraph__error(err, 3, "INVALID_ARGUMENT",
                             "the renderer of the chat template ended without an answer: the template took more than "
                             "its processor time or memory, or python3 cannot run");
    }
    json_decref(root);
    return rc;
}

/* ---- rendering ---- */

/* Makes the request. The caller frees it. */
static char *make_request(const struct npugraph_chat_template *t, json_t *messages, json_t *tools, bool generation)
{
    json_t *variables = json_deep_copy(t->tokens), *root = json_object();
    char *text;

    json_object_set(variables, "messages", messages);
    json_object_set(variables, "tools", tools != NULL ? tools : json_null());
    json_object_set(variables, "documents", json_null());
    json_object_set(variables, "add_generation_prompt", json_boolean(generation));
    json_object_set_new(root, "template", json_string(t->source));
    json_object_set_new(root, "variables", variables);
    text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII); /* in any locale */
    json_decref(root);
    return text;
}

static int parse_chat_list(const char *text, const char *what, json_t **list_p, struct npugraph_error *err)
{
    json_error_t e;

    *list_p = strnlen(text, CHAT_MAX + 1) <= CHAT_MAX ? json_loads(text, JSON_ALLOW_NUL, &e) : NULL;
    if (json_is_array(*list_p))
        return 0;
    json_decref(*list_p);
    *list_p = NULL;
    return npugraph__error(err, 3, "INVALID_ARGUMENT", "%s must be a JSON array of at most %u bytes", what, CHAT_MAX);
}

/* Renders one text. After a failure no child is left. */
static int render_text(struct renderer *r, const char *request, char **text_p, size_t *n_p, struct npugraph_error *err)
{
    char *answer = NULL;
    size_t n = 0;
    int rc = prepare_renderer(r, err);

    if (rc == 0)
        rc = send_request(r, request, strlen(request), err);
    if (rc == 0)
        rc = send_request(r, "\n", 1, err);
    if (rc == 0)
        rc = receive_answer(r, &answer, &n, err);
    if (rc == 0)
        rc = take_answer(answer, n, text_p, n_p, err);
    free(answer);
    if (rc != 0)
        stop_renderer(r);
    return rc;
}

int npugraph_chat_template_render(struct npugraph_chat_template *t, const char *messages, const char *tools,
                                  bool generation_prompt, char **text_p, size_t *n_p, struct npugraph_error *err)
{
    json_t *list = NULL, *tool_list = NULL;
    char *request = NULL;
    int rc = parse_chat_list(messages, "messages", &list, err);

    if (rc == 0 && tools != NULL)
        rc = parse_chat_list(tools, "tools", &tool_list, err);
    if (rc == 0 && (request = make_request(t, list, tool_list, generation_prompt)) == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "no memory for a conversation");
    json_decref(list);
    json_decref(tool_list);
    if (rc == 0)
        rc = render_text(&t->renderer, request, text_p, n_p, err);
    free(request);
    return rc;
}
