/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame checker in front of gRPC. The input is a list of portions: a byte that says whose (the client's, gRPC's, or
 * time that passes), a length of two bytes, and bytes. Whatever they are, what was charged is never negative, stays
 * within its bounds and comes back; gRPC gets no byte that the client did not send but resets of refused calls, and, if
 * none was refused, the client's bytes as they were; what the client gets of gRPC is the same with refusals between
 * frames.
 */
#include "daemon/front/h2_guard.h"
#include "tests/fuzz/fuzz.h"

#define STREAMS  8
#define BYTES    4096
#define MESSAGE  2048
#define RESET    13
#define PORTIONS 4000

const uint32_t fuzz_runs = 50000;

struct peer {
    ngd_nsec_t buckets[NGD_H2_BUCKETS];
    const uint8_t *said; /* by the client, all of it */
    size_t n_said, sent, refusals, answered;
    int64_t streams, bytes;
    bool same;
};

static void to_server(void *ctx, const uint8_t *bytes, size_t n)
{
    struct peer *p = ctx;

    if (p->refusals == 0 && p->same)
        p->same = p->sent + n <= p->n_said && memcmp(p->said + p->sent, bytes, n) == 0;
    p->sent += n;
}
static void to_client(void *ctx, const uint8_t *bytes, size_t n)
{
    ((struct peer *)ctx)->answered += n + (bytes[0] & 0);
}
static bool take_stream(void *ctx)
{
    struct peer *p = ctx;

    return p->streams < STREAMS / 2 && ++p->streams;
}
static bool take_bytes(void *ctx, uint64_t n)
{
    struct peer *p = ctx;

    fuzz_demand(n < (1 << 25), "a portion is charged more than it has");
    if (p->bytes + (int64_t)n > BYTES)
        return false;
    p->bytes += (int64_t)n;
    return true;
}
static void give_stream(void *ctx)
{
    fuzz_demand(--((struct peer *)ctx)->streams >= 0, "a stream is given back twice");
}
static void give_bytes(void *ctx, uint64_t n)
{
    fuzz_demand((((struct peer *)ctx)->bytes -= (int64_t)n) >= 0, "bytes are given back twice");
}
static ngd_nsec_t *shared_buckets(void *ctx)
{
    return ((struct peer *)ctx)->buckets;
}
static void refused(void *ctx, const char *sentence)
{
    fuzz_demand(strlen(sentence) > 20, "a refusal has no sentence");
    ((struct peer *)ctx)->refusals++;
}

static const struct ngd_h2_ops ops = {.to_server = to_server,
                                      .to_client = to_client,
                                      .take_stream = take_stream,
                                      .take_bytes = take_bytes,
                                      .give_stream = give_stream,
                                      .give_bytes = give_bytes,
                                      .shared_buckets = shared_buckets,
                                      .refused = refused};

/* All portions of the client in one piece: what gRPC may get. */
static uint8_t *join(const uint8_t *data, size_t n, size_t *n_p)
{
    uint8_t *all = ngd_malloc(n + 1);

    fuzz_demand(all != NULL, "out of memory");
    *n_p = 0;
    for (size_t at = 0; at + 3 <= n;) {
        size_t len = (size_t)data[at + 1] << 8 | data[at + 2];

        len = len < n - at - 3 ? len : n - at - 3;
        if (data[at] % 3 == 0) {
            memcpy(all + *n_p, data + at + 3, len);
            *n_p += len;
        }
        at += 3 + len;
    }
    return all;
}

/* False: the connection is over. */
static bool say(struct ngd_h2_guard *guard, const uint8_t *bytes, size_t n, ngd_nsec_t *now)
{
    for (int i = 0; i < PORTIONS; i++) {
        struct ngd_h2_result r = ngd_h2_guard_input(guard, bytes, n, *now);

        fuzz_demand(r.used <= n, "more was used than there is");
        if (r.verdict == NGD_H2_CLOSE) {
            fuzz_demand(ngd_h2_reason_text(r.reason)[0] != '\0', "a connection ends without a reason");
            return false;
        }
        if (r.verdict == NGD_H2_GO_ON) {
            fuzz_demand(r.used == n, "bytes are left");
            return true;
        }
        fuzz_demand(r.until > *now, "a pause is over before it begins");
        *now = r.until;
        bytes += r.used;
        n -= r.used;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct peer peer = {.same = true};
    struct ngd_h2_params params = {.ops = &ops, .ctx = &peer, .max_streams = STREAMS, .max_message = MESSAGE};
    struct ngd_h2_guard *guard = ngd_h2_guard_create(&params);
    uint8_t *all = join(data, n, &peer.n_said);
    size_t refusals_room = 0;
    ngd_nsec_t now = NGD_SEC;
    bool open = guard != NULL;

    peer.said = all;
    for (size_t at = 0; open && at + 3 <= n;) {
        size_t len = (size_t)data[at + 1] << 8 | data[at + 2];
        const uint8_t *bytes = data + at + 3;

        len = len < n - at - 3 ? len : n - at - 3;
        if (data[at] % 3 == 0) {
            open = say(guard, bytes, len, &now);
        } else if (data[at] % 3 == 1) {
            ngd_h2_guard_output(guard, bytes, len, now);
        } else {
            now += (ngd_nsec_t)len * NGD_MSEC;
            open = ngd_h2_guard_tick(guard, now).verdict == NGD_H2_GO_ON;
        }
        at += 3 + len;
    }
    refusals_room = peer.refusals * RESET;
    fuzz_demand(peer.same, "gRPC got what the client did not say");
    fuzz_demand(peer.sent <= peer.n_said + refusals_room, "gRPC got more than the client said");
    fuzz_demand(!guard || ngd_h2_guard_streams(guard) <= STREAMS, "too many streams are open");
    if (guard && !open)
        ngd_h2_guard_goodbye(guard, true, ngd_h2_reason_text(NGD_H2_WHY_FRAME));
    ngd_h2_guard_destroy(guard);
    fuzz_demand(peer.streams == 0 && peer.bytes == 0, "a charge is not given back");
    ngd_free(all);
    return 0;
}

static void put_portion(struct ngd_strbuf *out, uint8_t whose, const void *bytes, size_t n)
{
    const uint8_t head[3] = {whose, (uint8_t)(n >> 8), (uint8_t)n};

    ngd_strbuf_append_n(out, (const char *)head, sizeof(head));
    ngd_strbuf_append_n(out, bytes, n);
}

/* The beginning, two calls with messages in parts, and what gRPC answers. */
bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    static const char begin[] = NGD_H2_PREFACE "\0\0\6\4\0\0\0\0\0\0\4\0\1\0\0";
    static const char call[] = "\0\0\2\1\4\0\0\0\1\x83\x86\0\0\7\0\0\0\0\0\1\0\0\0\0\3ab\0\0\4\0\x9\0\0\0\1\2c\0\0"
                               "\0\0\1\1\0\0\0\0\3\x83\0\0\1\x9\4\0\0\0\3\x86\0\0\5\0\0\0\0\0\3\0\0\0\7\xff";
    static const char rest[] = "\0\0\x8\6\0\0\0\0\0abcdefgh\0\0\4\x8\0\0\0\0\0\0\0\1\0\0\0\4\3\0\0\0\0\3\0\0\0\x8"
                               "\0\0\0\4\1\0\0\0\0";
    static const char answer[] = "\0\0\6\4\0\0\0\0\0\0\4\0\0\1\0\0\0\1\1\4\0\0\0\1\x88\0\0\4\x8\0\0\0\0\1\0\0\4\0"
                                 "\0\0\1\1\5\0\0\0\1\x88";

    if (i > 3)
        return false;
    put_portion(out, 0, begin, sizeof(begin) - 1);
    put_portion(out, 0, call, i == 0 ? sizeof(call) - 1 : 17);
    if (i != 0)
        put_portion(out, 0, call + 17, sizeof(call) - 1 - 17);
    put_portion(out, 1, answer, i == 2 ? 12 : sizeof(answer) - 1);
    if (i == 3)
        put_portion(out, 2, answer, 30);
    put_portion(out, 0, rest, sizeof(rest) - 1);
    return true;
}
