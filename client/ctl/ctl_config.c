/* SPDX-License-Identifier: Apache-2.0 */
/* Commands for the daemon's configuration: reload, config. */
#include "base/strbuf.h"
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define CHANGES_MAX 64 /* of a call; the daemon's maximum */
#define VALUES_MAX  1024

/* ---- reload ------------------------------------------------------------------------------------------------ */

static void put_names(struct ctl *ctl, const char *key, const char *title, char *const *names, size_t n)
{
    const struct ctl_column column = {title, "name", false};
    struct ctl_table *t = ctl_table_new(ctl, key, &column, 1);

    for (size_t i = 0; i < n; i++) {
        ctl_row(t);
        ctl_str(t, names[i]);
    }
    ctl_table_end(t, strcmp(key, "changed") == 0 ? "nothing changed" : "");
}

int ctl_cmd_reload(struct ctl *ctl, int argc, char **argv)
{
    Npugraph__V1__ReloadRequest req = NPUGRAPH__V1__RELOAD_REQUEST__INIT;
    Npugraph__V1__ReloadResponse *r;

    if (ctl_no_arguments(argc, argv))
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/Reload", &req.base, &npugraph__v1__reload_response__descriptor);
    if (r == NULL)
        return 1;
    put_names(ctl, "changed", "CHANGED", r->changed, r->n_changed);
    if (r->n_needs_restart > 0 || ctl->json)
        put_names(ctl, "needs_restart", "NEEDS A RESTART", r->needs_restart, r->n_needs_restart);
    if (r->n_set > 0 || ctl->json)
        put_names(ctl, "set", "KEPT AS CONFIG SET HAS IT", r->set, r->n_set);
    npugraph__free_message(r);
    return 0;
}

/* ---- config ------------------------------------------------------------------------------------------------ */

/* Prints the values of a list one after the other; on paper, nothing is "-". */
static void put_option_values(const struct ctl *ctl, struct ctl_table *t, char *const *values, size_t n)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < n; i++)
        ngd_strbuf_printf(&sb, "%s%s", i ? ", " : "", values[i]);
    ctl_str(t, sb.len || ctl->json ? ngd_strbuf_str(&sb) : "-");
    ngd_strbuf_fini(&sb);
}

/* Returns what changes the option; compare: what makes it as its files say. */
static const char *what_changes(const Npugraph__V1__ConfigOption *o, bool compare)
{
    if (!o->live)
        return "restart";
    if (compare)
        return o->set ? "unset" : "reload";
    return o->settable ? "set" : "reload";
}

/* compare: what differs between the daemon's options and its files. */
static void put_config(struct ctl *ctl, Npugraph__V1__ConfigOption *const *options, size_t n, bool compare)
{
    static const struct ctl_column shown[] = {{"OPTION", "name", false},
                                              {"VALUE", "value", false},
                                              {"SET BY", "source", false},
                                              {"CHANGES BY", "changes_by", false}};
    static const struct ctl_column compared[] = {{"OPTION", "name", false},
                                                 {"RUNS WITH", "value", false},
                                                 {"NEW VALUE", "new_value", false},
                                                 {"SET BY", "new_source", false},
                                                 {"CHANGES BY", "changes_by", false}};
    struct ctl_table *t = ctl_table_new(ctl, "options", compare ? compared : shown, compare ? 5 : 4);

    for (size_t i = 0; i < n; i++) {
        const Npugraph__V1__ConfigOption *o = options[i];

        ctl_row(t);
        ctl_str(t, o->name);
        put_option_values(ctl, t, o->values, o->n_values);
        if (compare)
            put_option_values(ctl, t, o->new_values, o->n_new_values);
        ctl_str(t, compare ? o->new_source : o->source);
        ctl_str(t, what_changes(o, compare));
    }
    ctl_table_end(t, compare ? "the daemon runs with what its files and its command line say" : "no options");
}

/* Leaves only the option of that name. Returns false if there is none. */
static bool choose_option(Npugraph__V1__ConfigResponse *r, const char *name, struct ngd_nearest *nearest)
{
    ngd_nearest_init(nearest, name, strlen(name));
    for (size_t i = 0; i < r->n_options; i++) {
        Npugraph__V1__ConfigOption *found = r->options[i];

        ngd_nearest_add(nearest, found->name);
        if (strcmp(found->name, name) != 0)
            continue;
        r->options[i] = r->options[0]; /* exchanged, since the message frees all of them */
        r->options[0] = found;
        return true;
    }
    return false;
}

static int show_options(struct ctl *ctl, const struct ctl_command *command, bool compare, const char *name)
{
    Npugraph__V1__ConfigRequest req = NPUGRAPH__V1__CONFIG_REQUEST__INIT;
    Npugraph__V1__ConfigResponse *r;
    struct ngd_nearest nearest;
    int rc = 0;

    req.compare = compare;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/Config", &req.base, &npugraph__v1__config_response__descriptor);
    if (r == NULL)
        return 1;
    if (name != NULL && !choose_option(r, name, &nearest))
        rc = ctl_unknown(command, &nearest, "", "there is no option ");
    else
        put_config(ctl, r->options, name != NULL ? 1 : r->n_options, compare);
    npugraph__free_message(r);
    return rc;
}

/* The changes that a command line asks for. They point into its arguments. */
struct config_changes {
    Npugraph__V1__SetConfigChange items[CHANGES_MAX], *all[CHANGES_MAX];
    size_t n;
    char *values[VALUES_MAX];
    size_t n_values;
};

/* Adds a change without values. Returns NULL if there are too many. */
static Npugraph__V1__SetConfigChange *add_change(struct config_changes *c, const char *name)
{
    Npugraph__V1__SetConfigChange *item = &c->items[c->n];

    if (c->n == CHANGES_MAX)
        return NULL;
    npugraph__v1__set_config_change__init(item);
    item->name = (char *)(uintptr_t)name;
    item->values = c->values + c->n_values;
    c->all[c->n++] = item;
    return item;
}

static bool add_option_value(struct config_changes *c, const char *value)
{
    if (c->n_values == VALUES_MAX)
        return false;
    c->values[c->n_values++] = (char *)(uintptr_t)value;
    c->items[c->n - 1].n_values++;
    return true;
}

/* Reads OPTION=VALUE, which is cut there. Values of a list follow one another: OPTION=ONE OPTION=OTHER. */
static bool add_option_pair(struct config_changes *c, char *pair)
{
    char *value = strchr(pair, '=');

    *value++ = '\0';
    if ((c->n == 0 || strcmp(c->items[c->n - 1].name, pair) != 0) && add_change(c, pair) == NULL)
        return false;
    return add_option_value(c, value);
}

/* Reads the arguments that are left: OPTION VALUE..., or OPTION=VALUE..., or with unset OPTION.... Prints mistakes, and
 * returns 2 then. */
static int read_changes(struct ctl_options *o, bool unset, struct config_changes *c)
{
    const char *first = ctl_next_argument(o), *next = first;
    const bool pairs = first != NULL && !unset && strchr(first, '=') != NULL;
    bool room = true;

    if (first == NULL)
        return ctl_usage(o->command, "config %s needs an option", unset ? "unset" : "set");
    if (!pairs && !unset)
        next = add_change(c, first) != NULL ? ctl_next_argument(o) : NULL;
    for (; next != NULL && room; next = ctl_next_argument(o)) {
        if (pairs && strchr(next, '=') == NULL)
            return ctl_usage(o->command, "\"%s\" is not OPTION=VALUE, as the arguments before it are", next);
        if (unset) {
            room = add_change(c, next) != NULL;
            if (room)
                c->items[c->n - 1].unset = true;
        } else {
            room = pairs ? add_option_pair(c, (char *)(uintptr_t)next) : add_option_value(c, next);
        }
    }
    return room ? 0
                : ctl_usage(o->command, "config %s takes at most %d options and %d values", unset ? "unset" : "set",
                            CHANGES_MAX, VALUES_MAX);
}

static int send_changes(struct ctl *ctl, struct ctl_options *o, bool unset)
{
    Npugraph__V1__SetConfigRequest req = NPUGRAPH__V1__SET_CONFIG_REQUEST__INIT;
    struct config_changes *c = calloc(1, sizeof(*c));
    Npugraph__V1__SetConfigResponse *r = NULL;
    int rc = c != NULL ? read_changes(o, unset, c) : ctl_error("out of memory");

    if (rc == 0) {
        req.changes = c->all;
        req.n_changes = c->n;
        r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/SetConfig", &req.base,
                             &npugraph__v1__set_config_response__descriptor);
        rc = r != NULL ? 0 : 1;
    }
    free(c);
    if (r != NULL) {
        put_config(ctl, r->options, r->n_options, false);
        npugraph__free_message(r);
    }
    return rc;
}

int ctl_cmd_config(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    static const char *const verbs[] = {"show", "diff", "set", "unset"};
    const char *value, *verb, *name = NULL;
    size_t which = 0;

    if (ctl_next_option(&o, "", "", &value) != NULL)
        return 2;
    verb = ctl_next_argument(&o);
    while (verb != NULL && which < 4 && strcmp(verb, verbs[which]) != 0)
        which++;
    if (which == 4)
        return ctl_usage(o.command, "config has no %s; there are show, diff, set and unset", verb);
    if (which >= 2)
        return send_changes(ctl, &o, which == 3);
    if (which == 0)
        name = ctl_next_argument(&o);
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "config takes no more arguments");
    return show_options(ctl, o.command, which == 1, name);
}
