/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_LIVE_H
#define NGD_TESTS_LIVE_H

/* A daemon of the build tree on a private socket, for tests and benchmarks; and a reader of safetensors files. */
#include "client/lib/npugraph.h"
#include <jansson.h>
#include <sys/types.h>

struct live {
    char dir[96];
    char address[128];
    pid_t pid;
};

/* Starts npugraphd and waits until it answers. extra: further arguments, NULL-terminated. Ends the program if that
 * fails. */
void live_start(struct live *live, const char *models_dir, const char *const *extra);
/* Sends SIGTERM, and returns the exit status (0 = clean). */
int live_stop(struct live *live);
struct npugraph_client *live_connect(const struct live *live, const char *name);
/* Returns the statistics of the daemon as JSON. Free with json_decref. */
json_t *live_stats(struct npugraph_client *client);

struct tensors {
    json_t *header;
    char *data;
    size_t n;
};
void tensors_open(struct tensors *t, const char *path);
void tensors_close(struct tensors *t);
/* Returns the elements of a tensor, and their number. Ends the program if there is no such tensor. */
const void *tensors_get(const struct tensors *t, const char *name, size_t element, size_t *n_p);

const char *source_dir(void);

#endif
