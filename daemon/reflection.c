/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the few fields of descriptor.proto that name things. The field numbers are those of
 * google/protobuf/descriptor.proto. Names of symbols are kept as package.Outer.Inner in one table.
 */
#include "daemon/reflection.h"

#include "base/mem.h"
#include "daemon/wire.h"

#include <stdio.h>
#include <string.h>

enum { SET_FILE = 1 };
enum { FILE_NAME = 1, FILE_PACKAGE = 2, FILE_MESSAGE = 4, FILE_ENUM = 5, FILE_SERVICE = 6 };
enum { ANY_NAME = 1, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, SERVICE_METHOD = 2 };

#define MAX_DEPTH 16
#define MAX_NAME  512

struct symbol {
    char *name;
    size_t file;
};
struct ngd_reflection {
    struct ngd_descriptor_file *files;
    size_t n_files;
    struct symbol *symbols;
    size_t n_symbols;
    char **services;
    size_t n_services;
    struct ngd_arena arena;
};

/* Returns the first bytes field of that number, as text in the arena; NULL: there is none. */
static char *text_field(struct ngd_reflection *r, const uint8_t *data, size_t n, uint32_t number)
{
    struct ngd_wire_reader reader;
    struct ngd_wire_field f;

    ngd_wire_reader_init(&reader, data, n);
    while (ngd_wire_next(&reader, &f)) {
        if (f.number == number && f.type == NGD_WIRE_BYTES) {
            char *text = ngd_arena_alloc(&r->arena, f.n + 1);

            if (text) {
                memcpy(text, f.data, f.n);
                text[f.n] = '\0';
            }
            return text;
        }
    }
    return NULL;
}

static ngd_status_t grow_index(void **array, size_t n, size_t element)
{
    void *p;

    if (n & (n - 1)) /* the array has room for the next power of two */
        return NGD_OK;
    p = ngd_reallocarray(*array, n ? 2 * n : 1, element);
    if (!p)
        return NGD_ERR_NO_MEMORY;
    *array = p;
    return NGD_OK;
}

static ngd_status_t add_symbol(struct ngd_reflection *r, size_t file, const char *scope, const char *name,
                               char full[MAX_NAME])
{
    void *array = r->symbols;

    snprintf(full, MAX_NAME, "%s%s%s", scope, scope[0] ? "." : "", name);
    if (grow_index(&array, r->n_symbols, sizeof(*r->symbols)) != NGD_OK)
        return NGD_ERR_NO_MEMORY;
    r->symbols = array;
    r->symbols[r->n_symbols].name = ngd_arena_strdup(&r->arena, full);
    r->symbols[r->n_symbols].file = file;
    return r->symbols[r->n_symbols++].name ? NGD_OK : NGD_ERR_NO_MEMORY;
}

/* Indexes a message, enum, service or method, and its inner declarations, which are in the fields `a` and `b`. */
static ngd_status_t index_declaration(struct ngd_reflection *r, size_t file, const char *scope, const uint8_t *data,
                                      size_t n, uint32_t a, uint32_t b, int depth)
{
    char *name = text_field(r, data, n, ANY_NAME), full[MAX_NAME];
    struct ngd_wire_reader reader;
    struct ngd_wire_field f;
    ngd_status_t status;

    if (!name || depth > MAX_DEPTH)
        return NGD_ERR_INTERNAL;
    status = add_symbol(r, file, scope, name, full);
    ngd_wire_reader_init(&reader, data, n);
    while (status == NGD_OK && (a || b) && ngd_wire_next(&reader, &f)) {
        if (f.type != NGD_WIRE_BYTES || (f.number != a && f.number != b))
            continue;
        /* Only messages nest; nothing inside enums and methods is looked up. */
        status = f.number == MESSAGE_NESTED
                     ? index_declaration(r, file, full, f.data, f.n, MESSAGE_NESTED, MESSAGE_ENUM, depth + 1)
                     : index_declaration(r, file, full, f.data, f.n, 0, 0, depth + 1);
    }
    return status;
}

static ngd_status_t add_service(struct ngd_reflection *r, const char *package, const uint8_t *data, size_t n)
{
    char *name = text_field(r, data, n, ANY_NAME), full[MAX_NAME];
    void *array = r->services;

    if (!name || grow_index(&array, r->n_services, sizeof(*r->services)) != NGD_OK)
        return NGD_ERR_NO_MEMORY;
    r->services = array;
    snprintf(full, sizeof(full), "%s%s%s", package, package[0] ? "." : "", name);
    r->services[r->n_services] = ngd_arena_strdup(&r->arena, full);
    return r->services[r->n_services++] ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static ngd_status_t index_file(struct ngd_reflection *r, size_t file)
{
    const struct ngd_descriptor_file *d = &r->files[file];
    const char *package = text_field(r, d->data, d->n, FILE_PACKAGE);
    struct ngd_wire_reader reader;
    struct ngd_wire_field f;
    ngd_status_t status = NGD_OK;

    package = package ? package : "";
    ngd_wire_reader_init(&reader, d->data, d->n);
    while (status == NGD_OK && ngd_wire_next(&reader, &f)) {
        if (f.type != NGD_WIRE_BYTES)
            continue;
        if (f.number == FILE_MESSAGE)
            status = index_declaration(r, file, package, f.data, f.n, MESSAGE_NESTED, MESSAGE_ENUM, 0);
        else if (f.number == FILE_ENUM)
            status = index_declaration(r, file, package, f.data, f.n, 0, 0, 0);
        else if (f.number == FILE_SERVICE) {
            status = index_declaration(r, file, package, f.data, f.n, SERVICE_METHOD, 0, 0);
            if (status == NGD_OK)
                status = add_service(r, package, f.data, f.n);
        }
    }
    return status;
}

static ngd_status_t add_file(struct ngd_reflection *r, const uint8_t *data, size_t n)
{
    void *array = r->files;
    char *name = text_field(r, data, n, FILE_NAME);

    if (!name || grow_index(&array, r->n_files, sizeof(*r->files)) != NGD_OK)
        return NGD_ERR_NO_MEMORY;
    r->files = array;
    r->files[r->n_files] = (struct ngd_descriptor_file){name, data, n};
    return index_file(r, r->n_files++);
}

ngd_status_t ngd_reflection_create(const uint8_t *set, size_t n, struct ngd_reflection **reflection_p)
{
    struct ngd_reflection *r = NGD_NEW(struct ngd_reflection);
    struct ngd_wire_reader reader;
    struct ngd_wire_field f;
    ngd_status_t status = NGD_OK;

    if (!r)
        return NGD_ERR_NO_MEMORY;
    ngd_arena_init(&r->arena, 16384);
    ngd_wire_reader_init(&reader, set, n);
    while (status == NGD_OK && ngd_wire_next(&reader, &f))
        if (f.number == SET_FILE && f.type == NGD_WIRE_BYTES)
            status = add_file(r, f.data, f.n);
    if (status == NGD_OK && reader.bad)
        status = NGD_ERR_INTERNAL;
    if (status != NGD_OK)
        ngd_reflection_destroy(r);
    else
        *reflection_p = r;
    return status;
}

void ngd_reflection_destroy(struct ngd_reflection *r)
{
    if (!r)
        return;
    ngd_free(r->files);
    ngd_free(r->symbols);
    ngd_free(r->services);
    ngd_arena_fini(&r->arena);
    ngd_free(r);
}

const struct ngd_descriptor_file *ngd_reflection_file(const struct ngd_reflection *r, const char *name)
{
    for (size_t i = 0; i < r->n_files; i++)
        if (strcmp(r->files[i].name, name) == 0)
            return &r->files[i];
    return NULL;
}

const struct ngd_descriptor_file *ngd_reflection_symbol(const struct ngd_reflection *r, const char *symbol)
{
    for (size_t i = 0; i < r->n_symbols; i++)
        if (strcmp(r->symbols[i].name, symbol) == 0)
            return &r->files[r->symbols[i].file];
    return NULL;
}

size_t ngd_reflection_n_services(const struct ngd_reflection *r)
{
    return r->n_services;
}
const char *ngd_reflection_service(const struct ngd_reflection *r, size_t i)
{
    return r->services[i];
}
