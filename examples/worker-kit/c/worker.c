/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of the kit in C, on libnpugraph: a thread for each prompt in flight. ../README.md says what it does.
 *   cc worker.c metrics.c $(pkg-config --cflags --libs npugraph jansson) -pthread -o worker
 *   ./worker --model bible prompts.jsonl */
#include "metrics.h"

#include <jansson.h>
#include <npugraph.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOTS_MAX  1024
#define PROMPT_MAX (1 << 20) /* bytes of a line */
#define PAUSE_MIN  0.1       /* seconds before the second try; each further pause is twice as long */
#define PAUSE_MAX  5.0

struct prompt {
    size_t index, n;
    int32_t *ids; /* NULL: the line is no prompt */
};

/* A session of the daemon, which all slots share. It ends when it is lost and no slot uses it any more. */
struct link {
    struct npugraph_client *client;
    unsigned users;
    bool lost;
};

static struct {
    struct npugraph_connect_params connect;
    const char *model, *metrics;
    struct npugraph_sampling sampling;
    unsigned in_flight;
    uint32_t tokens;
    FILE *input;
} options = {.model = "bible", .metrics = "127.0.0.1:0", .in_flight = 4, .tokens = 64};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool draining, end;  /* nothing new begins; the input has ended */
    struct prompt *next; /* read, but no slot has taken it yet */
    struct link *link;
    bool connecting;
    unsigned tries; /* connections that failed in a row */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static double now(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Waits before the next try: at random between half of the pause and all of it, so that workers that were refused
 * together do not come back together. Returns false if the worker drains. Called with the lock. */
static bool pause_before(unsigned tries)
{
    double pause = PAUSE_MIN * (double)(1u << (tries < 10 ? tries : 10)), end;

    pause = (pause < PAUSE_MAX ? pause : PAUSE_MAX) * (0.5 + (double)random() / 2.0 / RAND_MAX);
    end = now(CLOCK_REALTIME) + pause;
    while (!shared.draining && now(CLOCK_REALTIME) < end) {
        const struct timespec until = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};

        pthread_cond_timedwait(&shared.changed, &shared.lock, &until);
    }
    return !shared.draining;
}

/* ---- the connection ---- */

/* Connects, and sees that the model is there: a daemon that was started again has to load it first. */
static struct link *connect_once(void)
{
    struct link *link = calloc(1, sizeof(*link));
    struct npugraph_models *models = NULL;
    struct npugraph_error err = {0};

    if (link == NULL)
        return NULL;
    if (npugraph_connect(&options.connect, &link->client, &err) == 0 &&
        npugraph_models_find(link->client, options.model, &models, &err) == 0) {
        npugraph_models_free(models);
        atomic_fetch_add(&counts.connects, 1);
        fprintf(stderr, "worker: connected, session %llu\n", (unsigned long long)npugraph_session_id(link->client));
        return link;
    }
    fprintf(stderr, "worker: not connected: %s [%s]\n", err.message, err.reason);
    npugraph_disconnect(link->client);
    free(link);
    return NULL;
}

/* Returns the session, once there is one; NULL if the worker drains meanwhile. One slot connects, the others wait. */
static struct link *link_get(void)
{
    struct link *link;

    pthread_mutex_lock(&shared.lock);
    while (shared.link == NULL && !shared.draining) {
        if (shared.connecting) {
            pthread_cond_wait(&shared.changed, &shared.lock);
            continue;
        }
        shared.connecting = true;
        pthread_mutex_unlock(&shared.lock);
        link = connect_once();
        pthread_mutex_lock(&shared.lock);
        shared.link = link;
        if (link == NULL)
            pause_before(shared.tries++);
        else
            shared.tries = 0;
        shared.connecting = false;
        pthread_cond_broadcast(&shared.changed);
    }
    link = shared.draining ? NULL : shared.link;
    if (link != NULL)
        link->users++;
    pthread_mutex_unlock(&shared.lock);
    return link;
}

static void link_put(struct link *link, bool lost)
{
    bool last;

    pthread_mutex_lock(&shared.lock);
    if (lost && shared.link == link)
        shared.link = NULL;
    link->lost |= lost;
    last = --link->users == 0 && link->lost;
    pthread_mutex_unlock(&shared.lock);
    if (last) {
        npugraph_disconnect(link->client);
        free(link);
    }
}

/* ---- a prompt ---- */

/* Status codes of gRPC. */
enum { INVALID_ARGUMENT = 3, PERMISSION_DENIED = 7, RESOURCE_EXHAUSTED = 8, OUT_OF_RANGE = 11, UNIMPLEMENTED = 12 };

struct answer {
    json_t *tokens;
    double begin;
};

static bool on_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct answer *answer = user;

    (void)logprobs;
    if (json_array_size(answer->tokens) == 0)
        metrics_count_first(now(CLOCK_MONOTONIC) - answer->begin);
    atomic_fetch_add(&counts.tokens, 1);
    return json_array_append_new(answer->tokens, json_integer(token)) == 0;
}

/* Writes a line in one piece, and frees the object. */
static void write_result(json_t *result)
{
    char *text = json_dumps(result, JSON_COMPACT);

    flockfile(stdout);
    if (text == NULL || puts(text) < 0 || fflush(stdout) != 0) {
        fprintf(stderr, "worker: a result cannot be written\n");
        _exit(1);
    }
    funlockfile(stdout);
    free(text);
    json_decref(result);
}

static void refuse(const struct prompt *prompt, const char *reason, const char *message)
{
    atomic_fetch_add(&counts.refused, 1);
    write_result(json_pack("{s:I, s:s, s:s}", "index", (json_int_t)prompt->index, "error", reason, "message", message));
}

/* Generates a text from its beginning. Returns 0, or the gRPC code with which it failed. */
static int generate(struct npugraph_client *client, const struct prompt *prompt, struct npugraph_error *err)
{
    static const char *const finishes[] = {"cancelled", "length", "stop", "context"};
    const struct npugraph_open_params open = {.sampling = &options.sampling};
    const struct npugraph_generate_params params = {.max_tokens = options.tokens};
    struct answer answer = {json_array(), now(CLOCK_MONOTONIC)};
    struct npugraph_sequence *seq = NULL;
    enum npugraph_finish finish;
    int code;

    atomic_fetch_add(&counts.in_flight, 1);
    code = npugraph_sequence_open(client, options.model, prompt->ids, prompt->n, &open, &seq, NULL, err);
    if (code == 0)
        code = npugraph_sequence_generate(seq, &params, on_token, &answer, &finish, err);
    if (code == 0 && finish == NPUGRAPH_FINISH_CANCELLED)
        code = RESOURCE_EXHAUSTED; /* no memory for a token */
    npugraph_sequence_close(seq);
    atomic_fetch_sub(&counts.in_flight, 1);
    if (code != 0) {
        json_decref(answer.tokens);
        return code;
    }
    write_result(json_pack("{s:I, s:o, s:s}", "index", (json_int_t)prompt->index, "tokens", answer.tokens, "finish",
                           finishes[finish]));
    atomic_fetch_add(&counts.done, 1);
    return 0;
}

/* Tries until the prompt is answered, or the worker drains. */
static void answer_prompt(const struct prompt *prompt)
{
    struct link *link;
    bool again = true;

    for (unsigned tries = 0; again && (link = link_get()) != NULL; tries++) {
        struct npugraph_error err = {0};
        const int code = generate(link->client, prompt, &err);
        const bool wrong =
            code == INVALID_ARGUMENT || code == PERMISSION_DENIED || code == OUT_OF_RANGE || code == UNIMPLEMENTED;

        link_put(link, code != 0 && !wrong && code != RESOURCE_EXHAUSTED);
        if (code == 0)
            return;
        if (wrong) {
            refuse(prompt, err.reason, err.message);
            return;
        }
        fprintf(stderr, "worker: prompt %zu again: %s [%s]\n", prompt->index, err.message, err.reason);
        atomic_fetch_add(&counts.retries, 1);
        pthread_mutex_lock(&shared.lock);
        again = pause_before(tries);
        pthread_mutex_unlock(&shared.lock);
    }
}

static void *slot(void *unused)
{
    struct prompt *prompt;

    for (;;) {
        pthread_mutex_lock(&shared.lock);
        while (shared.next == NULL && !shared.end && !shared.draining)
            pthread_cond_wait(&shared.changed, &shared.lock);
        prompt = shared.draining ? NULL : shared.next;
        if (prompt != NULL)
            shared.next = NULL;
        pthread_cond_broadcast(&shared.changed);
        pthread_mutex_unlock(&shared.lock);
        if (prompt == NULL)
            return unused;
        if (prompt->ids != NULL)
            answer_prompt(prompt);
        else
            refuse(prompt, "BAD_LINE", "a prompt is a line of JSON, {\"ids\": [1, 2, 3]}");
        free(prompt->ids);
        free(prompt);
    }
}

/* ---- the queue ---- */

static void parse(struct prompt *prompt, const char *line, size_t n)
{
    json_t *object = n <= PROMPT_MAX ? json_loadb(line, n, 0, NULL) : NULL, *ids = json_object_get(object, "ids"), *id;
    size_t i;

    prompt->n = json_array_size(ids);
    prompt->ids = prompt->n > 0 ? calloc(prompt->n, sizeof(*prompt->ids)) : NULL;
    json_array_foreach(ids, i, id)
    {
        const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;

        if (prompt->ids != NULL && value >= 0 && value <= INT32_MAX) {
            prompt->ids[i] = (int32_t)value;
        } else {
            free(prompt->ids);
            prompt->ids = NULL;
        }
    }
    json_decref(object);
}

/* Reads the next line when a slot has taken the one before: what is not begun stays in the queue. */
static void *read_prompts(void *unused)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    while ((n = getline(&line, &room, options.input)) >= 0) {
        struct prompt *prompt = calloc(1, sizeof(*prompt));

        if (prompt == NULL)
            abort();
        prompt->index = atomic_fetch_add(&counts.read, 1);
        parse(prompt, line, (size_t)n);
        pthread_mutex_lock(&shared.lock);
        shared.next = prompt;
        pthread_cond_broadcast(&shared.changed);
        while (shared.next != NULL)
            pthread_cond_wait(&shared.changed, &shared.lock);
        pthread_mutex_unlock(&shared.lock);
    }
    pthread_mutex_lock(&shared.lock);
    shared.end = true;
    pthread_cond_broadcast(&shared.changed);
    pthread_mutex_unlock(&shared.lock);
    free(line);
    return unused;
}

/* ---- start and end ---- */

/* Drains at the first SIGTERM or SIGINT; the second one ends the worker at once. */
static void *wait_for_signal(void *set)
{
    int number;

    sigwait(set, &number);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
    fprintf(stderr, "worker: draining\n");
    pthread_mutex_lock(&shared.lock);
    shared.draining = true;
    pthread_cond_broadcast(&shared.changed);
    pthread_mutex_unlock(&shared.lock);
    return NULL;
}

static bool take_option(const char *name, const char *value)
{
    const struct {
        const char *name, **text;
    } texts[] = {{"--address", &options.connect.address},
                 {"--ca", &options.connect.tls_ca},
                 {"--cert", &options.connect.tls_cert},
                 {"--key", &options.connect.tls_key},
                 {"--model", &options.model},
                 {"--metrics", &options.metrics}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(name, texts[i].name) == 0)
            return (*texts[i].text = value) != NULL;
    if (strcmp(name, "--in-flight") == 0)
        return (options.in_flight = (unsigned)strtoul(value, NULL, 10)) - 1 < SLOTS_MAX;
    if (strcmp(name, "--tokens") == 0)
        return (options.tokens = (uint32_t)strtoul(value, NULL, 10)) > 0;
    if (strcmp(name, "--timeout") == 0)
        return (options.connect.timeout_ms = (uint32_t)strtoul(value, NULL, 10) * 1000) > 0;
    if (strcmp(name, "--seed") == 0)
        options.sampling.seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--temperature") == 0)
        options.sampling.temperature = strtof(value, NULL);
    else if (strcmp(name, "--top-k") == 0)
        options.sampling.top_k = (int32_t)strtol(value, NULL, 10);
    else if (strcmp(name, "--top-p") == 0)
        options.sampling.top_p = strtof(value, NULL);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    static pthread_t slots[SLOTS_MAX];
    pthread_t thread;
    unsigned long answered;
    sigset_t signals;
    int at = 1;

    npugraph_connect_params_init(&options.connect);
    options.connect.client_name = "worker.c";
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2)
        if (!take_option(argv[at], argv[at + 1]))
            return fprintf(stderr, "worker: %s %s: no such option, or no such value\n", argv[at], argv[at + 1]), 2;
    options.input = at < argc ? fopen(argv[at], "r") : stdin;
    if (options.input == NULL || at + 1 < argc)
        return fprintf(stderr, "worker: cannot read %s\n", argv[at]), 2;
    srandom((unsigned)time(NULL) ^ (unsigned)getpid());
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (!metrics_serve(options.metrics))
        return fprintf(stderr, "worker: cannot listen on %s\n", options.metrics), 2;
    pthread_create(&thread, NULL, wait_for_signal, &signals);
    pthread_create(&thread, NULL, read_prompts, NULL);
    for (unsigned i = 0; i < options.in_flight; i++)
        pthread_create(&slots[i], NULL, slot, NULL);
    for (unsigned i = 0; i < options.in_flight; i++)
        pthread_join(slots[i], NULL);
    if (shared.link != NULL)
        npugraph_disconnect(shared.link->client);
    answered = counts.done + counts.refused;
    fprintf(stderr, "worker: answered %lu of %lu prompts\n", answered, counts.read);
    _exit(answered == counts.read ? 0 : 1); /* the other threads still wait for input, scrapes and signals */
}
