/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: registration, capture, replay (single calls and on a stream). */
#include "base/ring.h"
#include "client/lib/client_int.h"
#include "client/lib/ring.h"
#include "client/lib/shared.h"
#include "client/lib/timing.h"
#include "client/lib/trace.h"
#include "proto/npugraph.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(struct npugraph_error *err)
{
    return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

/* Allocates an array of pointers to messages, with the messages in the same block behind it. */
static void *pointer_array(size_t n, size_t element)
{
    char *block = calloc(1, n * (sizeof(void *) + element) + 1);
    void **ptrs = (void **)block;

    for (size_t i = 0; block != NULL && i < n; i++)
        ptrs[i] = block + n * sizeof(void *) + i * element;
    return block;
}

int npugraph_group_create(struct npugraph_client *client, const char *name, const char *const *devices,
                          size_t n_devices, uint64_t *group_p, struct npugraph_error *err)
{
    Npugraph__V1__CreateGroupRequest req = NPUGRAPH__V1__CREATE_GROUP_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.name = (char *)name;
    req.devices = (char **)devices;
    req.n_devices = n_devices;
    npugraph__client_hold(client, false);
    rc = npugraph__unary(client, "/npugraph.v1.Graphs/CreateGroup", &req.base,
                         &npugraph__v1__create_group_response__descriptor, &reply, err);
    if (rc == 0)
        *group_p = ((Npugraph__V1__CreateGroupResponse *)reply)->group;
    npugraph__free_message(reply);
    return rc;
}

int npugraph_group_root(struct npugraph_client *client, const char *device, void *root, size_t room, size_t *n_p,
                        struct npugraph_error *err)
{
    Npugraph__V1__GroupRootRequest req = NPUGRAPH__V1__GROUP_ROOT_REQUEST__INIT;
    const Npugraph__V1__GroupRootResponse *r;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.device = (char *)device;
    rc = npugraph__unary(client, "/npugraph.v1.Graphs/GroupRoot", &req.base,
                         &npugraph__v1__group_root_response__descriptor, &reply, err);
    r = (const void *)reply;
    if (rc == 0 && r->root.len > room) {
        rc = npugraph__error(err, 3, "INVALID_ARGUMENT", "the group's root has %zu bytes, and there is room for %zu",
                             r->root.len, room);
    } else if (rc == 0) {
        memcpy(root, r->root.data, r->root.len);
        *n_p = r->root.len;
    }
    npugraph__free_message(reply);
    return rc;
}

int npugraph_group_join(struct npugraph_client *client, const char *name, const char *const *devices, size_t n_devices,
                        const struct npugraph_span *span, uint64_t *group_p, struct npugraph_error *err)
{
    Npugraph__V1__CreateGroupRequest req = NPUGRAPH__V1__CREATE_GROUP_REQUEST__INIT;
    Npugraph__V1__GroupSpan m = NPUGRAPH__V1__GROUP_SPAN__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.name = (char *)name;
    req.devices = (char **)devices;
    req.n_devices = n_devices;
    req.span = &m;
    req.time_limit_ms = span->time_limit_ms;
    m.ranks = span->ranks;
    m.first_rank = span->first_rank;
    m.root.data = (uint8_t *)(uintptr_t)span->root;
    m.root.len = span->root_bytes;
    npugraph__client_hold(client, false);
    rc = npugraph__unary(client, "/npugraph.v1.Graphs/CreateGroup", &req.base,
                         &npugraph__v1__create_group_response__descriptor, &reply, err);
    if (rc == 0)
        *group_p = ((Npugraph__V1__CreateGroupResponse *)reply)->group;
    npugraph__free_message(reply);
    return rc;
}

int npugraph_ranks_join(struct npugraph_client *client, const uint64_t *graphs, size_t n, bool replicated,
                        uint64_t *graph_p, struct npugraph_error *err)
{
    Npugraph__V1__JoinRanksRequest req = NPUGRAPH__V1__JOIN_RANKS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.graphs = (uint64_t *)graphs;
    req.n_graphs = n;
    req.replicated = replicated;
    rc = npugraph__unary(client, "/npugraph.v1.Graphs/JoinRanks", &req.base,
                         &npugraph__v1__join_ranks_response__descriptor, &reply, err);
    if (rc == 0)
        *graph_p = ((Npugraph__V1__JoinRanksResponse *)reply)->graph;
    npugraph__free_message(reply);
    return rc;
}

int npugraph_graph_register(struct npugraph_client *client, const struct npugraph_place *place, const char *text,
                            const struct npugraph_binding *bindings, size_t n_bindings,
                            const struct npugraph_option *options, size_t n_options, uint64_t *graph_p,
                            struct npugraph_error *err)
{
    Npugraph__V1__RegisterRequest req = NPUGRAPH__V1__REGISTER_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.text = (char *)text;
    req.device = (char *)(place != NULL && place->device != NULL ? place->device : "");
    req.group = place != NULL ? place->group : 0;
    req.bindings = pointer_array(n_bindings, sizeof(Npugraph__V1__Binding));
    req.options = pointer_array(n_options, sizeof(Npugraph__V1__GraphOption));
    if (req.bindings == NULL || req.options == NULL) {
        rc = out_of_memory(err);
        goto out;
    }
    req.n_bindings = n_bindings;
    req.n_options = n_options;
    for (size_t i = 0; i < n_bindings; i++) {
        npugraph__v1__binding__init(req.bindings[i]);
        req.bindings[i]->name = (char *)bindings[i].name;
        req.bindings[i]->buffer = bindings[i].buffer;
    }
    for (size_t i = 0; i < n_options; i++) {
        npugraph__v1__graph_option__init(req.options[i]);
        req.options[i]->name = (char *)options[i].name;
        req.options[i]->value = (char *)options[i].value;
    }
    npugraph__client_hold(client, false);
    rc = npugraph__unary_again(client, "/npugraph.v1.Graphs/Register", &req.base,
                               &npugraph__v1__register_response__descriptor, &reply, err);
    if (rc == 0)
        *graph_p = ((Npugraph__V1__RegisterResponse *)reply)->graph;
    npugraph__free_message(reply);
out:
    free(req.bindings);
    free(req.options);
    return rc;
}

int npugraph_graph_release(struct npugraph_client *client, uint64_t graph, struct npugraph_error *err)
{
    Npugraph__V1__ReleaseRequest req = NPUGRAPH__V1__RELEASE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.graph = graph;
    rc = npugraph__unary_again(client, "/npugraph.v1.Graphs/Release", &req.base,
                               &npugraph__v1__release_response__descriptor, &reply, err);
    npugraph__free_message(reply);
    return rc;
}

int npugraph_graph_capture(struct npugraph_client *client, uint64_t graph, const int64_t *symbols, size_t n_symbols,
                           bool dry_run, struct npugraph_capture_result *result_p, struct npugraph_error *err)
{
    Npugraph__V1__CaptureRequest req = NPUGRAPH__V1__CAPTURE_REQUEST__INIT;
    ProtobufCMessage *reply;
    const Npugraph__V1__CaptureResponse *r;
    int rc;

    req.graph = graph;
    req.symbols = (int64_t *)symbols;
    req.n_symbols = n_symbols;
    req.dry_run = dry_run;
    rc = npugraph__unary_again(client, "/npugraph.v1.Graphs/Capture", &req.base,
                               &npugraph__v1__capture_response__descriptor, &reply, err);
    if (rc != 0)
        return rc;
    r = (const Npugraph__V1__CaptureResponse *)reply;
    if (result_p != NULL) {
        snprintf(result_p->key, sizeof(result_p->key), "%s", r->key);
        result_p->captured = r->captured;
        result_p->pool_bytes = r->pool_bytes;
        result_p->kernels = r->kernels;
        result_p->nanoseconds = r->nanoseconds;
    }
    npugraph__free_message(reply);
    return 0;
}

/* ---- replay --------------------------------------------------------------------------------------------- */

struct replay_message {
    Npugraph__V1__ReplayRequest req;
    void *inputs, *hosts, *shared;
};

static void replay_message_fini(struct replay_message *m)
{
    free(m->inputs);
    free(m->hosts);
    free(m->shared);
}

/* Adds a range to the list if the memory is in a shared buffer. */
static bool add_range(struct npugraph__shared *all, const void *data, size_t bytes, size_t index,
                      Npugraph__V1__SharedRange **list, size_t *n)
{
    struct npugraph__shared_at at;
    Npugraph__V1__SharedRange *range = list[*n];

    if (bytes == 0 || !npugraph__shared_find(all, data, bytes, &at))
        return false;
    npugraph__v1__shared_range__init(range);
    range->index = (uint32_t)index;
    range->buffer = at.buffer;
    range->offset = at.offset;
    range->bytes = bytes;
    (*n)++;
    return true;
}

/* Names inputs and targets that lie in shared buffers, instead of sending them. */
static int name_shared(struct replay_message *m, struct npugraph__shared *all, const struct npugraph_replay *r,
                       ProtobufCBinaryData *inputs, struct npugraph_error *err)
{
    Npugraph__V1__SharedRange **list;

    if (npugraph__shared_is_empty(all))
        return 0;
    m->shared = list = pointer_array(r->n_inputs + r->n_targets, sizeof(Npugraph__V1__SharedRange));
    if (list == NULL)
        return out_of_memory(err);
    m->req.shared_inputs = list;
    for (size_t i = 0; i < r->n_inputs; i++)
        if (add_range(all, r->inputs[i].data, r->inputs[i].bytes, i, list, &m->req.n_shared_inputs))
            inputs[i] = (ProtobufCBinaryData){0};
    list += m->req.n_shared_inputs;
    m->req.shared_outputs = list;
    for (size_t i = 0; i < r->n_targets && (r->n_outputs == 0 || i < r->n_outputs); i++)
        add_range(all, r->targets[i].data, r->targets[i].bytes, r->n_outputs == 0 ? i : r->outputs[i], list,
                  &m->req.n_shared_outputs);
    return 0;
}

static int replay_message_init(struct replay_message *m, struct npugraph__shared *all, const struct npugraph_replay *r,
                               struct npugraph_error *err)
{
    Npugraph__V1__HostValue **hosts = pointer_array(r->n_hosts, sizeof(Npugraph__V1__HostValue));
    ProtobufCBinaryData *inputs = calloc(r->n_inputs + 1, sizeof(*inputs));
    int rc;

    npugraph__v1__replay_request__init(&m->req);
    m->inputs = inputs;
    m->hosts = hosts;
    m->shared = NULL;
    if (inputs == NULL || hosts == NULL) {
        replay_message_fini(m);
        return out_of_memory(err);
    }
    for (size_t i = 0; i < r->n_inputs; i++)
        inputs[i] = (ProtobufCBinaryData){r->inputs[i].bytes, (uint8_t *)r->inputs[i].data};
    rc = name_shared(m, all, r, inputs, err);
    if (rc != 0) {
        replay_message_fini(m);
        return rc;
    }
    for (size_t i = 0; i < r->n_hosts; i++) {
        npugraph__v1__host_value__init(hosts[i]);
        hosts[i]->n_values = r->hosts[i].n;
        hosts[i]->values = (int64_t *)r->hosts[i].values;
    }
    m->req.graph = r->graph;
    m->req.n_symbols = r->n_symbols;
    m->req.symbols = (int64_t *)r->symbols;
    m->req.n_inputs = r->n_inputs;
    m->req.inputs = inputs;
    m->req.n_hosts = r->n_hosts;
    m->req.hosts = hosts;
    m->req.n_outputs = r->n_outputs;
    m->req.outputs = (uint32_t *)r->outputs;
    m->req.eager = r->eager;
    m->req.timing = r->timing;
    m->req.stream = r->stream;
    m->req.tag = r->tag;
    if (r->wait_event != NULL)
        m->req.wait_event = (char *)r->wait_event;
    if (r->record_event != NULL)
        m->req.record_event = (char *)r->record_event;
    return 0;
}

void npugraph_result_free(struct npugraph_result *result)
{
    if (result == NULL)
        return;
    npugraph__free_message(result->priv);
    free(result->outputs);
    free(result);
}

/* Puts one result where the caller wants it. *n_shared: how many of the daemon's sizes are used. */
static void fill_target(const struct npugraph_replay *replay, struct npugraph__shared *all, size_t i,
                        const Npugraph__V1__ReplayResponse *r, size_t *n_shared, struct npugraph_output *output)
{
    const struct npugraph_target *target = i < replay->n_targets ? &replay->targets[i] : NULL;
    struct npugraph__shared_at at;

    if (target == NULL || target->data == NULL)
        return;
    if (target->bytes != 0 && *n_shared < r->n_shared_bytes &&
        npugraph__shared_find(all, target->data, target->bytes, &at)) {
        *output = (struct npugraph_output){target->data, (size_t)r->shared_bytes[(*n_shared)++]};
    } else if (output->bytes <= target->bytes) {
        if (output->bytes != 0)
            memcpy(target->data, output->data, output->bytes);
        output->data = target->data;
    }
}

/* Moves the message into *result_p, which the first use creates. Takes reply. */
static int keep_result(ProtobufCMessage *reply, const struct npugraph_replay *replay, struct npugraph__shared *all,
                       struct npugraph_result **result_p, struct npugraph_error *err)
{
    const Npugraph__V1__ReplayResponse *r = (const Npugraph__V1__ReplayResponse *)reply;
    struct npugraph_result *res = *result_p != NULL ? *result_p : calloc(1, sizeof(*res));
    struct npugraph_output *outputs = res != NULL ? realloc(res->outputs, (r->n_outputs + 1) * sizeof(*outputs)) : NULL;
    size_t n_shared = 0;

    if (outputs == NULL) {
        if (res != *result_p)
            free(res);
        npugraph__free_message(reply);
        return out_of_memory(err);
    }
    npugraph__free_message(res->priv);
    res->priv = reply;
    res->outputs = outputs;
    res->n = r->n_outputs;
    for (size_t i = 0; i < r->n_outputs; i++) {
        outputs[i] = (struct npugraph_output){r->outputs[i].data, r->outputs[i].len};
        fill_target(replay, all, i, r, &n_shared, &outputs[i]);
    }
    res->queue_ns = r->queue_ns;
    res->device_ns = r->device_ns;
    res->timing = npugraph__timing(r->timing);
    *result_p = res;
    return 0;
}

/* ---- repetitions ---------------------------------------------------------------------------------------- */

/* True if a replay of the graph may be done twice: it has no states. This is asked only when an answer was lost. */
static bool is_repeatable(struct npugraph__link *link, uint64_t graph)
{
    Npugraph__V1__DescribeRequest req = NPUGRAPH__V1__DESCRIBE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    const Npugraph__V1__GraphInfo *info;
    bool is;

    req.graph = graph;
    if (npugraph__channel_unary(link->channel, "/npugraph.v1.Graphs/Describe", NULL, &req.base,
                                &npugraph__v1__describe_response__descriptor, &reply, NULL) != 0)
        return false;
    info = ((const Npugraph__V1__DescribeResponse *)reply)->info;
    is = info != NULL && info->n_states == 0;
    npugraph__free_message(reply);
    return is;
}

/* npugraph__client_follow_home for a replay. *link_p: where the session is now. False: the replay is not to be
 * repeated; in another daemon f->why says so if its answer was lost. */
static bool follow_replay(struct npugraph_client *client, struct npugraph__link **link_p, struct npugraph__follow *f,
                          uint64_t graph)
{
    const bool lost = strcmp(f->why.reason, "UNREACHABLE") == 0;
    struct npugraph__link *next = npugraph__client_follow_home(client, *link_p, f, true);

    if (next == NULL)
        return false;
    *link_p = next;
    if (!lost || is_repeatable(next, graph))
        return true;
    npugraph__error(&f->why, 10, "ANSWER_UNKNOWN",
                    "the connection broke before the answer of a replay came, and the graph has states, or cannot be "
                    "asked whether it has: the replay was done, or was not; read the states, and decide");
    return false;
}

static int replay_once(struct npugraph_client *client, const Npugraph__V1__ReplayRequest *req,
                       ProtobufCMessage **reply_p, struct npugraph_error *err)
{
    struct npugraph__link *link = npugraph__client_home(client);
    struct npugraph__follow f = {.link = link};
    int rc;

    do {
        rc = npugraph__channel_unary(link->channel, "/npugraph.v1.Graphs/Replay", NULL, &req->base,
                                     &npugraph__v1__replay_response__descriptor, reply_p, &f.why);
    } while (rc != 0 && follow_replay(client, &link, &f, req->graph));
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc != 0 ? f.why.code : 0; /* ANSWER_UNKNOWN has another code than the call */
}

int npugraph_replay(struct npugraph_client *client, const struct npugraph_replay *replay,
                    struct npugraph_result **result_p, struct npugraph_error *err)
{
    struct npugraph__shared *shared = npugraph__client_shared(client);
    struct replay_message m;
    ProtobufCMessage *reply = NULL;
    int rc = replay_message_init(&m, shared, replay, err);

    if (rc != 0)
        return rc;
    rc = replay_once(client, &m.req, &reply, err);
    replay_message_fini(&m);
    return rc != 0 ? rc : keep_result(reply, replay, shared, result_p, err);
}

struct npugraph_replay_stream {
    struct npugraph_client *client;
    struct npugraph__link *link;
    struct npugraph__lane *lane; /* NULL: there is none, or what it was asked does not fit */
    struct npugraph__stream *st; /* NULL: not needed yet */
};

int npugraph_replay_stream_open(struct npugraph_client *client, struct npugraph_replay_stream **stream_p,
                                struct npugraph_error *err)
{
    struct npugraph_replay_stream *s = calloc(1, sizeof(*s));
    int rc = 0;

    if (s == NULL)
        return out_of_memory(err);
    s->client = client;
    s->link = npugraph__client_home(client);
    s->lane = npugraph__link_lane(s->link);
    if (s->lane == NULL)
        rc = npugraph__channel_call(s->link->channel, "/npugraph.v1.Graphs/ReplayStream", &s->st, err);
    if (rc != 0) {
        free(s);
        return rc;
    }
    *stream_p = s;
    return 0;
}

static void tell_sent(const struct npugraph_replay *replay)
{
    if (replay->sent != NULL)
        replay->sent(replay->sent_user);
}

/* Sends by the ring. If that cannot be, the stream uses gRPC from then on. */
static int exchange_replay(struct npugraph_replay_stream *s, const struct npugraph_replay *replay,
                           const ProtobufCMessage *message, ProtobufCMessage **reply_p, struct npugraph_error *err)
{
    const ProtobufCMessageDescriptor *type = &npugraph__v1__replay_response__descriptor;
    int rc = s->lane != NULL ? npugraph__lane_send(s->lane, NGD_RING_REPLAY, message) : NPUGRAPH__ELSEWHERE;

    tell_sent(replay);
    if (rc == 0)
        rc = npugraph__lane_receive(s->lane, type, reply_p, err);
    if (rc != NPUGRAPH__ELSEWHERE)
        return rc;
    npugraph__lane_give(s->lane);
    s->lane = NULL;
    rc = s->st == NULL ? npugraph__channel_call(s->link->channel, "/npugraph.v1.Graphs/ReplayStream", &s->st, err) : 0;
    return rc != 0 ? rc : npugraph__stream_exchange(s->st, message, type, reply_p, err);
}

/* Goes on with the stream on another link. */
static void move_stream(struct npugraph_replay_stream *s, struct npugraph__link *to)
{
    npugraph__lane_give(s->lane);
    npugraph__stream_close(s->st);
    s->link = to;
    s->st = NULL;
    s->lane = npugraph__link_lane(to);
}

/* Sends; and again on another link, if the session moves. */
static int exchange_and_follow(struct npugraph_replay_stream *s, const struct npugraph_replay *replay,
                               const Npugraph__V1__ReplayRequest *req, ProtobufCMessage **reply_p,
                               struct npugraph_error *err)
{
    struct npugraph__follow f = {.link = s->link};
    int rc;

    while ((rc = exchange_replay(s, replay, &req->base, reply_p, &f.why)) != 0) {
        struct npugraph__link *link = s->link;
        const bool again = follow_replay(s->client, &link, &f, req->graph);

        if (again || link != s->link)
            move_stream(s, link);
        if (!again)
            break;
    }
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc != 0 ? f.why.code : 0;
}

int npugraph_replay_stream_run(struct npugraph_replay_stream *stream, const struct npugraph_replay *replay,
                               struct npugraph_result **result_p, struct npugraph_error *err)
{
    struct npugraph__shared *shared = npugraph__client_shared(stream->client);
    struct replay_message m;
    ProtobufCMessage *reply = NULL;
    const Npugraph__V1__ReplayError *e;
    int rc = replay_message_init(&m, shared, replay, err);

    if (rc != 0)
        return rc;
    m.req.trace_parent = npugraph__trace_field();
    rc = exchange_and_follow(stream, replay, &m.req, &reply, err);
    replay_message_fini(&m);
    if (rc != 0)
        return rc;
    e = ((const Npugraph__V1__ReplayResponse *)reply)->error;
    if (e != NULL) {
        rc = npugraph__error(err, e->code, e->reason, "%s", e->message);
        npugraph__free_message(reply);
        return rc;
    }
    return keep_result(reply, replay, shared, result_p, err);
}

void npugraph_replay_stream_close(struct npugraph_replay_stream *stream)
{
    if (stream == NULL)
        return;
    npugraph__lane_give(stream->lane);
    if (stream->st != NULL)
        npugraph__stream_half_close(stream->st, NULL);
    npugraph__stream_close(stream->st);
    free(stream);
}

void npugraph_copy_pieces(size_t n, void *const *to, const void *const *from, const size_t *bytes)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            memcpy(to[i], from[i], bytes[i]);
}
