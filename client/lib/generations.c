/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generations of many sequences, followed by one thread. It puts events into a queue, whose descriptor wakes the
 * program's loop: one write of an eventfd when the queue was empty, whatever comes until the loop takes the events.
 *
 * Those whose session moves or is lost wait in a list for another thread, which finds out how they go on, and starts
 * them again. It goes through the list in turns and waits for none of them: a daemon may have the model of one, and be
 * about to load that of another.
 *
 * The queue has room for the ends of all generations that run, so that an end is never lost for want of memory. What is
 * in it is bounded by what the sequences' contexts can hold.
 */
#include "client/lib/client_int.h"
#include "client/lib/kept.h"
#include "client/lib/sequence.h"
#include "client/lib/trace.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct event {
    struct npugraph_generation_event e;
    struct npugraph_logprobs *logprobs; /* owned, with the last token of a message: those of all its tokens */
    struct npugraph_error *error;       /* owned */
};

#define STOP_TOKENS 16 /* the daemon takes no more */

struct generation {
    struct npugraph_generations *all;
    struct generation *next;
    struct npugraph__followed *call; /* NULL: it is broken, or has no step under way */
    uint64_t tag;
    enum npugraph_finish finish;
    bool cancelled;
    bool complete; /* all tokens have come */
    struct broken_entry {
        bool listed, tried; /* tried: only a restored sequence goes on */
        struct generation *next;
        struct npugraph_error why;
    } broken; /* by the lock */
    /* To repeat it. */
    struct npugraph_sequence *seq;
    struct npugraph_generate_params params; /* with the tokens that are left */
    int32_t stop_tokens[STOP_TOKENS];
    uint32_t from;                      /* position of the next token; 0: not known */
    unsigned moves, renewals, restores; /* of npugraph__follow, as the next */
    time_t until;
    /* One whose steps the caller begins. */
    bool stepped, refused;                /* refused: it ends with its call, whose last answer is an error, or wrong */
    bool underway;                        /* a step is; by the lock */
    struct npugraph_generation_step step; /* the last; its mask is owned */
    uint32_t position;                    /* that it began at; 0: not known */
    uint8_t trace[NPUGRAPH__TRACE_PACKED];
    size_t trace_bytes;
};

struct npugraph_generations {
    struct npugraph_client *client;
    struct npugraph__follower *follower;
    int fd;
    pthread_mutex_t lock;
    bool stopping; /* by `lock`, as all that follows */
    /* Broken generations, and the thread that they wait for. */
    struct generation *broken, **last_broken;
    pthread_t repeater;
    bool has_repeater;
    pthread_cond_t woken;
    struct generation *running;
    size_t n_running;
    struct event *events; /* [0, taken): given by the last take; [taken, n): to be taken */
    size_t taken, n, room;
};

/* ---- the queue; its lock is held ---- */

/* Makes room for more events beside the ends of all generations. */
static bool reserve_events(struct npugraph_generations *all, size_t more)
{
    const size_t need = all->n + all->n_running + more;
    size_t room = all->room != 0 ? all->room : 64;
    struct event *events;

    if (need <= all->room)
        return true;
    while (room < need)
        room *= 2;
    events = realloc(all->events, room * sizeof(*events));
    if (events == NULL)
        return false;
    all->events = events;
    all->room = room;
    return true;
}

static void wake_loop(const struct npugraph_generations *all)
{
    const uint64_t one = 1;

    while (write(all->fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

static struct event *queue_event(struct npugraph_generations *all, uint64_t tag)
{
    if (all->n == all->taken)
        wake_loop(all);
    all->events[all->n] = (struct event){.e = {.tag = tag}};
    return &all->events[all->n++];
}

static void free_taken(struct npugraph_generations *all)
{
    for (size_t i = 0; i < all->taken; i++) {
        free(all->events[i].logprobs);
        free(all->events[i].error);
    }
    if (all->taken != 0)
        memmove(all->events, all->events + all->taken, (all->n - all->taken) * sizeof(all->events[0]));
    all->n -= all->taken;
    all->taken = 0;
}

/* ---- what the follower's thread calls ---- */

static void add_tokens(struct generation *g, const Npugraph__V1__GenerateResponse *r, struct npugraph_logprobs *list)
{
    const size_t without = r->n_tokens > r->n_logprobs ? r->n_tokens - r->n_logprobs : 0;

    for (size_t i = 0; i < r->n_tokens; i++) {
        struct event *event = queue_event(g->all, g->tag);

        event->e.token = r->tokens[i];
        event->e.logprobs = list != NULL && i >= without ? &list[i - without] : NULL;
        if (i + 1 == r->n_tokens) /* freed with the last, which is taken last */
            event->logprobs = list;
    }
}

/* Fills the request of the step that is under way. */
static void put_kept_step(const struct generation *g, Npugraph__V1__StepRequest *req,
                          Npugraph__V1__LogprobsRequest *logprobs)
{
    npugraph__put_step(req, logprobs, g->seq, &g->step);
    req->position = g->position;
    req->trace_parent = (ProtobufCBinaryData){g->trace_bytes, (uint8_t *)(uintptr_t)g->trace};
}

/* Queues the token of a step, from where on the next may begin. */
static int add_step(struct generation *g, const Npugraph__V1__StepResponse *r, struct npugraph_error *err)
{
    struct npugraph_logprobs *list = NULL;
    struct event *event;
    bool ok;

    if (r->n_logprobs != 0 && (list = npugraph__take_logprobs(r->logprobs, r->n_logprobs)) == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    pthread_mutex_lock(&g->all->lock);
    ok = reserve_events(g->all, 1);
    if (ok) {
        g->underway = false;
        event = queue_event(g->all, g->tag);
        event->e.token = r->token;
        event->e.finish = r->stop ? NPUGRAPH_FINISH_STOP : NPUGRAPH_FINISH_CANCELLED;
        event->e.logprobs = list != NULL ? &list[r->n_logprobs - 1] : NULL;
        event->logprobs = list;
    }
    pthread_mutex_unlock(&g->all->lock);
    if (ok)
        return 0;
    free(list);
    return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

/* Until its answer is taken, the step is not changed by the caller. */
static bool is_step_underway(const struct generation *g)
{
    bool underway;

    pthread_mutex_lock(&g->all->lock);
    underway = g->underway;
    pthread_mutex_unlock(&g->all->lock);
    return underway;
}

static void refuse_to_repeat(struct generation *g)
{
    pthread_mutex_lock(&g->all->lock);
    g->refused = true;
    pthread_mutex_unlock(&g->all->lock);
}

static int take_step(void *user, ProtobufCMessage *message, struct npugraph_error *err)
{
    struct generation *g = user;
    const Npugraph__V1__StepResponse *r = (const Npugraph__V1__StepResponse *)message;
    Npugraph__V1__StepRequest req;
    Npugraph__V1__LogprobsRequest logprobs;
    int rc;

    if (!is_step_underway(g)) {
        refuse_to_repeat(g);
        rc = npugraph__error(err, 13, "MALFORMED_MESSAGE", "the daemon answers a step that it was not asked");
    } else if (r->error != NULL) {
        refuse_to_repeat(g);
        rc = npugraph__error(err, r->error->code != 0 ? r->error->code : 13, r->error->reason, "%s", r->error->message);
    } else {
        put_kept_step(g, &req, &logprobs);
        npugraph__sequence_end_step(g->seq, &req, r);
        g->renewals = 0;
        g->until = 0;
        rc = add_step(g, r, err);
    }
    npugraph__free_message(message);
    return rc;
}

/* Notes what has come, for the case that the generation is repeated. */
static void note_progress(struct generation *g, const Npugraph__V1__GenerateResponse *r)
{
    npugraph__kept_tokens(npugraph__sequence_kept(g->seq), r);
    g->finish = (enum npugraph_finish)r->finish;
    g->params.max_tokens -= (uint32_t)r->n_tokens;
    if (r->n_tokens == 0)
        return;
    g->complete = g->params.max_tokens == 0;
    g->from = r->position + 1;
    g->renewals = 0;
    g->until = 0;
}

static int take_generated(void *user, ProtobufCMessage *message, struct npugraph_error *err)
{
    struct generation *g = user;
    const Npugraph__V1__GenerateResponse *r = (const Npugraph__V1__GenerateResponse *)message;
    struct npugraph_logprobs *list = NULL;
    bool ok = true;

    if (r->n_logprobs != 0 && r->n_tokens != 0)
        ok = (list = npugraph__take_logprobs(r->logprobs, r->n_logprobs)) != NULL;
    pthread_mutex_lock(&g->all->lock);
    ok = ok && reserve_events(g->all, r->n_tokens);
    if (ok)
        add_tokens(g, r, list);
    pthread_mutex_unlock(&g->all->lock);
    if (ok)
        note_progress(g, r);
    npugraph__free_message(message);
    if (ok)
        return 0;
    free(list);
    return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

static void forget_generation(struct generation *g)
{
    struct generation **at = &g->all->running;

    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    g->all->n_running--;
}

static void free_generation(struct generation *g)
{
    free((uint8_t *)(uintptr_t)g->step.allowed);
    free(g);
}

/* Puts a generation behind the broken ones. The lock is held. */
static void list_broken(struct generation *g)
{
    g->broken.listed = true;
    g->broken.next = NULL;
    *g->all->last_broken = g;
    g->all->last_broken = &g->broken.next;
    pthread_cond_signal(&g->all->woken);
}

/* Takes a generation from the broken ones. The lock is held. */
static void unlist_broken(struct generation *g)
{
    struct generation **at = &g->all->broken;

    while (*at != g)
        at = &(*at)->broken.next;
    *at = g->broken.next;
    if (*at == NULL)
        g->all->last_broken = at;
    g->broken.listed = false;
}

/* Queues the end. The lock is held. */
static void finish_locked(struct generation *g, int rc, const struct npugraph_error *err)
{
    struct npugraph_generations *all = g->all;
    struct npugraph_error *kept = rc != 0 ? malloc(sizeof(*kept)) : NULL;
    static const struct npugraph_error no_memory = {8, "NO_MEMORY", "out of memory"};
    struct event *event;

    if (kept != NULL)
        *kept = *err;
    forget_generation(g); /* its room is used now */
    event = queue_event(all, g->tag);
    event->e.end = true;
    event->e.finish = g->finish;
    if (rc != 0 && g->cancelled) {
        event->e.finish = NPUGRAPH_FINISH_CANCELLED;
        free(kept);
    } else if (rc != 0) {
        event->e.error = kept != NULL ? kept : &no_memory;
        event->error = kept;
    }
    free_generation(g);
}

static bool start_repeater(struct npugraph_generations *all);

/* Leaves a generation whose call has ended to the thread that may start it again. One without a step under way goes on
 * with its next step. The lock is held. False: it has ended. */
static bool break_off(struct generation *g, const struct npugraph_error *why)
{
    g->call = NULL;
    if (g->cancelled || g->all->stopping || g->refused)
        return false;
    if (g->stepped && !g->underway) /* from here on, its step or who cancels it may end it */
        return true;
    if (!npugraph__client_may_go_on(g->all->client, why) || !start_repeater(g->all))
        return false;
    g->broken.why = *why;
    g->broken.tried = false;
    list_broken(g);
    return true;
}

static void end_generation(void *user, int rc, const struct npugraph_error *err)
{
    struct generation *g = user;
    struct npugraph_generations *all = g->all;

    if (rc != 0 && g->complete) { /* only the end is missing */
        g->finish = NPUGRAPH_FINISH_LENGTH;
        rc = 0;
    }
    pthread_mutex_lock(&all->lock);
    if (rc == 0 || !break_off(g, err))
        finish_locked(g, rc, err);
    pthread_mutex_unlock(&all->lock);
}

static const struct npugraph__follow_ops follow_ops = {take_generated, end_generation},
                                         step_ops = {take_step, end_generation};

/* ---- the calls ---- */

/* Starts a generation on the link of its sequence, and goes on at `from`. The lock is held. */
static int start_kept(struct generation *g, uint32_t from, struct npugraph_error *err)
{
    const struct npugraph__followed_call what = {
        "/npugraph.v1.Sequences/Generate", &npugraph__v1__generate_response__descriptor, &follow_ops, .more = false};
    const struct npugraph__followed_call steps = {"/npugraph.v1.Sequences/StepStream",
                                                  &npugraph__v1__step_response__descriptor, &step_ops, .more = true};
    Npugraph__V1__GenerateRequest req;
    Npugraph__V1__StepRequest step;
    Npugraph__V1__LogprobsRequest logprobs;
    struct npugraph__channel *channel = npugraph__sequence_link(g->seq)->channel;

    if (g->stepped) {
        put_kept_step(g, &step, &logprobs);
        return npugraph__follow(g->all->follower, channel, &steps, &step.base, g, &g->call, err);
    }
    npugraph__put_generation(&req, &logprobs, g->seq, &g->params);
    req.from = from;
    return npugraph__follow(g->all->follower, channel, &what, &req.base, g, &g->call, err);
}

/* ---- broken generations ---- */

#define TURN_LEAST_MS 20
#define TURN_MOST_MS  500

typedef enum outcome { GOES_ON, NOT_YET, ENDS } outcome_t;

/* Finds out how a generation goes on: its session has moved, or its sequence is restored. *why: of its end. */
static outcome_t try_to_go_on(struct generation *g, struct npugraph_error *why)
{
    struct npugraph__follow f = {.link = npugraph__sequence_link(g->seq),
                                 .why = g->broken.why,
                                 .until = g->until,
                                 .moves = g->moves,
                                 .renewals = g->renewals,
                                 .restores = g->restores,
                                 .later = true};
    const bool again = (g->stepped ? g->position : g->from) != 0;
    const bool ok =
        g->broken.tried ? npugraph__sequence_restore(g->seq, &f) : npugraph__sequence_follow(g->seq, &f, again);

    *why = f.why;
    g->broken.tried = true;
    if (f.not_yet &&
        strcmp(f.why.reason, "MODEL_NOT_FOUND") == 0) { /* the last daemon was not killed by the sequence */
        f.renewals -= f.renewals > 0;
        f.restores -= f.restores > 0;
    }
    g->until = f.until;
    g->moves = f.moves;
    g->renewals = f.renewals;
    g->restores = f.restores;
    return ok ? GOES_ON : f.not_yet ? NOT_YET : ENDS;
}

/* Lets the first broken generation go on, or end, or puts it behind the others: false. The lock is held; not while this
 * asks daemons. */
static bool repeat_first(struct npugraph_generations *all)
{
    struct generation *g = all->broken;
    struct npugraph_error why;
    outcome_t outcome;

    unlist_broken(g);
    pthread_mutex_unlock(&all->lock);
    outcome = try_to_go_on(g, &why);
    pthread_mutex_lock(&all->lock);
    if (g->cancelled || all->stopping)
        outcome = ENDS;
    if (outcome == NOT_YET) {
        list_broken(g);
        return false;
    }
    if (outcome == ENDS || start_kept(g, g->from, &why) != 0) {
        g->call = NULL;
        finish_locked(g, why.code != 0 ? why.code : 13, &why);
    }
    return true;
}

/* Waits for broken generations; if some wait for daemons, for a while. The lock is held. */
static void await_turn(struct npugraph_generations *all, unsigned pause_ms)
{
    struct timespec until;

    if (pause_ms == 0 && all->broken == NULL) {
        pthread_cond_wait(&all->woken, &all->lock);
    } else if (pause_ms != 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)pause_ms * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&all->woken, &all->lock, &until);
    }
}

/* The thread. In a turn it tries all that are broken. */
static void *repeat_generations(void *user)
{
    struct npugraph_generations *all = user;
    unsigned pause_ms = 0;

    pthread_mutex_lock(&all->lock);
    while (!all->stopping) {
        const struct generation *g;
        bool some = true;
        size_t n = 0;

        for (g = all->broken; g != NULL; g = g->broken.next)
            n++;
        for (; n > 0 && all->broken != NULL && !all->stopping; n--)
            some = repeat_first(all) && some;
        if (some)
            pause_ms = 0;
        else
            pause_ms = pause_ms == 0 ? TURN_LEAST_MS : pause_ms < TURN_MOST_MS / 2 ? 2 * pause_ms : TURN_MOST_MS;
        if (!all->stopping)
            await_turn(all, pause_ms);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* Starts the thread that broken generations wait for, if it does not run. The lock is held. */
static bool start_repeater(struct npugraph_generations *all)
{
    sigset_t signals, old;

    if (all->has_repeater)
        return true;
    sigfillset(&signals); /* they are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &signals, &old);
    all->has_repeater = pthread_create(&all->repeater, NULL, repeat_generations, all) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return all->has_repeater;
}

/* ---- what the caller calls ---- */

static void init_broken(struct npugraph_generations *all)
{
    pthread_condattr_t monotonic;

    all->last_broken = &all->broken;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&all->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int npugraph_generations_create(struct npugraph_client *client, struct npugraph_generations **all_p, int *fd_p,
                                struct npugraph_error *err)
{
    struct npugraph_generations *all = calloc(1, sizeof(*all));
    int rc;

    if (all == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    all->client = client;
    all->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (all->fd < 0) {
        free(all);
        return npugraph__error(err, 8, "NO_MEMORY", "no descriptor for events: %s", strerror(errno));
    }
    pthread_mutex_init(&all->lock, NULL);
    init_broken(all);
    rc = npugraph__follower_start(&all->follower, err);
    if (rc != 0) {
        npugraph_generations_destroy(all);
        return rc;
    }
    *all_p = all;
    *fd_p = all->fd;
    return 0;
}

/* Enters a generation as one that runs, with room for its end. The lock is held. NULL: no memory. */
static struct generation *enter_generation(struct npugraph_generations *all, uint64_t tag)
{
    struct generation *g = calloc(1, sizeof(*g));

    if (g == NULL || !reserve_events(all, 1)) {
        free(g);
        return NULL;
    }
    *g = (struct generation){.all = all, .tag = tag, .next = all->running};
    all->running = g;
    all->n_running++;
    return g;
}

/* Keeps what is needed to repeat a generation. */
static void keep_request(struct generation *g, struct npugraph_sequence *seq,
                         const struct npugraph_generate_params *params)
{
    g->seq = seq;
    g->params = *params;
    if (params->n_stop_tokens != 0)
        memcpy(g->stop_tokens, params->stop_tokens, params->n_stop_tokens * sizeof(g->stop_tokens[0]));
    g->params.stop_tokens = g->stop_tokens;
    g->from = npugraph__sequence_next(seq);
}

int npugraph_generations_start(struct npugraph_generations *all, uint64_t tag, const struct npugraph_sequence *seq,
                               const struct npugraph_generate_params *params, struct npugraph_error *err)
{
    struct generation *g;
    int rc = 0;

    pthread_mutex_lock(&all->lock); /* its messages, its end and who cancels it wait until g->call is known */
    g = enter_generation(all, tag);
    if (g == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    if (rc == 0 && params->n_stop_tokens > STOP_TOKENS)
        rc = npugraph__error(err, 3, "INVALID_ARGUMENT", "%zu stop tokens; a generation takes at most %d",
                             (size_t)params->n_stop_tokens, STOP_TOKENS);
    if (rc == 0) {
        keep_request(g, (struct npugraph_sequence *)(uintptr_t)seq, params);
        rc = start_kept(g, 0, err);
    }
    if (rc != 0 && g != NULL) {
        forget_generation(g);
        free(g);
    }
    pthread_mutex_unlock(&all->lock);
    return rc;
}

/* ---- generations whose steps the caller begins ---- */

int npugraph_generations_start_steps(struct npugraph_generations *all, uint64_t tag,
                                     const struct npugraph_sequence *seq, struct npugraph_error *err)
{
    const ProtobufCBinaryData trace = npugraph__trace_field();
    struct npugraph_generate_params params;
    struct generation *g;

    npugraph_generate_params_init(&params);
    pthread_mutex_lock(&all->lock);
    g = enter_generation(all, tag);
    if (g != NULL) {
        keep_request(g, (struct npugraph_sequence *)(uintptr_t)seq, &params);
        g->stepped = true;
        g->trace_bytes = trace.len;
        if (trace.len != 0)
            memcpy(g->trace, trace.data, trace.len);
    }
    pthread_mutex_unlock(&all->lock);
    return g != NULL ? 0 : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

/* Keeps what is needed to repeat a step. */
static int keep_step(struct generation *g, const struct npugraph_generation_step *step, struct npugraph_error *err)
{
    uint8_t *mask = NULL;

    if (step->allowed != NULL && step->allowed_bytes != 0) {
        mask = realloc((uint8_t *)(uintptr_t)g->step.allowed, step->allowed_bytes);
        if (mask == NULL)
            return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
        memcpy(mask, step->allowed, step->allowed_bytes);
    } else {
        free((uint8_t *)(uintptr_t)g->step.allowed);
    }
    g->step = *step;
    g->step.allowed = mask;
    g->position = npugraph__sequence_begin_step(g->seq);
    return 0;
}

/* Begins a step; if that fails, the generation ends. The lock is held. */
static void begin_next_step(struct generation *g, const struct npugraph_generation_step *step)
{
    Npugraph__V1__StepRequest req;
    Npugraph__V1__LogprobsRequest logprobs;
    struct npugraph_error err = {0};
    int rc = keep_step(g, step, &err);

    g->underway = true;
    g->refused = rc != 0; /* without its mask it must not be repeated */
    if (rc == 0 && g->call != NULL) {
        put_kept_step(g, &req, &logprobs);
        npugraph__followed_send(g->call, &req.base);
        return;
    }
    if (rc != 0 && g->call != NULL) {
        npugraph__followed_fail(g->call, rc, &err);
        return;
    }
    if (rc == 0)
        rc = start_kept(g, 0, &err);
    if (rc != 0)
        finish_locked(g, rc, &err);
}

void npugraph_generations_step(struct npugraph_generations *all, const struct npugraph_generation_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct generation *g;

        pthread_mutex_lock(&all->lock); /* for each anew: answers come meanwhile */
        for (g = all->running; g != NULL && g->tag != steps[i].tag;)
            g = g->next;
        if (g != NULL && g->stepped && !g->underway && !g->cancelled)
            begin_next_step(g, &steps[i]);
        pthread_mutex_unlock(&all->lock);
    }
}

/* ---- the end ---- */

/* Ends one that waits for a daemon. The lock is held. */
static void finish_broken(struct generation *g)
{
    const struct npugraph_error why = g->broken.why;

    unlist_broken(g);
    finish_locked(g, why.code, &why);
}

void npugraph_generations_cancel(struct npugraph_generations *all, uint64_t tag)
{
    struct generation *g;

    pthread_mutex_lock(&all->lock);
    for (g = all->running; g != NULL && g->tag != tag;)
        g = g->next;
    if (g != NULL && !g->cancelled) { /* else its end is on its way, and may have left this lock for a moment */
        g->cancelled = true;
        if (g->call != NULL)
            npugraph__followed_cancel(g->call); /* it is there: its end takes this lock first */
        else if (g->stepped && !g->underway)
            finish_locked(g, 0, NULL); /* nothing of it runs */
        else if (g->broken.listed)
            finish_broken(g);
    }
    pthread_mutex_unlock(&all->lock);
}

size_t npugraph_generations_take(struct npugraph_generations *all, struct npugraph_generation_event *events, size_t n)
{
    uint64_t count;

    pthread_mutex_lock(&all->lock);
    free_taken(all);
    for (; all->taken < n && all->taken < all->n; all->taken++)
        events[all->taken] = all->events[all->taken].e;
    n = all->taken;
    if (n == all->n)
        while (read(all->fd, &count, sizeof(count)) < 0 && errno == EINTR)
            continue;
    pthread_mutex_unlock(&all->lock);
    return n;
}

void npugraph_generations_destroy(struct npugraph_generations *all)
{
    if (all == NULL)
        return;
    pthread_mutex_lock(&all->lock);
    all->stopping = true;
    pthread_cond_signal(&all->woken);
    pthread_mutex_unlock(&all->lock);
    if (all->has_repeater)
        pthread_join(all->repeater, NULL);
    if (all->follower != NULL)
        npugraph__follower_stop(all->follower);
    while (all->running != NULL) { /* those of which nothing runs */
        struct generation *g = all->running;

        forget_generation(g);
        free_generation(g);
    }
    all->taken = all->n;
    free_taken(all);
    free(all->events);
    close(all->fd);
    pthread_cond_destroy(&all->woken);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
