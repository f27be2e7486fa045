/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe of NPUs on the simulator: what it finds out about chips and versions, and about a library that is wrong,
 * hangs and crashes; files of facts, with each kind of mistake; and what a device does with them.
 */
#include "base/mem.h"
#include "devices/ascend/facts.h"
#include "devices/ascend/issue.h"
#include "tests/ascend/simulated.h"
#include "tests/ops/attention_case.h"
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#define LIMIT_MS "20000"

static char folder[] = "/tmp/ngd_probe_XXXXXX";

static const char *file_of(const char *name)
{
    static char path[96];

    if (strstr(folder, "XXXXXX"))
        ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static char *text_of(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, ASCEND_FACTS_BYTES);

    ck_assert_msg(f && text && fread(text, 1, ASCEND_FACTS_BYTES - 1, f) > 0, "%s", path);
    fclose(f);
    return text;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void forget_files(void)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
    strcpy(strrchr(folder, '_') + 1, "XXXXXX");
}

/* Probes the simulated chip; the text is to be freed. */
static char *probed(const char *soc, const char *api, const char *names)
{
    const char *path = file_of("facts");
    struct ngd_device_params params;
    struct ngd_diag diag = {0};

    simulator_set("soc", soc);
    simulator_set("api", api);
    simulated_params(&params, 0, LIMIT_MS);
    params.ascend_lib_names = names;
    must(ngd_device_probe(&params, path, &diag), &diag);
    return text_of(path);
}

/* The line's answer. */
static const char *answer_to(const char *text, const char *question)
{
    static char answer[32];
    const char *at = strstr(text, question);

    ck_assert_msg(at && (at == text || at[-1] == '\n'), "no line \"%s\"", question);
    at = strstr(at, " : ") + 3;
    snprintf(answer, sizeof(answer), "%.*s", (int)strcspn(at, " "), at);
    return answer;
}

static int count_answers(const char *text, const char *topic, const char *answer)
{
    char want[32];
    int n = 0;

    snprintf(want, sizeof(want), " : %s ", answer);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *at = strstr(line, want);

        n += strncmp(line, topic, strlen(topic)) == 0 && at && at < strchr(line, '\n');
    }
    return n;
}

static struct ascend_facts *parsed(const char *text)
{
    struct ascend_facts *facts = NULL;
    struct ngd_diag diag = {0};

    must(ngd_ascend_facts_parse(text, strlen(text), "test", &facts, &diag), &diag);
    return facts;
}

/* ---- the list of questions ----------------------------------------------------------------------------- */

/* A file is read by the list: another list is another version. */
START_TEST(list_of_questions_is_that_of_its_version)
{
    struct ngd_strbuf all;
    uint32_t sum = 0;

    ngd_strbuf_init(&all);
    for (uint32_t i = 0; i < ngd_ascend_question_count(); i++) {
        char text[ASCEND_QUESTION_TEXT];
        struct ascend_question q;

        ngd_ascend_question(i, &q);
        ngd_ascend_question_print(&q, text);
        ck_assert_uint_lt(strlen(text), ASCEND_QUESTION_TEXT - 1);
        for (const char *p = text; *p; p++)
            sum = sum * 31 + (unsigned char)*p;
        ngd_strbuf_printf(&all, "%s\n", text);
        if (q.topic == ASCEND_TOPIC_ATTENTION)
            ck_assert_uint_eq(ngd_ascend_question_of_attention(q.way, q.d, q.block, q.dtype, q.queries, q.full), i);
        if (q.topic == ASCEND_TOPIC_LATENT)
            ck_assert_uint_eq(ngd_ascend_question_of_latent(q.block, q.dtype, q.queries, q.full), i);
        if (q.topic == ASCEND_TOPIC_OPERATOR)
            ck_assert_uint_eq(ngd_ascend_question_of_operator(q.op, q.dtype), i);
    }
    ck_assert_msg(sum == 3628824913u && ASCEND_PROBE_VERSION == 6,
                  "the list has changed (%u): raise ASCEND_PROBE_VERSION, and change this test", sum);
    /* No operator is left out but attention, which has a topic, and collectives. */
    for (uint32_t op = 0; op < NGD_OP_MAX; op++) {
        const struct ascend_op *mapped = ngd_ascend_op_of((ngd_op_id_t)op);
        bool asked = op == NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE;

        for (int dtype = 0; mapped && dtype < 16; dtype++)
            asked |= ngd_ascend_question_of_operator((ngd_op_id_t)op, (ngd_dtype_t)dtype) != UINT32_MAX;
        ck_assert_msg(!mapped || mapped->collective || asked, "%s is in ascend_ops.def and not in probe_operators.def",
                      ngd_op_by_id((ngd_op_id_t)op)->name);
    }
    ngd_strbuf_fini(&all);
}
END_TEST

/* ---- chips ----------------------------------------------------------------------------------------------- */

#define DECODE "attention layout=BSH rows=one dtype=f16 d=64 block=16 queries=4 keys=full"
#define PROMPT "attention layout=BSH rows=many dtype=f16 d=128 block=128 queries=1 keys=full"
#define RAGGED "attention layout=TND rows=many dtype=bf16 d=128 block=128 queries=4 keys=full"

START_TEST(probe_tells_chips_and_versions_apart)
{
    static const struct {
        const char *soc, *api, *chip, *cann, *decode, *prompt, *ragged, *nz, *slot;
    } of[] = {
        {"Ascend910B4", "8.5", "\nchip Ascend910B4\n", "\ncann 8.5\n", "ok", "ok", "ok", "ok", "ok"},
        {"Ascend910B4", "8.1", "\nchip Ascend910B4\n", "\ncann 8.1\n", "ok", "refused", "refused", "missing",
         "missing"},
        {"Ascend310P3", "8.5", "\nchip Ascend310P3\n", "\ncann 8.5\n", "refused", "refused", "refused", "ok",
         "refused"},
    };
    const size_t n = effort(sizeof(of) / sizeof(of[0]), "chips and versions");

    for (size_t i = 0; i < n; i++) {
        char *text = probed(of[i].soc, of[i].api, NULL);
        struct ascend_facts *facts = parsed(text);

        ck_assert_ptr_nonnull(strstr(text, of[i].chip));
        ck_assert_ptr_nonnull(strstr(text, of[i].cann));
        ck_assert_str_eq(answer_to(text, DECODE), of[i].decode);
        ck_assert_str_eq(answer_to(text, PROMPT), of[i].prompt);
        ck_assert_str_eq(answer_to(text, RAGGED), of[i].ragged);
        ck_assert_str_eq(answer_to(text, "nz name=aten.linear dtype=f16 columns=40"), of[i].nz);
        ck_assert_str_eq(answer_to(text, "slot name=npu.scatter_pa_kv_cache dtype=bf16"), of[i].slot);
        ck_assert_str_eq(answer_to(text, "pieces name=aten.mm dtype=f16"), "ok");
        ck_assert_str_eq(answer_to(text, "captures"), "ok");
        ck_assert_str_eq(answer_to(text, "release"), "ok");
        ck_assert_str_eq(answer_to(text, "context"), "ok");
        for (int a = ASCEND_ANSWER_WRONG; a < ASCEND_ANSWER_MAX; a++)
            ck_assert_msg(count_answers(text, "", ngd_ascend_answer_name((ascend_answer_t)a)) == 0, "%s is there:\n%s",
                          ngd_ascend_answer_name((ascend_answer_t)a), text);
        ck_assert_int_eq((strstr(text, "\nmissing aclnnScatterPaKvCache\n") != NULL), i == 1);
        ngd_free(facts);
        free(text);
    }
    forget_files();
}
END_TEST

/* ---- a library that misbehaves, and what a device does with what is known of it --------------------------- */

static const struct attention_shape several = {.heads = 8,
                                               .kv_heads = 2,
                                               .d = 128,
                                               .block_size = 128,
                                               .n_seqs = 3,
                                               .rows = {5, 0, 2},
                                               .keys = {300, 1, 2},
                                               .blocks = 12,
                                               .table_width = 3,
                                               .qt = NGD_BF16,
                                               .ct = NGD_BF16,
                                               .scale = 0.1};

/* Opens a device with the facts, and runs the shape. Returns what it can do, to be freed. */
static char *attended(const char *facts, const char *names)
{
    struct ngd_device_params params;
    struct ngd_diag diag = {0};
    struct random r = {31};
    struct attention_data d;
    struct ngd_strbuf text;
    struct bench b;
    char *can;

    simulated_params(&params, 0, LIMIT_MS);
    params.device_facts = facts;
    params.ascend_lib_names = names;
    must(simulated_open_with(&b, &params, &diag), &diag);
    ngd_strbuf_init(&text);
    attention_text(&several, &text);
    attention_data_open(&several, &d, &r);
    attention_run(&b, &several, &d, ngd_strbuf_str(&text), 1);
    attention_data_close(&d);
    ngd_strbuf_clear(&text);
    ngd_device_describe(b.dev, &text);
    can = ngd_strbuf_steal(&text);
    close_device(&b);
    return can;
}

START_TEST(library_that_is_wrong_hangs_and_crashes_costs_its_questions_and_a_device_avoids_what_is_known)
{
    const char *top = getenv("top_builddir");
    char names[1200], fd[16], *text, *can, *line;
    struct ascend_facts *facts;
    int helpers[2];

    snprintf(names, sizeof(names), "libcust_opapi.so=%s/tests/ascend/.libs/libodd_opapi.so", top && *top ? top : ".");
    ck_assert_int_eq(pipe(helpers), 0);
    snprintf(fd, sizeof(fd), "%d", helpers[1]);
    setenv("NGD_ODD_HELPER", fd, 1);
    setenv("NGD_PROBE_LIMIT_MS", getenv("SANITIZER") ? "40000" : "10000", 1);
    text = probed("Ascend910B4", "8.5", names);
    unsetenv("NGD_PROBE_LIMIT_MS");
    unsetenv("NGD_ODD_HELPER");
    close(helpers[1]);
    ck_assert_msg(poll(&(struct pollfd){.fd = helpers[0], .events = POLLIN}, 1, 20000) == 1, "processes stay behind");
    close(helpers[0]);
    facts = parsed(text);
    ck_assert_str_eq(answer_to(text, "update"), "hang");
    ck_assert_str_eq(answer_to(text, "attention layout=BSH rows=many dtype=f16 d=64 block=256 queries=4 keys=full"),
                     "crash");
    ck_assert_ptr_nonnull(strstr(text, "queries=4 keys=full : crash code=11 us="));
    ck_assert_str_eq(answer_to(text, RAGGED), "wrong");
    ck_assert_int_eq(count_answers(text, "", "hang"), 1);
    ck_assert_int_eq(count_answers(text, "attention", "crash"), 4);
    ck_assert_int_eq(count_answers(text, "attention", "wrong"), 4);
    ck_assert_int_gt(count_answers(text, "attention", "ok"), 150);
    ck_assert_int_eq(count_answers(text, "", "skipped"), 0);
    ngd_free(facts);

    /* With the facts the device takes another way, and says why; the results are right (attention_run). */
    can = attended(file_of("facts"), names);
    line = strstr(can, "bf16, head dimension 128, 4 query heads for each, blocks of 128: ");
    ck_assert_msg(line && strstr(line, "one row for each sequence (BSH), by line ") &&
                      strstr(line, "; not several sequences (TND): line "),
                  "%.2000s", line ? line : can);
    ck_assert_ptr_nonnull(strstr(can, "facts of 2"));
    ngd_free(can);
    /* Without them it takes TND, of the library that is right. */
    can = attended(NULL, "libcust_opapi.so=/nonexistent/libcust_opapi.so");
    ck_assert_msg(strstr(can, "blocks of 128: several sequences (TND), by the rules"), "%.2000s",
                  strstr(can, "attention over a paged cache"));
    ck_assert_ptr_nonnull(strstr(can, "facts: none"));
    ngd_free(can);
    free(text);
    forget_files();
}
END_TEST

/* Each child's sixth allocation is refused, as when other processes have the device's memory. */
START_TEST(memory_that_is_short_is_no_answer_about_the_device)
{
    char *text;

    SIMULATOR(ngd_aclsim_fail_call)("aclrtMalloc", 5, 207001);
    text = probed("Ascend910B4", "8.5", NULL);
    SIMULATOR(ngd_aclsim_fail_call)(NULL, -1, 0);
    ck_assert_msg(count_answers(text, "", "failed") == 0 && count_answers(text, "", "wrong") == 0, "%s", text);
    ck_assert_int_gt(count_answers(text, "", "skipped"), 0);
    ck_assert_ptr_nonnull(strstr(text, "\"NO_DEVICE_MEMORY: "));
    ck_assert_int_gt(count_answers(text, "", "ok"), 400);
    ngd_free(parsed(text));
    free(text);
    forget_files();
}
END_TEST

/* ---- words ------------------------------------------------------------------------------------------------ */

static const char *cleaned(const char *host, const char *user, const char *words)
{
    static char text[ASCEND_REPLY_TEXT];
    struct ascend_secrets secrets = {{""}};

    snprintf(secrets.names[0], sizeof(secrets.names[0]), "%s", host);
    snprintf(secrets.names[2], sizeof(secrets.names[2]), "%s", user);
    memset(text, 0, sizeof(text));
    snprintf(text, sizeof(text), "%s", words);
    ngd_ascend_clean_words(&secrets, text);
    return text;
}

START_TEST(words_that_name_a_machine_or_person_are_not_in_the_file)
{
    struct ascend_secrets secrets;
    const struct passwd *me;

    ck_assert_str_eq(cleaned("node", "alice", "open by user=alice, pid 12"), "open by * pid 12");
    ck_assert_str_eq(cleaned("node", "alice", "alice: denied 'alice' at node7.lan"), "* denied * at *");
    ck_assert_str_eq(cleaned("", "al", "al also asks al: alone"), "* also asks al: alone");
    ck_assert_str_eq(cleaned("", "", "ip 10.0.0.1:80 <1.2.3.4> sn 210235B4X device 1234567"), "ip * * sn * device *");
    ck_assert_str_eq(cleaned("", "", "code 507046, CANN 8.5.0 v1.15.0 a..1...2 25.0.rc1 123456"),
                     "code 507046, CANN 8.5.0 v1.15.0 a..1...2 25.0.rc1 123456");
    ck_assert_str_eq(cleaned("", "", "in /root/x of me@x \"so\"\t\xc3\xa9"), "in * of * 'so' ??");
    unsetenv("USER"); /* as where systemd or a container starts it */
    ngd_ascend_find_secrets(&secrets);
    me = getpwuid(getuid());
    ck_assert_str_eq(secrets.names[2], me ? me->pw_name : "");
    setenv("USER", "bob", 1);
    ngd_ascend_find_secrets(&secrets);
    ck_assert_str_eq(secrets.names[1], "bob");
}
END_TEST

/* ---- files ------------------------------------------------------------------------------------------------ */

/* A file in which all is well, but for the answers that the caller gives. */
static char *made(const char *chip, const char *(*answer)(const struct ascend_question *q))
{
    struct ascend_facts_about about = {.maker = "npugraphd 0.1.0",
                                       .date = "2026-11-24T13:25:49Z",
                                       .cann = 85,
                                       .runtime = "1.15.0",
                                       .driver = "25.0.rc1"};
    struct ngd_strbuf sb;

    snprintf(about.chip, sizeof(about.chip), "%s", chip);
    ngd_strbuf_init(&sb);
    ngd_ascend_facts_print_about(&about, &sb);
    for (uint32_t i = 0; i < ngd_ascend_question_count(); i++) {
        struct ascend_reply reply = {.answer = ASCEND_ANSWER_OK, .value = -1};
        struct ascend_question q;

        ngd_ascend_question(i, &q);
        reply.value = q.topic == ASCEND_TOPIC_STREAMS ? 77 : -1;
        for (int a = 0; a < ASCEND_ANSWER_MAX; a++)
            if (answer && strcmp(answer(&q), ngd_ascend_answer_name((ascend_answer_t)a)) == 0)
                reply.answer = (ascend_answer_t)a;
        ngd_ascend_facts_print_reply(i, &reply, &sb);
    }
    ngd_ascend_facts_print_end(&sb);
    return ngd_strbuf_steal(&sb);
}

static void refused_file(const char *text, const char *line, const char *words)
{
    struct ascend_facts *facts = NULL;
    struct ngd_diag diag = {0};
    char want[64];

    snprintf(want, sizeof(want), "test, line %s: ", line);
    ck_assert_int_eq(ngd_ascend_facts_parse(text, strlen(text), "test", &facts, &diag), NGD_ERR_CONFIG);
    ck_assert_msg(strstr(diag.text, want) && strstr(diag.text, words), "%s, not: %s %s", diag.text, want, words);
    ck_assert_ptr_null(facts);
}

/* The text with the first occurrence of a word replaced. */
static char *with_other(const char *text, const char *old, const char *new)
{
    const char *at = strstr(text, old);
    struct ngd_strbuf sb;

    ck_assert_msg(at != NULL, "%s", old);
    ngd_strbuf_init(&sb);
    ngd_strbuf_append_n(&sb, text, (size_t)(at - text));
    ngd_strbuf_append(&sb, new);
    ngd_strbuf_append(&sb, at + strlen(old));
    return ngd_strbuf_steal(&sb);
}

START_TEST(file_that_is_cut_or_lies_is_refused_with_its_line)
{
    static const struct {
        const char *old, *new, *line, *words;
    } lies[] = {
        {"npugraphd device facts 6", "npugraphd device facts 7", "1", "this program reads version 6"},
        {"npugraphd device facts 6", "[daemon]", "1", "this is no file of facts"},
        {"\nchip Ascend910B4", "\nchip unknown", "4", "did not open"},
        {"\nchip Ascend910B4", "\nchip /home/me", "4", "no value"},
        {"\nchip Ascend910B4", "", "4", "is not \"chip ...\""},
        {"\ncann 8.5", "\ncann 8.5.0", "5", "no version"},
        {"\ncann 8.5", "\ncann 99999999999999.5", "5", "no v"},
        {"open : ok", "open : fine", "8", "is no answer"},
        {"open : ok", "open : ok code=0", "8", "has no code"},
        {"open : ok us=0", "open : ok us=-1", "8", "is not: code=N"},
        {"open : ok us=0", "open : ok us=99999999999999", "8", "is not: code=N"},
        {"open : ok us=0", "open : ok us=0 \"", "8", "is not: code=N"},
        {"open : ok us=0", "open : ok us=0 \"a\"b\"", "8", "is not: code=N"},
        {"open : ok us=0", "open : ok us=0\t", "8", "printable"},
        {"open : ok us=0\n", "", "8", "question 1, \"open\""},
        {"open : ok us=0\n", "open : ok us=0\nopen : ok us=0\n", "9", "question 2, \"streams\""},
        {"\nend 1059", "\nend 1058", "1067", "is not \"end 1059\""},
        {"\nend 1059\n", "\nend 1059\nend 1059\n", "1068", "follows the end"},
        {"\nopen ", "\nmissing aclnnFusedInferAttentionScoreV3\nopen ", "692", "line 8 that CANN has no function"},
    };
    char *text = made("Ascend910B4", NULL), *cut;
    const size_t n = strlen(text);

    ngd_free(parsed(text));
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        char *lie = with_other(text, lies[i].old, lies[i].new);

        refused_file(lie, lies[i].line, lies[i].words);
        ngd_free(lie);
    }
    cut = ngd_calloc(1, n + 1);
    for (size_t at = 0; at < n; at = at < 300 ? at + 1 : at + 977) { /* at any place of the head, and many behind */
        struct ascend_facts *facts = NULL;
        struct ngd_diag diag = {0};

        memcpy(cut, text, at);
        ck_assert_int_eq(ngd_ascend_facts_parse(cut, at, "test", &facts, &diag), NGD_ERR_CONFIG);
        ck_assert_msg(strstr(diag.text, "was cut"), "cut at %zu: %s", at, diag.text);
    }
    ngd_free(cut);
    ngd_free(text);
}
END_TEST

/* ---- devices ---------------------------------------------------------------------------------------------- */

static ngd_status_t opened_with(const char *text, const char *soc, struct bench *b, struct ngd_diag *diag)
{
    struct ngd_device_params params;

    simulator_set("soc", soc);
    simulator_set("api", "8.5");
    write_text(file_of("made"), text);
    simulated_params(&params, 0, LIMIT_MS);
    params.device_facts = file_of("made");
    params.nz_weights = true;
    return simulated_open_with(b, &params, diag);
}

static const char *all_but_limits(const struct ascend_question *q)
{
    if (q->topic == ASCEND_TOPIC_PIECES || q->topic == ASCEND_TOPIC_NZ)
        return "wrong";
    if (q->topic == ASCEND_TOPIC_SLOT)
        return "refused";
    if (q->topic == ASCEND_TOPIC_OPERATOR && q->op == NGD_OP_ATEN_TANH && q->dtype == NGD_F16)
        return "wrong";
    return q->topic == ASCEND_TOPIC_ATTENTION && q->way != ASCEND_WAY_ROWS && q->block == 128 ? "refused" : "ok";
}

static ngd_status_t planned_body(struct bench *b, const char *body, struct ngd_diag *diag)
{
    struct ready r = {0};
    char text[700];
    ngd_status_t status;

    snprintf(text, sizeof(text), "npugraph 1\ngraph \"g\" {\n%s return \"y\" = %%y\n}\n", body);
    status = ready_plan(&r, b, text, NULL, diag);
    ready_close(&r);
    return status;
}

static ngd_status_t planned(struct bench *b, const char *dtype, struct ngd_diag *diag)
{
    char body[100];

    snprintf(body, sizeof(body), " input %%x : %s[4,32]\n %%y = aten.tanh(%%x)\n", dtype);
    return planned_body(b, body, diag);
}

START_TEST(limits_are_those_of_the_facts)
{
    char *text = made("Ascend910B4", all_but_limits);
    struct ngd_diag diag = {0};
    struct ngd_strbuf can;
    struct bench b;

    must(opened_with(text, "Ascend910B4", &b, &diag), &diag);
    ck_assert_ptr_nonnull(strstr(ngd_device_info(b.dev)->arch, "-f")); /* its plans are not those without facts */
    ck_assert_uint_eq(ngd_device_info(b.dev)->pool_page, 0);
    ck_assert_uint_eq(ngd_device_info(b.dev)->kv_block, 256);
    must(planned(&b, "f32", &diag), &diag);
    ck_assert_int_eq(planned(&b, "f16", &diag), NGD_ERR_OP_UNSUPPORTED);
    ck_assert_msg(strstr(diag.text, "aten.tanh in f16: its probe was answered \"wrong\", line "), "%s", diag.text);
    ngd_strbuf_init(&can);
    ngd_device_describe(b.dev, &can);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&can), "(wrong): pools that grow move"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&can), "(refused): rows with slot -1 repeat a valid row"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&can), "(wrong): weights stay in ND"));
    ngd_strbuf_fini(&can);
    close_device(&b);
    ngd_free(text);
    forget_files();
}
END_TEST

static const char *products_in_f16_are_wrong(const struct ascend_question *q)
{
    const bool product = q->op == NGD_OP_ATEN_MM || q->op == NGD_OP_ATEN_BMM || q->op == NGD_OP_ATEN_ADDMM ||
                         q->op == NGD_OP_ATEN_LINEAR;

    return q->topic == ASCEND_TOPIC_OPERATOR && product && q->dtype == NGD_F16 ? "wrong" : "ok";
}

/* An f32 operand is cast to the weight's dtype. */
START_TEST(fact_about_a_product_is_that_of_the_dtype_in_which_it_runs)
{
    static const char *const bodies[] = {
        " input %%b : %1$s[16]\n input %%x : %1$s[4,32]\n input %%w : %2$s[32,16]\n %%y = aten.addmm(%%b, %%x, %%w)\n",
        " input %%x : %1$s[4,32]\n input %%w : %2$s[32,16]\n %%y = aten.mm(%%x, %%w)\n",
        " input %%x : %1$s[2,4,32]\n input %%w : %2$s[2,32,16]\n %%y = aten.bmm(%%x, %%w)\n",
        " input %%x : %1$s[4,32]\n input %%w : %2$s[16,32]\n %%y = aten.linear(%%x, %%w)\n"};
    static const struct {
        const char *x, *w;
        bool refused;
    } dtypes[] = {{"f16", "f16", true}, {"f32", "f16", true}, {"f32", "bf16", false}, {"f32", "f32", false}};
    char *text = made("Ascend910B4", products_in_f16_are_wrong);
    struct ngd_diag diag = {0};
    struct bench b;

    must(opened_with(text, "Ascend910B4", &b, &diag), &diag);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++) {
            char body[200];

            snprintf(body, sizeof(body), bodies[i], dtypes[k].x, dtypes[k].w);
            diag = (struct ngd_diag){0};
            ck_assert_msg(planned_body(&b, body, &diag) == (dtypes[k].refused ? NGD_ERR_OP_UNSUPPORTED : NGD_OK),
                          "%s%s", body, diag.text);
            ck_assert_msg(!dtypes[k].refused || strstr(diag.text, " in f16: its probe"), "%s", diag.text);
        }
    }
    close_device(&b);
    ngd_free(text);
    forget_files();
}
END_TEST

static const char *int4_in_one_and_latents_are_wrong(const struct ascend_question *q)
{
    const bool experts = q->form && strcmp(q->form, "one.int4") == 0 && q->dtype == NGD_BF16;

    return experts || (q->topic == ASCEND_TOPIC_LATENT && q->block == 16) ? "wrong" : "ok";
}

/* Of the same operators, other forms are planned as before. */
START_TEST(facts_about_experts_and_latents_are_of_one_form)
{
    static const struct {
        const char *weight, *scale;
        bool refused;
    } forms[] = {{"i32[8,16,8]", "bf16[8,16,1]", true},
                 {"i32[8,16,8]", "f16[8,16,1]", false},
                 {"i8[8,16,64]", "bf16[8,16,1]", false}};
    char *text = made("Ascend910B4", int4_in_one_and_latents_are_wrong);
    struct ngd_diag diag = {0};
    struct bench b;

    must(opened_with(text, "Ascend910B4", &b, &diag), &diag);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        char body[500];

        snprintf(body, sizeof(body),
                 " input %%w : %s\n input %%s : %s\n input %%x : f32[4,64]\n input %%e : i32[4,2]\n"
                 " %%r, %%to, %%n = npu.moe_init_routing_v2(%%x, %%e) {expert_num=8}\n"
                 " %%y = npu.grouped_matmul(%%r, %%n, %%w, %%s) {group_list_type=1, transpose_weight=true, "
                 "antiquant_scale=true}\n",
                 forms[i].weight, forms[i].scale);
        diag = (struct ngd_diag){0};
        ck_assert_msg(planned_body(&b, body, &diag) == (forms[i].refused ? NGD_ERR_OP_UNSUPPORTED : NGD_OK), "%s%s",
                      body, diag.text);
        ck_assert_msg(!forms[i].refused || strstr(diag.text, "its probe was answered \"wrong\", line "), "%s",
                      diag.text);
    }
    for (int block = 16; block <= 128; block += 112) {
        struct ascend_facts *facts = NULL;
        uint32_t line = 0;

        must(ngd_ascend_facts_parse(text, strlen(text), "test", &facts, &diag), &diag);
        ck_assert_int_eq(ngd_ascend_facts_latent(facts, block, NGD_BF16, 128, &line),
                         block == 16 ? ASCEND_SAYS_NO : ASCEND_SAYS_YES);
        ck_assert_uint_gt(line, 0);
        ngd_free(facts);
    }
    close_device(&b);
    ngd_free(text);
    forget_files();
}
END_TEST

START_TEST(facts_outrank_the_table_of_chips_and_are_not_used_for_another_chip)
{
    char *text = made("Ascend310P3", NULL);
    struct ngd_diag diag = {0};
    struct ngd_strbuf can;
    struct bench b;

    must(opened_with(text, "Ascend310P3", &b, &diag), &diag);
    ck_assert_str_eq(ngd_device_info(b.dev)->no_decoder, "");
    close_device(&b);
    must(opened_with(text, "Ascend910B4", &b, &diag), &diag);
    ngd_strbuf_init(&can);
    ngd_device_describe(b.dev, &can);
    ck_assert_msg(strstr(ngd_strbuf_str(&can), "facts not used: ") &&
                      strstr(ngd_strbuf_str(&can), "is about Ascend310P3, CANN 8.5"),
                  "%s", ngd_strbuf_str(&can));
    ngd_strbuf_fini(&can);
    close_device(&b);
    text[strlen(text) - 5] = '\0';
    ck_assert_int_eq(opened_with(text, "Ascend910B4", &b, &diag), NGD_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(diag.text, "was cut"));
    ngd_free(text);
    nothing_is_left("after files of facts");
    forget_files();
}
END_TEST

UNIT_MAIN("ascend/probe", list_of_questions_is_that_of_its_version, probe_tells_chips_and_versions_apart,
          library_that_is_wrong_hangs_and_crashes_costs_its_questions_and_a_device_avoids_what_is_known,
          memory_that_is_short_is_no_answer_about_the_device, words_that_name_a_machine_or_person_are_not_in_the_file,
          fact_about_a_product_is_that_of_the_dtype_in_which_it_runs, file_that_is_cut_or_lies_is_refused_with_its_line,
          limits_are_those_of_the_facts, facts_about_experts_and_latents_are_of_one_form,
          facts_outrank_the_table_of_chips_and_are_not_used_for_another_chip)
