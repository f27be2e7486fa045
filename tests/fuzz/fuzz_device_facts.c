/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of facts about a device (devices/ascend/facts.h). One that is refused names its line; one that is taken has an
 * answer to each question, on lines that follow each other.
 */
#include "devices/ascend/facts.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 300;

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    const struct ascend_facts_about about = {"npugraphd 0.1.0", "2026-11-24T13:25:49Z", "Ascend910B4", 85, "1.15.0",
                                             "25.0.rc1"};

    if (i >= ASCEND_ANSWER_MAX)
        return false;
    ngd_ascend_facts_print_about(&about, out);
    ngd_ascend_facts_print_missing("aclnnErfc", out);
    for (uint32_t q = 0; q < ngd_ascend_question_count(); q++) {
        struct ascend_reply reply = {.answer = (ascend_answer_t)i, .value = (int64_t)q - 2, .text = "CANN's words"};

        reply.code = i == ASCEND_ANSWER_REFUSED ? 561002 : 0;
        ngd_ascend_facts_print_reply(q, &reply, out);
    }
    ngd_ascend_facts_print_end(out);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = fuzz_text(data, n);
    struct ascend_facts *facts = NULL;
    struct ngd_diag diag = {0};

    if (ngd_ascend_facts_parse(text, n, "file", &facts, &diag) != NGD_OK) {
        fuzz_demand(facts == NULL, "a refused file has facts");
        fuzz_demand(strstr(diag.text, "file, line ") != NULL, "a file is refused without its line");
        ngd_free(text);
        return 0;
    }
    fuzz_demand(facts->n == ngd_ascend_question_count(), "a question has no answer");
    fuzz_demand(memchr(facts->about.chip, '\0', sizeof(facts->about.chip)) != NULL, "a field does not end");
    for (uint32_t i = 0; i < facts->n; i++) {
        fuzz_demand(facts->facts[i].answer < ASCEND_ANSWER_MAX, "an answer is none");
        fuzz_demand(facts->facts[i].line == facts->facts[0].line + i, "a line is not its question's");
    }
    ngd_free(facts);
    ngd_free(text);
    return 0;
}
