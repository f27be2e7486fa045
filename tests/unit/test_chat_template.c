/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests chat templates: texts against those of transformers (tests/golden/chat.json), where a template is found, and
 * templates that do not end, ask for too much, or try to leave their sandbox.
 */
#include "client/hf/npugraph_hf.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a checkpoint's directory ---- */

static char dir[64];

static void dir_open(void)
{
    snprintf(dir, sizeof(dir), "/tmp/npugraph-chat-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void write_text(const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (text == NULL) {
        unlink(path);
        return;
    }
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void dir_close(void)
{
    write_text("chat_template.jinja", NULL);
    write_text("tokenizer_config.json", NULL);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* Renders with the directory's template. Returns the text, or NULL with the error in *err. */
static char *render_with(const char *messages, const char *tools, bool prompt, struct npugraph_error *err)
{
    struct npugraph_chat_template *t = NULL;
    char *text = NULL;
    size_t n = 0;

    memset(err, 0, sizeof(*err));
    if (npugraph_chat_template_open(dir, NULL, &t, err) != 0)
        return NULL;
    if (npugraph_chat_template_render(t, messages, tools, prompt, &text, &n, err) != 0)
        text = NULL;
    else
        ck_assert_uint_eq(strlen(text), n);
    npugraph_chat_template_close(t);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    return text;
}

/* ---- tests ---- */

static void compare_case(const json_t *root, const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "template")), *raises;
    const json_t *want = json_object_get(c, "text"), *tools = json_object_get(c, "tools");
    char *messages = json_dumps(json_object_get(c, "messages"), JSON_COMPACT),
         *tool_text = json_is_null(tools) ? NULL : json_dumps(tools, JSON_COMPACT), *text;
    struct npugraph_error err;

    raises = json_string_value(json_object_get(c, "raises"));
    write_text("chat_template.jinja", json_string_value(json_object_get(json_object_get(root, "templates"), name)));
    text = render_with(messages, tool_text, json_is_true(json_object_get(c, "add_generation_prompt")), &err);
    if (want != NULL)
        ck_assert_msg(text != NULL && strcmp(text, json_string_value(want)) == 0, "%s, %s:\n%s\nis not\n%s", name,
                      messages, text != NULL ? text : err.message, json_string_value(want));
    else
        ck_assert_msg(text == NULL && strstr(err.message, raises) != NULL, "%s, %s: %s, not %s", name, messages,
                      text != NULL ? text : err.message, raises);
    free(text);
    free(messages);
    free(tool_text);
}

START_TEST(texts_are_those_of_transformers)
{
    const char *top = getenv("top_srcdir");
    char path[4096];
    json_t *root, *cases;
    char *special;

    snprintf(path, sizeof(path), "%s/tests/golden/chat.json", top != NULL ? top : ".");
    root = json_load_file(path, 0, NULL);
    cases = json_object_get(root, "cases");
    ck_assert_uint_ge(json_array_size(cases), 30);
    dir_open();
    special = json_dumps(json_object_get(root, "special"), 0);
    write_text("tokenizer_config.json", special);
    for (size_t i = 0; i < json_array_size(cases); i++)
        compare_case(root, json_array_get(cases, i));
    dir_close();
    free(special);
    json_decref(root);
}
END_TEST

#define ASK "[{\"role\":\"user\",\"content\":\"hi\"}]"

START_TEST(templates_are_found_in_either_file)
{
    struct npugraph_error err;
    char *text;

    dir_open();
    ck_assert_ptr_null(render_with(ASK, NULL, true, &err));
    ck_assert_str_eq(err.reason, "NOT_FOUND");
    write_text("tokenizer_config.json",
               "{\"chat_template\": \"A{{ messages[0].content }}{{ bos_token }}\", \"bos_token\": "
               "{\"content\": \"<b>\"}}");
    text = render_with(ASK, NULL, true, &err);
    ck_assert_str_eq(text, "Ahi<b>");
    free(text);
    write_text(
        "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"no\"}, {\"name\": \"default\", \"template\": "
        "\"B\"}]}");
    text = render_with(ASK, NULL, true, &err);
    ck_assert_str_eq(text, "B");
    free(text);
    write_text("chat_template.jinja", "C{{ add_generation_prompt }}{{ tools }}");
    text = render_with(ASK, NULL, false, &err);
    ck_assert_str_eq(text, "CFalseNone");
    free(text);
    write_text("tokenizer_config.json", "{\"chat_template\": ");
    ck_assert_ptr_null(render_with(ASK, NULL, true, &err));
    ck_assert_ptr_nonnull(strstr(err.message, "no JSON"));
    dir_close();
}
END_TEST

START_TEST(hostile_templates_are_refused_in_time)
{
    static const struct {
        const char *source, *says;
    } cases[] = {
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "processor time"},
        {"{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "memory"},
        {"{{ 'x' * 99999999999 }}", "memory"},
        {"{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "longer than"},
        {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "nests too deeply"},
        {"{{ ''.__class__.__mro__ }}", "SecurityError"},
        {"{{ messages.append(1) }}", "SecurityError"},
        {"{{ cycler.__init__.__globals__.os.popen('id').read() }}", "SecurityError"},
        {"{% include '/etc/passwd' %}", "fails"},
        {"{% if %}", "mistake in line 1"},
        {"a\n{{ 1 / 0 }}", "ZeroDivisionError"},
        {"{{ raise_exception('say \\u00fc') }}", "refuses the conversation: say \xc3\xbc"},
        {"{{ '\\ud800' }}", "fails"},
        {"{{ raise_exception('\\u001b]0;pwn\\u0007') }}", "refuses the conversation: ?]0;pwn?"},
    };
    const time_t begin = time(NULL);
    struct npugraph_error err;

    dir_open();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text("chat_template.jinja", cases[i].source);
        ck_assert_msg(render_with(ASK, NULL, true, &err) == NULL, "%s is rendered", cases[i].source);
        /* On a busy machine the limit of the wait may come first. */
        ck_assert_msg(strstr(err.message, cases[i].says) != NULL ||
                          strstr(err.message, "was not rendered within") != NULL,
                      "%s: %s", cases[i].source, err.message);
    }
    ck_assert_int_lt(time(NULL) - begin, 120); /* nothing waits longer than its limit */
    dir_close();
}
END_TEST

static void render_expect(struct npugraph_chat_template *t, const char *content, const char *want)
{
    char messages[128], *text = NULL;
    struct npugraph_error err = {0};
    size_t n;
    int rc;

    snprintf(messages, sizeof(messages), "[{\"role\":\"user\",\"content\":\"%s\"}]", content);
    rc = npugraph_chat_template_render(t, messages, NULL, false, &text, &n, &err);
    ck_assert_msg(rc == 0 && strcmp(text, want) == 0, "%s: %s", content, rc != 0 ? err.message : text);
    free(text);
}

START_TEST(a_child_renders_many_texts)
{
    struct npugraph_chat_template *t = NULL;
    struct npugraph_error err = {0};
    char *text, name[64], pid[16];
    siginfo_t info;
    size_t n;
    FILE *f;

    dir_open();
    write_text(
        "chat_template.jinja",
        "{%- if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif -%}"
        "{%- if messages[0].content == 'spin' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
        "{% endfor %}{% endif -%}"
        "{{ seen }}{% set seen = messages[0].content %}{{ seen }}");
    ck_assert_int_eq(npugraph_chat_template_open(dir, NULL, &t, &err), 0);
    for (int i = 0; i < 50; i++)
        render_expect(t, i % 2 != 0 ? "a\\nb" : "c", i % 2 != 0 ? "a\nb" : "c"); /* nothing stays from text to text */
    ck_assert_int_ne(npugraph_chat_template_render(t, "[{\"content\":\"no\"}]", NULL, false, &text, &n, &err), 0);
    render_expect(t, "after a refusal", "after a refusal");
    ck_assert_int_ne(npugraph_chat_template_render(t, "[{\"content\":\"spin\"}]", NULL, false, &text, &n, &err), 0);
    render_expect(t, "after a limit", "after a limit");

    snprintf(name, sizeof(name), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(name, "r");
    if (f != NULL && fgets(pid, sizeof(pid), f) != NULL) {
        kill((pid_t)atoi(pid), SIGKILL);
        waitid(P_PID, (id_t)atoi(pid), &info, WEXITED | WNOWAIT);
    }
    if (f != NULL)
        fclose(f);
    render_expect(t, "after a child was killed", "after a child was killed");
    npugraph_chat_template_close(t);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    dir_close();
}
END_TEST

/* Reading from one socket, each would get texts of the other. */
START_TEST(a_fork_has_a_child_of_its_own)
{
    struct npugraph_chat_template *t = NULL;
    struct npugraph_error err = {0};
    int status = 0;
    pid_t pid;

    dir_open();
    write_text("chat_template.jinja", "{% for i in range(2000) %}{% endfor %}{{ messages[0].content }}");
    ck_assert_int_eq(npugraph_chat_template_open(dir, NULL, &t, &err), 0);
    render_expect(t, "before", "before");
    pid = fork();
    ck_assert_int_ge(pid, 0);
    for (int i = 0; i < 20; i++)
        render_expect(t, pid == 0 ? "mine" : "yours", pid == 0 ? "mine" : "yours");
    npugraph_chat_template_close(t);
    if (pid == 0)
        _exit(0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    dir_close();
}
END_TEST

START_TEST(requests_that_are_no_conversation_are_refused)
{
    static const char *const bad[] = {"", "{}", "[", "nul", "\"x\""};
    struct npugraph_error err;
    char *large = malloc((1u << 20) + 2), *text;

    dir_open();
    write_text("chat_template.jinja", "{{ messages | length }}");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_ptr_null(render_with(bad[i], NULL, true, &err));
        ck_assert_ptr_nonnull(strstr(err.message, "messages must be a JSON array"));
        ck_assert_ptr_null(render_with("[]", bad[i], true, &err));
        ck_assert_ptr_nonnull(strstr(err.message, "tools must be a JSON array"));
    }
    text = render_with("[]", "[]", true, &err);
    ck_assert_str_eq(text, "0");
    free(text);
    memset(large, 'x', (1u << 20) + 1);
    large[(1u << 20) + 1] = '\0';
    write_text("chat_template.jinja", large);
    ck_assert_ptr_null(render_with(ASK, NULL, true, &err));
    ck_assert_ptr_nonnull(strstr(err.message, "more than 1048576 bytes"));
    large[1u << 20] = '\0'; /* the largest template is rendered, and so is a long text */
    write_text("chat_template.jinja", large);
    text = render_with(ASK, NULL, true, &err);
    ck_assert_msg(text != NULL && strlen(text) == 1u << 20, "%s", err.message);
    free(text);
    free(large);
    dir_close();
}
END_TEST

UNIT_MAIN("client/chat_template", texts_are_those_of_transformers, templates_are_found_in_either_file,
          hostile_templates_are_refused_in_time, a_child_renders_many_texts, a_fork_has_a_child_of_its_own,
          requests_that_are_no_conversation_are_refused)
