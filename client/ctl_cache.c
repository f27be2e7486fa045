/* SPDX-License-Identifier: Apache-2.0 */
/* npugraphctl cache: the daemon's store of compiled plans. */
#include "client/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * A file of exported entries: "npgexpo1", then for each entry its bytes' number (u64, little endian) and its bytes,
 * which carry a checksum of their own.
 */
#define EXPORT_MAGIC "npgexpo1"
#define ENTRY_MAX    (256u << 20)

static void fail_at(const char *path, const char *what)
{
    fprintf(stderr, "npugraphctl: %s cannot be %s: %s\n", path, what, strerror(errno));
}

/* ---- list and show --------------------------------------------------------------------------------------- */

static Npugraph__V1__ListStoreResponse *list_entries(struct ctl *ctl)
{
    Npugraph__V1__ListStoreRequest req = NPUGRAPH__V1__LIST_STORE_REQUEST__INIT;

    return (void *)ctl_call(ctl, "/npugraph.v1.Admin/ListStore", &req.base,
                            &npugraph__v1__list_store_response__descriptor);
}

static void show_sums(struct ctl *ctl, const Npugraph__V1__ListStoreResponse *r)
{
    struct ctl_fields *f = ctl_fields_new(ctl, ctl->json ? "store" : NULL);

    ctl_field_str(f, "Directory", "directory", r->directory);
    ctl_field_bytes(f, "Holds", "bytes", r->bytes);
    ctl_field_bytes(f, "Of", "budget", r->budget);
    ctl_field_int(f, "Hits", "hits", r->hits);
    ctl_field_int(f, "Misses", "misses", r->misses);
    ctl_field_int(f, "Set aside", "set_aside", r->set_aside);
    ctl_field_int(f, "Written", "writes", r->writes);
    ctl_field_int(f, "Not written", "write_failures", r->write_failures);
    ctl_field_int(f, "Evicted", "evictions", r->evictions);
    ctl_fields_end(f);
}

static int cache_list(struct ctl *ctl)
{
    static const struct ctl_column columns[] = {
        {"ENTRY", "name", false},    {"KIND", "kind", false},   {"BYTES", "bytes", true},
        {"USED", "unused_ms", true}, {"GRAPH", "graph", false}, {"SYMBOLS", "symbols", false},
        {"DEVICE", "device", false}, {"BY", "daemon", false},   {"STATE", "state", false},
    };
    Npugraph__V1__ListStoreResponse *r = list_entries(ctl);
    int64_t now = (int64_t)time(NULL);
    struct ctl_table *t;

    if (r == NULL)
        return 1;
    show_sums(ctl, r);
    if (!ctl->json)
        putchar('\n');
    t = ctl_table_new(ctl, "entries", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_entries; i++) {
        const Npugraph__V1__StoreEntry *e = r->entries[i];
        char name[16];

        snprintf(name, sizeof(name), "%.12s", e->name);
        ctl_row(t);
        ctl_str(t, ctl->json ? e->name : name);
        ctl_str(t, e->kind);
        ctl_bytes(t, e->bytes);
        ctl_ms(t, now > e->used ? (uint64_t)(now - e->used) * 1000 : 0);
        ctl_str(t, e->graph);
        ctl_str(t, e->symbols);
        ctl_str(t, e->device);
        ctl_str(t, e->daemon);
        ctl_state(t, e->reason[0] != '\0' ? e->reason : "good", e->reason[0] == '\0');
    }
    ctl_table_end(t, "No entries.");
    npugraph__free_message(r);
    return 0;
}

static Npugraph__V1__ReadStoreResponse *read_entry(struct ctl *ctl, const char *name, bool text)
{
    Npugraph__V1__ReadStoreRequest req = NPUGRAPH__V1__READ_STORE_REQUEST__INIT;

    req.name = (char *)name;
    req.text = text;
    return (void *)ctl_call(ctl, "/npugraph.v1.Admin/ReadStore", &req.base,
                            &npugraph__v1__read_store_response__descriptor);
}

static int cache_show(struct ctl *ctl, const char *name)
{
    Npugraph__V1__ReadStoreResponse *r = read_entry(ctl, name, true);

    if (r == NULL)
        return 1;
    if (ctl->json) {
        json_object_set_new(ctl->root, "name", json_string(r->name));
        json_object_set_new(ctl->root, "text", json_string(r->text));
    } else {
        fputs(r->text, stdout);
    }
    npugraph__free_message(r);
    return 0;
}

/* ---- verify and clear ------------------------------------------------------------------------------------ */

static int cache_verify(struct ctl *ctl)
{
    static const struct ctl_column columns[] = {{"ENTRY", "name", false}, {"REASON", "reason", false}};
    Npugraph__V1__VerifyStoreRequest req = NPUGRAPH__V1__VERIFY_STORE_REQUEST__INIT;
    Npugraph__V1__VerifyStoreResponse *r;
    struct ctl_fields *f;
    struct ctl_table *t;
    int rc;

    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/VerifyStore", &req.base,
                         &npugraph__v1__verify_store_response__descriptor);
    if (r == NULL)
        return 1;
    f = ctl_fields_new(ctl, NULL);
    ctl_field_int(f, "Good entries", "good", r->good);
    ctl_field_int(f, "Bad entries, set aside", "n_bad", r->n_bad);
    ctl_fields_end(f);
    if (r->n_bad > 0 || ctl->json) {
        t = ctl_table_new(ctl, "bad", columns, 2);
        for (size_t i = 0; i < r->n_bad; i++) {
            ctl_row(t);
            ctl_str(t, r->bad[i]->name);
            ctl_str(t, r->bad[i]->reason);
        }
        ctl_table_end(t, "");
    }
    rc = r->n_bad > 0;
    npugraph__free_message(r);
    return rc;
}

static int cache_clear(struct ctl *ctl, const char *name)
{
    Npugraph__V1__ClearStoreRequest req = NPUGRAPH__V1__CLEAR_STORE_REQUEST__INIT;
    Npugraph__V1__ClearStoreResponse *r;
    struct ctl_fields *f;

    req.name = (char *)(name != NULL ? name : "");
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/ClearStore", &req.base,
                         &npugraph__v1__clear_store_response__descriptor);
    if (r == NULL)
        return 1;
    f = ctl_fields_new(ctl, NULL);
    ctl_field_int(f, "Removed", "removed", r->removed);
    ctl_fields_end(f);
    npugraph__free_message(r);
    return 0;
}

/* ---- export and import ----------------------------------------------------------------------------------- */

static void put_u64(uint8_t to[8], uint64_t v)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_u64(const uint8_t from[8])
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v |= (uint64_t)from[i] << (8 * i);
    return v;
}

static int export_one(struct ctl *ctl, FILE *f, const char *path, const char *name)
{
    Npugraph__V1__ReadStoreResponse *r = read_entry(ctl, name, false);
    uint8_t size[8];
    bool written;

    if (r == NULL)
        return 1;
    put_u64(size, r->entry.len);
    written = fwrite(size, 1, 8, f) == 8 && fwrite(r->entry.data, 1, r->entry.len, f) == r->entry.len;
    npugraph__free_message(r);
    if (!written)
        fail_at(path, "written");
    return written ? 0 : 1;
}

/* Those that are named, or all; into a file beside it, which takes the name when it is complete. */
static int export_entries(struct ctl *ctl, const char *path, char **names, int n)
{
    char part[4096];
    FILE *f;
    uint64_t done = 0;
    int rc = 0;

    snprintf(part, sizeof(part), "%.4000s.part", path);
    f = fopen(part, "wb");
    if (f == NULL) {
        fail_at(part, "written");
        return 1;
    }
    if (fwrite(EXPORT_MAGIC, 1, 8, f) != 8)
        rc = 1;
    if (n > 0) {
        for (int i = 0; i < n && rc == 0; i++, done++)
            rc = export_one(ctl, f, part, names[i]);
    } else {
        Npugraph__V1__ListStoreResponse *r = list_entries(ctl);

        rc = r == NULL;
        for (size_t i = 0; rc == 0 && i < r->n_entries; i++) {
            if (r->entries[i]->reason[0] != '\0')
                continue; /* bad ones stay where they are */
            rc = export_one(ctl, f, part, r->entries[i]->name);
            done++;
        }
        npugraph__free_message(r);
    }
    if ((fflush(f) != 0 || fsync(fileno(f)) != 0) && rc == 0) {
        fail_at(part, "written");
        rc = 1;
    }
    fclose(f);
    if (rc == 0 && rename(part, path) != 0) {
        fail_at(path, "written");
        rc = 1;
    }
    if (rc != 0) {
        unlink(part);
    } else {
        struct ctl_fields *fields = ctl_fields_new(ctl, NULL);

        ctl_field_int(fields, "Exported", "exported", done);
        ctl_fields_end(fields);
    }
    return rc;
}

static int import_one(struct ctl *ctl, const uint8_t *data, size_t n)
{
    Npugraph__V1__ImportStoreRequest req = NPUGRAPH__V1__IMPORT_STORE_REQUEST__INIT;
    ProtobufCMessage *r;

    req.entry.data = (uint8_t *)data;
    req.entry.len = n;
    r = ctl_call(ctl, "/npugraph.v1.Admin/ImportStore", &req.base, &npugraph__v1__import_store_response__descriptor);
    npugraph__free_message(r);
    return r != NULL ? 0 : 1;
}

static int import_file(struct ctl *ctl, FILE *f, const char *path, uint64_t *done_p)
{
    uint8_t head[8];

    if (fread(head, 1, 8, f) != 8 || memcmp(head, EXPORT_MAGIC, 8) != 0) {
        fprintf(stderr, "npugraphctl: %s is no file of exported entries\n", path);
        return 1;
    }
    for (size_t got; (got = fread(head, 1, 8, f)) > 0;) {
        uint64_t n = got == 8 ? get_u64(head) : 0;
        uint8_t *data = n > 0 && n <= ENTRY_MAX ? malloc(n) : NULL;
        int rc = 1;

        if (data == NULL || fread(data, 1, n, f) != n)
            fprintf(stderr, "npugraphctl: %s ends in the middle of an entry, or is damaged\n", path);
        else
            rc = import_one(ctl, data, n);
        free(data);
        if (rc != 0)
            return rc;
        ++*done_p;
    }
    return 0;
}

static int cache_import(struct ctl *ctl, const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t done = 0;
    struct ctl_fields *fields;
    int rc;

    if (f == NULL) {
        fail_at(path, "read");
        return 1;
    }
    rc = import_file(ctl, f, path, &done);
    fclose(f);
    fields = ctl_fields_new(ctl, NULL);
    ctl_field_int(fields, "Imported", "imported", done);
    ctl_fields_end(fields);
    return rc;
}

int ctl_cmd_cache(struct ctl *ctl, int argc, char **argv)
{
    const struct ctl_command *command = ctl_find_command("cache");
    const char *what = argc > 1 ? argv[1] : "list";

    if (strcmp(what, "list") == 0 && argc <= 2)
        return cache_list(ctl);
    if (strcmp(what, "show") == 0 && argc == 3)
        return cache_show(ctl, argv[2]);
    if (strcmp(what, "verify") == 0 && argc == 2)
        return cache_verify(ctl);
    if (strcmp(what, "export") == 0 && argc >= 3)
        return export_entries(ctl, argv[2], argv + 3, argc - 3);
    if (strcmp(what, "import") == 0 && argc == 3)
        return cache_import(ctl, argv[2]);
    if (strcmp(what, "clear") == 0 && argc <= 3)
        return cache_clear(ctl, argc > 2 ? argv[2] : NULL);
    return ctl_usage(command, "cache takes list, show, verify, export, import or clear");
}
