/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_PROBE_H
#define NGD_DEVICES_ASCEND_PROBE_H

/*
 * The probe asks a device what documents and sources leave open, and writes the answers to a file of facts (facts.h).
 *
 * The questions are a fixed list (probe_questions.c): which there are depends on nothing, so that a file has one line
 * for each, in their order. probe.c asks them in child processes, which may hang or crash without harm to the others;
 * probe_ask.c has the answers' code, which runs in a child.
 */
#include "devices/ascend/ascend.h"
#include "devices/doctor_run.h"

#define ASCEND_PROBE_VERSION 6   /* of the list of questions and of the file's form */
#define ASCEND_QUESTION_TEXT 112 /* characters of a question, with the terminator */
#define ASCEND_REPLY_TEXT    200 /* of CANN's words, with the terminator */

typedef enum ascend_answer {
#define NGD_PROBE_ANSWER(ID, name, serves, text) ASCEND_ANSWER_##ID,
#include "devices/ascend/probe_answers.def"
#undef NGD_PROBE_ANSWER
    ASCEND_ANSWER_MAX
} ascend_answer_t;

typedef enum ascend_topic {
#define NGD_PROBE_TOPIC(ID, name, function, text) ASCEND_TOPIC_##ID,
#include "devices/ascend/probe_topics.def"
#undef NGD_PROBE_TOPIC
    ASCEND_TOPIC_MAX
} ascend_topic_t;

/* One question. A topic uses the fields that it needs; the others are 0. */
struct ascend_question {
    ascend_topic_t topic;
    uint32_t process; /* questions of one number follow each other, and share a child process */
    bool nz;          /* the device is opened with weights in NZ */
    ngd_op_id_t op;
    const char *body; /* of the graph: '@' stands for the dtype, '$' for the operator's name */
    ngd_dtype_t dtype;
    enum ascend_way way;
    int64_t d, block;
    int64_t queries;  /* query heads of one head of the cache */
    bool full;        /* contexts fill the rows of the block table, and are longer than those of the capture */
    int64_t columns;  /* of a weight */
    const char *form; /* of experts */
};

struct ascend_reply {
    ascend_answer_t answer;
    int32_t code;  /* CANN's, or the signal of a crash; 0: none */
    int64_t value; /* see probe_topics.def; -1: none */
    ngd_nsec_t took;
    char text[ASCEND_REPLY_TEXT];
};

/* The probe's hold on the device that it opens (struct ngd_device_params). */
struct ascend_probe_hold {
    struct ascend_device *dev; /* set when it is open */
    enum ascend_way only_way;  /* attention takes this way, whatever rules say; ASCEND_WAY_MAX: any */
};

/* What a child asks with. */
struct ascend_asker {
    struct ascend_probe_hold hold;
    struct ngd_doctor_bench device, reference;
};

const char *ngd_ascend_answer_name(ascend_answer_t answer);

/* probe_questions.c */
uint32_t ngd_ascend_question_count(void);
void ngd_ascend_question(uint32_t i, struct ascend_question *q_p);
/* "attention layout=TND dtype=bf16 d=128 block=128 queries=4 keys=full" */
void ngd_ascend_question_print(const struct ascend_question *q, char text[ASCEND_QUESTION_TEXT]);
/* The number of the topic's first question. */
uint32_t ngd_ascend_question_first(ascend_topic_t topic);
/* The question about one combination; UINT32_MAX: it is not asked. */
uint32_t ngd_ascend_question_of_attention(enum ascend_way way, int64_t d, int64_t block, ngd_dtype_t dtype,
                                          int64_t queries, bool full);
uint32_t ngd_ascend_question_of_operator(ngd_op_id_t op, ngd_dtype_t dtype);
/* The one about as many heads, or the next number of them that is asked about. */
uint32_t ngd_ascend_question_of_latent(int64_t block, ngd_dtype_t dtype, int64_t heads, bool full);
/* The one about a call of npu.grouped_matmul, by the form of its experts; UINT32_MAX: floats, as an operator is asked
 * about, or a form that CANN has not. */
uint32_t ngd_ascend_question_of_experts(const struct ngd_plan *plan, const struct ngd_plan_call *call);

/* probe_ask.c: answers one question, in the child. The reply's `took` is the caller's. */
void ngd_ascend_ask(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply);
/* For the topics: */
void ngd_ascend_reply(struct ascend_reply *reply, ascend_answer_t answer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What an error means: refused, missing, failed, hang, or skipped if memory is short. `ran`: it was launched. */
void ngd_ascend_reply_error(struct ascend_reply *reply, ngd_status_t status, const struct ngd_diag *diag, bool ran);
/* Runs the graph on both devices, and compares. hosts: of the capture; later: of a second replay, or NULL. */
void ngd_ascend_ask_graph(struct ascend_asker *a, const char *body, const struct ngd_host_value *hosts,
                          const struct ngd_host_value *later, struct ascend_reply *reply);
#define NGD_PROBE_TOPIC(ID, name, function, text)                           \
    uint32_t ngd_ascend_number_of_##function(void);                         \
    void ngd_ascend_fill_##function(uint32_t i, struct ascend_question *q); \
    void ngd_ascend_ask_##function(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply);
#include "devices/ascend/probe_topics.def"
#undef NGD_PROBE_TOPIC

/* probe_words.c */
struct ascend_secrets {
    char names[3][72]; /* of the host, and of the user by USER and by the system's list; "": none */
};
void ngd_ascend_find_secrets(struct ascend_secrets *s_p);
/* Replaces what cannot be printed, and by '*' words with a name, a path or a long number. */
void ngd_ascend_clean_words(const struct ascend_secrets *s, char text[ASCEND_REPLY_TEXT]);

/* probe.c: as ngd_backend_lifecycle.ask. Writes to "PATH.part", and renames that when it is whole. UNAVAILABLE: the
 * device did not open; PATH is as it was. */
ngd_status_t ngd_ascend_probe(const struct ngd_device_params *params, const char *path, struct ngd_diag *diag);

#endif
