/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat: a conversation on the terminal. The checkpoint's template makes a text of the conversation, which is tokenized
 * as a whole. If a turn's tokens begin with those that the sequence has, the sequence goes on with the others;
 * otherwise the turn begins with a new prompt.
 *
 * The answer is made step by step, not by one generation: after ^C it is known which tokens the context has.
 */
#include "client/ctl/ctl_tokens.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct chat {
    struct ctl *ctl;
    const char *model, *tokenizer, *file, *system;
    bool plain; /* no template: what is typed goes on where the text ended */
    uint64_t most;
    const char *stop[NPUGRAPH_STOPS_MAX];
    size_t n_stop;
    struct ctl_sampling sampling;
    struct npugraph_tokenizer *tok;
    struct npugraph_chat_template *chat_template;
    json_t *messages;
    struct npugraph_sequence *seq; /* NULL: the next turn begins one */
    struct ngd_strbuf ids;         /* the tokens of the sequence, int32_t */
    size_t n_context;              /* so many of them are in its context; the one chosen last may not be */
};

/* An answer while it is made. */
struct answer {
    struct npugraph_detokenizer *detokenizer;
    struct npugraph_stops *stops;
    struct ngd_strbuf text;
    uint64_t tokens, given, reused;
    const char *finish;
};

#define INTERRUPTS_MOST 3

static volatile sig_atomic_t interrupted; /* ^C since the last one was obeyed */
static int interrupt_fd = -1;             /* readable since ^C: a wait that begins behind the signal ends too */

static void interrupt(int number)
{
    const int saved = errno;

    if (++interrupted == INTERRUPTS_MOST) {
        signal(number, SIG_DFL);
        raise(number);
    }
    eventfd_write(interrupt_fd, 1);
    errno = saved;
}

static void forget_interrupts(void)
{
    eventfd_t count;

    while (eventfd_read(interrupt_fd, &count) != 0 && errno == EINTR)
        ;
    interrupted = 0; /* the descriptor knows of a ^C between the two */
}

/* ^C ends an answer or a line, and not the chat: calls of the terminal return EINTR. Where nothing obeys it, as while a
 * call waits for a daemon (--restore-timeout), the third one ends the program. */
static bool catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt};

    interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (interrupt_fd < 0)
        return ctl_error("no descriptor for ^C: %s", strerror(errno)) == 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    return true;
}

/* ---- the text of a turn ---- */

static void forget_sequence(struct chat *c)
{
    npugraph_sequence_close(c->seq);
    c->seq = NULL;
    ngd_strbuf_clear(&c->ids);
    c->n_context = 0;
}

static bool is_utf8(const char *text)
{
    json_t *value = json_string(text);

    json_decref(value);
    return value != NULL;
}

/* Returns false if the text is not UTF-8. */
static bool add_message(struct chat *c, const char *role, const char *text, size_t n)
{
    return json_array_append_new(c->messages, json_pack("{s:s, s:s%}", "role", role, "content", text, n)) == 0;
}

static void drop_last_message(struct chat *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static void forget_all(struct chat *c)
{
    forget_sequence(c);
    json_array_clear(c->messages);
    if (c->system != NULL)
        (void)add_message(c, "system", c->system, strlen(c->system)); /* was checked */
}

/* Joins the messages, for a chat without a template. */
static char *join_messages(const struct chat *c)
{
    struct ngd_strbuf sb;
    char *text;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < json_array_size(c->messages); i++)
        ngd_strbuf_append(&sb, json_string_value(json_object_get(json_array_get(c->messages, i), "content")));
    text = strdup(ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return text;
}

/* Makes the text of the conversation. The caller frees it. NULL: an error was printed. */
static char *render_turn(const struct chat *c)
{
    struct npugraph_error err = {0};
    char *messages, *text = NULL;
    size_t n;

    if (c->plain)
        return join_messages(c);
    messages = json_dumps(c->messages, JSON_COMPACT);
    if (messages == NULL || npugraph_chat_template_render(c->chat_template, messages, NULL, true, &text, &n, &err) != 0)
        ctl_fail(&err);
    free(messages);
    return text;
}

/* The tokens of the conversation up to a turn. */
struct turn {
    int32_t *ids; /* malloc'd */
    size_t n;
    size_t from; /* those from this one on are given to the daemon; 0: all, as a new prompt */
};

static int encode_turn(const struct chat *c, const char *text, struct turn *turn, struct npugraph_error *err)
{
    const unsigned flags = NPUGRAPH_ENCODE_SPECIAL | (c->plain ? NPUGRAPH_ENCODE_TEMPLATE : 0);
    int rc = npugraph_tokenizer_encode(c->tok, text, strlen(text), flags, &turn->ids, &turn->n, err);

    if (rc == 0 && c->seq != NULL && turn->n > c->n_context && turn->n * sizeof(*turn->ids) >= c->ids.len &&
        memcmp(turn->ids, ngd_strbuf_str(&c->ids), c->ids.len) == 0)
        turn->from = c->n_context;
    return rc;
}

/* Gives the turn to the daemon, which chooses the answer's first token. */
static int begin_answer(struct chat *c, const struct turn *turn, struct npugraph_step *step, struct npugraph_error *err)
{
    struct npugraph_open_params open;
    struct npugraph_step_params more;

    if (turn->from > 0) {
        npugraph_step_params_init(&more);
        more.append = turn->ids + turn->from;
        more.n_append = turn->n - turn->from;
        return npugraph_sequence_step(c->seq, &more, step, err);
    }
    forget_sequence(c);
    npugraph_open_params_init(&open);
    open.sampling = &c->sampling.how;
    open.restore_ms = c->sampling.restore_ms;
    return npugraph_sequence_open(c->ctl->client, c->model, turn->ids, turn->n, &open, &c->seq, step, err);
}

/* ---- an answer ---- */

static int answer_init(struct answer *a, const struct chat *c, const struct turn *turn, struct npugraph_error *err)
{
    int rc = npugraph_detokenizer_create(c->tok, turn->ids, turn->n, false, &a->detokenizer, err);

    ngd_strbuf_init(&a->text);
    if (rc == 0 && c->n_stop != 0)
        rc = npugraph_stops_create(c->stop, c->n_stop, &a->stops, err);
    return rc;
}

static void answer_fini(struct answer *a)
{
    npugraph_detokenizer_destroy(a->detokenizer);
    npugraph_stops_destroy(a->stops);
    ngd_strbuf_fini(&a->text);
}

static void show_piece(const struct chat *c, struct answer *a, const char *text, size_t n)
{
    ngd_strbuf_append_n(&a->text, text, n);
    if (!c->ctl->json)
        fwrite(text, 1, n, stdout);
    fflush(stdout);
}

/* Adds a token. Returns true if a stop string ends the answer. */
static bool add_to_answer(const struct chat *c, struct answer *a, int32_t token)
{
    const char *text;
    bool over = false;
    size_t n;

    a->tokens++;
    if (npugraph_detokenizer_add(a->detokenizer, token, &text, &n, NULL) != 0)
        return false;
    if (a->stops != NULL)
        over = npugraph_stops_add(a->stops, text, n, &text, &n);
    show_piece(c, a, text, n);
    return over;
}

/* Shows and takes what was held back. */
static void end_answer(const struct chat *c, struct answer *a)
{
    const char *text;
    size_t n;

    if (npugraph_detokenizer_end(a->detokenizer, &text, &n, NULL) == 0) {
        if (a->stops != NULL)
            npugraph_stops_add(a->stops, text, n, &text, &n);
        show_piece(c, a, text, n);
    }
    if (a->stops == NULL)
        return;
    npugraph_stops_end(a->stops, &text, &n);
    show_piece(c, a, text, n);
}

/* Makes steps until the answer ends. Its last token is not in the context; one that stops is not of the sequence. */
static int make_answer(struct chat *c, struct answer *a, struct npugraph_step *step, struct npugraph_error *err)
{
    int rc = 0;

    a->finish = NULL;
    while (a->finish == NULL) {
        c->n_context = c->ids.len / sizeof(step->token);
        if (step->stop) {
            a->finish = "stop";
            break;
        }
        ngd_strbuf_append_n(&c->ids, (const char *)&step->token, sizeof(step->token));
        if (add_to_answer(c, a, step->token))
            a->finish = "stop";
        else if (interrupted)
            a->finish = "interrupted";
        else if (a->tokens == c->most)
            a->finish = "length";
        else if ((rc = npugraph_sequence_step(c->seq, NULL, step, err)) != 0)
            break;
    }
    if (rc != 0 && strcmp(err->reason, "CONTEXT_FULL") == 0) {
        a->finish = "context";
        rc = 0;
    }
    end_answer(c, a);
    return rc;
}

/* ---- a turn ---- */

static void print_answer(const struct chat *c, const struct answer *a)
{
    if (!c->ctl->json) {
        printf("\n");
        if (!c->ctl->quiet)
            fprintf(stderr, "[%llu tokens, %s; %llu given, %llu were there]\n", (unsigned long long)a->tokens,
                    a->finish, (unsigned long long)a->given, (unsigned long long)a->reused);
        return;
    }
    json_object_set_new(c->ctl->root, "content", json_stringn(ngd_strbuf_str(&a->text), a->text.len));
    json_object_set_new(c->ctl->root, "finish", json_string(a->finish));
    json_object_set_new(c->ctl->root, "tokens", json_integer((json_int_t)a->tokens));
    json_object_set_new(c->ctl->root, "given", json_integer((json_int_t)a->given));
    json_object_set_new(c->ctl->root, "reused", json_integer((json_int_t)a->reused));
    ctl_flush_line(c->ctl);
    json_object_clear(c->ctl->root);
}

static int answer_turn(struct chat *c, const char *text, struct turn *turn, struct npugraph_error *err)
{
    struct npugraph_step step = {0};
    struct answer a = {0};
    int rc = encode_turn(c, text, turn, err);

    if (rc == 0)
        rc = answer_init(&a, c, turn, err);
    if (rc == 0)
        rc = begin_answer(c, turn, &step, err);
    if (rc == 0) {
        a.given = turn->n - turn->from;
        a.reused = step.position - a.given;
        ngd_strbuf_clear(&c->ids);
        ngd_strbuf_append_n(&c->ids, (const char *)turn->ids, turn->n * sizeof(*turn->ids));
        rc = make_answer(c, &a, &step, err);
    }
    if (rc == 0) {
        (void)add_message(c, "assistant", ngd_strbuf_str(&a.text), a.text.len); /* detokenizers give UTF-8 */
        print_answer(c, &a);
    }
    answer_fini(&a);
    return rc;
}

/* Answers the last message. If that fails, the message is dropped and the chat goes on. */
static int answer_last_message(struct chat *c)
{
    struct npugraph_error err = {0};
    struct turn turn = {0};
    char *text = render_turn(c);
    int rc = text != NULL ? answer_turn(c, text, &turn, &err) : 1;

    if (rc != 0) {
        if (err.message[0] != '\0') /* else it was told */
            ctl_fail(&err);
        if (strcmp(err.reason, "CONTEXT_FULL") == 0 || strcmp(err.reason, "PROMPT_TOO_LONG") == 0)
            fprintf(stderr, "The conversation fills the model's context; /reset begins another one.\n");
        drop_last_message(c);
        forget_sequence(c); /* it may have a part of the turn */
    }
    free(turn.ids);
    free(text);
    return rc;
}

/* ---- the terminal ---- */

/* Waits on a terminal for a line. False: ^C came first. A terminal gives whole lines, so the next read does not wait.
 */
static bool await_line(void)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = interrupt_fd, .events = POLLIN}};

    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return fds[1].revents == 0;
}

/* Reads a line without its end. NULL: the input is over. */
static char *read_line(const struct chat *c, char **line, size_t *room)
{
    const bool terminal = isatty(STDIN_FILENO);

    for (;;) {
        ssize_t n = -1;

        forget_interrupts();
        if (terminal && !c->ctl->json) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        errno = EINTR;
        if (!terminal || await_line()) {
            errno = 0;
            n = getline(line, room, stdin);
        }
        if (n < 0 && errno == EINTR) {
            clearerr(stdin);
            putchar('\n');
            continue;
        }
        if (n < 0)
            return NULL;
        if (n > 0 && (*line)[n - 1] == '\n')
            (*line)[n - 1] = '\0';
        return *line;
    }
}

/* Does what a line with a slash asks for. False: the chat ends. */
static bool obey(struct chat *c, const char *line)
{
    if (strcmp(line, "/quit") == 0)
        return false;
    if (strcmp(line, "/reset") == 0)
        forget_all(c);
    else
        fprintf(stderr,
                "%s/reset forgets the conversation, /quit or ^D ends it, ^C ends an answer; a line that begins "
                "with two slashes is said with one.\n",
                strcmp(line, "/help") == 0 ? "" : "There is no such command. ");
    return true;
}

static int converse(struct chat *c)
{
    char *line = NULL;
    size_t room = 0;
    int rc = 0;

    while (read_line(c, &line, &room) != NULL) {
        const char *text = line;

        if (line[0] == '/' && line[1] != '/') {
            if (!obey(c, line))
                break;
            continue;
        }
        if (line[0] == '\0' && !c->plain)
            continue;
        text += line[0] == '/';
        if (!add_message(c, "user", text, strlen(text))) {
            rc = ctl_error("the line is not UTF-8; it was left out");
            continue;
        }
        rc = answer_last_message(c) != 0 ? 1 : 0;
    }
    if (isatty(STDIN_FILENO) && !c->ctl->json)
        putchar('\n');
    free(line);
    return rc;
}

/* ---- the command ---- */

static bool chat_option(struct chat *c, const char *name, const char *value)
{
    if (strcmp(name, "plain") == 0)
        return (c->plain = true);
    if (strcmp(name, "tokenizer") == 0)
        return (c->tokenizer = value) != NULL;
    if (strcmp(name, "template") == 0)
        return (c->file = value) != NULL;
    if (strcmp(name, "system") == 0)
        return is_utf8(c->system = value);
    if (strcmp(name, "stop") == 0)
        return c->n_stop < NPUGRAPH_STOPS_MAX && (c->stop[c->n_stop++] = value) != NULL;
    if (strcmp(name, "tokens") == 0)
        return ctl_parse_uint(value, INT32_MAX, &c->most) && c->most > 0;
    return ctl_sampling_option(&c->sampling, name, value);
}

static int chat_arguments(struct chat *c, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;

    while ((name = ctl_next_beside(&o, "plain", "tokenizer template system stop tokens " CTL_SAMPLING_OPTIONS, &value,
                                   &c->model, "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!chat_option(c, name, value))
            return ctl_usage(o.command, "--%s cannot be %s", name, value);
    }
    if (c->model == NULL)
        return ctl_usage(o.command, "chat needs a model");
    if (c->plain && (c->file != NULL || c->system != NULL))
        return ctl_usage(o.command, "--plain uses no template, so neither --template nor --system goes with it");
    return 0;
}

/* Opens the template beside the tokenizer, or in its GGUF file. */
static int open_template(struct chat *c, const char *files)
{
    struct npugraph_error err = {0};
    int rc;

    if (c->plain)
        return 0;
    rc = npugraph_chat_template_open(files, c->file, &c->chat_template, &err);
    if (rc != 0 && strcmp(err.reason, "NOT_FOUND") == 0 && c->tokenizer == NULL) /* `files` is a copy's path */
        snprintf(err.message, sizeof(err.message), "the files of %s have no chat template", c->model);
    if (rc != 0 && strcmp(err.reason, "NOT_FOUND") == 0)
        return ctl_error("%s; --template gives one, and --plain goes on with what you type, as generate does",
                         err.message);
    return rc != 0 ? ctl_fail(&err) : 0;
}

static int prepare_chat(struct chat *c)
{
    struct npugraph_checkpoint_copy *copy = NULL; /* files of the model, without --tokenizer */
    int rc;

    c->tok =
        c->tokenizer != NULL ? ctl_open_tokenizer(c->tokenizer) : ctl_open_model_tokenizer(c->ctl, c->model, &copy);
    if (c->tok == NULL)
        return 1;
    rc = open_template(c, copy != NULL ? npugraph_checkpoint_copy_path(copy) : c->tokenizer);
    npugraph_checkpoint_copy_close(copy);
    if (rc != 0 || !ctl_sampling_words(&c->sampling, c->tok) || !ctl_connect(c->ctl))
        return 1;
    forget_all(c);
    return catch_interrupts() ? 0 : 1;
}

int ctl_cmd_chat(struct ctl *ctl, int argc, char **argv)
{
    struct chat c = {.ctl = ctl, .most = 512, .messages = json_array()};
    int rc = chat_arguments(&c, argc, argv);

    ngd_strbuf_init(&c.ids);
    if (rc == 0)
        rc = prepare_chat(&c);
    if (rc == 0)
        rc = converse(&c);
    forget_sequence(&c);
    ngd_strbuf_fini(&c.ids);
    npugraph_chat_template_close(c.chat_template);
    npugraph_tokenizer_close(c.tok);
    ctl_sampling_free(&c.sampling);
    json_decref(c.messages);
    return rc;
}
