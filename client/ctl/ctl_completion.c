/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion for bash, zsh and fish, made from the usage in the command table. The files of client/ctl/completion/ are
 * what this prints (tests/meta/commands.py), so that a package has them without running the program.
 */
#include "base/strbuf.h"
#include "client/ctl/ctl.h"

#include <ctype.h>
#include <string.h>

/* The global options, in the form of a command's usage. */
#define GLOBALS                                                                                                       \
    "[--address ADDR] [--context NAME] [--json] [--timeout TIME] [--tls-ca FILE] [--tls-cert FILE] [--tls-key FILE] " \
    "[--tls-server-name NAME] [--token-file FILE] [--color auto|always|never] [--quiet] [--watch TIME] [--help] "     \
    "[--version]"

typedef enum usage_value {
    VALUE_NONE, /* a flag; for arguments: a word that is written as it is */
    VALUE_TEXT,
    VALUE_WORDS, /* a|b|c */
    VALUE_FILE,
    VALUE_DIR,
    VALUE_MODEL,
} usage_value_t;

/* An option or argument of a usage. Texts point into it. */
struct usage_item {
    const char *name; /* of an option, without dashes, or of a word; NULL: an argument that the caller makes up */
    int n_name;
    bool option, again; /* again: it may be repeated */
    usage_value_t value;
    const char *text; /* of the value: "NAME", "a|b|c" */
    int n_text;
};

/* ---- reading a usage ---------------------------------------------------------------------------------------- */

static bool is_usage_mark(char c)
{
    return c == '[' || c == ']' || c == '.' || c == '|' || c == ' ';
}

/* Returns the length of the token at p, without the marks behind it. */
static int token_length(const char *p)
{
    int n = (int)strcspn(p, " ]");

    while (n > 0 && is_usage_mark(p[n - 1]))
        n--;
    return n;
}

static usage_value_t value_kind(const char *text, int n)
{
    static const struct {
        const char *text;
        usage_value_t kind;
    } kinds[] = {{"FILE", VALUE_FILE}, {"DIR", VALUE_DIR}, {"OUT", VALUE_DIR}, {"MODEL", VALUE_MODEL}};

    if (islower((unsigned char)text[0]) && memchr(text, '|', (size_t)n) != NULL)
        return VALUE_WORDS;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if ((int)strlen(kinds[i].text) == n && memcmp(kinds[i].text, text, (size_t)n) == 0)
            return kinds[i].kind;
    return VALUE_TEXT;
}

/* Reads the next item of a usage, and moves *p_p behind it. Returns false at its end. */
static bool next_item(const char **p_p, struct usage_item *item)
{
    const char *p = *p_p;
    int n;

    while (is_usage_mark(*p))
        p++;
    if (*p == '\0')
        return false;
    n = token_length(p);
    *item = (struct usage_item){.option = strncmp(p, "--", 2) == 0};
    if (item->option) {
        item->name = p + 2;
        item->n_name = n - 2;
        p += n;
        if (p[0] == ' ' && !is_usage_mark(p[1]) && strncmp(p + 1, "--", 2) != 0) {
            item->text = ++p;
            item->n_text = n = token_length(p);
            item->value = value_kind(p, n);
            p += n;
        }
    } else {
        item->value = value_kind(p, n);
        if (islower((unsigned char)p[0]) && item->value == VALUE_TEXT && memchr(p, ':', (size_t)n) == NULL) {
            item->value = VALUE_NONE;
            item->name = p;
            item->n_name = n;
        }
        item->text = p;
        item->n_text = n;
        p += n;
    }
    item->again = strncmp(p, "]...", 4) == 0;
    *p_p = p;
    return true;
}

static bool same_item(const struct usage_item *a, const struct usage_item *b)
{
    if (a->option != b->option || (a->name == NULL) != (b->name == NULL))
        return false;
    if (a->name == NULL)
        return a->value == b->value;
    return a->n_name == b->n_name && memcmp(a->name, b->name, (size_t)a->n_name) == 0;
}

/* Returns whether the same option, word or kind of argument stands before `end` in the usage. */
static bool seen_before(const char *usage, const char *end, const struct usage_item *item)
{
    struct usage_item other;

    while (usage < end && next_item(&usage, &other) && usage <= end)
        if (same_item(&other, item))
            return true;
    return false;
}

/* Calls fn once for each option, word and kind of argument of a usage. */
static void each_item(const char *usage, void (*fn)(void *ctx, const struct usage_item *item), void *ctx)
{
    const char *p = usage;
    struct usage_item item;

    for (const char *before = p; next_item(&p, &item); before = p)
        if (!seen_before(usage, before, &item))
            fn(ctx, &item);
}

/* What a shell's part prints for: a command, or the global options (NULL). */
struct printing {
    const struct ctl_command *command;
    const char *separator;
    usage_value_t wanted;
};

/* Prints text in single quotes, as the three shells read them. colon: zsh's separator, which is escaped. */
static void print_quoted(const char *text, int n, bool colon)
{
    for (int i = 0; i < n; i++) {
        if (text[i] == '\'')
            fputs("'\\''", stdout);
        else if (colon && (text[i] == ':' || text[i] == '[' || text[i] == ']'))
            printf("\\%c", text[i]);
        else
            putchar(text[i]);
    }
}

static void print_choices_of(const struct usage_item *item)
{
    for (int i = 0; i < item->n_text; i++)
        putchar(item->text[i] == '|' ? ' ' : item->text[i]);
}

/* ---- bash --------------------------------------------------------------------------------------------------- */

static void bash_choice(void *ctx, const struct usage_item *item)
{
    struct printing *p = ctx;

    if (item->name == NULL && item->value != VALUE_WORDS)
        return;
    printf("%s%s%.*s", p->separator, item->option ? "--" : "", item->n_name, item->name != NULL ? item->name : "");
    if (item->name == NULL)
        print_choices_of(item);
    p->separator = " ";
}

/* Prints the options of one kind of value, as patterns of a case: "load:--kv-dtype | ...". */
static void bash_pattern(void *ctx, const struct usage_item *item)
{
    struct printing *p = ctx;

    if (!item->option || item->value != p->wanted)
        return;
    printf("%s%s:--%.*s", p->separator, p->command != NULL ? p->command->name : "*", item->n_name, item->name);
    p->separator = " | ";
}

static void bash_words(void *ctx, const struct usage_item *item)
{
    const struct printing *p = ctx;

    if (!item->option || item->value != VALUE_WORDS)
        return;
    printf("    %s:--%.*s)\n        mapfile -t COMPREPLY < <(compgen -W '", p->command != NULL ? p->command->name : "*",
           item->n_name, item->name);
    print_choices_of(item);
    printf("' -- \"$cur\")\n        return\n        ;;\n");
}

static void bash_argument(void *ctx, const struct usage_item *item)
{
    (void)ctx;
    if (!item->option && item->value >= VALUE_FILE)
        printf("%s", item->value == VALUE_FILE ? "; files=" : item->value == VALUE_DIR ? "; files=-d" : "; models=yes");
}

static void each_usage(void (*fn)(void *ctx, const struct usage_item *item), struct printing *p)
{
    p->command = NULL;
    each_item(GLOBALS, fn, p);
    for (p->command = ctl_commands; p->command->name != NULL; p->command++)
        each_item(p->command->args, fn, p);
}

static void bash_values(usage_value_t wanted, const char *does)
{
    struct printing p = {.separator = "    ", .wanted = wanted};

    each_usage(bash_pattern, &p);
    if (p.separator[0] == ' ' && p.separator[1] == '|')
        printf(")\n        %s\n        return\n        ;;\n", does);
}

static void print_bash(void)
{
    struct printing p = {.separator = ""};

    printf(
        "# bash completion for npugraphctl                          -*- shell-script -*-\n"
        "# SPDX-License-Identifier: Apache-2.0\n# Printed by: npugraphctl completion bash\n\n"
        "_npugraphctl() {\n    local cur prev words cword\n    _init_completion -n = || return\n\n"
        "    local command='' choices='' files=none models='' i\n    for ((i = 1; i < cword; i++)); do\n"
        "        case ${words[i]} in\n        --address | --timeout | --tls-* | --color) ((i++)) ;;\n        -*) ;;\n"
        "        *)\n            command=${words[i]}\n            break\n            ;;\n        esac\n    done\n\n"
        "    case $command:$prev in\n");
    bash_values(VALUE_FILE, "_filedir");
    bash_values(VALUE_DIR, "_filedir -d");
    each_usage(bash_words, &p);
    bash_values(VALUE_TEXT, "# a value of the user's own");
    printf("    esac\n\n    case $command in\n    '' | help) choices='");
    p.separator = "";
    each_item(GLOBALS, bash_choice, &p);
    printf(" help");
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
        printf(" %s", c->name);
    printf("' ;;\n");
    for (p.command = ctl_commands; p.command->name != NULL; p.command++) {
        printf("    %s) choices='", p.command->name);
        p.separator = "";
        each_item(p.command->args, bash_choice, &p);
        printf("'");
        each_item(p.command->args, bash_argument, NULL);
        printf(" ;;\n");
    }
    printf("    esac\n"
           "    # Names of loaded models; quiet when no daemon answers.\n"
           "    [ -z \"$models\" ] || choices+=\" $(\"${words[0]}\" --timeout 1s models 2>/dev/null |\n"
           "        awk 'NR > 1 && $1 != \"models.\" { print $1 }')\"\n"
           "    # shellcheck disable=SC2086  # no word if it is empty\n"
           "    [ \"$files\" = none ] || _filedir $files\n"
           "    mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -W \"$choices\" -- \"$cur\")\n"
           "} && complete -F _npugraphctl npugraphctl\n");
}

/* ---- zsh ---------------------------------------------------------------------------------------------------- */

static void zsh_value(const struct usage_item *item)
{
    printf(":%.*s:", item->value == VALUE_WORDS ? 5 : item->n_text, item->value == VALUE_WORDS ? "value" : item->text);
    if (item->value == VALUE_WORDS) {
        putchar('(');
        print_choices_of(item);
        putchar(')');
    } else if (item->value >= VALUE_FILE) {
        printf("%s", item->value == VALUE_FILE  ? "_files"
                     : item->value == VALUE_DIR ? "_files -/"
                                                : "_npugraphctl_models");
    }
}

static void zsh_option(void *ctx, const struct usage_item *item)
{
    const char *indent = ctx;

    if (!item->option)
        return;
    printf(" \\\n%s'%s--%.*s%s", indent, item->again ? "*" : "", item->n_name, item->name,
           item->value != VALUE_NONE ? "=" : "");
    if (item->value != VALUE_NONE)
        zsh_value(item);
    putchar('\'');
}

static void zsh_word(void *ctx, const struct usage_item *item)
{
    struct printing *p = ctx;

    if (!item->option)
        bash_choice(p, item);
}

static void zsh_files(void *ctx, const struct usage_item *item)
{
    struct printing *p = ctx;

    if (!item->option && item->value >= VALUE_FILE && p->separator[0] == '\0') {
        zsh_value(item);
        p->separator = " ";
    }
}

static void zsh_command(const struct ctl_command *c)
{
    struct printing p = {.separator = ""};

    printf("        %s)\n            _arguments", c->name);
    each_item(c->args, zsh_option, (void *)(uintptr_t) "                ");
    printf(" \\\n                '*");
    each_item(c->args, zsh_files, &p);
    if (p.separator[0] == '\0') { /* no files or models: the words of the usage */
        printf(":argument:(");
        each_item(c->args, zsh_word, &p);
        printf(")");
    }
    printf("'\n            ;;\n");
}

static void print_zsh(void)
{
    printf("#compdef npugraphctl\n# SPDX-License-Identifier: Apache-2.0\n# Printed by: npugraphctl completion zsh\n\n"
           "# Names of loaded models; quiet when no daemon answers.\n_npugraphctl_models() {\n    local -a names\n"
           "    names=(${(f)\"$(npugraphctl --timeout 1s models 2>/dev/null | awk 'NR > 1 && $1 != \"models.\" "
           "{ print $1 }')\"})\n    compadd -a names\n}\n\n"
           "_npugraphctl() {\n    local curcontext=$curcontext state line\n    local -a commands\n    commands=(\n");
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++) {
        printf("        '%s:", c->name);
        print_quoted(c->help, (int)strlen(c->help), true);
        printf("'\n");
    }
    printf("        'help:Explain a command'\n    )\n    _arguments -C");
    each_item(GLOBALS, zsh_option, (void *)(uintptr_t) "        ");
    printf(" \\\n        '1: :->command' '*:: :->argument'\n"
           "    case $state in\n    command) _describe command commands ;;\n    argument)\n        case $line[1] in\n"
           "        help) _describe command commands ;;\n");
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
        zsh_command(c);
    printf("        esac\n        ;;\n    esac\n}\n\n_npugraphctl \"$@\"\n");
}

/* ---- fish --------------------------------------------------------------------------------------------------- */

static void fish_value(const struct usage_item *item)
{
    static const char *const values[] = {[VALUE_NONE] = "",
                                         [VALUE_TEXT] = " -x",
                                         [VALUE_WORDS] = " -x -a '",
                                         [VALUE_FILE] = " -r -F",
                                         [VALUE_DIR] = " -x -a '(__fish_complete_directories)'",
                                         [VALUE_MODEL] = " -x -a '(__npugraphctl_models)'"};

    printf("%s", values[item->value]);
    if (item->value == VALUE_WORDS) {
        print_choices_of(item);
        putchar('\'');
    }
}

static void fish_item(void *ctx, const struct usage_item *item)
{
    const struct ctl_command *c = ctx;

    if (!item->option && item->name == NULL && item->value < VALUE_WORDS)
        return;
    printf("complete -c npugraphctl");
    if (c != NULL)
        printf(" -n '__fish_seen_subcommand_from %s'", c->name);
    if (item->option)
        printf(" -l %.*s", item->n_name, item->name);
    else if (item->name != NULL)
        printf(" -a %.*s", item->n_name, item->name);
    if (item->option || item->value == VALUE_WORDS)
        fish_value(item);
    else if (item->name == NULL) /* -a for arguments, which are no values of options */
        printf("%s", item->value == VALUE_FILE  ? " -F"
                     : item->value == VALUE_DIR ? " -a '(__fish_complete_directories)'"
                                                : " -a '(__npugraphctl_models)'");
    putchar('\n');
}

static void print_fish(void)
{
    printf("# SPDX-License-Identifier: Apache-2.0\n# Printed by: npugraphctl completion fish\n\n"
           "# Names of loaded models; quiet when no daemon answers.\nfunction __npugraphctl_models\n"
           "    npugraphctl --timeout 1s models 2>/dev/null | awk 'NR > 1 && $1 != \"models.\" { print $1 }'\nend\n\n"
           "complete -c npugraphctl -f\n");
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++) {
        printf("complete -c npugraphctl -n __fish_use_subcommand -a %s -d '", c->name);
        for (const char *p = c->help; *p != '\0'; p++)
            printf(*p == '\'' ? "\\%c" : "%c", *p);
        printf("'\n");
    }
    printf("complete -c npugraphctl -n __fish_use_subcommand -a help -d 'Explain a command'\n");
    each_item(GLOBALS, fish_item, NULL);
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
        each_item(c->args, fish_item, (void *)(uintptr_t)c);
}

/* ---- the command -------------------------------------------------------------------------------------------- */

int ctl_cmd_completion(struct ctl *ctl, int argc, char **argv)
{
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

    (void)ctl;
    if (argc != 2)
        return ctl_usage(ctl_find_command(argv[0]), "completion takes the name of a shell");
    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
        if (strcmp(shells[i].shell, argv[1]) == 0) {
            shells[i].print();
            return 0;
        }
    }
    return ctl_usage(ctl_find_command(argv[0]), "there is no completion for %s; there is for bash, zsh and fish",
                     argv[1]);
}
