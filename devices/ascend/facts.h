/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_FACTS_H
#define NGD_DEVICES_ASCEND_FACTS_H

/*
 * A file of facts: what the probe (probe.h) has found out about one kind of chip with one version of CANN.
 *
 * It is text, one fact on a line, and has a line for each question, in their order, between a head and an end. So a
 * file that was cut, edited or mixed is refused with the line. A device reads it when it is opened (option
 * device-facts), if the file is about its chip and version. Then facts outrank attention_rules.def and chips.def.
 *
 * Threads: constant after parsing.
 */
#include "devices/ascend/probe.h"

#define ASCEND_FACTS_BYTES ((size_t)1 << 20) /* of a file */

struct ascend_facts_about {
    char maker[64];   /* "npugraphd 0.1.0" */
    char date[24];    /* UTC: 2026-11-24T13:25:49Z */
    char chip[64];    /* as aclrtGetSocName names it; "unknown": the device did not open */
    int cann;         /* 85 is 8.5 */
    char runtime[32]; /* "1.15.0" */
    char driver[64];  /* "25.0.rc1", or "unknown" */
};

struct ascend_fact {
    ascend_answer_t answer;
    int64_t value; /* -1: none */
    uint32_t line;
};

struct ascend_facts {
    struct ascend_facts_about about;
    uint32_t n;
    struct ascend_fact facts[]; /* one for each question */
};

/* facts.c. CONFIG, FILE_NOT_FOUND, ...: the diagnosis names the file and the line. */
ngd_status_t ngd_ascend_facts_read(const char *path, struct ascend_facts **facts_p, struct ngd_diag *diag);
ngd_status_t ngd_ascend_facts_parse(const char *text, size_t n, const char *origin, struct ascend_facts **facts_p,
                                    struct ngd_diag *diag);
/* The parts of a file. */
void ngd_ascend_facts_print_about(const struct ascend_facts_about *about, struct ngd_strbuf *sb);
void ngd_ascend_facts_print_missing(const char *function, struct ngd_strbuf *sb);
void ngd_ascend_facts_print_reply(uint32_t question, const struct ascend_reply *reply, struct ngd_strbuf *sb);
void ngd_ascend_facts_print_end(struct ngd_strbuf *sb);

/* facts_use.c. Reads the file of the option, and sets the device's limits by it. A file about another chip or version
 * is left alone, which the log and the device's capabilities say. */
ngd_status_t ngd_ascend_facts_open(struct ascend_device *dev, const char *path, struct ngd_diag *diag);
void ngd_ascend_facts_describe(const struct ascend_device *dev, struct ngd_strbuf *sb);

typedef enum ascend_says { ASCEND_SAYS_NOTHING, ASCEND_SAYS_YES, ASCEND_SAYS_NO } ascend_says_t;
/* Whether one way of attention serves. *line_p: the line that decides. */
ascend_says_t ngd_ascend_facts_attention(const struct ascend_facts *facts, enum ascend_way way, int64_t d,
                                         int64_t block, ngd_dtype_t dtype, int64_t queries, uint32_t *line_p);
/* The same of a cache of latents of 512 numbers, with second parts of 64, one row for each sequence. */
ascend_says_t ngd_ascend_facts_latent(const struct ascend_facts *facts, int64_t block, ngd_dtype_t dtype, int64_t heads,
                                      uint32_t *line_p);
/* Refuses a call whose operator gave wrong results, failed, or worse, in that dtype. */
ngd_status_t ngd_ascend_facts_check(const struct ascend_device *dev, const struct ngd_plan *plan,
                                    const struct ngd_plan_call *call, struct ngd_diag *diag);

#endif
