/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file of a family and runs it in an interpreter that is made for the run, and can do nothing but compute. */
#include "client/hf/family.h"
#include "base/clock.h"
#include "client/lib/error.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES_MAX       ((size_t)64 << 20) /* of an interpreter */
#define SOURCE_MAX      ((size_t)1 << 20)  /* of a file */
/* Instructions of a run. A decoder of 28 layers needs less than 100,000. */
#define STEPS_MAX       100000000
#define STEPS_AT_A_TIME 50
/* CPU time of a run: an instruction may be a long copy. */
#define TIME_MAX        (5 * NGD_SEC)

#define INCLUDES_MAX 8 /* files that are run for one family */

/* ---- the interpreter ---- */

struct npugraph__family_run *npugraph__family_of(lua_State *lua)
{
    return *(struct npugraph__family_run **)lua_getextraspace(lua);
}

static void *family_alloc(void *user, void *old, size_t old_size, size_t size)
{
    struct npugraph__family_run *run = user;
    size_t held = run->bytes - (old != NULL ? old_size : 0);
    void *p;

    if (size == 0) {
        free(old);
        run->bytes = held;
        return NULL;
    }
    if (size > BYTES_MAX - held)
        return NULL;
    p = realloc(old, size);
    if (p != NULL)
        run->bytes = held + size;
    return p;
}

static ngd_nsec_t thread_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * NGD_SEC + t.tv_nsec;
}

static void count_steps(lua_State *lua, lua_Debug *where)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);

    (void)where;
    if (--run->steps_left < 0 || thread_time() > run->until)
        luaL_error(lua, "the family runs for too long: more than %d instructions, or %d s", STEPS_MAX,
                   (int)(TIME_MAX / NGD_SEC));
}

static int unknown_variable(lua_State *lua)
{
    return luaL_error(lua, "unknown variable %s", luaL_tolstring(lua, 2, NULL));
}

/* Copies the named functions of a standard library into the table of globals. Functions that reach files or the
 * interpreter, that catch errors, or whose time the count of instructions does not bound, stay out. */
static void open_lua_library(lua_State *lua, lua_CFunction open, const char *const *names)
{
    lua_pushcfunction(lua, open);
    lua_call(lua, 0, 1);
    for (size_t i = 0; names[i] != NULL; i++) {
        lua_getfield(lua, -1, names[i]);
        lua_setglobal(lua, names[i]);
    }
    lua_pop(lua, 1);
}

static void open_lua_libraries(lua_State *lua)
{
    static const char *const base[] = {"assert", "error", "ipairs", "pairs", "tostring", "type", NULL};
    static const char *const string[] = {"format", "sub", NULL};
    static const char *const table[] = {"concat", "insert", "unpack", NULL};
    static const char *const maths[] = {"abs", "floor", "log", "max", "min", "sqrt", NULL};

    /* The base library fills the table of globals; keep what is named, in a fresh table. */
    luaL_requiref(lua, LUA_GNAME, luaopen_base, 0);
    lua_newtable(lua);
    for (size_t i = 0; base[i] != NULL; i++) {
        lua_getfield(lua, -2, base[i]);
        lua_setfield(lua, -2, base[i]);
    }
    lua_rawseti(lua, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pop(lua, 1);
    open_lua_library(lua, luaopen_string, string);
    open_lua_library(lua, luaopen_table, table);
    open_lua_library(lua, luaopen_math, maths);
    /* luaopen_string has given all strings its methods. */
    lua_pushliteral(lua, "");
    lua_pushnil(lua);
    lua_setmetatable(lua, -2);
    lua_pop(lua, 1);
}

static void forbid_unknown_variables(lua_State *lua)
{
    lua_pushglobaltable(lua);
    lua_newtable(lua);
    lua_pushcfunction(lua, unknown_variable);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
    lua_pop(lua, 1);
}

/* ---- sources ---- */

/* Reads DIR/NAME.lua. Returns 0 with *source_p NULL if there is no such file. */
static int read_source(lua_State *lua, const char *dir, const char *name, char **source_p, size_t *len_p)
{
    char path[PATH_MAX];
    struct stat st;
    char *source;
    FILE *f;
    size_t n;
    int fd;

    *source_p = NULL;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s.lua", dir, name) >= sizeof(path))
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : luaL_error(lua, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return luaL_error(lua, "%s: is not a regular file", path);
    }
    f = fdopen(fd, "r");
    if (f == NULL) {
        close(fd);
        return luaL_error(lua, "%s: out of memory", path);
    }
    source = malloc(SOURCE_MAX + 1);
    n = source != NULL ? fread(source, 1, SOURCE_MAX + 1, f) : 0;
    if (source == NULL || ferror(f) || n > SOURCE_MAX) {
        const char *what = source == NULL   ? "out of memory"
                           : n > SOURCE_MAX ? "is larger than 1 MiB"
                                            : "cannot be read";

        free(source);
        fclose(f);
        return luaL_error(lua, "%s: %s", path, what);
    }
    fclose(f);
    *source_p = source;
    *len_p = n;
    return 0;
}

/* Pushes the chunk of a family: from the first directory of NPUGRAPH_FAMILIES that has it, or built in. Returns false
 * if there is none. */
static bool push_chunk(lua_State *lua, const char *name)
{
    const char *at = getenv("NPUGRAPH_FAMILIES"), *builtin;
    char chunk[96], dir[PATH_MAX];
    char *source = NULL;
    size_t len = 0;
    int rc;

    snprintf(chunk, sizeof(chunk), "=%s.lua", name);
    while (source == NULL && at != NULL && *at != '\0') {
        size_t n = strcspn(at, ":");

        snprintf(dir, sizeof(dir), "%.*s", (int)(n < sizeof(dir) ? n : 0), at);
        at += n + (at[n] == ':');
        if (dir[0] != '\0')
            read_source(lua, dir, name, &source, &len);
    }
    if (source == NULL) {
        builtin = npugraph__family_builtin(name);
        if (builtin == NULL)
            return false;
        rc = luaL_loadbufferx(lua, builtin, strlen(builtin), chunk, "t");
    } else {
        rc = luaL_loadbufferx(lua, source, len, chunk, "t");
        free(source);
    }
    if (rc != LUA_OK)
        lua_error(lua);
    return true;
}

/* Pushes the chunk of the family that lies beside the weights (npugraph.export writes it), if there is one. It is read
 * once: later runs may have no directory any more. */
static bool push_own_chunk(lua_State *lua, struct npugraph__family_run *run)
{
    struct npugraph__checkpoint *ck = run->ck;

    if (run->dir != NULL)
        read_source(lua, run->dir, "npugraph", &ck->own_source, &ck->own_len);
    if (ck->own_source == NULL)
        return false;
    if (luaL_loadbufferx(lua, ck->own_source, ck->own_len, "=npugraph.lua", "t") != LUA_OK)
        lua_error(lua);
    return true;
}

static bool is_name(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return n > 0 && n < 64;
}

/* include(NAME): runs the file of another family first. */
static int call_include(lua_State *lua)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    const char *name = luaL_checkstring(lua, 1);

    if (++run->includes > INCLUDES_MAX)
        return luaL_error(lua, "more than %d families are included", INCLUDES_MAX);
    if (!is_name(name) || !push_chunk(lua, name))
        return luaL_error(lua, "there is no family %s", name);
    lua_call(lua, 0, 0);
    return 0;
}

/* ---- a run ---- */

static int refuse_architecture(struct npugraph__family_run *run)
{
    struct ngd_strbuf names;

    ngd_strbuf_init(&names);
    npugraph__family_names(&names);
    run->refused = true;
    npugraph__error(run->err, 3, "FILE_UNSUPPORTED", "%s: architectures names %.64s; supported are %s",
                    npugraph__config_name(run->ck), run->ck->architecture[0] != '\0' ? run->ck->architecture : "none",
                    ngd_strbuf_str(&names));
    ngd_strbuf_fini(&names);
    return 3;
}

/* Reads an integer of 1 or more that the family has set. */
static int64_t get_size(lua_State *lua, const char *name)
{
    lua_Integer v;

    lua_pushglobaltable(lua);
    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    v = lua_isinteger(lua, -1) ? lua_tointeger(lua, -1) : 0;
    if (v < 1 || v > INT32_MAX)
        luaL_error(lua, "the family sets no %s, or not to an integer of 1 or more", name);
    lua_pop(lua, 2);
    return v;
}

/* Pushes the chunk of the checkpoint's family: its own file, or that of its architecture. That of XModel, which has no
 * head, is XForCausalLM's; its files name tensors without the part of it that stands beside the head. */
static bool push_family(lua_State *lua, struct npugraph__family_run *run)
{
    struct npugraph__checkpoint *ck = run->ck;
    const char *const architecture = ck->architecture;
    static const char bare[] = "Model", whole[] = "ForCausalLM";
    const size_t n = strlen(architecture), stem = n > strlen(bare) ? n - strlen(bare) : 0;
    char name[sizeof(ck->architecture) + sizeof(whole)];

    if (push_own_chunk(lua, run))
        return true;
    /* Files that are included have names in lower case. */
    if (!is_name(architecture) || !isupper((unsigned char)architecture[0]))
        return false;
    if (push_chunk(lua, architecture))
        return true;
    if (stem == 0 || strcmp(architecture + stem, bare) != 0)
        return false;
    snprintf(name, sizeof(name), "%.*s%s", (int)stem, architecture, whole);
    ck->names = NAMES_BARE;
    ck->headless = true;
    return push_chunk(lua, name);
}

/* Takes the name of a value that build() returned, from the stack. */
static void take_built(lua_State *lua, int at, const char *what, char *to, size_t size)
{
    size_t len = 0;
    const char *name = lua_tolstring(lua, at, &len);

    to[0] = '\0';
    if (lua_isnil(lua, at))
        return;
    if (name == NULL || len >= size)
        luaL_error(lua, "build() must return the name of the %s", what);
    memcpy(to, name, len + 1);
}

/* Takes the logits and the hidden states that build() returned. */
static void take_results(lua_State *lua, struct npugraph__family_run *run)
{
    take_built(lua, -2, "logits", run->logits, sizeof(run->logits));
    take_built(lua, -1, "hidden states", run->hidden, sizeof(run->hidden));
    if (run->hidden[0] == '\0')
        run->ck->pooling = NPUGRAPH_POOLING_NONE;
    if (!run->ck->headless && run->logits[0] == '\0')
        luaL_error(lua, "build() must return the name of the logits");
    if (run->ck->headless && (run->logits[0] != '\0' || run->hidden[0] == '\0'))
        luaL_error(lua,
                   "the family cannot be loaded for embeddings: build() must return nil and the name of the hidden "
                   "states if `headless` is set");
}

/* Runs with the interpreter's protection: family, sizes, build(). */
static int run_protected(lua_State *lua)
{
    struct npugraph__family_run *run = npugraph__family_of(lua);
    struct npugraph__checkpoint *ck = run->ck;

    open_lua_libraries(lua);
    if (!push_family(lua, run)) {
        refuse_architecture(run);
        return lua_error(lua);
    }
    npugraph__family_calls(lua);
    lua_register(lua, "include", call_include);
    forbid_unknown_variables(lua);
    lua_call(lua, 0, 0);
    ck->vocab = get_size(lua, "vocab");
    ck->hidden = get_size(lua, "hidden");
    ck->layers = get_size(lua, "layers");
    ck->positions = get_size(lua, "positions");
    lua_getglobal(lua, "build");
    lua_call(lua, 0, 2);
    take_results(lua, run);
    if (run->n_weights != ck->weights.n || run->n_caches != ck->n_caches || run->n_ropes != ck->n_ropes ||
        run->n_made != ck->n_made)
        return luaL_error(lua, "build() declares less in this run than in the one before");
    if (run->n_weights == 0 || run->n_caches == 0)
        return luaL_error(lua, "build() declares no %s", run->n_weights == 0 ? "weights" : "caches");
    return 0;
}

static int family_failed(struct npugraph__family_run *run, lua_State *lua, int rc)
{
    if (run->refused)
        return run->err != NULL && run->err->code != 0 ? run->err->code : 3;
    if (rc == LUA_ERRMEM)
        return npugraph__error(run->err, 8, "NO_MEMORY", "%s.lua: the family needs more than %zu MiB",
                               run->ck->architecture, BYTES_MAX >> 20);
    return npugraph__error(run->err, 3, "FILE_CORRUPT", "%s", /* a number would be made text, which takes memory */
                           lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1)
                                                            : "the family ends with an error that is no text");
}

int npugraph__family_run(struct npugraph__family_run *run)
{
    lua_State *lua = lua_newstate(family_alloc, run);
    int rc;

    if (lua == NULL)
        return npugraph__error(run->err, 8, "NO_MEMORY", "out of memory");
    *(struct npugraph__family_run **)lua_getextraspace(lua) = run;
    run->steps_left = STEPS_MAX / STEPS_AT_A_TIME;
    run->until = thread_time() + TIME_MAX;
    lua_sethook(lua, count_steps, LUA_MASKCOUNT, STEPS_AT_A_TIME);
    lua_pushcfunction(lua, run_protected);
    rc = lua_pcall(lua, 0, 0, 0);
    if (rc != LUA_OK)
        rc = family_failed(run, lua, rc);
    lua_close(lua);
    return rc;
}
