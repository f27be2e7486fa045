/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC's side of the frame checker. It notes which calls ended, which windows were granted, and which SETTINGS wait for
 * an answer. It also sends the front's own frames to the client, between two frames of gRPC. Their header fields are
 * literals that do not enter HPACK's table, so gRPC's encoder and the client's decoder stay in step.
 */
#include "base/mem.h"
#include "daemon/front/h2_guard_int.h"
#include <stdio.h>
#include <string.h>

#define INITIAL_WINDOW    4 /* number of the setting */
#define CREDIT            4 /* window updates for each DATA frame; clients send one or two */
#define CREDIT_MAX        100000
#define NO_ERROR          0
#define ENHANCE_YOUR_CALM 11
#define STATUS_200        0x88 /* index in HPACK's static table */
#define SENTENCE_MAX      480
#define ANSWER_MAX        (SENTENCE_MAX + 240)

static bool between_frames(const struct h2_output *o)
{
    return o->n_head == 0 && !o->in_block;
}

/* Sends the front's own bytes to the client, now or after gRPC's present frame. Without memory they are dropped. */
static void say_to_client(struct ngd_h2_guard *g, const uint8_t *bytes, size_t n)
{
    if (between_frames(&g->out) && g->n_late == 0) {
        g->ops->to_client(g->ctx, bytes, n);
        return;
    }
    if (g->n_late + n > g->late_cap) {
        size_t cap = 2 * (g->n_late + n);
        uint8_t *more = ngd_realloc(g->late, cap);

        if (!more)
            return;
        g->late = more;
        g->late_cap = cap;
    }
    memcpy(g->late + g->n_late, bytes, n);
    g->n_late += n;
}

static uint8_t *put_frame_head(uint8_t *to, size_t length, uint8_t type, uint8_t flags, uint32_t id)
{
    h2_put32(to, (uint32_t)length << 8 | type);
    to[4] = flags;
    h2_put32(to + 5, id);
    return to + H2_HEAD;
}

/* Writes a string as in RFC 7541, 5.2: a length with a prefix of seven bits (at most 255 here), and the plain bytes. */
static uint8_t *put_hpack_text(uint8_t *to, const char *text)
{
    size_t n = strlen(text);

    if (n < 127) {
        *to++ = (uint8_t)n;
    } else {
        size_t rest = n - 127;

        *to++ = 127;
        for (; rest >= 128; rest >>= 7)
            *to++ = (uint8_t)(rest | 128);
        *to++ = (uint8_t)rest;
    }
    memcpy(to, text, n);
    return to + n;
}

static uint8_t *put_field(uint8_t *to, const char *name, const char *value)
{
    *to++ = 0; /* a literal with a literal name, not indexed */
    return put_hpack_text(put_hpack_text(to, name), value);
}

void h2_answer_refused(struct ngd_h2_guard *g, const struct ngd_h2_stream *s, int status, const char *sentence)
{
    uint8_t frame[ANSWER_MAX], *block = frame + H2_HEAD, *p = block;
    char number[4];

    snprintf(number, sizeof(number), "%d", status % 100);
    if (!s->answered) {
        *p++ = STATUS_200;
        p = put_field(p, "content-type", "application/grpc");
    }
    p = put_field(p, "grpc-status", number);
    p = put_field(p, "grpc-message", sentence);
    p = put_field(p, "npugraph-reason", status == H2_ABORTED ? "CANCELLED" : "RESOURCE_EXHAUSTED");
    put_frame_head(frame, (size_t)(p - block), H2_HEADERS, H2_END_STREAM | H2_END_HEADERS, s->id);
    p = put_frame_head(p, 4, H2_RST_STREAM, 0, s->id);
    h2_put32(p, NO_ERROR);
    say_to_client(g, frame, (size_t)(p + 4 - frame));
}

void ngd_h2_guard_goodbye(struct ngd_h2_guard *g, bool fault, const char *text)
{
    uint8_t frame[ANSWER_MAX], *p = frame + H2_HEAD;
    int n;

    if (!between_frames(&g->out))
        return;
    h2_put32(p, g->last_id);
    h2_put32(p + 4, fault ? ENHANCE_YOUR_CALM : NO_ERROR);
    n = snprintf((char *)p + 8, SENTENCE_MAX, "npugraphd: %.150s", text);
    put_frame_head(frame, 8 + (size_t)n, H2_GOAWAY, 0, 0);
    g->ops->to_client(g->ctx, frame, H2_HEAD + 8 + (size_t)n);
}

/* ---- what gRPC says --------------------------------------------------------------------------------------------- */

static void forget_id(struct ngd_h2_guard *g, uint32_t id)
{
    struct ngd_h2_stream *s = ngd_h2_streams_find(&g->streams, id);

    if (s)
        h2_forget(g, s);
}

static void grant(struct ngd_h2_guard *g, uint32_t id, uint32_t n, ngd_nsec_t now)
{
    struct ngd_h2_stream *s = ngd_h2_streams_find(&g->streams, id);

    if (id == 0) {
        if (g->window <= 0)
            g->stall_base = now;
        g->window += n;
    } else if (s) {
        s->window += n;
        s->moved = now;
    }
}

static void resize_windows(struct ngd_h2_guard *g, uint32_t size, ngd_nsec_t now)
{
    for (uint32_t i = 0; i < g->streams.cap; i++)
        if (g->streams.table[i].id != 0)
            g->streams.table[i].window += (int64_t)size - g->initial_window;
    g->initial_window = size;
    g->stall_base = now;
}

/* Reads one byte of SETTINGS, or of a window update. */
static void read_value(struct ngd_h2_guard *g, uint8_t byte, ngd_nsec_t now)
{
    struct h2_output *o = &g->out;

    o->value[o->n_value++] = byte;
    if (o->type == H2_WINDOW_UPDATE && o->n_value == 4) {
        grant(g, o->id, h2_get32(o->value) & 0x7fffffff, now);
        o->n_value = 0;
    } else if (o->n_value == 6) {
        if (o->value[0] == 0 && o->value[1] == INITIAL_WINDOW)
            resize_windows(g, h2_get32(o->value + 2), now);
        o->n_value = 0;
    }
}

static void begin_frame(struct ngd_h2_guard *g, ngd_nsec_t now)
{
    struct h2_output *o = &g->out;
    struct ngd_h2_stream *s;

    o->left = h2_get32(o->head) >> 8;
    o->type = o->head[3];
    o->flags = o->head[4];
    o->id = h2_get32(o->head + 5) & 0x7fffffff;
    o->n_value = 0;
    if (o->type == H2_DATA && g->window_credit < CREDIT_MAX)
        g->window_credit += CREDIT;
    if (o->type == H2_HEADERS) {
        o->block_id = o->id;
        o->block_ends = (o->flags & H2_END_STREAM) != 0;
        s = ngd_h2_streams_find(&g->streams, o->id);
        if (s)
            s->answered = true;
    }
    if (o->type == H2_HEADERS || o->type == H2_CONTINUATION)
        o->in_block = !(o->flags & H2_END_HEADERS);
    if (o->type == H2_SETTINGS && !(o->flags & H2_ACK) && g->unacked++ == 0)
        g->ack_due = now + NGD_H2_ACK_TIME;
}

static void end_output_frame(struct ngd_h2_guard *g)
{
    struct h2_output *o = &g->out;

    o->n_head = 0;
    if ((o->type == H2_HEADERS || o->type == H2_CONTINUATION) && !o->in_block && o->block_ends)
        forget_id(g, o->block_id);
    else if (o->type == H2_RST_STREAM || (o->type == H2_DATA && (o->flags & H2_END_STREAM)))
        forget_id(g, o->id);
}

/* Sends what waited for the end of gRPC's frame. Frees its memory, which an idle connection should not hold. */
static void send_late(struct ngd_h2_guard *g)
{
    g->ops->to_client(g->ctx, g->late, g->n_late);
    ngd_free(g->late);
    g->late = NULL;
    g->n_late = g->late_cap = 0;
}

size_t ngd_h2_guard_late(const struct ngd_h2_guard *g)
{
    return g->n_late;
}

size_t ngd_h2_guard_payload(const struct ngd_h2_guard *g)
{
    return g->out.n_head == H2_HEAD && g->out.type == H2_DATA ? g->out.left : 0;
}

void ngd_h2_guard_moved(struct ngd_h2_guard *g, size_t n)
{
    g->out.left -= (uint32_t)n;
    if (g->out.left > 0)
        return;
    end_output_frame(g);
    if (g->n_late > 0)
        send_late(g);
}

void ngd_h2_guard_output(struct ngd_h2_guard *g, const uint8_t *bytes, size_t n, ngd_nsec_t now)
{
    struct h2_output *o = &g->out;
    const uint8_t *seg = bytes, *p = bytes, *end = bytes + n;

    while (p < end) {
        if (o->n_head < H2_HEAD) {
            o->head[o->n_head++] = *p++;
            if (o->n_head < H2_HEAD)
                continue;
            begin_frame(g, now);
        } else if (o->type == H2_WINDOW_UPDATE || (o->type == H2_SETTINGS && !(o->flags & H2_ACK))) {
            read_value(g, *p++, now);
            o->left--;
        } else {
            size_t take = (size_t)(end - p) < o->left ? (size_t)(end - p) : o->left;

            p += take;
            o->left -= (uint32_t)take;
        }
        if (o->left > 0)
            continue;
        end_output_frame(g);
        if (g->n_late > 0 && between_frames(o)) {
            g->ops->to_client(g->ctx, seg, (size_t)(p - seg));
            send_late(g);
            seg = p;
        }
    }
    if (p > seg)
        g->ops->to_client(g->ctx, seg, (size_t)(p - seg));
}
