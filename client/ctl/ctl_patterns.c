/* SPDX-License-Identifier: Apache-2.0 */
/* patterns: list, show, add, remove. */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILE (64u << 10)

static int print_patterns(struct ctl *ctl, Npugraph__V1__PatternInfo *const *items, size_t n)
{
    static const struct ctl_column columns[] = {
        {"PATTERN", "name", false}, {"VERSION", "version", true}, {"PHASE", "phase", false},
        {"OWNER", "owner", false},  {"DIGEST", "digest", false},  {"WHAT", "doc", false},
    };
    struct ctl_table *t = ctl_table_new(ctl, "patterns", columns, sizeof(columns) / sizeof(columns[0]));
    char digest[80];

    ctl_table_prose(t, 5);
    for (size_t i = 0; i < n; i++) {
        ctl_row(t);
        ctl_str(t, items[i]->name);
        ctl_int(t, items[i]->version);
        ctl_word(t, &npugraph__v1__pattern_phase__descriptor, items[i]->phase);
        ctl_str(t, items[i]->owner);
        snprintf(digest, sizeof(digest), "%.*s", ctl->json ? 64 : 12, items[i]->digest);
        ctl_str(t, digest);
        ctl_str(t, items[i]->doc);
    }
    ctl_table_end(t, "No patterns.");
    return 0;
}

static int show_pattern_list(struct ctl *ctl, const char *name)
{
    Npugraph__V1__ListPatternsRequest req = NPUGRAPH__V1__LIST_PATTERNS_REQUEST__INIT;
    Npugraph__V1__ListPatternsResponse *r;

    req.name = (char *)(uintptr_t)(name != NULL ? name : "");
    r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/ListPatterns", &req.base,
                         &npugraph__v1__list_patterns_response__descriptor);
    if (r == NULL)
        return 1;
    if (name == NULL)
        print_patterns(ctl, r->patterns, r->n_patterns);
    for (size_t i = 0; name != NULL && i < r->n_patterns; i++) {
        if (ctl->json)
            json_object_set_new(ctl->root, "text", json_string(r->patterns[i]->text));
        else
            printf("# %s, version %u\n%s\n", r->patterns[i]->owner, r->patterns[i]->version, r->patterns[i]->text);
    }
    npugraph__free_message(r);
    return 0;
}

static int add_pattern_file(struct ctl *ctl, const char *path, bool for_all)
{
    Npugraph__V1__RegisterPatternRequest req = NPUGRAPH__V1__REGISTER_PATTERN_REQUEST__INIT;
    Npugraph__V1__RegisterPatternResponse *r = NULL;
    size_t n = 0;
    char *text = ctl_read_file(path, MAX_FILE, &n);

    if (text != NULL && strlen(text) != n) {
        ctl_error("%s is not a text file", path);
    } else if (text != NULL) {
        req.text = text;
        req.for_all = for_all;
        r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/RegisterPattern", &req.base,
                             &npugraph__v1__register_pattern_response__descriptor);
    }
    free(text);
    if (r == NULL)
        return 1;
    print_patterns(ctl, r->patterns, r->n_patterns);
    npugraph__free_message(r);
    return 0;
}

static int remove_named_pattern(struct ctl *ctl, const char *name, bool for_all)
{
    Npugraph__V1__RemovePatternRequest req = NPUGRAPH__V1__REMOVE_PATTERN_REQUEST__INIT;
    ProtobufCMessage *r;

    req.name = (char *)(uintptr_t)name;
    req.for_all = for_all;
    r = ctl_call(ctl, "/npugraph.v1.Graphs/RemovePattern", &req.base,
                 &npugraph__v1__remove_pattern_response__descriptor);
    if (r == NULL)
        return 1;
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_patterns(struct ctl *ctl, int argc, char **argv)
{
    const struct ctl_command *command = ctl_find_command(argv[0]);
    bool for_all = argc > 1 && strcmp(argv[argc - 1], "--for-all") == 0;
    int n = argc - (for_all ? 1 : 0);

    if ((n == 1 || (n == 2 && strcmp(argv[1], "list") == 0)) && !for_all)
        return show_pattern_list(ctl, NULL);
    if (n == 3 && strcmp(argv[1], "show") == 0 && !for_all)
        return show_pattern_list(ctl, argv[2]);
    if (n == 3 && strcmp(argv[1], "add") == 0)
        return add_pattern_file(ctl, argv[2], for_all);
    if (n == 3 && strcmp(argv[1], "remove") == 0)
        return remove_named_pattern(ctl, argv[2], for_all);
    return ctl_usage(command, "patterns takes list, show NAME, add FILE or remove NAME");
}
