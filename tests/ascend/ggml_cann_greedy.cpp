// SPDX-License-Identifier: Apache-2.0
// Prints the tokens that a checkpoint continues a prompt with, the most likely one each, as one line of numbers; then how
// many operators and replays of graphs the simulator was asked for, which keeps a log with NGD_ACLSIM_LOG=1.
//
//     greedy CHECKPOINT DEVICE NEW_TOKENS TOKEN...
//
// DEVICE: CPU, or a name of ggml such as CANN0, which then has all layers. The prompt is decoded at once, then token by token.
#include "llama.h"
#include "ggml-backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static llama_model *load(const char *path, const char *device)
{
    llama_model_params params = llama_model_default_params();
    ggml_backend_dev_t devices[2] = {nullptr, nullptr};

    if (strcmp(device, "CPU") != 0) {
        devices[0] = ggml_backend_dev_by_name(device);
        if (!devices[0]) {
            fprintf(stderr, "ggml has no device %s\n", device);
            return nullptr;
        }
    }
    params.devices = devices;
    params.n_gpu_layers = devices[0] ? 999 : 0;
    return llama_model_load_from_file(path, params);
}

static llama_token most_likely(llama_context *ctx, int n_vocab)
{
    const float *logits = llama_get_logits_ith(ctx, -1);

    return (llama_token)(std::max_element(logits, logits + n_vocab) - logits);
}

// Calls of the simulator whose names begin so and do not end with "GetWorkspaceSize".
static int calls(const char *log, const char *begin)
{
    int n = 0;

    for (const char *line = log; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : nullptr) {
        const char *end = strchr(line, '\n'), *planned = strstr(line, "GetWorkspaceSize");

        n += strncmp(line, begin, strlen(begin)) == 0 && (!planned || (end && planned > end));
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: greedy CHECKPOINT DEVICE NEW_TOKENS TOKEN...\n");
        return 2;
    }
    llama_model *model = load(argv[1], argv[2]);
    if (!model)
        return 1;

    llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = getenv("GREEDY_FLASH") ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *ctx = llama_init_from_model(model, params);
    if (!ctx)
        return 1;

    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), n_new = atoi(argv[3]);
    std::vector<llama_token> input;

    for (int i = 4; i < argc; i++)
        input.push_back(atoi(argv[i]));
    for (int i = 0; i < n_new; i++) {
        if (llama_decode(ctx, llama_batch_get_one(input.data(), (int)input.size())))
            return 1;
        input.assign(1, most_likely(ctx, n_vocab));
        printf("%s%d", i ? " " : "", input[0]);
    }
    const auto log = (char *(*)())dlsym(RTLD_DEFAULT, "ngd_aclsim_log");
    char *lines = log ? log() : nullptr;

    printf("\n%d %d\n", calls(lines, "aclnn"), calls(lines, "aclmdlRIExecuteAsync"));
    free(lines);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
