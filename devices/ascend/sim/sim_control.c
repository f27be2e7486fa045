/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's own side: settings, the log of calls, injected faults, counters, error texts.
 *
 * Settings come from the environment when the library is loaded, and from ngd_aclsim_set() afterwards. Every function
 * of the interface opens with SIM_CALL, which counts it, logs it and may end it with an injected fault.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local char recent[SIM_TEXT], given[SIM_TEXT];
static _Thread_local uint64_t api_ns;
static _Thread_local int last_error;
static _Thread_local int depth;
static _Atomic int64_t calls, violations, live[SIM_LIVE_MAX];
_Atomic int64_t sim_limited;
/* The log and the one injected fault have a lock of their own: calls are opened with and without sim.lock. */
static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static char *log_text;
static size_t log_len, log_room;
static struct {
    bool armed, any;
    char name[64];
    int64_t left;
    int code;
} fault;
static _Atomic bool watched; /* log or fault: only then is call_lock taken */

uint64_t sim_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- settings ------------------------------------------------------------------------------------ */

static bool parse_number(const char *text, uint64_t max, uint64_t *value_p)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (end == text || errno)
        return false;
    if (*end == 'K' || *end == 'M' || *end == 'G') {
        int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;

        if (v > UINT64_MAX >> shift)
            return false;
        v <<= shift;
        end++;
    }
    if (*end || v > max)
        return false;
    *value_p = v;
    return true;
}

/* Numbers of 32 bits; what is below `least` is no value. */
static const struct {
    const char *key;
    uint32_t *field;
    uint32_t least;
} words[] = {
    {"streams", &sim.config.streams, 0},
    {"events", &sim.config.events, 0},
    {"cascade", &sim.config.cascade, 1},
    {"destroy_wait_ms", &sim.config.destroy_wait_ms, 0},
    {"shuffle", &sim.config.shuffle, 0},
    {"hccl_exec_ms", &sim.config.hccl_exec_ms, 1},
    {"hccl_connect_ms", &sim.config.hccl_connect_ms, 1},
    {"hccl_streams", &sim.config.hccl_streams, 0},
};
static const struct {
    const char *key;
    uint64_t *field;
} sizes[] = {{"hbm", &sim.config.hbm}, {"taken", &sim.config.taken}, {"hccl_buffer", &sim.config.hccl_buffer}};
static const struct {
    const char *key;
    bool *field;
} switches[] = {
    {"old_driver", &sim.config.old_driver},       {"lazy_bind", &sim.config.lazy_bind},
    {"empty_kernels", &sim.config.empty_kernels}, {"no_mapping", &sim.config.no_mapping},
    {"need_opp", &sim.config.need_opp},           {"lenient", &sim.config.lenient},
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool set_number_setting(const char *key, uint64_t v)
{
    for (size_t i = 0; i < COUNT(words); i++) {
        if (strcmp(key, words[i].key) != 0)
            continue;
        if (v < words[i].least || v > UINT32_MAX)
            return false;
        *words[i].field = (uint32_t)v;
        return true;
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        if (strcmp(key, sizes[i].key) == 0) {
            *sizes[i].field = v;
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(switches); i++) {
        if (strcmp(key, switches[i].key) == 0) {
            *switches[i].field = v != 0;
            return true;
        }
    }
    if (strcmp(key, "devices") != 0 || v > SIM_MAX_DEVICES)
        return false;
    sim.config.devices = (int)v;
    return true;
}

uint64_t ngd_aclsim_setting(const char *key)
{
    uint64_t v = 0;

    pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < COUNT(words); i++)
        if (strcmp(key, words[i].key) == 0)
            v = *words[i].field;
    for (size_t i = 0; i < COUNT(sizes); i++)
        if (strcmp(key, sizes[i].key) == 0)
            v = *sizes[i].field;
    pthread_mutex_unlock(&sim.lock);
    return v;
}

/* Versions of CANN, and what aclrtGetVersion says of them. */
static const struct {
    const char *name;
    int cann, version[3];
} apis[] = {
    {"8.1", 81, {1, 0, 0}},  {"8.2", 82, {1, 13, 0}}, {"8.3", 83, {1, 14, 0}},
    {"8.5", 85, {1, 15, 0}}, {"9.1", 91, {1, 17, 0}},
};

static bool set_api(const char *name)
{
    for (size_t i = 0; i < COUNT(apis); i++) {
        if (strcmp(name, apis[i].name) != 0)
            continue;
        sim.config.cann = apis[i].cann;
        memcpy(sim.config.version, apis[i].version, sizeof(sim.config.version));
        return true;
    }
    return false;
}

static bool set_soc(const char *name)
{
    if (!*name || strlen(name) >= sizeof(sim.config.soc))
        return false;
    memcpy(sim.config.soc, name, strlen(name) + 1);
    return true;
}

bool ngd_aclsim_set(const char *key, const char *value)
{
    uint64_t v;
    bool ok = true;

    pthread_mutex_lock(&sim.lock);
    if (strcmp(key, "api") == 0) {
        ok = set_api(value);
    } else if (strcmp(key, "soc") == 0) {
        ok = set_soc(value);
    } else if (strcmp(key, "log") == 0) {
        sim.config.log = strcmp(value, "0") != 0;
        atomic_store(&watched, sim.config.log || fault.armed);
    } else {
        ok = parse_number(value, UINT64_MAX, &v) && set_number_setting(key, v);
    }
    pthread_mutex_unlock(&sim.lock);
    return ok;
}

/* The environment holds NGD_ACLSIM_DEVICES and so on; FAIL is NAME:N:CODE. */
static void set_from_environment(const char *key)
{
    char name[64] = "NGD_ACLSIM_";
    size_t n = strlen(name);
    const char *value;

    for (size_t i = 0; key[i] && n + 1 < sizeof(name); i++)
        name[n++] = (char)toupper((unsigned char)key[i]);
    name[n] = '\0';
    value = getenv(name);
    if (value && !ngd_aclsim_set(key, value))
        fprintf(stderr, "acl simulator: %s=%s is not a value of this setting, ignoring it\n", name, value);
}

static void fail_from_environment(void)
{
    const char *text = getenv("NGD_ACLSIM_FAIL");
    char name[64];
    long long n;
    int code;

    if (text && sscanf(text, "%63[^:]:%lld:%d", name, &n, &code) == 3)
        ngd_aclsim_fail_call(strcmp(name, "*") == 0 ? NULL : name, n, code);
    else if (text)
        fprintf(stderr, "acl simulator: NGD_ACLSIM_FAIL is FUNCTION:N:CODE, or *:N:CODE; ignoring it\n");
}

static void break_from_environment(void)
{
    const char *how = getenv("NGD_ACLSIM_BREAK");

    if (how && !ngd_aclsim_break(0, how))
        fprintf(stderr, "acl simulator: NGD_ACLSIM_BREAK is fault, hang, lost or ok; ignoring it\n");
}

static void lose_from_environment(void)
{
    const char *text = getenv("NGD_ACLSIM_LOSE");
    unsigned device;
    long long n;

    for (size_t i = 0; i < SIM_MAX_DEVICES; i++)
        sim.device[i].lose_after = -1;
    if (text && sscanf(text, "%u:%lld", &device, &n) == 2 && device < SIM_MAX_DEVICES)
        sim.device[device].lose_after = n;
    else if (text)
        fprintf(stderr, "acl simulator: NGD_ACLSIM_LOSE is DEVICE:N; ignoring it\n");
}

__attribute__((constructor)) static void load_settings(void)
{

    sim.config = (struct sim_config){
        .devices = 1,
        .hbm = (uint64_t)4 << 30,
        .streams = 1984,
        .events = 65536,
        .cascade = 2048,
        .destroy_wait_ms = 10000,
        .hccl_exec_ms = 1836000,
        .hccl_connect_ms = 120000,
        .hccl_streams = 2,
        .hccl_buffer = (uint64_t)400 << 20, /* 200 MiB each for what is sent and what is received */
    };
    set_api("9.1");
    set_soc("Ascend910B-simulator");
    for (size_t i = 0; i < COUNT(words); i++)
        set_from_environment(words[i].key);
    for (size_t i = 0; i < COUNT(sizes); i++)
        set_from_environment(sizes[i].key);
    for (size_t i = 0; i < COUNT(switches); i++)
        set_from_environment(switches[i].key);
    set_from_environment("devices");
    set_from_environment("log");
    set_from_environment("api");
    set_from_environment("soc");
    fail_from_environment();
    break_from_environment();
    lose_from_environment();
}

/* ---- calls --------------------------------------------------------------------------------------- */

void ngd_aclsim_fail_call(const char *name, int64_t n, int code)
{
    pthread_mutex_lock(&call_lock);
    fault.armed = n >= 0;
    fault.any = name == NULL;
    snprintf(fault.name, sizeof(fault.name), "%s", name ? name : "");
    fault.left = n;
    fault.code = code;
    atomic_store(&watched, sim.config.log || fault.armed);
    pthread_mutex_unlock(&call_lock);
}

static void append_log(const char *name)
{
    size_t n = strlen(name);

    if (log_len + n + 2 > log_room) {
        size_t room = log_room ? log_room * 2 : 4096;
        char *p = realloc(log_text, room + n);

        if (!p)
            return;
        log_text = p;
        log_room = room + n;
    }
    memcpy(log_text + log_len, name, n);
    log_len += n;
    log_text[log_len++] = '\n';
    log_text[log_len] = '\0';
}

static int look_at_call(const char *name)
{
    int code = 0;

    pthread_mutex_lock(&call_lock);
    if (sim.config.log)
        append_log(name);
    if (fault.armed && (fault.any || strcmp(name, fault.name) == 0) && fault.left-- == 0) {
        fault.armed = false;
        code = fault.code;
    }
    pthread_mutex_unlock(&call_lock);
    return code;
}

struct sim_scope ngd_aclsim_enter(const char *name)
{
    struct sim_scope scope = {.name = name};

    if (depth++ == 0)
        scope.start = sim_now_ns();
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&watched, memory_order_relaxed)) {
        scope.injected = look_at_call(name);
        if (scope.injected)
            snprintf(recent, sizeof(recent), "%s: fault %d was injected", name, scope.injected);
    }
    return scope;
}

void ngd_aclsim_leave(struct sim_scope *scope)
{
    if (--depth == 0)
        api_ns += sim_now_ns() - scope->start;
}

int ngd_aclsim_fail(int code, const char *real, const char *fmt, ...)
{
    va_list ap;
    int n;

    atomic_fetch_add(&violations, 1);
    last_error = code;
    va_start(ap, fmt);
    n = vsnprintf(recent, sizeof(recent), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(recent))
        snprintf(recent + n, sizeof(recent) - (size_t)n, " [%d]%s%s", code, real ? "; a real device: " : "",
                 real ? real : "");
    return code;
}

const char *aclGetRecentErrMsg(void)
{
    if (!recent[0])
        return NULL;
    memcpy(given, recent, sizeof(given));
    recent[0] = '\0';
    return given;
}

ngd_acl_error_t aclrtPeekAtLastError(int level)
{
    (void)level;
    return last_error;
}

ngd_acl_error_t aclrtGetLastError(int level)
{
    int code = last_error;

    (void)level;
    last_error = 0;
    return code;
}

/* ---- counters ------------------------------------------------------------------------------------ */

void ngd_aclsim_live(int what, int64_t delta)
{
    atomic_fetch_add(&live[what], delta);
}

bool ngd_aclsim_empty_kernels(void)
{
    return sim.config.empty_kernels;
}

bool ngd_aclsim_old_api(void)
{
    return sim.config.cann < 82;
}

bool ngd_aclsim_lenient(void)
{
    return sim.config.lenient;
}

bool ngd_aclsim_need_opp(void)
{
    return sim.config.need_opp;
}

int ngd_aclsim_cann(void)
{
    return sim.config.cann;
}

ngd_chip_t ngd_aclsim_chip(void)
{
    return ngd_chip_by_soc(sim.config.soc);
}

bool ngd_aclsim_no_mapping(void)
{
    return sim.config.no_mapping;
}

int64_t ngd_aclsim_count(const char *what)
{
    static const char *const names[] = {"streams", "events",   "bytes",     "pinned", "contexts",
                                        "models",  "operands", "executors", "ranges"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(what, names[i]) == 0)
            return atomic_load(&live[i]);
    if (strcmp(what, "calls") == 0)
        return atomic_load(&calls);
    if (strcmp(what, "violations") == 0)
        return atomic_load(&violations);
    if (strcmp(what, "limited") == 0)
        return atomic_load(&sim_limited);
    if (strcmp(what, "api_ns") == 0)
        return (int64_t)api_ns;
    return -1;
}

char *ngd_aclsim_log(void)
{
    char *copy;

    pthread_mutex_lock(&call_lock);
    copy = log_text ? strdup(log_text) : NULL;
    pthread_mutex_unlock(&call_lock);
    return copy;
}

void ngd_aclsim_log_clear(void)
{
    pthread_mutex_lock(&call_lock);
    log_len = 0;
    if (log_text)
        log_text[0] = '\0';
    pthread_mutex_unlock(&call_lock);
}
