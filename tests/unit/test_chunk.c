/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the messages of a download: in each form and in pieces of each size they give what unpacking them gives. */
#include "client/lib/chunk.h"
#include "client/lib/message.h"
#include "proto/npugraph.pb-c.h"
#include "tests/unit/unit.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <stdio.h>
#include <string.h>

#define ROOM  300
#define GUARD 0x5a

/* The bytes as a message in pieces: the first has `cut` bytes, the others `each`. */
static grpc_byte_buffer *in_pieces(const uint8_t *data, size_t n, size_t cut, size_t each)
{
    static grpc_slice slices[2 * ROOM];
    grpc_byte_buffer *buffer;
    size_t count = 0, take;

    for (size_t at = 0; at < n; at += take) {
        take = at == 0 && cut != 0 ? cut : each;
        take = n - at < take ? n - at : take;
        slices[count++] = grpc_slice_from_copied_buffer((const char *)data + at, take);
    }
    buffer = grpc_raw_byte_buffer_create(slices, count);
    for (size_t i = 0; i < count; i++)
        grpc_slice_unref(slices[i]);
    return buffer;
}

/* What protobuf-c says of the message: whether it is the next part of the download, and its data. */
static bool expected(const uint8_t *data, size_t n, const struct npugraph__download *d, uint8_t *to, size_t *n_p)
{
    Npugraph__V1__ReadResponse *r = npugraph__v1__read_response__unpack(NULL, n, data);
    bool good = r != NULL && r->offset == d->offset + d->got && r->data.len <= d->bytes - d->got;

    *n_p = good ? r->data.len : 0;
    if (*n_p != 0)
        memcpy(to, r->data.data, *n_p);
    if (r != NULL)
        npugraph__v1__read_response__free_unpacked(r, NULL);
    return good;
}

static void check_one(const uint8_t *data, size_t n, size_t cut, size_t each, uint64_t offset, uint64_t asked)
{
    uint8_t want[ROOM], got[ROOM + 16];
    struct npugraph__copier copier = {0};
    struct npugraph__download d = {.offset = offset, .bytes = asked, .to = (char *)got, .copier = &copier};
    grpc_byte_buffer *raw = in_pieces(data, n, cut, each);
    struct npugraph_error err = {0};
    size_t n_want;
    const bool good = expected(data, n, &d, want, &n_want);

    memset(got, GUARD, sizeof(got));
    ck_assert_msg((npugraph__chunk_take(raw, &d, &err) == 0) == good, "%zu bytes, cut %zu: %s", n, cut, err.message);
    ck_assert_uint_eq(d.got, n_want);
    ck_assert_mem_eq(got, want, n_want);
    for (size_t i = n_want; i < sizeof(got); i++)
        ck_assert_int_eq(got[i], GUARD);
    ck_assert(npugraph__copier_stop(&copier));
}

static void check_pieces(const uint8_t *data, size_t n, uint64_t offset, uint64_t asked)
{
    for (size_t cut = 0; cut <= n; cut++)
        check_one(data, n, cut, ROOM, offset, asked);
    for (size_t each = 1; each < 30; each++)
        check_one(data, n, 0, each, offset, asked);
}

static size_t pack(uint8_t *to, uint64_t offset, uint8_t *data, size_t n)
{
    Npugraph__V1__ReadResponse r = NPUGRAPH__V1__READ_RESPONSE__INIT;

    r.offset = offset;
    r.data.len = n;
    r.data.data = data;
    return npugraph__v1__read_response__pack(&r, to);
}

static const uint64_t offsets[] = {0, 1, 127, 128, (uint64_t)1 << 40, UINT64_MAX};
static const size_t sizes[] = {0, 1, 2, 127, 128, 200};

START_TEST(test_pieces_of_each_size_give_the_data)
{
    uint8_t data[ROOM], message[2 * ROOM];

    for (int i = 0; i < ROOM; i++)
        data[i] = (uint8_t)(i * 7 + 1);
    for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            const size_t n = pack(message, offsets[o], data, sizes[s]);

            check_pieces(message, n, offsets[o], sizes[s]);
            check_pieces(message, n, offsets[o], sizes[s] + 1);
            check_pieces(message, n, offsets[o], sizes[s] / 2); /* more than was asked for */
            check_pieces(message, n, offsets[o] + 1, sizes[s]);
        }
    }
}
END_TEST

START_TEST(test_other_encodings_of_a_message_give_what_protobuf_gives)
{
    static const char *const forms[] = {
        "\x12\x03"
        "abc"
        "\x08\x07", /* the data first */
        "\x08\x09\x08\x07\x12\x03"
        "abc", /* a field twice */
        "\x08\x07\x12\x01"
        "x"
        "\x12\x03"
        "abc",
        "\x08\x87\x80\x80\x00\x12\x83\x80\x00"
        "abc", /* longer varints than are needed */
        "\x18\x05\x08\x07\x12\x03"
        "abc", /* a field that is not known */
        "\x08\x07\x12\x03"
        "abc"
        "\x1a\x02"
        "xy",
    };
    static const size_t lengths[] = {7, 9, 10, 12, 9, 11};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        check_pieces((const uint8_t *)forms[i], lengths[i], 7, 3);
}
END_TEST

START_TEST(test_torn_and_changed_messages_give_what_protobuf_gives)
{
    uint8_t data[8] = "abcdefgh", message[64];
    const size_t n = pack(message, 300, data, sizeof(data));

    for (size_t cut = 0; cut < n; cut++)
        check_pieces(message, cut, 300, sizeof(data));
    for (size_t at = 0; at < n; at++) {
        const uint8_t was = message[at];

        for (int v = 0; v < 256; v++) {
            message[at] = (uint8_t)v;
            check_one(message, n, 0, ROOM, 300, sizeof(data));
            check_one(message, n, 0, 1, 300, sizeof(data));
        }
        message[at] = was;
    }
}
END_TEST

START_TEST(test_a_thread_copies_more_messages_than_its_queue_holds)
{
    enum { MESSAGES = 10 * NPUGRAPH__COPIER_ROOM, EACH = 200 };
    uint8_t data[MESSAGES * EACH], got[sizeof(data)], message[2 * ROOM];
    struct npugraph__copier copier;
    struct npugraph__download d = {.bytes = sizeof(data), .to = (char *)got, .copier = &copier};
    struct npugraph_error err = {0};

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    npugraph__copier_start(&copier);
    ck_assert(copier.runs);
    for (size_t i = 0; i < MESSAGES; i++) {
        const size_t n = pack(message, i * EACH, data + i * EACH, EACH);

        ck_assert_int_eq(npugraph__chunk_take(in_pieces(message, n, 0, 30), &d, &err), 0);
    }
    ck_assert_int_ne(npugraph__chunk_take(in_pieces(message, 9, 0, 30), &d, &err), 0); /* torn: nothing is queued */
    ck_assert_uint_eq(d.got, sizeof(data));
    ck_assert(npugraph__copier_stop(&copier));
    ck_assert_mem_eq(got, data, sizeof(data));
}
END_TEST

UNIT_MAIN("client/chunk", test_a_thread_copies_more_messages_than_its_queue_holds,
          test_pieces_of_each_size_give_the_data, test_other_encodings_of_a_message_give_what_protobuf_gives,
          test_torn_and_changed_messages_give_what_protobuf_gives)
