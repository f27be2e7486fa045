/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/chunk.h"
#include "client/lib/channel.h"
#include "client/lib/error.h"
#include "client/lib/message.h"
#include "proto/npugraph.pb-c.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <string.h>

#define FIELD_OFFSET 0x08u /* tags of a ReadResponse */
#define FIELD_DATA   0x12u
#define HEAD_BYTES   24 /* both tags, and two numbers */

static int check_chunk(const struct npugraph__download *d, uint64_t offset, uint64_t n, struct npugraph_error *err)
{
    if (offset == d->offset + d->got && n <= d->bytes - d->got)
        return 0;
    return npugraph__error(err, 13, "", "the daemon sent bytes that were not asked for");
}

/*
 * Reads the head of a ReadResponse whose last field is `data`, as the daemon writes it. Returns its length, 0: the
 * message is written in another way, or is not valid.
 */
static size_t read_head(const uint8_t *head, size_t n, size_t total, uint64_t *offset_p)
{
    uint64_t fields[3] = {0};
    size_t at = 0;

    while (at < n) {
        const unsigned tag = head[at++];
        uint64_t v = 0;
        unsigned shift = 0;

        do {
            if (at == n || shift > 56)
                return 0;
            v |= (uint64_t)(head[at] & 0x7f) << shift;
            shift += 7;
        } while (head[at++] & 0x80);
        if (tag != FIELD_OFFSET && tag != FIELD_DATA)
            return 0;
        fields[tag >> 3] = v;
        if (tag == FIELD_DATA)
            break;
    }
    *offset_p = fields[1];
    return at < total && fields[2] == total - at ? at : 0;
}

static size_t first_bytes(grpc_byte_buffer_reader *reader, uint8_t *to, size_t room)
{
    grpc_slice *piece;
    size_t n = 0;

    while (n < room && grpc_byte_buffer_reader_peek(reader, &piece) != 0) {
        const size_t k = GRPC_SLICE_LENGTH(*piece) < room - n ? GRPC_SLICE_LENGTH(*piece) : room - n;

        memcpy(to + n, GRPC_SLICE_START_PTR(*piece), k);
        n += k;
    }
    return n;
}

static int take_unpacked(struct grpc_byte_buffer *raw, struct npugraph__download *d, struct npugraph_error *err)
{
    const Npugraph__V1__ReadResponse *r;
    ProtobufCMessage *m = NULL;
    int rc = npugraph__unpack(raw, &npugraph__v1__read_response__descriptor, &m, err);

    if (rc != 0)
        return rc;
    r = (const Npugraph__V1__ReadResponse *)m;
    rc = check_chunk(d, r->offset, r->data.len, err);
    if (rc == 0 && r->data.len != 0)
        memcpy(d->to + d->got, r->data.data, r->data.len);
    d->got += rc == 0 ? r->data.len : 0;
    protobuf_c_message_free_unpacked(m, NULL);
    return rc;
}

int npugraph__chunk_take(struct grpc_byte_buffer *raw, struct npugraph__download *d, struct npugraph_error *err)
{
    struct npugraph__copy copy = {.message = raw, .to = d->to + d->got};
    grpc_byte_buffer_reader reader;
    uint8_t head[HEAD_BYTES];
    uint64_t offset = 0;
    size_t total;
    int rc;

    if (!grpc_byte_buffer_reader_init(&reader, raw)) {
        grpc_byte_buffer_destroy(raw);
        return npugraph__error(err, 13, "MALFORMED_MESSAGE", "the daemon's answer could not be decompressed");
    }
    total = grpc_byte_buffer_length(raw);
    copy.skip = read_head(head, first_bytes(&reader, head, sizeof(head)), total, &offset);
    grpc_byte_buffer_reader_destroy(&reader);
    rc = copy.skip == 0 ? take_unpacked(raw, d, err) : check_chunk(d, offset, total - copy.skip, err);
    if (rc != 0 || copy.skip == 0) {
        grpc_byte_buffer_destroy(raw);
        return rc;
    }
    npugraph__copier_put(d->copier, &copy);
    d->got += total - copy.skip;
    return 0;
}

int npugraph__chunk_receive(struct npugraph__stream *st, struct npugraph__download *d, bool *more_p,
                            struct npugraph_error *err)
{
    struct grpc_byte_buffer *raw = NULL;
    int rc = npugraph__stream_recv_raw(st, &raw, err);

    *more_p = raw != NULL;
    return rc == 0 && raw != NULL ? npugraph__chunk_take(raw, d, err) : rc;
}
