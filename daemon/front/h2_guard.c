/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of the frame checker; gRPC's side is h2_output.c.
 *
 * A portion is walked frame by frame. Its part [seg, clear) may go to gRPC and has not gone yet. The bytes between
 * clear and the present position are kept back: they belong to a frame, or to a header block, that is not complete. At
 * the end of the portion, the first part is sent and the second is copied to `held`, which is sent before the next
 * segment. A DATA frame is clear as soon as its head is known, so payloads are never copied.
 */
#include "daemon/front/h2_guard_int.h"

#include "base/mem.h"
#include <stdio.h>
#include <string.h>

#define WINDOW         65535 /* window of a stream and of the connection, until SETTINGS change it */
#define LONG_FRAME     NGD_SEC
#define RST_BYTES      13
#define CANCEL         8
#define STREAMS_UNSEEN 100 /* streams that a client may open before it has seen SETTINGS */
#define SHARED         8   /* connections of one identity that may be busy at once without slowing each other */

enum { WHOLE_PING = 8, WHOLE_RESET = 4, WHOLE_WINDOW = 4, WHOLE_PRIORITY = 5, LEAST_GOAWAY = 8, ONE_SETTING = 6 };

/* Frames per second, and frames at once, before a connection has to wait. All connections of an identity together may
 * have SHARED times as many. */
static const struct {
    int64_t rate, burst;
} buckets[NGD_H2_BUCKETS] = {
    [H2_BUCKET_RESET] = {1000, 2000},   /* calls that the client cancels, or that are refused */
    [H2_BUCKET_STRAY] = {20000, 50000}, /* resets of calls that have ended or never existed: they cost very little */
    [H2_BUCKET_BARE] = {1000, 2000},    /* calls without a message */
    [H2_BUCKET_PING] = {1000, 2000},    [H2_BUCKET_SETTINGS] = {100, 500}, [H2_BUCKET_PRIORITY] = {100, 1000},
    [H2_BUCKET_EMPTY] = {100, 1000},    [H2_BUCKET_WINDOW] = {1000, 2000}, [H2_BUCKET_OTHER] = {100, 1000},
};

static const struct {
    const char *name, *text;
} reasons[] = {
#define NGD_H2_REASON(ID, name, text) {name, text},
#include "daemon/front/h2_reasons.def"
#undef NGD_H2_REASON
};

const char *ngd_h2_reason_name(ngd_h2_reason_t reason)
{
    return reasons[reason].name;
}
const char *ngd_h2_reason_text(ngd_h2_reason_t reason)
{
    return reasons[reason].text;
}

/* Position in the portion that is being checked. */
struct walk {
    const uint8_t *seg, *clear, *at, *end;
    ngd_nsec_t now;
    struct ngd_h2_result result;
};

static bool end_connection(struct walk *w, ngd_h2_reason_t reason)
{
    w->result.verdict = NGD_H2_CLOSE;
    w->result.reason = reason;
    return false;
}

/* ---- what goes out, and what is kept back -------------------------------------------------------------------- */

static void flush(struct ngd_h2_guard *g, struct walk *w)
{
    if (g->n_held > 0 && w->clear > w->seg) {
        g->ops->to_server(g->ctx, g->held, g->n_held);
        g->n_held = 0;
    }
    if (w->clear > w->seg)
        g->ops->to_server(g->ctx, w->seg, (size_t)(w->clear - w->seg));
    w->seg = w->clear;
}

/* Keeps bytes back. Their number is bounded by the checks of frames' heads. */
static bool hold_back(struct ngd_h2_guard *g, const uint8_t *bytes, size_t n)
{
    if (g->n_held + n > g->held_cap) {
        size_t cap = g->n_held + n < 64 ? 64 : 2 * (g->n_held + n);
        uint8_t *more = ngd_realloc(g->held, cap);

        if (!more)
            return false;
        g->held = more;
        g->held_cap = cap;
    }
    memcpy(g->held + g->n_held, bytes, n);
    g->n_held += n;
    return true;
}

/* Frees the memory of kept bytes: few frames arrive in parts, and idle connections should not hold it. */
static void drop_held(struct ngd_h2_guard *g)
{
    if (g->n_held > 0 || g->held_cap <= 64)
        return;
    ngd_free(g->held);
    g->held = NULL;
    g->held_cap = 0;
}

/* ---- buckets --------------------------------------------------------------------------------------------------- */

/*
 * Counts an event: it advances the bucket's time, and a time too far ahead of the clock causes a pause. A pause has a
 * minimum length: its end costs a wakeup and a write to gRPC, so it should admit many frames.
 */
static void fill_bucket(ngd_nsec_t *t, ngd_nsec_t each, ngd_nsec_t ahead, struct walk *w)
{
    ngd_nsec_t until, soonest = w->now + NGD_H2_PAUSE_TIME;

    *t = (*t > w->now ? *t : w->now) + each;
    if (*t - w->now <= ahead || w->result.verdict == NGD_H2_CLOSE)
        return;
    w->result.verdict = NGD_H2_PAUSE;
    until = *t - ahead > soonest ? *t - ahead : soonest;
    if (until > w->result.until)
        w->result.until = until;
}

/* Counts a frame in its bucket. One frame may be counted in two. */
static void count_frame(struct ngd_h2_guard *g, h2_bucket_t which, struct walk *w)
{
    ngd_nsec_t each = NGD_SEC / buckets[which].rate, ahead = each * buckets[which].burst;

    fill_bucket(&g->buckets[which], each, ahead, w);
    fill_bucket(&g->ops->shared_buckets(g->ctx)[which], each / SHARED, ahead, w);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

static void finish_message(struct ngd_h2_guard *g, struct ngd_h2_stream *s)
{
    s->prefix_have = 0;
    s->left = 0;
    if (s->charged)
        g->ops->give_bytes(g->ctx, s->charged);
    s->charged = 0;
    g->unfinished -= s->unfinished;
    s->unfinished = false;
}

void h2_forget(struct ngd_h2_guard *g, struct ngd_h2_stream *s)
{
    finish_message(g, s);
    if (s->taken)
        g->ops->give_stream(g->ctx);
    ngd_h2_streams_remove(&g->streams, s);
}

/*
 * Ends a call, between two frames to gRPC. gRPC is told that the client cancelled it, and the client is told why. gRPC
 * still has work with the call, which is charged to nobody any more, so a refusal counts as a reset by the client.
 */
static void refuse_now(struct ngd_h2_guard *g, struct ngd_h2_stream *s, int status, const char *sentence,
                       struct walk *w)
{
    uint8_t reset[RST_BYTES] = {0, 0, 4, H2_RST_STREAM, 0};

    count_frame(g, H2_BUCKET_RESET, w);
    h2_put32(reset + 5, s->id);
    h2_put32(reset + 9, CANCEL);
    g->ops->refused(g->ctx, sentence);
    g->ops->to_server(g->ctx, reset, sizeof(reset));
    h2_answer_refused(g, s, status, sentence);
    h2_forget(g, s);
}

static void refuse_later(struct ngd_h2_guard *g, int status, const char *sentence)
{
    if (g->refusal)
        return;
    g->refusal = sentence;
    g->refusal_status = status;
}

/* Refuses the frame's stream at the end of the frame, if it is to be refused. */
static void settle_refusal(struct ngd_h2_guard *g, struct walk *w)
{
    struct ngd_h2_stream *s = g->refusal ? ngd_h2_streams_find(&g->streams, g->id) : NULL;

    if (s) {
        flush(g, w);
        refuse_now(g, s, g->refusal_status, g->refusal, w);
    }
    g->refusal = NULL;
}

/* ---- heads of frames --------------------------------------------------------------------------------------------- */

static bool check_block(struct ngd_h2_guard *g, struct walk *w)
{
    g->block_bytes += H2_HEAD + g->length;
    if (g->block_bytes > NGD_H2_BLOCK_MAX)
        return end_connection(w, NGD_H2_WHY_HEADER_BLOCK);
    if (++g->block_parts > NGD_H2_BLOCK_PARTS)
        return end_connection(w, NGD_H2_WHY_CONTINUATION);
    g->in_block = !(g->flags & H2_END_HEADERS);
    return true;
}

/* Returns the limit of streams. A client that has not seen the server's SETTINGS may use the least that RFC 9113
 * recommends (6.5.2). */
static uint32_t most_streams(const struct ngd_h2_guard *g)
{
    return g->acked || g->max_streams > STREAMS_UNSEEN ? g->max_streams : STREAMS_UNSEEN;
}

static bool check_headers(struct ngd_h2_guard *g, struct walk *w)
{
    if (g->id % 2 == 0)
        return end_connection(w, NGD_H2_WHY_STREAM_ID);
    g->block_bytes = 0;
    g->block_parts = 0;
    g->block_ends = (g->flags & H2_END_STREAM) != 0;
    g->block_opens = g->id > g->last_id;
    if (g->block_opens && g->streams.count >= most_streams(g))
        return end_connection(w, NGD_H2_WHY_STREAMS);
    return check_block(g, w);
}

static bool check_data_head(struct ngd_h2_guard *g, struct walk *w)
{
    struct ngd_h2_stream *s;

    if (g->id % 2 == 0 || g->id > g->last_id)
        return end_connection(w, NGD_H2_WHY_STREAM_ID);
    if ((g->flags & H2_PADDED) && g->length == 0)
        return end_connection(w, NGD_H2_WHY_FRAME_SIZE);
    g->pad_next = (g->flags & H2_PADDED) != 0;
    g->content = g->length; /* without the padding, once its length is known */
    g->window -= g->length;
    g->data_began = w->now;
    s = ngd_h2_streams_find(&g->streams, g->id);
    if (!s)
        return true;
    s->window -= g->length;
    s->moved = w->now;
    g->frame_cost = true;
    return true;
}

static bool check_control_size(struct ngd_h2_guard *g, struct walk *w)
{
    bool good = true;

    switch (g->type) {
    case H2_PRIORITY:
        good = g->length == WHOLE_PRIORITY;
        break;
    case H2_RST_STREAM:
        good = g->length == WHOLE_RESET;
        break;
    case H2_SETTINGS:
        good = g->flags & H2_ACK ? g->length == 0 : g->length % ONE_SETTING == 0;
        break;
    case H2_PING:
        good = g->length == WHOLE_PING;
        break;
    case H2_GOAWAY:
        good = g->length >= LEAST_GOAWAY;
        break;
    case H2_WINDOW_UPDATE:
        good = g->length == WHOLE_WINDOW;
        break;
    default:
        break;
    }
    return (good && g->length <= NGD_H2_CONTROL_MAX) || end_connection(w, NGD_H2_WHY_FRAME_SIZE);
}

static bool check_number(struct ngd_h2_guard *g, struct walk *w)
{
    bool of_connection = g->type == H2_SETTINGS || g->type == H2_PING || g->type == H2_GOAWAY;

    if (g->type == H2_PUSH_PROMISE || (of_connection && g->id != 0))
        return end_connection(w, NGD_H2_WHY_FRAME);
    /* A gRPC client that cancels a call before its headers are sent resets a stream that it never opened. RFC 9113
     * forbids that (5.1), and gRPC ignores it. */
    if ((g->type == H2_RST_STREAM && g->id % 2 == 0) ||
        (g->type == H2_WINDOW_UPDATE && g->id != 0 && (g->id % 2 == 0 || g->id > g->last_id)))
        return end_connection(w, NGD_H2_WHY_STREAM_ID);
    return true;
}

/* Checks a complete head. */
static bool check_frame_head(struct ngd_h2_guard *g, struct walk *w)
{
    g->length = (uint32_t)g->head[0] << 16 | (uint32_t)g->head[1] << 8 | g->head[2];
    g->type = g->head[3];
    g->flags = g->head[4];
    g->id = h2_get32(g->head + 5) & 0x7fffffff;
    g->left = g->length;
    if (!g->begun && (g->type != H2_SETTINGS || (g->flags & H2_ACK)))
        return end_connection(w, NGD_H2_WHY_FIRST_FRAME);
    if (g->in_block)
        return g->type == H2_CONTINUATION && g->id == g->block_id ? check_block(g, w)
                                                                  : end_connection(w, NGD_H2_WHY_CONTINUATION);
    if (g->type == H2_CONTINUATION)
        return end_connection(w, NGD_H2_WHY_CONTINUATION);
    if (g->type == H2_DATA)
        return check_data_head(g, w);
    if (g->type == H2_HEADERS) {
        g->block_id = g->id;
        return check_headers(g, w);
    }
    return check_control_size(g, w) && check_number(g, w);
}

/* ---- messages ------------------------------------------------------------------------------------------------------
 */

/* Charges bytes that stay with gRPC because the portion does not finish their message. */
static void leave_unfinished(struct ngd_h2_guard *g, struct ngd_h2_stream *s, size_t n)
{
    uint64_t cost = n + (g->frame_cost ? NGD_H2_FRAME_COST : 0);

    g->frame_cost = false;
    g->unfinished += !s->unfinished;
    s->unfinished = true;
    if (g->ops->take_bytes(g->ctx, cost))
        s->charged += cost;
    else
        refuse_later(g, H2_RESOURCE_EXHAUSTED,
                     "too many bytes of messages that are not whole yet are held for this identity; send fewer large "
                     "messages at a time, or raise max-unfinished-bytes-per-identity");
}

static void read_messages(struct ngd_h2_guard *g, struct ngd_h2_stream *s, const uint8_t *bytes, size_t n)
{
    while (n > 0 && !g->refusal) {
        size_t take;

        if (s->prefix_have < sizeof(s->prefix)) {
            s->prefix[s->prefix_have++] = *bytes++;
            n--;
            if (s->prefix_have == sizeof(s->prefix)) {
                s->left = h2_get32(s->prefix + 1);
                if (s->left > g->max_message)
                    refuse_later(g, H2_RESOURCE_EXHAUSTED,
                                 "the message is larger than max-message; larger tensors go through buffers, with "
                                 "Memory.Write");
                else if (s->left == 0)
                    finish_message(g, s);
            }
            if (n == 0 && s->prefix_have > 0)
                leave_unfinished(g, s, 0);
            continue;
        }
        take = n < s->left ? n : (size_t)s->left;
        s->left -= take;
        bytes += take;
        n -= take;
        if (s->left == 0)
            finish_message(g, s);
        else
            leave_unfinished(g, s, take);
    }
}

/* Reads a portion of a DATA frame's payload: the length of the padding, messages, padding. */
static bool read_data(struct ngd_h2_guard *g, const uint8_t *bytes, size_t n, struct walk *w)
{
    struct ngd_h2_stream *s;
    size_t content;

    g->data_moved = w->now;
    if (g->pad_next && n > 0) {
        if ((uint32_t)bytes[0] + 1 > g->length)
            return end_connection(w, NGD_H2_WHY_FRAME_SIZE);
        g->pad = bytes[0];
        g->content = g->length - 1 - g->pad;
        g->pad_next = false;
        bytes++;
        n--;
    }
    content = n < g->content ? n : g->content;
    g->content -= (uint32_t)content;
    s = ngd_h2_streams_find(&g->streams, g->id);
    if (s && content > 0) {
        s->moved = w->now;
        read_messages(g, s, bytes, content);
    }
    return true;
}

/* ---- ends of frames ------------------------------------------------------------------------------------------------
 */

static void half_close(struct ngd_h2_guard *g, uint32_t id)
{
    struct ngd_h2_stream *s = ngd_h2_streams_find(&g->streams, id);

    if (!s)
        return;
    finish_message(g, s);
    s->half_closed = true;
}

static void end_data(struct ngd_h2_guard *g, struct walk *w)
{
    if (w->now - g->data_began > LONG_FRAME)
        g->stall_base = w->now; /* other streams had to wait for it */
    if (g->length == (g->flags & H2_PADDED ? 1u + g->pad : 0u) && !(g->flags & H2_END_STREAM))
        count_frame(g, H2_BUCKET_EMPTY, w);
    if (g->flags & H2_END_STREAM)
        half_close(g, g->id);
    settle_refusal(g, w);
}

/* Opens the stream of a complete header block. */
static bool end_block(struct ngd_h2_guard *g, struct walk *w)
{
    struct ngd_h2_stream *s;

    g->id = g->block_id;
    if (!g->block_opens) {
        count_frame(g, H2_BUCKET_OTHER, w);
        if (g->block_ends)
            half_close(g, g->id);
        return true;
    }
    g->last_id = g->id;
    s = ngd_h2_streams_add(&g->streams, g->id);
    if (!s)
        return end_connection(w, NGD_H2_WHY_MEMORY);
    s->window = g->initial_window;
    s->moved = w->now;
    s->half_closed = g->block_ends;
    if (g->block_ends)
        count_frame(g, H2_BUCKET_BARE, w);
    s->taken = g->ops->take_stream(g->ctx);
    if (!s->taken) {
        flush(g, w);
        refuse_now(g, s, H2_RESOURCE_EXHAUSTED,
                   "too many calls are under way for this identity (max-calls-per-identity); try again later", w);
    }
    return true;
}

static void end_control(struct ngd_h2_guard *g, struct walk *w)
{
    struct ngd_h2_stream *s;

    switch (g->type) {
    case H2_RST_STREAM:
        s = ngd_h2_streams_find(&g->streams, g->id);
        count_frame(g, s ? H2_BUCKET_RESET : H2_BUCKET_STRAY, w);
        if (s)
            h2_forget(g, s);
        break;
    case H2_SETTINGS:
        g->begun = true;
        if ((g->flags & H2_ACK) && g->unacked > 0) {
            g->unacked--;
            g->acked = true;
            g->ack_due = w->now + NGD_H2_ACK_TIME;
        } else {
            count_frame(g, H2_BUCKET_SETTINGS, w);
        }
        break;
    case H2_PING:
        count_frame(g, H2_BUCKET_PING, w);
        break;
    case H2_PRIORITY:
        count_frame(g, H2_BUCKET_PRIORITY, w);
        break;
    case H2_WINDOW_UPDATE:
        if (g->window_credit > 0)
            g->window_credit--;
        else
            count_frame(g, H2_BUCKET_WINDOW, w);
        break;
    default:
        count_frame(g, H2_BUCKET_OTHER, w);
        break;
    }
}

static bool end_input_frame(struct ngd_h2_guard *g, struct walk *w)
{
    g->n_head = 0;
    g->in_body = false;
    if (g->in_block)
        return true; /* the block is kept back */
    w->clear = w->at;
    if (g->type == H2_DATA)
        end_data(g, w);
    else if (g->type == H2_HEADERS || g->type == H2_CONTINUATION)
        return end_block(g, w);
    else
        end_control(g, w);
    return true;
}

/* ---- a portion
 * ------------------------------------------------------------------------------------------------------- */

static bool read_preface(struct ngd_h2_guard *g, struct walk *w)
{
    while (g->preface < NGD_H2_PREFACE_LEN && w->at < w->end)
        if (*w->at++ != (uint8_t)NGD_H2_PREFACE[g->preface++])
            return end_connection(w, NGD_H2_WHY_PREFACE);
    return true;
}

static bool read_frame_head(struct ngd_h2_guard *g, struct walk *w)
{
    while (g->n_head < H2_HEAD && w->at < w->end)
        g->head[g->n_head++] = *w->at++;
    if (g->n_head < H2_HEAD)
        return true;
    if (!check_frame_head(g, w))
        return false;
    g->in_body = true;
    if (g->type == H2_DATA)
        w->clear = w->at;
    return true;
}

static bool read_body(struct ngd_h2_guard *g, struct walk *w)
{
    size_t n = (size_t)(w->end - w->at) < g->left ? (size_t)(w->end - w->at) : g->left;

    if (g->type == H2_DATA && !read_data(g, w->at, n, w))
        return false;
    w->at += n;
    g->left -= (uint32_t)n;
    if (g->type == H2_DATA)
        w->clear = w->at;
    return true;
}

static void note_begun_frame(struct ngd_h2_guard *g, const struct walk *w)
{
    bool open = g->in_block || (g->n_head > 0 && !(g->in_body && g->type == H2_DATA));

    if (!open)
        g->frame_began = NGD_NSEC_NEVER;
    else if (g->frame_began == NGD_NSEC_NEVER)
        g->frame_began = w->now;
}

struct ngd_h2_result ngd_h2_guard_input(struct ngd_h2_guard *g, const uint8_t *bytes, size_t n, ngd_nsec_t now)
{
    struct walk w = {.seg = bytes, .clear = bytes, .at = bytes, .end = bytes + n, .now = now};
    bool good = read_preface(g, &w);

    while (good && w.result.verdict == NGD_H2_GO_ON && (w.at < w.end || (g->in_body && g->left == 0))) {
        if (!g->in_body)
            good = read_frame_head(g, &w);
        else if (g->left > 0)
            good = read_body(g, &w);
        else
            good = end_input_frame(g, &w);
    }
    if (good) {
        flush(g, &w);
        if (w.at > w.clear && !hold_back(g, w.clear, (size_t)(w.at - w.clear)))
            end_connection(&w, NGD_H2_WHY_MEMORY);
        drop_held(g);
        note_begun_frame(g, &w);
    }
    w.result.used = (size_t)(w.at - bytes);
    return w.result;
}

/* ---- time ---------------------------------------------------------------------------------------------------------
 */

bool ngd_h2_guard_timed(const struct ngd_h2_guard *g)
{
    return g->frame_began != NGD_NSEC_NEVER || g->unacked > 0 || g->unfinished > 0 || (g->in_body && g->left > 0);
}

void ngd_h2_guard_resume(struct ngd_h2_guard *g, ngd_nsec_t now)
{
    g->stall_base = now;
    g->data_moved = now;
    if (g->frame_began != NGD_NSEC_NEVER)
        g->frame_began = now;
    if (g->unacked > 0)
        g->ack_due = now + NGD_H2_ACK_TIME;
}

/* Returns the first stream that may continue and does not. */
static struct ngd_h2_stream *find_stalled(struct ngd_h2_guard *g, ngd_nsec_t now)
{
    for (uint32_t i = 0; i < g->streams.cap && g->unfinished > 0; i++) {
        struct ngd_h2_stream *s = &g->streams.table[i];
        ngd_nsec_t since = s->moved > g->stall_base ? s->moved : g->stall_base;

        if (s->id != 0 && s->unfinished && s->window > 0 && now - since >= NGD_H2_MESSAGE_TIME)
            return s;
    }
    return NULL;
}

struct ngd_h2_result ngd_h2_guard_tick(struct ngd_h2_guard *g, ngd_nsec_t now)
{
    bool in_data = g->in_body && g->type == H2_DATA && g->left > 0;
    struct walk w = {.now = now};
    struct ngd_h2_stream *s;

    if (g->frame_began != NGD_NSEC_NEVER && now - g->frame_began >= NGD_H2_FRAME_TIME)
        end_connection(&w, NGD_H2_WHY_SLOW_FRAME);
    else if (in_data && now - g->data_moved >= NGD_H2_MESSAGE_TIME)
        end_connection(&w, NGD_H2_WHY_SLOW_FRAME);
    else if (g->unacked > 0 && now >= g->ack_due)
        end_connection(&w, NGD_H2_WHY_SETTINGS_ACK);
    while (!in_data && w.result.verdict != NGD_H2_CLOSE && g->window > 0 && (s = find_stalled(g, now)))
        refuse_now(g, s, H2_ABORTED, "the message was begun and did not go on for 30 s", &w);
    /* A full bucket delays what the client sends next, not the calls that are late. */
    if (w.result.verdict == NGD_H2_PAUSE)
        w.result.verdict = NGD_H2_GO_ON;
    return w.result;
}

/* ---- life ---------------------------------------------------------------------------------------------------------
 */

struct ngd_h2_guard *ngd_h2_guard_create(const struct ngd_h2_params *params)
{
    struct ngd_h2_guard *g = NGD_NEW(struct ngd_h2_guard);

    if (!g)
        return NULL;
    g->ops = params->ops;
    g->ctx = params->ctx;
    g->max_streams = params->max_streams;
    g->max_message = params->max_message;
    g->window = g->initial_window = WINDOW;
    g->frame_began = NGD_NSEC_NEVER;
    return g;
}

void ngd_h2_guard_destroy(struct ngd_h2_guard *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->streams.cap; i++) {
        struct ngd_h2_stream *s = &g->streams.table[i];

        if (s->id == 0)
            continue;
        finish_message(g, s);
        if (s->taken)
            g->ops->give_stream(g->ctx);
    }
    ngd_h2_streams_fini(&g->streams);
    ngd_free(g->held);
    ngd_free(g->late);
    ngd_free(g);
}

bool ngd_h2_guard_begun(const struct ngd_h2_guard *g)
{
    return g->begun;
}
uint32_t ngd_h2_guard_streams(const struct ngd_h2_guard *g)
{
    return g->streams.count;
}
