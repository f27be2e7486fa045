/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perplexity: how well a model foresees a text, as exp of the mean negative log-probability of its tokens. So two
 * checkpoints of one model can be compared, such as one before and after its weights were quantised.
 */
#include "client/ctl/ctl_tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TEXT ((size_t)64 << 20)

struct perplexity {
    struct ctl *ctl;
    const char *model, *file, *ids_text, *tokenizer;
    uint64_t most, window; /* tokens that are asked for; tokens that are in the context at once */
    int32_t *ids;
    size_t n;
    double sum; /* of the negative log-probabilities, in nats */
    uint64_t counted;
    struct ctl_progress bar;
};

static bool perplexity_option(struct perplexity *p, const char *name, const char *value)
{
    if (strcmp(name, "text") == 0)
        return (p->file = value) != NULL;
    if (strcmp(name, "ids") == 0)
        return (p->ids_text = value) != NULL;
    if (strcmp(name, "tokenizer") == 0)
        return (p->tokenizer = value) != NULL;
    if (strcmp(name, "tokens") == 0)
        return ctl_parse_uint(value, INT32_MAX, &p->most) && p->most > 0;
    return ctl_parse_uint(value, INT32_MAX, &p->window) && p->window > 1;
}

static int perplexity_arguments(struct perplexity *p, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;

    while ((name = ctl_next_beside(&o, "", "text ids tokenizer tokens window", &value, &p->model,
                                   "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!perplexity_option(p, name, value))
            return ctl_usage(o.command, "--%s cannot be %s", name, value);
    }
    if (p->model == NULL || (p->file == NULL) == (p->ids_text == NULL))
        return ctl_usage(o.command, "perplexity needs a model and either --text or --ids");
    return 0;
}

static int encode_text(struct perplexity *p)
{
    struct npugraph_error err = {0};
    struct npugraph_tokenizer *tok;
    size_t n;
    char *text = ctl_read_file(p->file, MOST_TEXT, &n);
    int rc = 1;

    if (text == NULL)
        return 1;
    tok = p->tokenizer != NULL ? ctl_open_tokenizer(p->tokenizer) : ctl_open_model_tokenizer(p->ctl, p->model, NULL);
    if (tok != NULL) {
        rc = npugraph_tokenizer_encode(tok, text, n, NPUGRAPH_ENCODE_TEMPLATE, &p->ids, &p->n, &err);
        if (rc != 0)
            rc = ctl_fail(&err);
    }
    npugraph_tokenizer_close(tok);
    free(text);
    return rc;
}

static int read_tokens(struct perplexity *p)
{
    if (p->ids_text == NULL) {
        const int rc = encode_text(p);

        if (rc != 0)
            return rc;
    } else if (!ctl_parse_ids(p->ids_text, &p->ids, &p->n)) {
        return ctl_usage(ctl_find_command("perplexity"), "--ids takes token ids, N,N,...");
    }
    if (p->n < 2)
        return ctl_error("the text has %zu tokens; the first is given, so at least two are needed", p->n);
    if (p->n - 1 > p->most)
        p->n = (size_t)p->most + 1;
    return 0;
}

/* A context of the model at most. */
static int fit_window(struct perplexity *p)
{
    struct npugraph_models *models = NULL;
    struct npugraph_error err = {0};

    if (!ctl_connect(p->ctl))
        return 1;
    if (npugraph_models_find(p->ctl->client, p->model, &models, &err) != 0)
        return ctl_fail(&err);
    if (models->n > 0 && p->window > models->items[0].max_context)
        p->window = models->items[0].max_context;
    npugraph_models_free(models);
    return p->window > 1 ? 0 : ctl_error("a context of %s has one token; two are needed", p->model);
}

static double negative_logprob(const float *logits, size_t vocab, int32_t token)
{
    double most = (double)logits[0], sum = 0;

    for (size_t i = 1; i < vocab; i++)
        most = fmax(most, (double)logits[i]);
    for (size_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum) - (double)logits[token];
}

/* Counts what the model says of a token before it sees it. */
static int count_token(struct perplexity *p, const struct npugraph_step *step, int32_t token)
{
    if ((size_t)token >= step->vocab)
        return ctl_error("token %d is not below the model's %zu", token, step->vocab);
    p->sum += negative_logprob(step->logits, step->vocab, token);
    ctl_progress_update(&p->bar, ++p->counted, p->n - 1);
    return 0;
}

/* Counts the tokens behind the first of a window. */
static int run_window(struct perplexity *p, const int32_t *ids, size_t n)
{
    const struct npugraph_open_params open = {.want_logits = true};
    struct npugraph_step_params ask = {.want_logits = true};
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    struct npugraph_step step;
    int rc;

    if (npugraph_sequence_open(p->ctl->client, p->model, ids, 1, &open, &seq, &step, &err) != 0)
        return ctl_fail(&err);
    rc = count_token(p, &step, ids[1]);
    for (size_t i = 1; rc == 0 && i + 1 < n; i++) {
        ask.forced = ids[i];
        rc = npugraph_sequence_step(seq, &ask, &step, &err) != 0 ? ctl_fail(&err) : count_token(p, &step, ids[i + 1]);
    }
    npugraph_sequence_close(seq);
    return rc;
}

static int report_perplexity(struct perplexity *p)
{
    const double mean = p->sum / (double)p->counted;
    struct ctl_fields *f;

    if (!isfinite(exp(mean)))
        return ctl_error("the perplexity is no number: a logit is none, or the mean loss is %g", mean);
    f = ctl_fields_new(p->ctl, NULL);
    ctl_field_int(f, "Tokens", "tokens", p->counted);
    ctl_field_amount(f, "Loss", "loss", mean, 4, "nats/token");
    ctl_field_amount(f, "Perplexity", "perplexity", exp(mean), 3, "");
    ctl_fields_end(f);
    return 0;
}

int ctl_cmd_perplexity(struct ctl *ctl, int argc, char **argv)
{
    struct perplexity p = {.ctl = ctl, .most = 512, .window = 512};
    int rc = perplexity_arguments(&p, argc, argv);

    if (rc == 0)
        rc = read_tokens(&p);
    if (rc == 0)
        rc = fit_window(&p);
    ctl_progress_start(&p.bar, ctl, "reading");
    /* The next window begins with the last token of this one, so that each token but the first is counted. */
    for (size_t at = 0; rc == 0 && at + 1 < p.n; at += p.window - 1)
        rc = run_window(&p, p.ids + at, p.n - at < p.window ? p.n - at : (size_t)p.window);
    ctl_progress_end(&p.bar);
    if (rc == 0)
        rc = report_perplexity(&p);
    free(p.ids);
    return rc;
}
