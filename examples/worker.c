/* SPDX-License-Identifier: Apache-2.0 */
/* A worker in C: opens a sequence with a prompt and streams the text that the daemon generates.
 *   cc worker.c $(pkg-config --cflags --libs npugraph-hf) -o worker
 *   ./worker --model bible --tokenizer examples/model/tokenizer.json --prompt "In the beginning" */
#include <npugraph_hf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct worker {
    struct npugraph_detokenizer *text;
    const char *label; /* printed before the last line, to tell workers apart */
    int tokens;
    double begin, first, last;
};

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int print_failure(const char *what, const struct npugraph_error *err)
{
    fprintf(stderr, "worker: %s: %s [%s]\n", what, err->message, err->reason);
    return 1;
}

static bool show(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct worker *w = user;
    const char *text;
    size_t n;

    (void)logprobs;
    w->last = now();
    w->first = w->tokens++ == 0 ? w->last : w->first;
    npugraph_detokenizer_add(w->text, token, &text, &n, NULL);
    fwrite(text, 1, n, stdout);
    return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    const char *model = "bible", *file = "examples/model/tokenizer.json", *prompt = "In the beginning", *text;
    struct npugraph_connect_params params;
    struct npugraph_sampling how = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1};
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_client *client = NULL;
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    struct worker w = {.label = "worker"};
    const struct npugraph_open_params open = {.sampling = &how, .restore_ms = 60000};
    struct npugraph_generate_params generate = {.max_tokens = 64};
    int32_t *ids;
    size_t n, len;

    npugraph_connect_params_init(&params);
    params.client_name = "worker";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--address") == 0)
            params.address = argv[i + 1];
        else if (strcmp(argv[i], "--model") == 0)
            model = argv[i + 1];
        else if (strcmp(argv[i], "--tokenizer") == 0)
            file = argv[i + 1];
        else if (strcmp(argv[i], "--prompt") == 0)
            prompt = argv[i + 1];
        else if (strcmp(argv[i], "--name") == 0)
            w.label = params.client_name = argv[i + 1];
        else if (strcmp(argv[i], "--tokens") == 0)
            generate.max_tokens = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            how.seed = strtoull(argv[i + 1], NULL, 10);
    }
    if (npugraph_tokenizer_open(file, &tok, &err) != 0 ||
        npugraph_tokenizer_encode(tok, prompt, strlen(prompt), NPUGRAPH_ENCODE_TEMPLATE, &ids, &n, &err) != 0 ||
        npugraph_detokenizer_create(tok, ids, n, false, &w.text, &err) != 0 ||
        npugraph_connect(&params, &client, &err) != 0)
        return print_failure("start", &err);
    fputs(prompt, stdout);
    w.begin = now();
    if (npugraph_sequence_open(client, model, ids, n, &open, &seq, NULL, &err) != 0 ||
        npugraph_sequence_generate(seq, &generate, show, &w, NULL, &err) != 0)
        return print_failure("generate", &err);
    npugraph_detokenizer_end(w.text, &text, &len, NULL);
    printf("%.*s\n", (int)len, text);
    fprintf(stderr, "[%s: %d tokens, first after %.1f ms, then %.0f tokens/s]\n", w.label, w.tokens,
            (w.first - w.begin) * 1e3, w.tokens > 1 ? (w.tokens - 1) / (w.last - w.first) : 0.0);
    npugraph_sequence_close(seq);
    npugraph_disconnect(client);
    npugraph_detokenizer_destroy(w.text);
    npugraph_tokenizer_close(tok);
    free(ids);
    return 0;
}
