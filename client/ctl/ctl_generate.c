/* SPDX-License-Identifier: Apache-2.0 */
/* generate: one text, streamed as it is made, or several that are forks of one prompt. */
#include "client/ctl/ctl_tokens.h"
#include "proto/npugraph.pb-c.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHOICES_MAX 16 /* most answers to one prompt */

struct generation {
    struct ctl *ctl;
    const char *model, *prompt, *ids_text, *tokenizer;
    struct npugraph_tokenizer *tok;
    struct npugraph_detokenizer *detokenizer; /* NULL: there is no tokenizer */
    struct ctl_sampling sampling;
    uint64_t n, best_of; /* choices that are shown, and made */
    bool collect;        /* the text is kept, not shown as it comes */
    double logprob_sum;
    size_t n_logprob;
    const char *stop[NPUGRAPH_STOPS_MAX];
    size_t n_stop;
    struct npugraph_stops *stops; /* NULL: there are no stop strings */
    bool stopped;
    bool logprobs, timing; /* that are shown */
    bool want_logprobs;
    struct npugraph_timing prompt_time, tokens_time;
    uint64_t top;
    enum npugraph_priority priority;
    uint64_t tokens, got;
    uint64_t begin, first, last;
    int32_t *ids;
    size_t n_ids;
    json_t *out, *out_logprobs;
    char *text; /* the text so far, for --json with a tokenizer */
    size_t n_text;
};

static bool take_priority(struct generation *g, const char *value)
{
    g->priority = ngd_word_value(&npugraph__v1__priority__descriptor, value);
    return g->priority != NPUGRAPH_PRIORITY_DEFAULT;
}

static bool generate_option(struct generation *g, const char *name, const char *value)
{
    if (strcmp(name, "prompt") == 0)
        return (g->prompt = value) != NULL;
    if (strcmp(name, "ids") == 0)
        return (g->ids_text = value) != NULL;
    if (strcmp(name, "tokenizer") == 0)
        return (g->tokenizer = value) != NULL;
    if (strcmp(name, "timing") == 0)
        return (g->timing = true);
    if (strcmp(name, "priority") == 0)
        return take_priority(g, value);
    if (strcmp(name, "stop") == 0 && g->n_stop < NPUGRAPH_STOPS_MAX)
        return (g->stop[g->n_stop++] = value) != NULL;
    if (strcmp(name, "logprobs") == 0)
        return g->logprobs = ctl_parse_uint(value, NPUGRAPH_LOGPROBS_MAX, &g->top);
    if (strcmp(name, "tokens") == 0)
        return ctl_parse_uint(value, INT32_MAX, &g->tokens) && g->tokens > 0;
    if (strcmp(name, "n") == 0)
        return ctl_parse_uint(value, CHOICES_MAX, &g->n) && g->n > 0;
    if (strcmp(name, "best-of") == 0)
        return ctl_parse_uint(value, CHOICES_MAX, &g->best_of) && g->best_of > 0;
    return ctl_sampling_option(&g->sampling, name, value);
}

static int generate_arguments(struct generation *g, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;

    while ((name = ctl_next_beside(&o, "timing",
                                   "tokenizer prompt ids tokens n best-of stop logprobs priority " CTL_SAMPLING_OPTIONS,
                                   &value, &g->model, "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!generate_option(g, name, value))
            return ctl_usage(o.command, "--%s cannot be %s", name, value);
    }
    if (g->model == NULL || (g->prompt == NULL) == (g->ids_text == NULL))
        return ctl_usage(o.command, "generate needs a model and either --prompt or --ids");
    if (g->best_of == 0)
        g->best_of = g->n;
    if (g->best_of < g->n)
        return ctl_usage(o.command, "--best-of must be at least --n");
    if (g->best_of > 1 && g->timing)
        return ctl_usage(o.command, "--timing is for one answer");
    if (g->best_of > 1 && g->sampling.how.temperature == 0.0f)
        return ctl_usage(o.command, "--n and --best-of need a --temperature: without one all answers are the same");
    return 0;
}

static int make_prompt(struct generation *g)
{
    struct npugraph_error err = {0};

    if (g->tokenizer != NULL)
        g->tok = ctl_open_tokenizer(g->tokenizer);
    else if (g->prompt != NULL || g->n_stop != 0)
        g->tok = ctl_open_model_tokenizer(g->ctl, g->model, NULL);
    if (g->tok == NULL && (g->tokenizer != NULL || g->prompt != NULL || g->n_stop != 0))
        return 1;
    if (g->ids_text != NULL) {
        if (!ctl_parse_ids(g->ids_text, &g->ids, &g->n_ids))
            return ctl_usage(ctl_find_command("generate"), "--ids takes token ids, N,N,...");
    } else if (npugraph_tokenizer_encode(g->tok, g->prompt, strlen(g->prompt),
                                         NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, &g->ids, &g->n_ids,
                                         &err) != 0) {
        return ctl_fail(&err);
    }
    if (!ctl_sampling_words(&g->sampling, g->tok))
        return 1;
    if (g->tok != NULL && npugraph_detokenizer_create(g->tok, g->ids, g->n_ids, false, &g->detokenizer, &err) != 0)
        return ctl_fail(&err);
    return 0;
}

static void show_text(struct generation *g, const char *text, size_t n)
{
    char *more;

    if (!g->collect) {
        fwrite(text, 1, n, stdout);
        return;
    }
    more = realloc(g->text, g->n_text + n + 1);
    if (more == NULL)
        return;
    memcpy(more + g->n_text, text, n);
    g->text = more;
    g->n_text += n;
    g->text[g->n_text] = '\0';
}

/* Shows text as far as it is no stop string. Returns true if one ends the text. */
static bool show_until_stop(struct generation *g, const char *text, size_t n)
{
    bool over = false;

    if (g->stops != NULL)
        over = npugraph_stops_add(g->stops, text, n, &text, &n);
    show_text(g, text, n);
    return over;
}

static void note_logprobs(struct generation *g, const struct npugraph_logprobs *lp)
{
    json_t *one = json_object(), *top = json_array();

    for (size_t i = 0; i < lp->n_top; i++)
        json_array_append_new(
            top, json_pack("{s:i, s:f}", "token", (int)lp->top[i].token, "logprob", (double)lp->top[i].logprob));
    json_object_set_new(one, "token", json_integer(lp->token));
    json_object_set_new(one, "logprob", json_real((double)lp->logprob));
    json_object_set_new(one, "top", top);
    json_array_append_new(g->out_logprobs, one);
}

static void show_id(struct generation *g, int32_t token, const struct npugraph_logprobs *logprobs)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "%s%d", g->got > 1 ? "," : "", token);

    if (g->logprobs && logprobs != NULL)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " (%.4f)", (double)logprobs->logprob);
    show_text(g, text, (size_t)n);
}

static bool show_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct generation *g = user;
    const char *text;
    size_t n;

    g->last = ctl_now_ns();
    g->got++;
    json_array_append_new(g->out, json_integer(token));
    if (logprobs != NULL) {
        note_logprobs(g, logprobs);
        g->logprob_sum += (double)logprobs->logprob;
        g->n_logprob++;
    }
    if (g->tok == NULL)
        show_id(g, token, logprobs);
    if (g->detokenizer != NULL && npugraph_detokenizer_add(g->detokenizer, token, &text, &n, NULL) == 0)
        g->stopped = show_until_stop(g, text, n);
    fflush(stdout);
    return !g->stopped;
}

/* Prints the timing to standard error, or adds it as a JSON object, since standard output is for the text. */
static void print_generation_timing(struct generation *g, const char *what, const struct npugraph_timing *t)
{
    const struct {
        const char *name, *key;
        uint64_t ns;
    } parts[] = {{"waited", "queue_us", t->queue_ns},
                 {"copy in", "copy_in_us", t->copy_in_ns},
                 {"replay", "replay_us", t->replay_ns},
                 {"copy out", "copy_out_us", t->copy_out_ns},
                 {"of it padding", "padding_us", t->padding_ns}};
    json_t *object = json_object();
    char key[32];

    if (!g->ctl->json)
        fprintf(stderr, "[%s:", what);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_object_set_new(object, parts[i].key, json_real((double)parts[i].ns / 1e3));
        if (!g->ctl->json)
            fprintf(stderr, "%s %s %.3f ms", i != 0 ? "," : "", parts[i].name, (double)parts[i].ns / 1e6);
    }
    if (!g->ctl->json)
        fprintf(stderr, "]\n");
    snprintf(key, sizeof(key), "%s_timing", what);
    if (g->ctl->json)
        json_object_set(g->ctl->root, key, object);
    json_decref(object);
}

static void print_timings(struct generation *g)
{
    if (!g->timing)
        return;
    print_generation_timing(g, "prompt", &g->prompt_time);
    print_generation_timing(g, "tokens", &g->tokens_time);
}

static void print_summary(struct generation *g, const char *finish)
{
    double decode_s = (double)(g->last - g->first) / 1e9;
    struct ctl_fields *f;

    if (!g->ctl->json) {
        printf("\n");
        if (!g->ctl->quiet)
            fprintf(stderr, "[%llu tokens, %s; first after %.1f ms, then %.1f tokens/s]\n", (unsigned long long)g->got,
                    finish, (double)(g->first - g->begin) / 1e6, decode_s > 0 ? (double)(g->got - 1) / decode_s : 0);
        print_timings(g);
        return;
    }
    f = ctl_fields_new(g->ctl, NULL);
    json_object_set(g->ctl->root, "tokens", g->out);
    if (g->tok != NULL)
        json_object_set_new(g->ctl->root, "text", json_stringn(g->text != NULL ? g->text : "", g->n_text));
    if (g->logprobs)
        json_object_set(g->ctl->root, "logprobs", g->out_logprobs);
    print_timings(g);
    ctl_field_str(f, "Finish", "finish", finish);
    ctl_field_us(f, "First token", "first_token_us", (double)(g->first - g->begin) / 1e3);
    ctl_field_rate(f, "Speed", "tokens_per_second", decode_s > 0 ? (double)(g->got - 1) / decode_s : 0, "tokens/s");
    ctl_fields_end(f);
}

/* Shows the text that was held back: by the detokenizer, and since it could have begun a stop string. */
static void show_rest(struct generation *g)
{
    const char *text;
    size_t n;

    if (g->detokenizer != NULL && npugraph_detokenizer_end(g->detokenizer, &text, &n, NULL) == 0)
        g->stopped |= show_until_stop(g, text, n);
    if (g->stops == NULL)
        return;
    g->stopped = npugraph_stops_end(g->stops, &text, &n);
    show_text(g, text, n);
}

/* Opens the prompt's sequence, which chooses the first token. */
static int open_prompt(struct generation *g, struct npugraph_sequence **seq_p, struct npugraph_error *err)
{
    struct npugraph_open_params open;
    struct npugraph_step first = {0};
    int rc;

    npugraph_open_params_init(&open);
    open.sampling = &g->sampling.how;
    open.priority = g->priority;
    open.restore_ms = g->sampling.restore_ms;
    open.want_logprobs = g->want_logprobs;
    open.top = (uint32_t)g->top;
    open.timing = g->timing;
    g->begin = ctl_now_ns();
    rc = npugraph_sequence_open(g->ctl->client, g->model, g->ids, g->n_ids, &open, seq_p, &first, err);
    g->first = g->last = ctl_now_ns();
    g->prompt_time = first.timing;
    return rc;
}

/* Generates the text of a sequence. */
static int continue_text(struct generation *g, struct npugraph_sequence *seq, enum npugraph_finish *finish_p,
                         struct npugraph_error *err)
{
    struct npugraph_generate_params say;
    int rc;

    npugraph_generate_params_init(&say);
    say.max_tokens = (uint32_t)g->tokens;
    say.priority = g->priority;
    say.want_logprobs = g->want_logprobs;
    say.top = (uint32_t)g->top;
    say.timing = g->timing ? &g->tokens_time : NULL;
    rc = npugraph_sequence_generate(seq, &say, show_token, g, finish_p, err);
    show_rest(g);
    return rc;
}

static int run_generation(struct generation *g, enum npugraph_finish *finish_p, struct npugraph_error *err)
{
    struct npugraph_sequence *seq = NULL;
    int rc = open_prompt(g, &seq, err);

    if (rc == 0)
        rc = continue_text(g, seq, finish_p, err);
    npugraph_sequence_close(seq);
    return rc;
}

/* Returns the word of a finish, with stop strings taken into account. */
static struct ngd_word finish_word(const struct generation *g, enum npugraph_finish finish)
{
    struct ngd_word word = {"cancelled"};

    if (g->stopped)
        finish = NPUGRAPH_FINISH_STOP; /* at a stop string */
    if (finish != NPUGRAPH_FINISH_CANCELLED)
        word = ngd_word_of(&npugraph__v1__finish_reason__descriptor, (int)finish);
    return word;
}

static int generate_text(struct generation *g)
{
    struct npugraph_error err = {0};
    enum npugraph_finish finish = NPUGRAPH_FINISH_CANCELLED;

    if (g->n_stop != 0 && npugraph_stops_create(g->stop, g->n_stop, &g->stops, &err) != 0)
        return ctl_fail(&err);
    if (!ctl_connect(g->ctl))
        return 1;
    if (g->prompt != NULL && !g->ctl->json) {
        fputs(g->prompt, stdout);
        fflush(stdout);
    }
    if (run_generation(g, &finish, &err) != 0)
        return ctl_fail(&err);
    print_summary(g, finish_word(g, finish).text);
    return 0;
}

/* ---- several answers --------------------------------------------------------------------------------------- */

/* An answer: a fork of the prompt's sequence with a seed of its own. A thread waits for it. */
struct choice {
    struct generation g;
    struct npugraph_sequence *seq;
    enum npugraph_finish finish;
    struct npugraph_error err;
    int rc;
    pthread_t thread;
    bool started;
};

static int choice_init(struct choice *c, const struct generation *g)
{
    struct npugraph_error *err = &c->err;

    c->g = *g;
    c->g.collect = c->g.want_logprobs = true;
    c->g.detokenizer = NULL;
    c->g.out = json_array();
    c->g.out_logprobs = json_array();
    if (g->tok != NULL)
        c->rc = npugraph_detokenizer_create(g->tok, g->ids, g->n_ids, false, &c->g.detokenizer, err);
    if (c->rc == 0 && g->n_stop != 0)
        c->rc = npugraph_stops_create(g->stop, g->n_stop, &c->g.stops, err);
    return c->rc;
}

static void choice_fini(struct choice *c)
{
    npugraph_sequence_close(c->seq);
    npugraph_detokenizer_destroy(c->g.detokenizer);
    npugraph_stops_destroy(c->g.stops);
    json_decref(c->g.out);
    json_decref(c->g.out_logprobs);
    free(c->g.text);
}

/* Opens the prompt once, and forks it for each further answer. */
static int open_choices(struct choice *choices, size_t n)
{
    struct choice *c = &choices[0];

    c->rc = open_prompt(&c->g, &c->seq, &c->err);
    for (size_t i = 1; i < n && c->rc == 0; i++) {
        struct npugraph_sampling how = choices[0].g.sampling.how;
        const struct npugraph_fork_params params = {.sampling = &how, .want_logprobs = true, .top = (uint32_t)c->g.top};

        c = &choices[i];
        how.seed += i;
        c->rc = npugraph_sequence_fork(choices[0].seq, &params, &c->seq, NULL, &c->err);
    }
    return c->rc == 0 ? 0 : ctl_fail(&c->err);
}

static void *run_choice(void *arg)
{
    struct choice *c = arg;

    c->rc = continue_text(&c->g, c->seq, &c->finish, &c->err);
    return NULL;
}

/* Generates all answers at once: the daemon makes their steps together. */
static int run_choices(struct choice *choices, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        choices[i].started = pthread_create(&choices[i].thread, NULL, run_choice, &choices[i]) == 0;
        if (!choices[i].started)
            run_choice(&choices[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (choices[i].started)
            pthread_join(choices[i].thread, NULL);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (choices[i].rc != 0)
            rc = ctl_fail(&choices[i].err);
    return rc;
}

static double mean_logprob(const struct choice *c)
{
    return c->g.n_logprob != 0 ? c->g.logprob_sum / (double)c->g.n_logprob : 0;
}

static int by_logprob(const void *a, const void *b)
{
    const double x = mean_logprob(a), y = mean_logprob(b);

    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_own_choice(const struct generation *g, const struct choice *c, size_t number)
{
    const struct ngd_word finish = finish_word(&c->g, c->finish);
    json_t *one;

    if (!g->ctl->json) {
        printf("%s[%zu: log-probability %.4f a token, %s]\n%s%s\n", number > 1 ? "\n" : "", number, mean_logprob(c),
               finish.text, g->prompt != NULL ? g->prompt : "", c->g.text != NULL ? c->g.text : "");
        return;
    }
    one = json_object();
    json_object_set(one, "tokens", c->g.out);
    if (g->tok != NULL)
        json_object_set_new(one, "text", json_stringn(c->g.text != NULL ? c->g.text : "", c->g.n_text));
    if (g->logprobs)
        json_object_set(one, "logprobs", c->g.out_logprobs);
    json_object_set_new(one, "mean_logprob", json_real(mean_logprob(c)));
    json_object_set_new(one, "finish", json_string(finish.text));
    json_array_append_new(json_object_get(g->ctl->root, "choices"), one);
}

/* Makes best_of answers and prints the n most probable ones. */
static int generate_choices(struct generation *g)
{
    struct choice *choices = calloc(g->best_of, sizeof(*choices));
    int rc = 0;

    if (choices == NULL)
        return ctl_error("no memory for %llu answers", (unsigned long long)g->best_of);
    for (size_t i = 0; i < g->best_of && rc == 0; i++)
        if (choice_init(&choices[i], g) != 0)
            rc = ctl_fail(&choices[i].err);
    if (rc == 0)
        rc = ctl_connect(g->ctl) ? open_choices(choices, g->best_of) : 1;
    if (rc == 0)
        rc = run_choices(choices, g->best_of);
    if (rc == 0) {
        qsort(choices, g->best_of, sizeof(*choices), by_logprob);
        json_object_set_new(g->ctl->root, "choices", json_array());
        for (size_t i = 0; i < g->n; i++)
            print_own_choice(g, &choices[i], i + 1);
    }
    for (size_t i = 0; i < g->best_of; i++)
        choice_fini(&choices[i]);
    free(choices);
    return rc;
}

int ctl_cmd_generate(struct ctl *ctl, int argc, char **argv)
{
    struct generation g = {
        .ctl = ctl, .tokens = 64, .n = 1, .collect = ctl->json, .out = json_array(), .out_logprobs = json_array()};
    int rc = generate_arguments(&g, argc, argv);

    g.want_logprobs = g.logprobs;

    if (rc == 0)
        rc = make_prompt(&g);
    if (rc == 0)
        rc = g.best_of > 1 ? generate_choices(&g) : generate_text(&g);
    ctl_sampling_free(&g.sampling);
    free(g.ids);
    npugraph_detokenizer_destroy(g.detokenizer);
    npugraph_tokenizer_close(g.tok);
    npugraph_stops_destroy(g.stops);
    free(g.text);
    json_decref(g.out);
    json_decref(g.out_logprobs);
    return rc;
}
