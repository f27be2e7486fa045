/* SPDX-License-Identifier: Apache-2.0 */
/* Groups whose ranks are in several daemons: root information, and what ranks tell one another before a launch. */
#include "devices/ascend/group_span.h"
#include "base/digest.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SLICE_MS    100 /* how late a wait sees that its group is given up, or its launch stopped */
#define ROOTS_MAX   16
#define ROOT_LIVES  (120 * NGD_SEC) /* HCCL's own limit of a communicator's making */
#define ROOT_MAGIC  0x31746f6f7264676eull
#define WORD_MAGIC  0x3164726f7764676eull
#define OTHERS_TEXT 220

/* ---- root information ---------------------------------------------------------------------------- */

/* What clients carry from one daemon to the others. */
struct ascend_root {
    uint64_t magic, hash; /* of the rest */
    char hccl[NGD_HCCL_ROOT_BYTES + 4];
};

/* Those that this process has given away and not used: HCCL listens for each. */
static struct ngd_mutex roots_lock = NGD_MUTEX_INITIALIZER(NGD_RANK_COMMUNICATORS);
static struct {
    uint64_t hash;
    ngd_nsec_t until;
    bool used; /* a group is being made with it */
} roots[ROOTS_MAX] NGD_GUARDED_BY(roots_lock);

/* Never 0. */
static uint64_t root_hash(const struct ascend_root *root)
{
    return ngd_hash64(root->hccl, sizeof(root->hccl), ROOT_MAGIC) | 1;
}

/* Takes a place before HCCL begins to listen. */
static ngd_status_t reserve_root(int *at_p, struct ngd_diag *diag)
{
    int at = 0;

    ngd_mutex_lock(&roots_lock);
    while (at < ROOTS_MAX && roots[at].until > ngd_now())
        at++;
    if (at < ROOTS_MAX) {
        roots[at].hash = 0;
        roots[at].used = false;
        roots[at].until = ngd_now() + ROOT_LIVES;
    }
    ngd_mutex_unlock(&roots_lock);
    *at_p = at;
    if (at < ROOTS_MAX)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                        "%d roots of groups have not been used yet, and there can be no more; one is given up %d s "
                        "after it was made",
                        ROOTS_MAX, (int)(ROOT_LIVES / NGD_SEC));
}

/* hash 0: the place is free again. */
static void set_root(int at, uint64_t hash)
{
    ngd_mutex_lock(&roots_lock);
    roots[at].hash = hash;
    if (!hash)
        roots[at].until = 0;
    ngd_mutex_unlock(&roots_lock);
}

/* hccl_p: of a root that ngd_ascend_check_root has found whole. */
static uint64_t hash_at(const void *hccl)
{
    struct ascend_root root;

    memcpy(root.hccl, hccl, sizeof(root.hccl));
    return root_hash(&root);
}

ngd_status_t ngd_ascend_use_root(const char *name, const void *hccl, struct ngd_diag *diag)
{
    const uint64_t hash = hash_at(hccl);
    bool found = false;

    ngd_mutex_lock(&roots_lock);
    for (int i = 0; i < ROOTS_MAX && !found; i++) {
        found = roots[i].hash == hash && roots[i].until > ngd_now() && !roots[i].used;
        if (found)
            roots[i].used = true;
    }
    ngd_mutex_unlock(&roots_lock);
    if (found)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "the root of group \"%.64s\" is not of this daemon, which has rank 0, or was used before, "
                        "or is older than %d s: call Graphs.GroupRoot here",
                        name, (int)(ROOT_LIVES / NGD_SEC));
}

void ngd_ascend_end_root(const void *hccl, bool give_back)
{
    const uint64_t hash = hash_at(hccl);

    ngd_mutex_lock(&roots_lock);
    for (int i = 0; i < ROOTS_MAX; i++) {
        if (roots[i].hash != hash || !roots[i].used)
            continue;
        roots[i].used = false;
        if (!give_back)
            roots[i].until = 0;
    }
    ngd_mutex_unlock(&roots_lock);
}

ngd_status_t ngd_ascend_root(void *dev_v, void *root_v, size_t *bytes_p, struct ngd_diag *diag)
{
    const struct ascend_device *dev = dev_v;
    struct ascend_root root = {.magic = ROOT_MAGIC};
    ngd_acl_error_t code;
    ngd_status_t status;
    int at;

    static_assert(sizeof(root) <= NGD_COMM_ROOT_MAX, "a root has room in what clients give");
    status = ngd_ascend_check_hccl(dev->acl, diag);
    if (status == NGD_OK)
        status = ngd_ascend_enter(dev, dev->context, diag);
    if (status == NGD_OK)
        status = reserve_root(&at, diag);
    if (status)
        return status;
    code = dev->acl->HcclGetRootInfo(root.hccl);
    root.hash = root_hash(&root);
    set_root(at, code ? 0 : root.hash);
    if (code)
        return ngd_ascend_fail(dev, code, "HcclGetRootInfo", diag);
    memcpy(root_v, &root, sizeof(root));
    *bytes_p = sizeof(root);
    return NGD_OK;
}

ngd_status_t ngd_ascend_check_root(const char *name, const struct ngd_comm_span *span, const void **hccl_p,
                                   struct ngd_diag *diag)
{
    struct ascend_root root;

    if (span->root_bytes != sizeof(root))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the root of group \"%.64s\" has %zu bytes, not %zu: it is what Graphs.GroupRoot of the "
                            "daemon of rank 0 returns",
                            name, span->root_bytes, sizeof(root));
    memcpy(&root, span->root, sizeof(root));
    if (root.magic != ROOT_MAGIC || root.hash != root_hash(&root))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the root of group \"%.64s\" is damaged, or of another version: it is what "
                            "Graphs.GroupRoot of the daemon of rank 0 returns",
                            name);
    *hccl_p = (const char *)span->root + offsetof(struct ascend_root, hccl);
    return NGD_OK;
}

/* ---- words --------------------------------------------------------------------------------------- */

#define FAILED_AFTER 2 /* only because another rank of its daemon has failed */

/* What a rank is about to do. Digests are of all its collectives, with their planned and their actual rows. */
struct ascend_word {
    uint64_t magic, digest, tag;
    uint32_t n_says, failed;                                            /* failed: 0, 1, or FAILED_AFTER */
    uint64_t sends[NGD_GROUP_MAX_RANKS], receives[NGD_GROUP_MAX_RANKS]; /* of exchanges, with each rank */
    char text[224];
};
static_assert(sizeof(struct ascend_word) == 512, "daemons of all builds send the same");

/* Of a seat's memory, on the host and on the device: its own word, then those of all ranks. */
static struct ascend_word *word_at(void *words, uint32_t i)
{
    return (struct ascend_word *)words + i;
}

ngd_status_t ngd_ascend_words_open(struct ascend_seat *seat, uint32_t ranks, struct ngd_diag *diag)
{
    const size_t bytes = (1 + ranks) * sizeof(struct ascend_word);
    const struct ngd_acl *acl = seat->dev->acl;
    ngd_acl_error_t code = acl->aclrtMallocHost(&seat->words, bytes);

    if (code) {
        seat->words = NULL;
        return ngd_ascend_fail(seat->dev, code, "host memory of a group", diag);
    }
    memset(seat->words, 0, bytes);
    code = acl->aclrtMalloc(&seat->device_words, bytes, NGD_ACL_MALLOC_HUGE_FIRST);
    if (code)
        seat->device_words = NULL;
    return code ? ngd_ascend_fail(seat->dev, code, "device memory of a group", diag) : NGD_OK;
}

void ngd_ascend_words_close(struct ascend_seat *seat)
{
    if (seat->words && ngd_ascend_enter_to_release(seat->dev, seat->dev->context)) {
        seat->dev->acl->aclrtFreeHost(seat->words);
        if (seat->device_words)
            seat->dev->acl->aclrtFree(seat->device_words);
    }
    seat->words = seat->device_words = NULL;
}

static uint64_t mix_word(uint64_t h, uint64_t v)
{
    return ngd_hash64(&v, sizeof(v), h);
}

static void describe_own(const struct ascend_group *g, struct ascend_word *word)
{
    const struct ngd_collective *c = &g->says[0].what;
    size_t at;

    at = (size_t)snprintf(word->text, sizeof(word->text), "%u collectives, the first %.60s of %s[", g->n_says, c->op,
                          ngd_dtype_name(c->dtype));
    for (uint32_t i = 0; i < c->rank && at < sizeof(word->text); i++)
        at += (size_t)snprintf(word->text + at, sizeof(word->text) - at, "%s%" PRId64, i ? "," : "", c->dims[i]);
    if (at < sizeof(word->text))
        snprintf(word->text + at, sizeof(word->text) - at, "]%s%.20s", *c->reduce ? ", " : "", c->reduce);
}

static void fill_word(const struct ascend_group *g, const struct ngd_launch *launch, const char *failed,
                      struct ascend_word *word)
{
    *word = (struct ascend_word){.magic = WORD_MAGIC, .digest = g->digest, .tag = launch->tag, .n_says = g->n_says};
    if (failed) {
        word->failed = launch->diag.status == NGD_ERR_GROUP_BROKEN ? FAILED_AFTER : 1;
        snprintf(word->text, sizeof(word->text), "%s", failed);
        return;
    }
    for (uint32_t i = 0; i < g->n_says; i++) {
        const struct ascend_said *said = &g->says[i];

        word->digest = mix_word(word->digest, said->what.split ? 0 : (uint64_t)said->what.dims[0]);
        if (said->row_sym != NGD_NO_ROW_SYM)
            word->digest = mix_word(word->digest, (uint64_t)(launch->symbols[said->row_sym] * said->row_mult));
        for (uint32_t k = 0; k < g->size && said->what.split; k++) {
            word->sends[k] = mix_word(word->sends[k], said->what.sends[k]);
            word->receives[k] = mix_word(word->receives[k], said->what.receives[k]);
        }
    }
    describe_own(g, word);
}

/* Text of another daemon, of which nothing is known. */
static const char *clean_text(const struct ascend_word *word, char text[static OTHERS_TEXT])
{
    uint32_t n = 0;

    for (; n + 1 < OTHERS_TEXT && word->text[n]; n++)
        text[n] = word->text[n] >= ' ' && word->text[n] <= '~' ? word->text[n] : '?';
    text[n] = '\0';
    return text;
}

/* ---- verdict ------------------------------------------------------------------------------------- */

static ngd_status_t judge_version(const struct ascend_word *words, uint32_t i, char why[static NGD_DIAG_MAX])
{
    if (words[i].magic == WORD_MAGIC)
        return NGD_OK;
    snprintf(why, NGD_DIAG_MAX, "rank %u speaks another version of the protocol between daemons", i);
    return NGD_ERR_GROUP_BROKEN;
}

/* The one that says the cause, if any does. */
static ngd_status_t judge_failures(const struct ascend_word *words, uint32_t n, char why[static NGD_DIAG_MAX])
{
    char text[OTHERS_TEXT];
    uint32_t cause = n;

    for (uint32_t i = n; i-- > 0;)
        if (words[i].failed && (cause == n || words[i].failed != FAILED_AFTER || words[cause].failed == FAILED_AFTER))
            cause = i;
    if (cause == n)
        return NGD_OK;
    snprintf(why, NGD_DIAG_MAX, "rank %u failed: %s", cause, clean_text(&words[cause], text));
    return NGD_ERR_GROUP_BROKEN;
}

static ngd_status_t judge_pair(const struct ascend_word *words, uint32_t i, uint32_t k, char why[static NGD_DIAG_MAX])
{
    const struct ascend_word *a = &words[i], *b = &words[k];
    char one[OTHERS_TEXT], other[OTHERS_TEXT];

    if (a->digest != b->digest || a->n_says != b->n_says)
        snprintf(why, NGD_DIAG_MAX,
                 "rank %u does %s, rank %u does %s: all ranks must call the same collectives in the same order, with "
                 "the same rows",
                 i, clean_text(a, one), k, clean_text(b, other));
    else if (a->tag != b->tag)
        snprintf(why, NGD_DIAG_MAX,
                 "rank %u runs the request with tag %" PRIu64 ", rank %u that with tag %" PRIu64
                 ": give all daemons the same requests in the same order",
                 i, a->tag, k, b->tag);
    else if (a->sends[k] != b->receives[i] || b->sends[i] != a->receives[k])
        snprintf(why, NGD_DIAG_MAX, "ranks %u and %u expect other parts of each other than they send", i, k);
    else
        return NGD_OK;
    return NGD_ERR_COLLECTIVE_MISMATCH;
}

/* All ranks judge the same words, and come to the same verdict. */
static ngd_status_t judge_words(const struct ascend_word *words, uint32_t n, char why[static NGD_DIAG_MAX])
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < n && !status; i++)
        status = judge_version(words, i, why);
    if (status == NGD_OK)
        status = judge_failures(words, n, why);
    for (uint32_t i = 0; i < n && !status; i++)
        for (uint32_t k = i + 1; k < n && !status; k++)
            status = judge_pair(words, i, k, why);
    return status;
}

/* ---- the exchange -------------------------------------------------------------------------------- */

static ngd_acl_error_t queue_words(struct ascend_seat *seat, uint32_t ranks)
{
    const struct ngd_acl *acl = seat->dev->acl;
    const size_t one = sizeof(struct ascend_word);
    void *stream = seat->stream.stream, *gathered = word_at(seat->device_words, 1);
    ngd_acl_error_t code = acl->aclrtMemcpyAsync(seat->device_words, one, seat->words, one, NGD_ACL_COPY_H2D, stream);

    if (!code)
        code = acl->HcclAllGather(seat->device_words, gathered, one, NGD_HCCL_UINT8, seat->hccl, stream);
    if (!code)
        code = acl->aclrtMemcpyAsync(word_at(seat->words, 1), ranks * one, gathered, ranks * one, NGD_ACL_COPY_D2H,
                                     stream);
    return code;
}

/* Whether the launch was cancelled, or its time is over. */
static bool launch_stopped(const struct ngd_launch *launch)
{
    return (launch->stop && atomic_load(launch->stop)) || (launch->stop_at && ngd_now() >= launch->stop_at);
}

static ngd_acl_error_t await_words(const struct ascend_comm *comm, const struct ascend_seat *seat,
                                   const struct ngd_launch *launch)
{
    ngd_nsec_t waited = 0;
    ngd_acl_error_t code;

    do {
        code = seat->dev->acl->aclrtSynchronizeStreamWithTimeout(seat->stream.stream, SLICE_MS);
        waited += SLICE_MS * NGD_MSEC;
    } while (code == NGD_ACL_RT_STREAM_SYNC_TIMEOUT && waited < comm->time_limit && !atomic_load(&comm->given_up) &&
             !launch_stopped(launch));
    return code;
}

/* What still waits on the stream would take the next launch's words: the group is not used again. */
static ngd_status_t fail_exchange(const struct ascend_group *g, struct ascend_seat *seat,
                                  const struct ngd_launch *launch, ngd_acl_error_t code, struct ngd_diag *diag)
{
    const bool late = code == NGD_ACL_RT_STREAM_SYNC_TIMEOUT;
    ngd_status_t status = ngd_ascend_stream_fail(&seat->stream, code, "the words of a group's ranks", diag);

    seat->stream.broken = true;
    atomic_store(&g->comm->spoiled, true);
    seat->dev->acl->aclrtStreamAbort(seat->stream.stream);
    if (!late)
        return status;
    if (atomic_load(&g->comm->given_up) && (status = ngd_meeting_status(g->comm->meeting, diag)) != NGD_OK)
        return status;
    if (launch_stopped(launch))
        return ngd_diag_set(diag, NGD_ERR_COLLECTIVE_TIMEOUT,
                            "the request was cancelled, or its time was over, before all %u ranks began the launch",
                            g->size);
    return ngd_diag_set(diag, NGD_ERR_COLLECTIVE_TIMEOUT,
                        "not all %u ranks began the launch within %g s: a daemon of the group has ended, cannot be "
                        "reached, or was not given the request",
                        g->size, (double)g->comm->time_limit / (double)NGD_SEC);
}

ngd_status_t ngd_ascend_exchange_words(const struct ascend_group *g, const struct ngd_launch *launch,
                                       const char *failed, struct ngd_diag *diag)
{
    struct ascend_seat *seat = ngd_ascend_seat(g);
    char why[NGD_DIAG_MAX];
    ngd_acl_error_t code;
    ngd_status_t status;

    seat->spoken = true;
    fill_word(g, launch, failed, word_at(seat->words, 0));
    code = queue_words(seat, g->size);
    if (!code)
        code = await_words(g->comm, seat, launch);
    if (code) {
        status = fail_exchange(g, seat, launch, code, diag);
        ngd_meeting_abort(g->comm->meeting, status == NGD_ERR_COLLECTIVE_TIMEOUT ? status : NGD_ERR_GROUP_BROKEN,
                          diag->text);
        return status;
    }
    status = judge_words(word_at(seat->words, 1), g->size, why);
    if (status == NGD_OK)
        return NGD_OK;
    ngd_meeting_abort(g->comm->meeting, status, why);
    return ngd_diag_set(diag, status, "group \"%.64s\": %s", g->name, why);
}
