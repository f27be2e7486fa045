/* SPDX-License-Identifier: Apache-2.0 */
/* Tables (libsmartcols), fields, JSON and the progress bar. */
#include "base/strbuf.h"
#include "client/ctl/ctl.h"

#include <errno.h>
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <time.h>

void ctl_format_bytes(uint64_t value, char *to, size_t room)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)value;
    size_t u = 0;

    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    snprintf(to, room, u == 0 ? "%.0f %s" : "%.1f %s", v, unit[u]);
}

uint64_t ctl_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void ctl_format_ms(uint64_t ms, char *to, size_t room)
{
    uint64_t s = ms / 1000;

    if (ms < 1000)
        snprintf(to, room, "%u ms", (unsigned)ms);
    else if (s < 60)
        snprintf(to, room, "%.1f s", (double)ms / 1000);
    else if (s < 3600)
        snprintf(to, room, "%um %us", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(to, room, "%uh %um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
    else
        snprintf(to, room, "%ud %uh", (unsigned)(s / 86400), (unsigned)(s / 3600 % 24));
}

/* ---- tables --------------------------------------------------------------------------------------------- */

struct ctl_table {
    struct ctl *ctl;
    const struct ctl_column *columns;
    size_t n, at, rows;
    size_t prose; /* columns from here on are sentences; n if there are none */
    bool details; /* columns before the sentences may move below their row too */
    struct libscols_table *table;
    struct libscols_line *line;
    json_t *array, *object;
};

struct ctl_table *ctl_table_new(struct ctl *ctl, const char *key, const struct ctl_column *columns, size_t n)
{
    struct ctl_table *t = calloc(1, sizeof(*t));

    if (t == NULL)
        abort();
    t->ctl = ctl;
    t->columns = columns;
    t->n = n;
    t->prose = n;
    t->array = json_array();
    t->table = scols_new_table();
    scols_table_enable_colors(t->table, ctl->colour);
    scols_table_set_stream(t->table, ctl->out);
    for (size_t i = 0; i < n; i++)
        scols_table_new_column(t->table, columns[i].title, 0,
                               /* On a terminal the last column is cut, so that a row stays one line. */
                               columns[i].right ? SCOLS_FL_RIGHT
                               : i == n - 1     ? SCOLS_FL_TRUNC
                                                : 0);
    if (ctl->json)
        json_object_set(ctl->root, key, t->array);
    return t;
}

void ctl_table_prose(struct ctl_table *t, size_t column)
{
    t->prose = column;
}

void ctl_table_details(struct ctl_table *t)
{
    t->details = true;
}

void ctl_row(struct ctl_table *t)
{
    t->line = scols_table_new_line(t->table, NULL);
    t->object = json_object();
    json_array_append_new(t->array, t->object);
    t->at = 0;
    t->rows++;
}

static void cell(struct ctl_table *t, const char *text, json_t *raw)
{
    if (t->at < t->n) {
        scols_line_set_data(t->line, t->at, text);
        json_object_set_new(t->object, t->columns[t->at].key, raw);
        t->at++;
    }
}

void ctl_str(struct ctl_table *t, const char *value)
{
    cell(t, value, json_string(value));
}

void ctl_word(struct ctl_table *t, const ProtobufCEnumDescriptor *desc, int value)
{
    ctl_str(t, ngd_word_of(desc, value).text);
}

void ctl_bool(struct ctl_table *t, bool value)
{
    cell(t, value ? "yes" : "no", json_boolean(value));
}

void ctl_int(struct ctl_table *t, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    cell(t, text, json_integer((json_int_t)value));
}

void ctl_bytes(struct ctl_table *t, uint64_t value)
{
    char text[32];

    ctl_format_bytes(value, text, sizeof(text));
    cell(t, text, json_integer((json_int_t)value));
}

void ctl_ms(struct ctl_table *t, uint64_t ms)
{
    char text[32];

    ctl_format_ms(ms, text, sizeof(text));
    cell(t, text, json_integer((json_int_t)ms));
}

void ctl_ratio(struct ctl_table *t, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.0f %%", 100 * value);
    cell(t, text, json_real(value));
}

void ctl_rate(struct ctl_table *t, double value)
{
    char text[32];

    snprintf(text, sizeof(text), value != 0 && value < 100 ? "%.1f" : "%.0f", value);
    cell(t, text, json_real(value));
}

void ctl_amount(struct ctl_table *t, double value, int digits, const char *unit)
{
    char text[64];

    snprintf(text, sizeof(text), "%.*f %s", digits, value, unit);
    cell(t, text, json_real(value));
}

void ctl_absent(struct ctl_table *t)
{
    if (t->at < t->n)
        scols_line_set_data(t->line, t->at++, "-");
}

void ctl_us(struct ctl_table *t, double us)
{
    char text[32];

    if (us < 1000)
        snprintf(text, sizeof(text), "%.0f µs", us);
    else if (us < 1e6)
        snprintf(text, sizeof(text), us < 1e5 ? "%.1f ms" : "%.0f ms", us / 1000);
    else
        snprintf(text, sizeof(text), "%.1f s", us / 1e6);
    cell(t, text, json_real(us));
}

void ctl_state(struct ctl_table *t, const char *value, bool good)
{
    cell(t, value, json_string(value));
    if (t->ctl->colour)
        scols_cell_set_color(scols_line_get_cell(t->line, t->at - 1), good ? "green" : "red");
}

/* ---- sentences that do not fit into a row ---- */

#define INDENT 4

/* Appends text. Characters that could move the cursor are shown as their codes, as libsmartcols does. */
static void append_safe(struct ngd_strbuf *sb, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p < ' ' || *p == 0x7f)
            ngd_strbuf_printf(sb, "\\x%02x", *p);
        else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
            ngd_strbuf_printf(sb, "\\x%02x\\x%02x", p[0], p[1]), p++;
        else
            ngd_strbuf_putc(sb, (char)*p);
    }
}

static size_t text_columns(const char *text, size_t n)
{
    size_t columns = 0;

    for (size_t i = 0; i < n; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

/* Prints text word by word, each line with an indent. */
static void print_words(FILE *out, const char *text, size_t width)
{
    size_t at = 0;

    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t n = strcspn(text, " "), columns = text_columns(text, n);

        if (at != 0 && at + 1 + columns > width) {
            fputc('\n', out);
            at = 0;
        }
        at += at == 0 ? INDENT + columns : 1 + columns;
        fprintf(out, "%*s%.*s", at == INDENT + columns ? INDENT : 1, "", (int)n, text);
        text += n;
    }
    if (at != 0)
        fputc('\n', out);
}

static bool wider_than(const char *text, size_t width)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (text_columns(line, strcspn(line, "\n")) > width)
            return true;
    return false;
}

static char *table_text(struct ctl_table *t, bool colours)
{
    char *text = NULL;

    scols_table_enable_colors(t->table, colours);
    return scols_print_table_to_string(t->table, &text) == 0 ? text : NULL;
}

static bool too_wide(struct ctl_table *t)
{
    char *text = table_text(t, false);
    bool wide = text != NULL && wider_than(text, scols_table_get_termwidth(t->table));

    free(text);
    return wide;
}

static void hide(struct ctl_table *t, size_t column)
{
    scols_column_set_flags(scols_table_get_column(t->table, column), SCOLS_FL_HIDDEN);
}

static const char *cell_data(struct ctl_table *t, size_t row, size_t column)
{
    return scols_cell_get_data(scols_line_get_cell(scols_table_get_line(t->table, row), column)) ?: "";
}

/* Prints the columns of a row that moved below it, each after its title ("REPLAYS 12, SESSIONS 1 OF 4"), then its
 * sentences. */
static void print_rest(struct ctl_table *t, size_t row, size_t shown)
{
    const size_t width = scols_table_get_termwidth(t->table);
    struct ngd_strbuf safe;

    ngd_strbuf_init(&safe);
    for (size_t i = shown; i < t->prose; i++) {
        if (i > shown)
            ngd_strbuf_append(&safe, strcmp(t->columns[i].title, "OF") == 0 ? " " : ", ");
        ngd_strbuf_printf(&safe, "%s ", t->columns[i].title);
        append_safe(&safe, cell_data(t, row, i));
    }
    print_words(t->ctl->out, ngd_strbuf_str(&safe), width);
    for (size_t i = t->prose; i < t->n; i++) {
        ngd_strbuf_clear(&safe);
        append_safe(&safe, cell_data(t, row, i));
        print_words(t->ctl->out, ngd_strbuf_str(&safe), width);
    }
    ngd_strbuf_fini(&safe);
}

/* Prints each row without its sentences, and the sentences below it, for a terminal that is too narrow for one line. */
static bool print_below(struct ctl_table *t)
{
    size_t shown = t->prose;
    char *text;

    if ((t->prose == t->n && !t->details) || t->ctl->out != stdout || isatty(STDOUT_FILENO) == 0)
        return false;
    scols_table_set_termforce(t->table, SCOLS_TERMFORCE_NEVER); /* do not fit the table to the terminal */
    if (!too_wide(t)) {
        scols_table_set_termforce(t->table, SCOLS_TERMFORCE_AUTO);
        scols_table_enable_colors(t->table, t->ctl->colour);
        return false;
    }
    for (size_t i = t->prose; i < t->n; i++)
        hide(t, i);
    while (t->details && shown > 1 && too_wide(t))
        hide(t, --shown);
    text = table_text(t, t->ctl->colour);
    for (size_t row = 0, at = 0; text != NULL && row <= t->rows; row++) {
        size_t n = strcspn(text + at, "\n");

        fprintf(t->ctl->out, "%.*s\n", (int)n, text + at);
        at += n + (text[at + n] == '\n');
        if (row > 0)
            print_rest(t, row - 1, shown);
    }
    free(text);
    return true;
}

void ctl_table_end(struct ctl_table *t, const char *when_empty)
{
    if (!t->ctl->json) {
        if (t->rows == 0)
            fprintf(t->ctl->out, "%s\n", when_empty);
        else if (!print_below(t))
            scols_print_table(t->table);
    }
    scols_unref_table(t->table);
    json_decref(t->array);
    free(t);
}

/* ---- fields ---------------------------------------------------------------------------------------------- */

struct ctl_fields {
    struct ctl *ctl;
    struct libscols_table *table;
    json_t *object;
};

struct ctl_fields *ctl_fields_new(struct ctl *ctl, const char *key)
{
    struct ctl_fields *f = calloc(1, sizeof(*f));

    if (f == NULL)
        abort();
    f->ctl = ctl;
    f->table = scols_new_table();
    scols_table_enable_noheadings(f->table, 1);
    scols_table_set_stream(f->table, ctl->out);
    scols_table_enable_colors(f->table, ctl->colour);
    scols_table_new_column(f->table, "NAME", 0, 0);
    scols_table_new_column(f->table, "VALUE", 0, 0);
    f->object = ctl->root;
    if (ctl->json && key != NULL) {
        f->object = json_object();
        json_object_set_new(ctl->root, key, f->object);
    }
    return f;
}

static void add_field(struct ctl_fields *f, const char *title, const char *key, const char *text, json_t *raw)
{
    struct libscols_line *line = scols_table_new_line(f->table, NULL);

    scols_line_set_data(line, 0, title);
    scols_line_set_data(line, 1, text);
    if (f->ctl->colour)
        scols_cell_set_color(scols_line_get_cell(line, 0), "bold");
    if (f->ctl->json)
        json_object_set_new(f->object, key, raw);
    else
        json_decref(raw);
}

void ctl_field_str(struct ctl_fields *f, const char *title, const char *key, const char *value)
{
    add_field(f, title, key, value, json_string(value));
}

void ctl_field_int(struct ctl_fields *f, const char *title, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    add_field(f, title, key, text, json_integer((json_int_t)value));
}

void ctl_field_bytes(struct ctl_fields *f, const char *title, const char *key, uint64_t value)
{
    char text[32];

    ctl_format_bytes(value, text, sizeof(text));
    add_field(f, title, key, text, json_integer((json_int_t)value));
}

void ctl_field_ms(struct ctl_fields *f, const char *title, const char *key, uint64_t value)
{
    char text[32];

    ctl_format_ms(value, text, sizeof(text));
    add_field(f, title, key, text, json_integer((json_int_t)value));
}

void ctl_field_us(struct ctl_fields *f, const char *title, const char *key, double us)
{
    char text[32];

    snprintf(text, sizeof(text), us < 1000 ? "%.1f µs" : "%.0f µs", us);
    add_field(f, title, key, text, json_real(us));
}

void ctl_field_amount(struct ctl_fields *f, const char *title, const char *key, double value, int digits,
                      const char *unit)
{
    char text[64];

    snprintf(text, sizeof(text), "%.*f%s%s", digits, value, unit[0] != '\0' ? " " : "", unit);
    add_field(f, title, key, text, json_real(value));
}

void ctl_field_rate(struct ctl_fields *f, const char *title, const char *key, double value, const char *unit)
{
    ctl_field_amount(f, title, key, value, 1, unit);
}

void ctl_fields_end(struct ctl_fields *f)
{
    if (!f->ctl->json)
        scols_print_table(f->table);
    scols_unref_table(f->table);
    free(f);
}

void ctl_flush_line(struct ctl *ctl)
{
    if (ctl->json) {
        json_dumpf(ctl->root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        putchar('\n');
        fflush(stdout); /* a program that reads lines waits for this one */
        json_object_clear(ctl->root);
    }
}

void ctl_flush(struct ctl *ctl)
{
    if (ctl->json && json_object_size(ctl->root) != 0) {
        json_dumpf(ctl->root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_object_clear(ctl->root);
    }
}

int ctl_write_file(struct ctl *ctl, const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    bool ok = f != NULL && fputs(text, f) != EOF;

    if (f != NULL)
        ok = fclose(f) == 0 && ok;
    if (!ok) {
        ctl_error("%s: %s", path, strerror(errno));
        return 1;
    }
    if (ctl->json)
        json_object_set_new(ctl->root, "file", json_string(path));
    else
        printf("%s\n", path);
    return 0;
}

/* ---- progress -------------------------------------------------------------------------------------------- */

#define BAR_WIDTH 32

void ctl_progress_start(struct ctl_progress *p, const struct ctl *ctl, const char *what)
{
    p->what = what;
    p->on = !ctl->json && !ctl->quiet && isatty(STDERR_FILENO) != 0;
    p->last_permille = -1;
}

void ctl_progress_update(void *user, uint64_t done, uint64_t total)
{
    struct ctl_progress *p = user;
    int permille = total != 0 ? (int)((double)done / (double)total * 1000) : 0;
    char bar[3 * BAR_WIDTH + 1] = "", d[32], t[32];

    if (!p->on || permille == p->last_permille)
        return;
    p->last_permille = permille;
    for (int i = 0; i < BAR_WIDTH; i++)
        memcpy(bar + 3 * i, i * 1000 < permille * BAR_WIDTH ? "█" : "░", 4);
    ctl_format_bytes(done, d, sizeof(d));
    ctl_format_bytes(total, t, sizeof(t));
    fprintf(stderr, "\r\033[K%s %s %3d %%  %s of %s", p->what, bar, permille / 10, d, t);
    fflush(stderr);
}

void ctl_progress_end(struct ctl_progress *p)
{
    if (p->on && p->last_permille >= 0)
        fprintf(stderr, "\r\033[K");
}
