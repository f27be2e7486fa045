/* SPDX-License-Identifier: Apache-2.0 */
/* What a device does with a file of facts. See facts.h. */
#include "devices/ascend/facts.h"
#include "base/log.h"
#include "graphs/op.h"
#include "graphs/op_traits.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- looking facts up -------------------------------------------------------------------------------- */

static bool serves(ascend_answer_t answer)
{
    static const bool table[] = {
#define NGD_PROBE_ANSWER(ID, name, serves, text) serves,
#include "devices/ascend/probe_answers.def"
#undef NGD_PROBE_ANSWER
    };

    return table[answer];
}

/* It ran, or should have, and came to harm: not to be tried again. What CANN refuses, it refuses again. */
static bool harms(ascend_answer_t answer)
{
    return answer == ASCEND_ANSWER_WRONG || answer == ASCEND_ANSWER_FAILED || answer == ASCEND_ANSWER_HANG ||
           answer == ASCEND_ANSWER_CRASH;
}

/* The topic's first fact that is of the kind; NULL: none is. */
static const struct ascend_fact *find_fact(const struct ascend_facts *facts, ascend_topic_t topic,
                                           bool (*is)(ascend_answer_t answer))
{
    const uint32_t end = ngd_ascend_question_first((ascend_topic_t)(topic + 1));

    for (uint32_t i = ngd_ascend_question_first(topic); i < end; i++)
        if (is(facts->facts[i].answer))
            return &facts->facts[i];
    return NULL;
}

/* What two questions say, with few keys and with full blocks; UINT32_MAX: it is not asked. */
static ascend_says_t both_say(const struct ascend_facts *facts, const uint32_t asked[2], uint32_t *line_p)
{
    const struct ascend_fact *found[2];

    *line_p = 0;
    for (int full = 0; full < 2; full++) {
        if (!facts || asked[full] == UINT32_MAX)
            return ASCEND_SAYS_NOTHING;
        found[full] = &facts->facts[asked[full]];
    }
    for (int full = 0; full < 2; full++)
        if (!serves(found[full]->answer) && found[full]->answer != ASCEND_ANSWER_SKIPPED) {
            *line_p = found[full]->line;
            return ASCEND_SAYS_NO;
        }
    if (found[0]->answer == ASCEND_ANSWER_SKIPPED || found[1]->answer == ASCEND_ANSWER_SKIPPED)
        return ASCEND_SAYS_NOTHING;
    *line_p = found[1]->line;
    return ASCEND_SAYS_YES;
}

ascend_says_t ngd_ascend_facts_attention(const struct ascend_facts *facts, enum ascend_way way, int64_t d,
                                         int64_t block, ngd_dtype_t dtype, int64_t queries, uint32_t *line_p)
{
    const uint32_t asked[2] = {ngd_ascend_question_of_attention(way, d, block, dtype, queries, false),
                               ngd_ascend_question_of_attention(way, d, block, dtype, queries, true)};

    return both_say(facts, asked, line_p);
}

ascend_says_t ngd_ascend_facts_latent(const struct ascend_facts *facts, int64_t block, ngd_dtype_t dtype, int64_t heads,
                                      uint32_t *line_p)
{
    const uint32_t asked[2] = {ngd_ascend_question_of_latent(block, dtype, heads, false),
                               ngd_ascend_question_of_latent(block, dtype, heads, true)};

    return both_say(facts, asked, line_p);
}

/* The tensor in whose dtype the operator runs: a product's narrower operand (op_matrix.c), else the first one. */
static uint32_t deciding_tensor(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    const ngd_op_id_t op = call->op->id;
    const uint32_t bias = op == NGD_OP_ATEN_ADDMM;

    /* These are the operators whose builder casts an operand to another one's dtype. */
    if (op == NGD_OP_ATEN_MM || op == NGD_OP_ATEN_BMM || op == NGD_OP_ATEN_LINEAR || op == NGD_OP_ATEN_ADDMM)
        return call->in[bias + (plan->tensors[call->in[bias]].dtype == NGD_F32)];
    return call->n_in ? call->in[0] : call->out[0];
}

ngd_status_t ngd_ascend_facts_check(const struct ascend_device *dev, const struct ngd_plan *plan,
                                    const struct ngd_plan_call *call, struct ngd_diag *diag)
{
    const uint32_t tensor = deciding_tensor(plan, call);
    const struct ascend_fact *fact;
    uint32_t i;

    if (!dev->facts || tensor == NGD_PLAN_NONE)
        return NGD_OK;
    i = ngd_op_traits[call->op->id].mixture == NGD_MIXTURE_MULTIPLIES ? ngd_ascend_question_of_experts(plan, call)
                                                                      : UINT32_MAX;
    if (i == UINT32_MAX)
        i = ngd_ascend_question_of_operator(call->op->id, plan->tensors[tensor].dtype);
    if (i == UINT32_MAX || !harms(dev->facts->facts[i].answer))
        return NGD_OK;
    fact = &dev->facts->facts[i];
    return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                        "device %s: %s in %s: its probe was answered \"%s\", line %u of the option device-facts. Use "
                        "another dtype or device, or probe again after an update of CANN",
                        dev->name, call->op->name, ngd_dtype_name(plan->tensors[tensor].dtype),
                        ngd_ascend_answer_name(fact->answer), (unsigned)fact->line);
}

/* ---- a device's limits ------------------------------------------------------------------------------- */

/* Any way of it, with the operators that a decoder has beside it. */
static bool has_decoder(const struct ascend_facts *facts)
{
    const uint32_t rotary = ngd_ascend_question_of_operator(NGD_OP_NPU_ROTARY_MUL, NGD_F16);
    const uint32_t scatter = ngd_ascend_question_of_operator(NGD_OP_NPU_SCATTER_PA_KV_CACHE, NGD_F16);

    return find_fact(facts, ASCEND_TOPIC_ATTENTION, serves) && find_fact(facts, ASCEND_TOPIC_UPDATE, serves) &&
           serves(facts->facts[rotary].answer) && serves(facts->facts[scatter].answer);
}

/* The smallest block with which prompts are attended to by the fused operator. */
static uint32_t block_of_prompts(const struct ascend_facts *facts, uint32_t usual)
{
    static const uint32_t blocks[] = {128, 256, 16};
    static const enum ascend_way ways[] = {ASCEND_WAY_PREFILL, ASCEND_WAY_RAGGED};
    static const ngd_dtype_t dtypes[] = {NGD_BF16, NGD_F16};
    uint32_t line;

    for (size_t b = 0; b < sizeof(blocks) / sizeof(blocks[0]); b++)
        for (size_t w = 0; w < 4; w++)
            if (ngd_ascend_facts_attention(facts, ways[w / 2], 128, blocks[b], dtypes[w % 2], 4, &line) ==
                ASCEND_SAYS_YES)
                return blocks[b];
    return usual;
}

static bool refuses(ascend_answer_t answer)
{
    return !serves(answer) && answer != ASCEND_ANSWER_SKIPPED;
}

/* Plans depend on facts: on which operators are refused, and on the workspace of what is called. */
static void add_to_arch(struct ascend_device *dev)
{
    const size_t n = strlen(dev->arch);
    uint32_t hash = 2166136261u;

    for (uint32_t i = 0; i < dev->facts->n; i++)
        hash = (hash ^ (uint32_t)dev->facts->facts[i].answer) * 16777619u;
    snprintf(dev->arch + n, sizeof(dev->arch) - n, "-f%08x", (unsigned)hash);
}

static void apply_facts(struct ascend_device *dev)
{
    const struct ascend_facts *facts = dev->facts;
    const struct ascend_fact *streams = &facts->facts[ngd_ascend_question_first(ASCEND_TOPIC_STREAMS)];

    if (has_decoder(facts))
        dev->no_decoder = "";
    dev->kv_block = block_of_prompts(facts, dev->kv_block);
    if (serves(streams->answer) && streams->value > 0 && streams->value <= UINT32_MAX)
        dev->streams_total = (uint32_t)streams->value;
    if (find_fact(facts, ASCEND_TOPIC_PIECES, harms))
        dev->page = 0;
    if (find_fact(facts, ASCEND_TOPIC_SLOT, refuses))
        dev->skips_slots = false;
    if (find_fact(facts, ASCEND_TOPIC_NZ, harms))
        dev->nz.wanted = dev->nz.on = false;
    add_to_arch(dev);
}

static bool is_about(const struct ascend_facts_about *about, const struct ascend_device *dev, char runtime[32])
{
    const char *soc = dev->acl->aclrtGetSocName();

    snprintf(runtime, 32, "%d.%d.%d", (int)dev->acl->version[0], (int)dev->acl->version[1], (int)dev->acl->version[2]);
    return strcmp(about->chip, soc ? soc : "unknown") == 0 && about->cann == dev->cann &&
           strcmp(about->runtime, runtime) == 0;
}

ngd_status_t ngd_ascend_facts_open(struct ascend_device *dev, const char *path, struct ngd_diag *diag)
{
    struct ascend_facts *facts = NULL;
    ngd_status_t status = path && *path ? ngd_ascend_facts_read(path, &facts, diag) : NGD_OK;
    const struct ascend_facts_about *about;
    char runtime[32];

    if (status || !facts)
        return status;
    about = &facts->about;
    if (is_about(about, dev, runtime)) {
        dev->facts = facts;
        snprintf(dev->facts_text, sizeof(dev->facts_text), "of %s by %s, in %.160s", about->date, about->maker, path);
        apply_facts(dev);
        return NGD_OK;
    }
    snprintf(dev->facts_text, sizeof(dev->facts_text),
             "not used: %.160s is about %.60s, CANN %d.%d, runtime %s; this is CANN %d.%d, runtime %s", path,
             about->chip, about->cann / 10, about->cann % 10, about->runtime, dev->cann / 10, dev->cann % 10, runtime);
    ngd_warning("devices", "device %s: facts %s on a %s; the program's own tables apply", dev->name, dev->facts_text,
                ngd_chip_info(dev->chip)->name);
    ngd_free(facts);
    return NGD_OK;
}

/* ---- for people -------------------------------------------------------------------------------------- */

static void describe_effect(struct ngd_strbuf *sb, const struct ascend_fact *fact, const char *effect)
{
    if (fact)
        ngd_strbuf_printf(sb, "  line %u (%s): %s\n", (unsigned)fact->line, ngd_ascend_answer_name(fact->answer),
                          effect);
}

void ngd_ascend_facts_describe(const struct ascend_device *dev, struct ngd_strbuf *sb)
{
    uint32_t counts[ASCEND_ANSWER_MAX] = {0};

    if (!dev->facts_text[0]) {
        ngd_strbuf_append(sb, "facts: none, the program's own tables apply (option device-facts)\n");
        return;
    }
    ngd_strbuf_printf(sb, "facts %s\n", dev->facts_text);
    if (!dev->facts)
        return;
    for (uint32_t i = 0; i < dev->facts->n; i++)
        counts[dev->facts->facts[i].answer]++;
    ngd_strbuf_append(sb, " ");
    for (int i = 0; i < ASCEND_ANSWER_MAX; i++)
        ngd_strbuf_printf(sb, "%s %u %s", i ? "," : "", (unsigned)counts[i],
                          ngd_ascend_answer_name((ascend_answer_t)i));
    ngd_strbuf_append(sb, "\n");
    describe_effect(sb, find_fact(dev->facts, ASCEND_TOPIC_PIECES, harms), "pools that grow move");
    describe_effect(sb, find_fact(dev->facts, ASCEND_TOPIC_SLOT, refuses), "rows with slot -1 repeat a valid row");
    describe_effect(sb, find_fact(dev->facts, ASCEND_TOPIC_NZ, harms), "weights stay in ND");
}
