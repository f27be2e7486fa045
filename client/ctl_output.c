/* SPDX-License-Identifier: Apache-2.0 */
/* Tables (libsmartcols), fields, JSON and the progress bar. */
#include "client/ctl.h"

#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void ctl_format_bytes(uint64_t value, char *to, size_t room)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)value;
    size_t u = 0;

    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    snprintf(to, room, u == 0 ? "%.0f %s" : "%.1f %s", v, unit[u]);
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
    t->array = json_array();
    t->table = scols_new_table();
    scols_table_enable_colors(t->table, ctl->colour);
    scols_table_set_stream(t->table, ctl->out);
    for (size_t i = 0; i < n; i++)
        scols_table_new_column(t->table, columns[i].title, 0,
                               /* On a terminal the last column gives way, so that a row stays a line. */
                               columns[i].right ? SCOLS_FL_RIGHT
                               : i == n - 1     ? SCOLS_FL_TRUNC
                                                : 0);
    if (ctl->json)
        json_object_set(ctl->root, key, t->array);
    return t;
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

void ctl_table_end(struct ctl_table *t, const char *when_empty)
{
    if (!t->ctl->json) {
        if (t->rows == 0)
            fprintf(t->ctl->out, "%s\n", when_empty);
        else
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

static void field(struct ctl_fields *f, const char *title, const char *key, const char *text, json_t *raw)
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
    field(f, title, key, value, json_string(value));
}

void ctl_field_int(struct ctl_fields *f, const char *title, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    field(f, title, key, text, json_integer((json_int_t)value));
}

void ctl_field_bytes(struct ctl_fields *f, const char *title, const char *key, uint64_t value)
{
    char text[32];

    ctl_format_bytes(value, text, sizeof(text));
    field(f, title, key, text, json_integer((json_int_t)value));
}

void ctl_field_ms(struct ctl_fields *f, const char *title, const char *key, uint64_t value)
{
    char text[32];

    ctl_format_ms(value, text, sizeof(text));
    field(f, title, key, text, json_integer((json_int_t)value));
}

void ctl_field_us(struct ctl_fields *f, const char *title, const char *key, double us)
{
    char text[32];

    snprintf(text, sizeof(text), us < 1000 ? "%.1f µs" : "%.0f µs", us);
    field(f, title, key, text, json_real(us));
}

void ctl_field_rate(struct ctl_fields *f, const char *title, const char *key, double value, const char *unit)
{
    char text[64];

    snprintf(text, sizeof(text), "%.1f %s", value, unit);
    field(f, title, key, text, json_real(value));
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
