/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that families call: they read config.json, declare weights, caches and rotary tables, and write nodes.
 * docs/families.md describes each for authors. A refusal ends the run, and its sentence names the field of config.json.
 */
#include "client/hf/family.h"
#include "client/hf/gguf.h"
#include "client/hf/kv_groups.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM_MAX     INT32_MAX
#define LIKE_MAX    4096
#define ROPE_MAX    65536 /* dimensions of a head that turn */
#define WEIGHTS_MAX 100000
#define CACHES_MAX  1024 /* layers with a KV cache */
#define ROPES_MAX   4
#define MADE_MAX    16384
#define TEXT_MAX    ((size_t)64 << 20) /* of a graph */

/* ---- config.json ---- */

__attribute__((format(printf, 4, 5))) static int refuse_family(lua_State *lua, int code, const char *reason,
                                                               const char *fmt, ...)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    npugraph__error(run->err, code, reason, "%s", text);
    run->refused = true;
    lua_pushstring(lua, text);
    return lua_error(lua);
}

static int corrupt_field(lua_State *lua, const char *key, const char *what)
{
    return refuse_family(lua, 3, "FILE_CORRUPT", "%s: %.96s %.120s",
                         npugraph__config_name(npugraph__family_of(lua)->ck), key, what);
}

/* Finds a field of an object, which may be null; dots lead into objects. */
static json_t *find_field_of(lua_State *lua, const json_t *object, const char *path)
{
    char key[64];

    for (;;) {
        size_t n = strcspn(path, ".");
        json_t *at;

        if (n >= sizeof(key))
            luaL_error(lua, "the name of a field is longer than %d bytes", (int)sizeof(key) - 1);
        memcpy(key, path, n);
        key[n] = '\0';
        at = json_object_get(object, key);
        if (path[n] == '\0' || at == NULL)
            return at;
        object = at;
        path += n + 1;
    }
}

/* Finds a field of config.json, or of its text_config. Beside that stands what is said of the whole file: that it is
 * quantised, and that the head is tied, which either place may say. */
static json_t *find_given_field(lua_State *lua, const char *path)
{
    const struct npugraph__checkpoint *const ck = npugraph__family_of(lua)->ck;
    static const char tied[] = "tie_word_embeddings", quantised[] = "quantization_config";
    json_t *v = find_field_of(lua, ck->fields, path), *beside = NULL;

    if (ck->fields != ck->config &&
        (strcmp(path, tied) == 0 ? !json_is_true(v) : v == NULL && strncmp(path, quantised, strlen(quantised)) == 0))
        beside = find_field_of(lua, ck->config, path);
    return beside != NULL ? beside : v;
}

/* The same; returns NULL if the field is null, too. */
static json_t *find_config_field(lua_State *lua, const char *path)
{
    json_t *v = find_given_field(lua, path);

    return json_is_null(v) ? NULL : v;
}

static int call_int(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    json_t *v = find_config_field(lua, key);

    if (v == NULL && !lua_isnoneornil(lua, 2)) {
        lua_settop(lua, 2);
        return 1;
    }
    if (v == NULL)
        return corrupt_field(lua, key, "is missing");
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > DIM_MAX)
        return corrupt_field(lua, key, "must be an integer, 1 to 2147483647");
    lua_pushinteger(lua, json_integer_value(v));
    return 1;
}

static int call_number(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    json_t *v = find_config_field(lua, key);

    if (v == NULL && !lua_isnoneornil(lua, 2)) {
        lua_pushnumber(lua, luaL_checknumber(lua, 2));
        return 1;
    }
    if (v == NULL)
        return corrupt_field(lua, key, "is missing");
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return corrupt_field(lua, key, "must be a number");
    lua_pushnumber(lua, json_number_value(v));
    return 1;
}

static int call_bool(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    json_t *v = find_config_field(lua, key);

    if (v != NULL && !json_is_boolean(v))
        return corrupt_field(lua, key, "must be true or false");
    lua_pushboolean(lua, v != NULL ? json_is_true(v) : lua_toboolean(lua, 2));
    return 1;
}

static int call_text(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    json_t *v = find_config_field(lua, key);

    if (v != NULL && !json_is_string(v))
        return corrupt_field(lua, key, "must be a string");
    lua_settop(lua, 2);
    if (v != NULL)
        lua_pushstring(lua, json_string_value(v));
    return 1;
}

/* given(KEY): whether the field is there, perhaps as null. */
static int call_given(lua_State *lua)
{
    lua_pushboolean(lua, find_given_field(lua, luaL_checkstring(lua, 1)) != NULL);
    return 1;
}

static int call_has(lua_State *lua)
{
    lua_pushboolean(lua, find_config_field(lua, luaL_checkstring(lua, 1)) != NULL);
    return 1;
}

/* object(KEY): whether the field is there, and an object. */
static int call_object(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    json_t *v = find_config_field(lua, key);

    if (v != NULL && !json_is_object(v))
        return corrupt_field(lua, key, "must be an object");
    lua_pushboolean(lua, v != NULL);
    return 1;
}

/* Pushes a list as a table. It may have lists in it if `nested`. */
static int push_list(lua_State *lua, const char *key, const json_t *v, bool nested)
{
    json_t *item;
    size_t i;

    lua_createtable(lua, 0, 0);
    json_array_foreach((json_t *)v, i, item)
    {
        if (json_is_integer(item))
            lua_pushinteger(lua, json_integer_value(item));
        else if (json_is_real(item))
            lua_pushnumber(lua, json_real_value(item));
        else if (json_is_string(item))
            lua_pushstring(lua, json_string_value(item));
        else if (json_is_boolean(item))
            lua_pushboolean(lua, json_is_true(item));
        else if (json_is_array(item) && nested)
            push_list(lua, key, item, false);
        else
            return corrupt_field(lua, key, "must be a list of numbers, strings or booleans");
        lua_rawseti(lua, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* list(KEY[, NESTED]): numbers, strings and booleans as a table, and with NESTED lists of these; nil if the field is
 * absent. */
static int call_list(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    json_t *v = find_config_field(lua, key);

    if (v == NULL)
        return 0;
    if (!json_is_array(v))
        return corrupt_field(lua, key, "must be a list");
    return push_list(lua, key, v, lua_toboolean(lua, 2));
}

/* keys(KEY): the names of an object's fields, as a table; nil if the field is absent. */
static int call_keys(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1), *name;
    json_t *v = find_config_field(lua, key), *value;
    lua_Integer n = 0;

    if (v == NULL)
        return 0;
    if (!json_is_object(v))
        return corrupt_field(lua, key, "must be an object");
    lua_createtable(lua, 0, 0);
    json_object_foreach(v, name, value)
    {
        lua_pushstring(lua, name);
        lua_rawseti(lua, -2, ++n);
    }
    return 1;
}

/* contains(TEXT, PART): whether PART is somewhere in TEXT. A loop over characters would take a run's instructions. */
static int call_contains(lua_State *lua)
{
    lua_pushboolean(lua, strstr(luaL_checkstring(lua, 1), luaL_checkstring(lua, 2)) != NULL);
    return 1;
}

/* like(TEXT, WILDCARDS): whether all of TEXT is as WILDCARDS, where "*" stands for any characters and "?" for one. Only
 * the last "*" is tried again, so that it takes no more than length times length. */
static int call_like(lua_State *lua)
{
    const char *s = luaL_checkstring(lua, 1), *w = luaL_checkstring(lua, 2), *star = NULL, *from = NULL;

    luaL_argcheck(lua, strlen(s) <= LIKE_MAX, 1, "the text is too long");
    luaL_argcheck(lua, strlen(w) <= LIKE_MAX, 2, "the pattern is too long");
    while (*s != '\0') {
        if (*w == '*') {
            star = ++w;
            from = s;
        } else if (*w == '?' || *w == *s) {
            w++;
            s++;
        } else if (star != NULL) {
            w = star;
            s = ++from;
        } else {
            break;
        }
    }
    lua_pushboolean(lua, *s == '\0' && w[strspn(w, "*")] == '\0');
    return 1;
}

static int call_refuse(lua_State *lua)
{
    return refuse_family(lua, 3, "FILE_UNSUPPORTED", "%s: %.96s %.120s",
                         npugraph__config_name(npugraph__family_of(lua)->ck), luaL_checkstring(lua, 1),
                         luaL_checkstring(lua, 2));
}

static int call_corrupt(lua_State *lua)
{
    return corrupt_field(lua, luaL_checkstring(lua, 1), luaL_checkstring(lua, 2));
}

/* divide(KEY, N): what one of the ranks has of N. */
static int call_divide(lua_State *lua)
{
    const char *key = luaL_checkstring(lua, 1);
    lua_Integer n = luaL_checkinteger(lua, 2);
    uint32_t ranks = npugraph__family_of(lua)->ck->ranks;

    if (n % ranks != 0)
        return refuse_family(lua, 3, "INVALID_ARGUMENT",
                             "%.96s is %lld, which %u devices cannot divide evenly among them", key, (long long)n,
                             ranks);
    lua_pushinteger(lua, n / ranks);
    return 1;
}

/* one_device(WHY): the model cannot be divided. */
static int call_one_device(lua_State *lua)
{
    const struct npugraph__checkpoint *ck = npugraph__family_of(lua)->ck;

    if (ck->ranks > 1)
        return refuse_family(lua, 3, "INVALID_ARGUMENT", "%s: %.100s, which %u devices cannot divide among them",
                             ck->architecture, luaL_checkstring(lua, 1), ck->ranks);
    return 0;
}

/* text_part(): the checkpoint has parts for images or sound, which are not read. From here on, fields are those of
 * text_config; older files have them beside the other parts' objects. `head_in_file` becomes true if the file has a
 * head. */
static int call_text_part(lua_State *lua)
{
    struct npugraph__checkpoint *ck = npugraph__family_of(lua)->ck;
    const json_t *text = json_object_get(ck->config, "text_config");

    if (text != NULL && !json_is_object(text))
        return corrupt_field(lua, "text_config", "must be an object");
    ck->parts = true;
    ck->fields = text != NULL ? text : ck->config;
    npugraph__find_head(ck, npugraph__family_of(lua)->dir);
    lua_pushboolean(lua, true);
    lua_setglobal(lua, "parts");
    lua_pushboolean(lua, ck->has_head);
    lua_setglobal(lua, "head_in_file");
    return 0;
}

/* ---- declarations ---- */

static int64_t check_dim(lua_State *lua, int at)
{
    lua_Integer v = luaL_checkinteger(lua, at);

    luaL_argcheck(lua, v >= 1 && v <= DIM_MAX, at, "a dimension must be 1 or more");
    return v;
}

/* Makes room for one more item of a list, in steps. Returns the list, or ends the run. */
static void *make_room(lua_State *lua, void *items, size_t n, size_t max, size_t size, const char *what)
{
    void *more = items;

    if (n == max)
        luaL_error(lua, "more than %d %s", (int)max, what);
    if ((n & (n - 1)) == 0) /* full: rooms are powers of two */
        more = realloc(items, (n == 0 ? 1 : 2 * n) * size);
    if (more == NULL)
        refuse_family(lua, 8, "NO_MEMORY", "out of memory");
    return more;
}

/* The kinds of weights. Their changes are words of TensorChange (proto/npugraph.proto). */
static const struct npugraph__kind weight_kinds[] = {
    {"float", NULL, NULL, 1, false},
    {"i8", "i8", NULL, 1, false},
    {"f8", "f8_e4m3fn", NULL, 1, false},
    {"f4", "u8", NULL, 2, false},
    {"e8m0", "u8", NULL, 0, false},
    {"int4", "i32", "offset_int4", 8, false},
    {"int8", "i8", "offset_int8", 1, false},
    {"gptq_int4", "i32", "gptq_int4", 8, false},
    {"gptq_int8", "i8", "gptq_int8", 1, false},
    {"awq_int4", "i32", "awq_int4", 8, false},
    {"int4_zeros", "f16", "offset_int4_zeros", 0, false},
    {"int8_zeros", "f16", "offset_int8_zeros", 0, false},
    {"i8_zeros", "f16", "i8_zeros", 0, false},
    {"gptq_int4_zeros", "f16", "gptq_int4_zeros", 0, false},
    {"gptq_int8_zeros", "f16", "gptq_int8_zeros", 0, false},
    {"gptq_v2_int4_zeros", "f16", "gptq_v2_int4_zeros", 0, false},
    {"gptq_v2_int8_zeros", "f16", "gptq_v2_int8_zeros", 0, false},
    {"awq_int4_zeros", "f16", "awq_int4_zeros", 0, false},
    {"transpose", NULL, "transpose", 1, false},
    {"group_index", "i32", NULL, 0, true},
};

const struct npugraph__kind *npugraph__kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(weight_kinds) / sizeof(weight_kinds[0]); i++)
        if (strcmp(weight_kinds[i].name, name) == 0)
            return &weight_kinds[i];
    return NULL;
}

static struct npugraph__weight *declare_weight(lua_State *lua, const char *name, uint32_t rank, const int64_t *shape,
                                               enum npugraph__split split, const struct npugraph__kind *kind)
{
    struct npugraph__checkpoint *ck = npugraph__family_of(lua)->ck;
    struct npugraph__weights *w = &ck->weights;
    struct npugraph__weight *x;

    if (w->by_name == NULL)
        w->by_name = json_object();
    w->items = make_room(lua, w->items, w->n, WEIGHTS_MAX, sizeof(*w->items), "weights");
    x = &w->items[w->n++];
    *x = (struct npugraph__weight){
        .rank = rank, .split = split, .kind = kind, .apart = npugraph__family_of(lua)->making};
    if (json_object_set_new_nocheck(w->by_name, name, json_integer((json_int_t)w->n - 1)) != 0)
        refuse_family(lua, 8, "NO_MEMORY", "out of memory");
    if (kind->dtype != NULL)
        snprintf(x->dtype, sizeof(x->dtype), "%s", kind->dtype);
    snprintf(x->name, sizeof(x->name), "%s", name);
    for (uint32_t d = 0; d < rank; d++)
        x->shape[d] = x->full[d] = shape[d];
    if (split == NPUGRAPH__ROWS)
        x->full[0] *= ck->ranks;
    if (split == NPUGRAPH__COLUMNS)
        x->full[1] *= ck->ranks;
    return x;
}

static void put_weight(struct npugraph__family_run *run, const struct npugraph__weight *x)
{
    struct ngd_strbuf *params = x->apart ? &run->made_params : &run->params;

    if (!npugraph__weight_is_param(x))
        return;
    ngd_strbuf_printf(params, "  param %%%s : %s[", x->name, x->dtype);
    for (uint32_t d = 0; d < x->rank; d++)
        ngd_strbuf_printf(params, "%s%" PRId64, d > 0 ? "," : "", x->shape[d]);
    ngd_strbuf_append(params, "]\n");
}

/* Declares a tensor, or finds it again. Returns its value; nil if this rank does not have it. */
static int push_weight(lua_State *lua, const char *name, uint32_t rank, const int64_t *shape,
                       enum npugraph__split split, const struct npugraph__kind *kind)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    struct npugraph__weight *x = npugraph__weights_find(&run->ck->weights, name);
    bool again = x != NULL && (run->shape == NULL || x < run->ck->weights.items + run->n_weights);

    luaL_argcheck(lua, strlen(name) < sizeof(x->name), 1, "the name of a tensor is too long");
    if (x == NULL && run->shape == NULL)
        x = declare_weight(lua, name, rank, shape, split, kind);
    if (x == NULL || x->rank != rank || memcmp(x->shape, shape, rank * sizeof(*shape)) != 0 || x->split != split ||
        x->kind != kind)
        return luaL_error(lua, "weight %s is declared twice, with different shapes or kinds", name);
    if (!again && run->shape != NULL && x != run->ck->weights.items + run->n_weights)
        return luaL_error(lua, "weight %s is not declared in the same order by each run", name);
    if (x->apart != run->making)
        return luaL_error(lua, "weight %s is declared both by made() and beside it", name);
    if (!again) {
        run->n_weights++;
        if (run->shape != NULL && !x->absent)
            put_weight(run, x);
    }
    if (x->absent)
        return 0;
    lua_pushfstring(lua, "%%%s", name);
    return 1;
}

static const struct npugraph__kind *check_kind(lua_State *lua, int at)
{
    const struct npugraph__kind *kind = npugraph__kind_find(luaL_optstring(lua, at, "float"));

    luaL_argcheck(lua, kind != NULL, at, "there is no such kind");
    luaL_argcheck(lua, !kind->group_index, at, "is declared by columns_order()"); /* which knows the groups' size */
    return kind;
}

/*
 * weight(NAME, ROWS[, COLUMNS[, SPLIT[, KIND]]]): a tensor of the checkpoint, with the shape that a rank has. SPLIT is
 * "rows", "columns" or "first"; KIND one of weight_kinds.
 */
static int call_weight(lua_State *lua)
{
    static const char *const splits[] = {"whole", "rows", "columns", "first", NULL};
    const uint32_t rank = lua_isnoneornil(lua, 3) ? 1 : 2;
    const int64_t shape[2] = {check_dim(lua, 2), rank == 2 ? check_dim(lua, 3) : 0};
    const enum npugraph__split split = (enum npugraph__split)luaL_checkoption(lua, 4, "whole", splits);

    luaL_argcheck(lua, split != NPUGRAPH__COLUMNS || rank == 2, 4, "a vector has no columns");
    return push_weight(lua, luaL_checkstring(lua, 1), rank, shape, split, check_kind(lua, 5));
}

/*
 * columns_order(NAME, WEIGHT, COLUMNS, GROUP[, FIXED]): NAME has the group of each column of WEIGHT, which was declared
 * before; groups have GROUP columns. Returns the order in which WEIGHT gets its columns, a value i32[COLUMNS], which is
 * the same for equal orders; nil if they are in the order of groups, as they must be if FIXED.
 */
static int call_columns_order(lua_State *lua)
{
    struct npugraph__weights *all = &npugraph__family_of(lua)->ck->weights;
    const int64_t columns = check_dim(lua, 3), group = check_dim(lua, 4);
    struct npugraph__weight *w, *x;

    luaL_argcheck(lua, columns % group == 0, 4, "must divide the columns");
    push_weight(lua, luaL_checkstring(lua, 1), 1, &columns, NPUGRAPH__WHOLE, npugraph__kind_find("group_index"));
    x = npugraph__weights_find(all, luaL_checkstring(lua, 1));
    w = npugraph__weights_find(all, luaL_checkstring(lua, 2));
    luaL_argcheck(lua, w != NULL && w->rank == 2, 2, "is not declared as a matrix");
    x->group = (size_t)group;
    x->fixed = lua_toboolean(lua, 5);
    w->ordered_by = (size_t)(x - all->items) + 1;
    if (x->order == NULL)
        return 0;
    lua_pushfstring(lua, "%%%s", x->same_order != 0 ? all->items[x->same_order - 1].name : x->name);
    return 1;
}

/* tensor(NAME, {DIM, ...}[, KIND]): a tensor of any rank that each device has whole. */
static int call_tensor(lua_State *lua)
{
    int64_t shape[NPUGRAPH__DIMS] = {0}, all = 1;
    lua_Integer n;

    luaL_checktype(lua, 2, LUA_TTABLE);
    n = (lua_Integer)lua_rawlen(lua, 2);
    luaL_argcheck(lua, n >= 1 && n <= NPUGRAPH__DIMS, 2, "a tensor has 1 to 4 dimensions");
    for (int i = 0; i < (int)n; i++) {
        lua_rawgeti(lua, 2, i + 1);
        shape[i] = check_dim(lua, -1);
        lua_pop(lua, 1);
        luaL_argcheck(lua, !__builtin_mul_overflow(all, shape[i], &all), 2, "the tensor is too large");
    }
    return push_weight(lua, luaL_checkstring(lua, 1), (uint32_t)n, shape, NPUGRAPH__WHOLE, check_kind(lua, 3));
}

/* dtype(NAME): of a weight that was declared; "f32" until it is loaded. */
static int call_dtype(lua_State *lua)
{
    const char *name = luaL_checkstring(lua, 1);
    const struct npugraph__weight *x = npugraph__weights_find(&npugraph__family_of(lua)->ck->weights, name);

    if (x == NULL)
        return luaL_error(lua, "weight %s is not declared", name);
    lua_pushstring(lua, x->dtype[0] != '\0' ? x->dtype : "f32");
    return 1;
}

/* stored(NAME): how a GGUF file has the tensor, "Q8_0"; nil for tensors of safetensors, and for none. */
static int call_stored(lua_State *lua)
{
    const struct npugraph__gguf *g = npugraph__family_of(lua)->ck->gguf;
    const struct ngd_gguf_tensor *t = NULL;
    char name[sizeof(((struct npugraph__weight *)0)->name)];

    if (g != NULL && npugraph__gguf_name(g, luaL_checkstring(lua, 1), name, sizeof(name)))
        t = ngd_gguf_tensor(&g->header, name);
    lua_pushstring(lua, t != NULL ? t->type->name : NULL);
    return 1;
}

static void put_cache(struct npugraph__family_run *run, const struct npugraph__cache *c)
{
    const struct npugraph__shape *s = run->shape;

    for (int i = 0; i < 2; i++)
        ngd_strbuf_printf(&run->states, "  state %%%s : %s[%u,%u,%" PRId64 ",%" PRId64 "]\n", c->label[i], s->kv_dtype,
                          s->num_blocks, s->block_size, c->heads, c->dim[i]);
    for (size_t i = 2; i < npugraph__cache_states(s); i++)
        ngd_strbuf_printf(&run->states, "  state %%%s : f32[%u,%" PRId64 ",%u]\n", c->label[i], s->num_blocks, c->heads,
                          s->block_size);
}

static bool same_cache(const struct npugraph__cache *a, const struct npugraph__cache *b)
{
    return a->heads == b->heads && memcmp(a->dim, b->dim, sizeof(a->dim)) == 0 && a->window == b->window &&
           a->placed == b->placed && a->scaled == b->scaled;
}

/* Returns the fourth argument of cache(), if there is one. */
static int64_t check_cache_window(lua_State *lua)
{
    if (!lua_toboolean(lua, 4))
        return 0;
    return check_dim(lua, 4);
}

/* Pushes the values of a group's slots or table. */
static void push_group_input(lua_State *lua, const char *name, uint32_t group)
{
    if (group == 0)
        lua_pushfstring(lua, "%%%s", name);
    else
        lua_pushfstring(lua, "%%%s.%d", name, (int)group);
}

/*
 * cache(HEADS, DIM[, VALUE_DIM[, WINDOW[, SCALED]]]): the KV cache of one more layer. VALUE_DIM: DIM, unless it is
 * given. Returns the values of keys and values, and those of the slots and of the block table that the layer must use
 * if WINDOW is given (nil or false: it has none). With SCALED, returns the values of the scales of keys and of values
 * too, or nil for a cache of floats.
 */
static int call_cache(lua_State *lua)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    struct npugraph__checkpoint *ck = run->ck;
    struct npugraph__cache cache = {.heads = check_dim(lua, 1), .dim[0] = check_dim(lua, 2)};
    static const char *const parts[] = {"key", "value", "key_scale", "value_scale"};
    uint32_t group = 0;
    size_t state = run->n_caches;

    cache.dim[1] = lua_isnoneornil(lua, 3) ? cache.dim[0] : check_dim(lua, 3);
    luaL_argcheck(lua, cache.heads * cache.dim[0] <= DIM_MAX && cache.heads * cache.dim[1] <= DIM_MAX, 1,
                  "a row of the cache is too large");
    cache.placed = lua_gettop(lua) >= 4;
    cache.window = check_cache_window(lua);
    cache.scaled = lua_toboolean(lua, 5);
    for (size_t i = 0; i < NPUGRAPH__CACHE_STATES; i++)
        snprintf(cache.label[i], sizeof(cache.label[i]), "kv.%zu.%s", run->n_caches, parts[i]);
    if (run->shape == NULL) {
        ck->caches = make_room(lua, ck->caches, ck->n_caches, CACHES_MAX, sizeof(cache), "caches");
        ck->caches[ck->n_caches++] = cache;
    }
    if (run->n_caches >= ck->n_caches || !same_cache(&ck->caches[run->n_caches], &cache))
        return luaL_error(lua, "each run must declare the same caches");
    if (run->shape != NULL)
        npugraph__groups_place(ck, run->shape, run->n_caches, &group, &state);
    run->n_caches++;
    if (run->shape != NULL && state == run->n_states) {
        put_cache(run, &ck->caches[state]);
        run->n_states++;
    }
    lua_pushfstring(lua, "%%%s", ck->caches[state].label[0]);
    lua_pushfstring(lua, "%%%s", ck->caches[state].label[1]);
    push_group_input(lua, "slots", group);
    push_group_input(lua, "block_table", group);
    if (!cache.scaled || run->shape == NULL || npugraph__cache_states(run->shape) == 2)
        return 4;
    lua_pushfstring(lua, "%%%s", ck->caches[state].label[2]);
    lua_pushfstring(lua, "%%%s", ck->caches[state].label[3]);
    return 6;
}

static double rope_field(lua_State *lua, const char *name, double def)
{
    double v = def;

    lua_getfield(lua, 3, name);
    if (!lua_isnil(lua, -1)) {
        v = lua_tonumber(lua, -1);
        if (!(v > 0) || !isfinite(v))
            corrupt_field(lua, name, "must be a positive number");
    }
    lua_pop(lua, 1);
    return v;
}

/* Reads the factors of longrope, or given frequencies: a list with one number for each pair of dimensions. */
static void rope_factors(lua_State *lua, struct npugraph__rope *r)
{
    int64_t pairs = r->dim / 2;

    lua_getfield(lua, 3, "factors");
    if (!lua_istable(lua, -1) || (int64_t)lua_rawlen(lua, -1) != pairs)
        corrupt_field(lua, "long_factor and short_factor", "must have a number for each pair of dimensions");
    r->factors = calloc((size_t)pairs, sizeof(double)); /* the checkpoint frees it */
    if (r->factors == NULL)
        refuse_family(lua, 8, "NO_MEMORY", "out of memory");
    for (int64_t i = 0; i < pairs; i++) {
        lua_rawgeti(lua, -1, i + 1);
        r->factors[i] = lua_tonumber(lua, -1);
        if (!(r->factors[i] > 0) || !isfinite(r->factors[i]))
            corrupt_field(lua, "long_factor and short_factor", "must be positive");
        lua_pop(lua, 1);
    }
    lua_pop(lua, 1);
}

static void declare_rope(lua_State *lua, const struct npugraph__rope *rope)
{
    struct npugraph__checkpoint *ck = npugraph__family_of(lua)->ck;

    ck->ropes = make_room(lua, ck->ropes, ck->n_ropes, ROPES_MAX, sizeof(*rope), "rotary tables");
    ck->ropes[ck->n_ropes++] = *rope;
    if (rope->kind == ROPE_LONG || rope->kind == ROPE_GIVEN)
        rope_factors(lua, &ck->ropes[ck->n_ropes - 1]);
}

static void read_rope_settings(lua_State *lua, struct npugraph__rope *r)
{
    static const char *const kinds[] = {"default", "linear", "llama3", "yarn", "longrope", "given", NULL};

    lua_getfield(lua, 3, "kind");
    r->kind = (enum npugraph__rope_kind)luaL_checkoption(lua, -1, "default", kinds);
    lua_getfield(lua, 3, "truncate");
    r->truncate = lua_isnil(lua, -1) || lua_toboolean(lua, -1);
    lua_pop(lua, 2);
    r->theta = rope_field(lua, "theta", 10000);
    r->factor = rope_field(lua, "factor", 1);
    r->low_freq = rope_field(lua, "low_freq_factor", 1);
    r->high_freq = rope_field(lua, "high_freq_factor", 4);
    r->original = rope_field(lua, "original", 1);
    r->beta_fast = rope_field(lua, "beta_fast", 32);
    r->beta_slow = rope_field(lua, "beta_slow", 1);
    r->scale = rope_field(lua, "scale", 1);
}

static bool same_rope(const struct npugraph__rope *a, const struct npugraph__rope *b)
{
    return a->dim == b->dim && a->kind == b->kind && a->truncate == b->truncate && !(a->theta != b->theta) &&
           !(a->factor != b->factor) && !(a->low_freq != b->low_freq) && !(a->high_freq != b->high_freq) &&
           !(a->original != b->original) && !(a->beta_fast != b->beta_fast) && !(a->beta_slow != b->beta_slow) &&
           !(a->scale != b->scale) && strcmp(a->label[0], b->label[0]) == 0;
}

/*
 * rope(NAME, DIM, {kind=, theta=, factor=, ...}): tables of cosines and sines for DIM dimensions of a head. Returns the
 * two values.
 */
static int call_rope(lua_State *lua)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    struct npugraph__rope r = {.dim = check_dim(lua, 2)};
    const char *name = luaL_checkstring(lua, 1);

    luaL_argcheck(lua, strlen(name) < sizeof(r.label[0]) - 4, 1, "the name is too long");
    luaL_argcheck(lua, r.dim % 2 == 0 && r.dim <= ROPE_MAX, 2, "must be even, and 65536 at most");
    luaL_checktype(lua, 3, LUA_TTABLE);
    snprintf(r.label[0], sizeof(r.label[0]), "%s.cos", name);
    snprintf(r.label[1], sizeof(r.label[1]), "%s.sin", name);
    read_rope_settings(lua, &r);
    if (run->shape == NULL)
        declare_rope(lua, &r);
    if (run->n_ropes >= run->ck->n_ropes || !same_rope(&r, &run->ck->ropes[run->n_ropes]))
        return luaL_error(lua, "each run must declare the same rotary tables");
    run->n_ropes++;
    for (int i = 0; i < 2; i++) {
        if (run->shape != NULL)
            ngd_strbuf_printf(&run->params, "  param %%%s : f32[%u,%" PRId64 "]\n", r.label[i], run->shape->max_context,
                              r.dim);
        lua_pushfstring(lua, "%%%s", r.label[i]);
    }
    return 2;
}

/* emit(TEXT): nodes of the graph. */
static int call_emit(lua_State *lua)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    struct ngd_strbuf *nodes = run->making ? &run->made_nodes : &run->nodes;
    size_t len;
    const char *text = luaL_checklstring(lua, 1, &len);

    if (run->shape == NULL)
        return 0;
    if (len > TEXT_MAX - nodes->len)
        return luaL_error(lua, "the graph is larger than %d MiB", (int)(TEXT_MAX >> 20));
    ngd_strbuf_append_n(nodes, text, len);
    return 0;
}

/* Declares what made() makes, or finds it again. */
static struct npugraph__made *next_made(lua_State *lua, const char *name, const char *dtype)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    struct npugraph__checkpoint *ck = run->ck;
    struct npugraph__made m = {.rows = check_dim(lua, 2), .columns = check_dim(lua, 3)}, *again;

    luaL_argcheck(lua, strlen(name) < sizeof(m.label), 1, "the name is too long");
    luaL_argcheck(lua, strcmp(dtype, "f32") == 0 || strcmp(dtype, "f16") == 0 || strcmp(dtype, "bf16") == 0, 4,
                  "must be f32, f16 or bf16");
    snprintf(m.label, sizeof(m.label), "%s", name);
    if (run->shape == NULL) {
        ck->made = make_room(lua, ck->made, ck->n_made, MADE_MAX, sizeof(m), "weights that are made");
        ck->made[ck->n_made++] = m;
    }
    again = &ck->made[run->n_made];
    if (run->n_made >= ck->n_made || strcmp(again->label, name) != 0 || again->rows != m.rows ||
        again->columns != m.columns)
        luaL_error(lua, "each run must make the same weights");
    run->n_made++;
    snprintf(again->dtype, sizeof(again->dtype), "%s", dtype);
    return again;
}

/*
 * made(NAME, ROWS, COLUMNS, DTYPE, WRITE): a weight that the load makes of others, once. WRITE() declares these, emits
 * nodes, and returns the value, [ROWS, COLUMNS]. All of that is no part of the model's graphs, which have the result
 * alone, as the value that made() returns.
 */
static int call_made(lua_State *lua)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    const char *name = luaL_checkstring(lua, 1), *dtype = luaL_checkstring(lua, 4);
    struct npugraph__made *m;

    luaL_checktype(lua, 5, LUA_TFUNCTION);
    luaL_argcheck(lua, !run->making, 5, "must not call made()");
    m = next_made(lua, name, dtype);
    run->making = true;
    lua_pushvalue(lua, 5);
    lua_call(lua, 0, 1);
    run->making = false;
    if (run->shape != NULL) {
        ngd_strbuf_printf(&run->made_states, "  state %%%s : %s[%" PRId64 ",%" PRId64 "]\n", m->label, m->dtype,
                          m->rows, m->columns);
        ngd_strbuf_printf(&run->made_nodes, "  aten.copy_(%%%s, %s)\n", m->label, luaL_checkstring(lua, -1));
        ngd_strbuf_printf(&run->params, "  param %%%s : %s[%" PRId64 ",%" PRId64 "]\n", m->label, m->dtype, m->rows,
                          m->columns);
    }
    lua_pushfstring(lua, "%%%s", m->label);
    return 1;
}

void npugraph__family_calls(lua_State *lua)
{
    static const luaL_Reg calls[] = {
        {"int", call_int},
        {"number", call_number},
        {"bool", call_bool},
        {"text", call_text},
        {"has", call_has},
        {"given", call_given},
        {"object", call_object},
        {"list", call_list},
        {"refuse", call_refuse},
        {"corrupt", call_corrupt},
        {"divide", call_divide},
        {"one_device", call_one_device},
        {"weight", call_weight},
        {"tensor", call_tensor},
        {"dtype", call_dtype},
        {"cache", call_cache},
        {"rope", call_rope},
        {"emit", call_emit},
        {"stored", call_stored},
        {"keys", call_keys},
        {"contains", call_contains},
        {"like", call_like},
        {"made", call_made},
        {"columns_order", call_columns_order},
        {"text_part", call_text_part},
    };
    struct npugraph__family_run *run = npugraph__family_of(lua);

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        lua_register(lua, calls[i].name, calls[i].func);
    lua_pushinteger(lua, run->ck->ranks);
    lua_setglobal(lua, "ranks");
    lua_pushstring(lua, run->ck->backend);
    lua_setglobal(lua, "backend");
    lua_pushboolean(lua, run->prefill);
    lua_setglobal(lua, "prefill");
    lua_pushboolean(lua, run->ck->headless);
    lua_setglobal(lua, "headless");
    lua_pushboolean(lua, false);
    lua_setglobal(lua, "parts"); /* text_part() was called */
    lua_pushboolean(lua, false);
    lua_setglobal(lua, "head_in_file");
    run->ck->fields = run->ck->config;
    lua_pushstring(lua, run->ck->pooling == NPUGRAPH_POOLING_MEAN ? "mean" : "last");
    lua_setglobal(lua, "pooling");
    lua_pushstring(lua, run->prefill ? "T" : "B");
    lua_setglobal(lua, "rows");
    lua_pushinteger(lua, run->shape != NULL ? run->shape->block_size : 1);
    lua_setglobal(lua, "block_size");
}
