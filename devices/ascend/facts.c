/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of facts:
 *
 *   npugraphd device facts 3
 *   made-by npugraphd 0.1.0
 *   date 2026-11-24T13:25:49Z
 *   chip Ascend910B4
 *   cann 8.5
 *   runtime 1.15.0
 *   driver 25.0.rc1
 *   missing aclnnErfc                                (none, or some)
 *   operator name=aten.neg dtype=f32 : ok us=812
 *   operator name=aten.erfc dtype=f32 : refused code=561002 us=40 "CANN answers 561002 (...)"
 *   end 761
 */
#include "devices/ascend/facts.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TITLE        "npugraphd device facts "
#define LINE_ROOM    512
#define MISSING_MOST 512
#define VALUE_MOST   INT64_C(1000000000000)

/* ---- writing ----------------------------------------------------------------------------------------- */

void ngd_ascend_facts_print_about(const struct ascend_facts_about *about, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, TITLE "%d\nmade-by %s\ndate %s\nchip %s\ncann %d.%d\nruntime %s\ndriver %s\n",
                      ASCEND_PROBE_VERSION, about->maker, about->date, about->chip, about->cann / 10, about->cann % 10,
                      about->runtime, about->driver);
}

void ngd_ascend_facts_print_missing(const char *function, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, "missing %s\n", function);
}

void ngd_ascend_facts_print_reply(uint32_t question, const struct ascend_reply *reply, struct ngd_strbuf *sb)
{
    char text[ASCEND_QUESTION_TEXT];
    struct ascend_question q;

    ngd_ascend_question(question, &q);
    ngd_ascend_question_print(&q, text);
    ngd_strbuf_printf(sb, "%s : %s", text, ngd_ascend_answer_name(reply->answer));
    if (reply->code)
        ngd_strbuf_printf(sb, " code=%d", (int)reply->code);
    if (reply->value >= 0)
        ngd_strbuf_printf(sb, " value=%" PRId64, reply->value);
    ngd_strbuf_printf(sb, " us=%" PRId64, (int64_t)(reply->took / NGD_USEC));
    if (reply->text[0])
        ngd_strbuf_printf(sb, " \"%s\"", reply->text);
    ngd_strbuf_append(sb, "\n");
}

void ngd_ascend_facts_print_end(struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, "end %u\n", (unsigned)ngd_ascend_question_count());
}

/* ---- lines ------------------------------------------------------------------------------------------- */

struct reader {
    const char *origin, *at, *end;
    uint32_t number;      /* of the line */
    char line[LINE_ROOM]; /* without its end */
    struct ngd_diag *diag;
};

static ngd_status_t refuse_line(const struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static ngd_status_t refuse_line(const struct reader *r, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return ngd_diag_set(r->diag, NGD_ERR_CONFIG,
                        "device-facts: %.200s, line %u: %s. Probe the device again (npugraphctl doctor device --probe)",
                        r->origin, (unsigned)r->number, text);
}

static ngd_status_t next_line(struct reader *r)
{
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    size_t n;

    r->number++;
    if (r->at == r->end)
        return refuse_line(r, "the file ends here, without a line \"end\": it was cut, or the probe did not end");
    if (!newline)
        return refuse_line(r, "the line does not end: the file was cut");
    n = (size_t)(newline - r->at);
    if (n >= sizeof(r->line))
        return refuse_line(r, "it has %zu characters; %zu are allowed", n, sizeof(r->line) - 1);
    for (size_t i = 0; i < n; i++)
        if (r->at[i] < ' ' || r->at[i] > '~')
            return refuse_line(r, "character %zu is not printable ASCII", i + 1);
    memcpy(r->line, r->at, n);
    r->line[n] = '\0';
    r->at = newline + 1;
    return NGD_OK;
}

/* What follows the word in the line; NULL: the line begins with another one. */
static const char *after_word(const char *line, const char *word)
{
    const size_t n = strlen(word);

    return strncmp(line, word, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

/* Takes " name=NUMBER" off *p, if it comes next. */
static bool take_fact_number(const char **p, const char *name, int64_t most, int64_t *value_p)
{
    const size_t n = strlen(name);
    const char *at = *p;
    int64_t value = 0;

    if (at[0] != ' ' || strncmp(at + 1, name, n) != 0 || at[n + 1] != '=' || at[n + 2] < '0' || at[n + 2] > '9')
        return false;
    for (at += n + 2; *at >= '0' && *at <= '9'; at++) {
        if (value > most / 10 || value * 10 > most - (*at - '0'))
            return false;
        value = value * 10 + (*at - '0');
    }
    *p = at;
    *value_p = value;
    return true;
}

/* ---- the head ---------------------------------------------------------------------------------------- */

static ngd_status_t read_about_field(struct reader *r, const char *name, char *to, size_t room)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_: ";
    ngd_status_t status = next_line(r);
    const char *value;

    if (status)
        return status;
    value = after_word(r->line, name);
    if (!value || !*value)
        return refuse_line(r, "\"%.60s\" is not \"%s ...\"", r->line, name);
    if (strlen(value) >= room || value[strspn(value, allowed)])
        return refuse_line(r, "\"%.60s\" is no value of \"%s\"", value, name);
    memcpy(to, value, strlen(value) + 1);
    return NGD_OK;
}

static ngd_status_t read_title(struct reader *r)
{
    char want[64];
    ngd_status_t status = next_line(r);

    if (status)
        return status;
    snprintf(want, sizeof(want), TITLE "%d", ASCEND_PROBE_VERSION);
    if (strcmp(r->line, want) == 0)
        return NGD_OK;
    if (strncmp(r->line, TITLE, strlen(TITLE)) == 0)
        return refuse_line(r, "the file is of version \"%.20s\"; this program reads version %d",
                           r->line + strlen(TITLE), ASCEND_PROBE_VERSION);
    return refuse_line(r, "\"%.60s\" is not \"%s\": this is no file of facts", r->line, want);
}

static ngd_status_t read_about(struct reader *r, struct ascend_facts_about *about)
{
    ngd_status_t status = read_title(r);
    char cann[16] = "";
    size_t n;

    if (status == NGD_OK)
        status = read_about_field(r, "made-by", about->maker, sizeof(about->maker));
    if (status == NGD_OK)
        status = read_about_field(r, "date", about->date, sizeof(about->date));
    if (status == NGD_OK)
        status = read_about_field(r, "chip", about->chip, sizeof(about->chip));
    if (status == NGD_OK && strcmp(about->chip, "unknown") == 0)
        return refuse_line(r, "the device did not open when it was probed, so that nothing is known about it");
    if (status == NGD_OK)
        status = read_about_field(r, "cann", cann, sizeof(cann));
    n = strspn(cann, "0123456789");
    if (status == NGD_OK && (n < 1 || n > 3 || cann[n] != '.' || cann[n + 1] < '0' || cann[n + 1] > '9' || cann[n + 2]))
        return refuse_line(r, "\"%s\" is no version as 8.5", cann);
    for (size_t i = 0; status == NGD_OK && cann[i]; i++)
        about->cann = cann[i] == '.' ? about->cann : about->cann * 10 + (cann[i] - '0');
    if (status == NGD_OK)
        status = read_about_field(r, "runtime", about->runtime, sizeof(about->runtime));
    if (status == NGD_OK)
        status = read_about_field(r, "driver", about->driver, sizeof(about->driver));
    return status;
}

/* Reads the lines "missing", and the first line behind them. *fused_p: the line that says so of attention; 0: none. */
static ngd_status_t read_missing(struct reader *r, uint32_t *fused_p)
{
    ngd_status_t status = next_line(r);
    const char *name;

    *fused_p = 0;
    for (uint32_t n = 0; status == NGD_OK && (name = after_word(r->line, "missing")) != NULL; n++) {
        if (n == MISSING_MOST)
            return refuse_line(r, "more than %d functions are missing", MISSING_MOST);
        if (strcmp(name, "aclnnFusedInferAttentionScoreV3") == 0)
            *fused_p = r->number;
        status = next_line(r);
    }
    return status;
}

/* ---- facts ------------------------------------------------------------------------------------------- */

static bool find_answer_name(const char *text, size_t n, ascend_answer_t *answer_p)
{
    for (int i = 0; i < ASCEND_ANSWER_MAX; i++) {
        const char *name = ngd_ascend_answer_name((ascend_answer_t)i);

        if (strlen(name) == n && memcmp(name, text, n) == 0) {
            *answer_p = (ascend_answer_t)i;
            return true;
        }
    }
    return false;
}

/* A quoted text to the end of the line, or nothing. */
static bool is_remark(const char *p)
{
    const size_t n = strlen(p);

    return n == 0 || (n >= 4 && p[0] == ' ' && p[1] == '"' && strchr(p + 2, '"') == p + n - 1);
}

static ngd_status_t read_fact(struct reader *r, uint32_t i, struct ascend_fact *fact)
{
    char want[ASCEND_QUESTION_TEXT];
    struct ascend_question q;
    int64_t code = 0, us;
    const char *p;
    size_t n;

    ngd_ascend_question(i, &q);
    ngd_ascend_question_print(&q, want);
    n = strlen(want);
    if (strncmp(r->line, want, n) != 0 || strncmp(r->line + n, " : ", 3) != 0)
        return refuse_line(r, "\"%.100s\" is not the answer to question %u, \"%s\"", r->line, (unsigned)i + 1, want);
    p = r->line + n + 3;
    n = strcspn(p, " ");
    if (!find_answer_name(p, n, &fact->answer))
        return refuse_line(r,
                           "\"%.*s\" is no answer; those are ok, refused, missing, wrong, failed, hang, crash, skipped",
                           n > 60 ? 60 : (int)n, p);
    p += n;
    fact->value = -1;
    fact->line = r->number;
    if (take_fact_number(&p, "code", INT32_MAX, &code) &&
        (fact->answer == ASCEND_ANSWER_OK || fact->answer == ASCEND_ANSWER_MISSING))
        return refuse_line(r, "%s has no code", ngd_ascend_answer_name(fact->answer));
    take_fact_number(&p, "value", VALUE_MOST, &fact->value);
    if (!take_fact_number(&p, "us", VALUE_MOST, &us) || !is_remark(p))
        return refuse_line(r, "\"%.60s\" is not: code=N value=N us=N \"text\"", p);
    return NGD_OK;
}

static ngd_status_t read_facts(struct reader *r, struct ascend_facts *facts)
{
    uint32_t fused;
    char want[32];
    ngd_status_t status = read_about(r, &facts->about);

    if (status == NGD_OK)
        status = read_missing(r, &fused);
    for (uint32_t i = 0; i < facts->n && status == NGD_OK; i++) {
        status = read_fact(r, i, &facts->facts[i]);
        if (status == NGD_OK && fused && i >= ngd_ascend_question_first(ASCEND_TOPIC_ATTENTION) &&
            facts->facts[i].answer == ASCEND_ANSWER_OK)
            return refuse_line(r, "it says that attention ran, and line %u that CANN has no function for it",
                               (unsigned)fused);
        if (status == NGD_OK)
            status = next_line(r);
    }
    if (status)
        return status;
    snprintf(want, sizeof(want), "end %u", (unsigned)facts->n);
    if (strcmp(r->line, want) != 0)
        return refuse_line(r, "\"%.60s\" is not \"%s\"", r->line, want);
    r->number++;
    return r->at == r->end ? NGD_OK : refuse_line(r, "something follows the end");
}

ngd_status_t ngd_ascend_facts_parse(const char *text, size_t n, const char *origin, struct ascend_facts **facts_p,
                                    struct ngd_diag *diag)
{
    const uint32_t count = ngd_ascend_question_count();
    struct ascend_facts *facts = ngd_calloc(1, sizeof(*facts) + count * sizeof(facts->facts[0]));
    struct reader r = {.origin = origin, .at = text, .end = text + n, .diag = diag};
    ngd_status_t status;

    if (!facts)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %u facts", (unsigned)count);
    facts->n = count;
    status = read_facts(&r, facts);
    if (status)
        ngd_free(facts);
    else
        *facts_p = facts;
    return status;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static ngd_status_t read_all_of(int fd, const char *path, char *text, size_t *n_p, struct ngd_diag *diag)
{
    struct stat st;
    ssize_t got = 1;

    *n_p = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "device-facts: %.300s is not a file", path);
    while (*n_p <= ASCEND_FACTS_BYTES && (got = read(fd, text + *n_p, ASCEND_FACTS_BYTES + 1 - *n_p)) > 0)
        *n_p += (size_t)got;
    if (got < 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "device-facts: %.300s: %s", path, strerror(errno));
    if (*n_p > ASCEND_FACTS_BYTES)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "device-facts: %.300s is larger than %zu KiB: it is no file of facts",
                            path, ASCEND_FACTS_BYTES >> 10);
    return NGD_OK;
}

ngd_status_t ngd_ascend_facts_read(const char *path, struct ascend_facts **facts_p, struct ngd_diag *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text;
    size_t n = 0;
    ngd_status_t status;

    if (fd < 0)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "device-facts: %.300s: %s", path, strerror(errno));
    text = ngd_malloc(ASCEND_FACTS_BYTES + 1);
    if (text)
        status = read_all_of(fd, path, text, &n, diag);
    else
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a file of facts");
    if (status == NGD_OK)
        status = ngd_ascend_facts_parse(text, n, path, facts_p, diag);
    ngd_free(text);
    close(fd);
    return status;
}
