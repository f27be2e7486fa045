/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_LINE_H
#define NGD_DAEMON_LOAD_LINE_H

/*
 * An entry of the option `load`: NAME PATH [OPTION...], with the options of `npugraphctl load` but --name. Words are
 * separated by blanks; one in double quotes may have blanks in it.
 *
 * What npugraphctl would refuse without asking the daemon is refused here, so that a mistake is found when the
 * configuration is read.
 * Threads: any. Memory: the line owns its words.
 */
#include "base/config.h"
#include "base/status.h"
#include <stddef.h>

#define NGD_LOAD_LINES_MAX 64
#define NGD_LOAD_WORDS_MAX 48

struct ngd_load_line {
    char *text;                      /* what the words lie in */
    char *words[NGD_LOAD_WORDS_MAX]; /* the name, the path, the options and their values */
    size_t n;
};

/* CONFIG: the diagnosis has the entry, and what is allowed. */
ngd_status_t ngd_load_line_parse(const char *entry, struct ngd_load_line *line_p, struct ngd_diag *diag);
void ngd_load_line_fini(struct ngd_load_line *line); /* zeros are fine */
/* Checks all entries, and that their names differ. */
ngd_status_t ngd_load_lines_check(const struct ngd_config_list *entries, struct ngd_diag *diag);

#endif
