/* SPDX-License-Identifier: Apache-2.0 */
/* npugraphctl cache: the daemon's store of compiled plans. */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * A file of exported entries has "npgexpo1", then for each entry the number of its bytes (u64, little endian) and the
 * bytes, which include a checksum.
 */
#define EXPORT_MAGIC "npgexpo1"
#define ENTRY_MAX    (256u << 20)
#define IMPORT_CHUNK (32u << 10) /* fits into every message, since max-message is at least 64 KiB */

static void print_file_error(const char *path, const char *what)
{
    ctl_error("%s cannot be %s: %s", path, what, strerror(errno));
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
        ctl_word(t, &npugraph__v1__store_entry_kind__descriptor, e->kind);
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

/* The progress of all entries together. */
struct moved {
    struct ctl_progress bar;
    uint64_t done, total; /* bytes */
};

static void advance_progress(struct moved *moved, uint64_t n)
{
    moved->done += n;
    ctl_progress_update(&moved->bar, moved->done, moved->total);
}

/* What the daemon sent about an entry that is read. */
struct entry {
    char name[128]; /* in full */
    uint64_t total; /* bytes */
};

/* Receives the messages of a read and writes their data to f. */
static int receive_entry(struct npugraph__stream *st, FILE *f, struct moved *moved, struct entry *entry,
                         struct npugraph_error *err)
{
    uint64_t got = 0, total = 0;
    int rc;

    for (;;) {
        ProtobufCMessage *m = NULL;
        const Npugraph__V1__ReadStoreResponse *r;
        bool written;

        rc = npugraph__stream_recv(st, &npugraph__v1__read_store_response__descriptor, &m, err);
        if (rc != 0 || m == NULL)
            break;
        r = (const Npugraph__V1__ReadStoreResponse *)m;
        total = r->total;
        snprintf(entry->name, sizeof(entry->name), "%s", r->name);
        got += r->data.len;
        written = fwrite(r->data.data, 1, r->data.len, f) == r->data.len;
        if (moved != NULL)
            advance_progress(moved, r->data.len);
        npugraph__free_message(m);
        if (!written)
            return npugraph__error(err, 13, "", "cannot be written: %s", strerror(errno));
    }
    if (rc == 0 && got != total)
        rc = npugraph__error(err, 15, "", "the daemon sent %" PRIu64 " of %" PRIu64 " bytes", got, total);
    entry->total = total;
    return rc;
}

/* Reads an entry from the daemon into f. Prints what went wrong. */
static int fetch_entry(struct ctl *ctl, const char *name, bool text, FILE *f, struct moved *moved, struct entry *entry)
{
    Npugraph__V1__ReadStoreRequest req = NPUGRAPH__V1__READ_STORE_REQUEST__INIT;
    struct npugraph__stream *st;
    struct npugraph_error err = {0};
    int rc;

    if (!ctl_connect(ctl))
        return 1;
    rc = npugraph__stream_open(ctl->client, "/npugraph.v1.Admin/ReadStore", &st, &err);
    if (rc != 0)
        return ctl_fail(&err);
    req.name = (char *)name;
    req.text = text;
    rc = npugraph__stream_send(st, &req.base, &err);
    if (rc == 0)
        rc = npugraph__stream_half_close(st, &err);
    if (rc == 0)
        rc = receive_entry(st, f, moved, entry, &err);
    npugraph__stream_close(st);
    return rc != 0 ? ctl_fail(&err) : 0;
}

static int cache_show(struct ctl *ctl, const char *name)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct entry entry = {.total = 0};
    int rc;

    if (f == NULL) {
        print_file_error("a text in memory", "written");
        return 1;
    }
    rc = fetch_entry(ctl, name, true, f, NULL, &entry);
    fclose(f);
    if (rc == 0 && ctl->json) {
        json_object_set_new(ctl->root, "name", json_string(entry.name));
        json_object_set_new(ctl->root, "text", json_string(text));
    } else if (rc == 0) {
        fputs(text, stdout);
    }
    free(text);
    return rc;
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

static void put_entry_size(uint8_t to[8], uint64_t v)
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

/* Writes an entry to the export file. Its size is known only after its first message, so it is written last, in front
 * of the entry. */
static int export_one(struct ctl *ctl, FILE *f, const char *path, const char *name, struct moved *moved)
{
    uint8_t size[8] = {0};
    struct entry entry = {.total = 0};
    off_t at = ftello(f);

    if (at < 0 || fwrite(size, 1, 8, f) != 8) {
        print_file_error(path, "written");
        return 1;
    }
    if (fetch_entry(ctl, name, false, f, moved, &entry) != 0)
        return 1;
    put_entry_size(size, entry.total);
    if (fseeko(f, at, SEEK_SET) != 0 || fwrite(size, 1, 8, f) != 8 || fseeko(f, 0, SEEK_END) != 0) {
        print_file_error(path, "written");
        return 1;
    }
    return 0;
}

static int export_named(struct ctl *ctl, FILE *f, const char *path, char **names, int n, uint64_t *done_p)
{
    for (int i = 0; i < n; i++, ++*done_p)
        if (export_one(ctl, f, path, names[i], NULL) != 0)
            return 1;
    return 0;
}

/* Chooses the entries to export. Bad entries are left out, and so are static kernels, since no daemon imports code. */
static bool is_exported(const Npugraph__V1__StoreEntry *e)
{
    return e->reason[0] == '\0' && e->kind != NGD_PB(STORE_ENTRY_KIND, STATIC);
}

static int export_all(struct ctl *ctl, FILE *f, const char *path, uint64_t *done_p)
{
    Npugraph__V1__ListStoreResponse *r = list_entries(ctl);
    struct moved moved = {.total = 0};
    int rc = r == NULL;

    for (size_t i = 0; rc == 0 && i < r->n_entries; i++)
        moved.total += is_exported(r->entries[i]) ? r->entries[i]->bytes : 0;
    ctl_progress_start(&moved.bar, ctl, "exporting");
    for (size_t i = 0; rc == 0 && i < r->n_entries; i++) {
        if (!is_exported(r->entries[i]))
            continue;
        rc = export_one(ctl, f, path, r->entries[i]->name, &moved);
        *done_p += rc == 0;
    }
    ctl_progress_end(&moved.bar);
    npugraph__free_message(r);
    return rc;
}

/* Exports the named entries, or all, into a temporary file beside the target, which gets its name when it is
 * complete. */
static int export_entries(struct ctl *ctl, const char *path, char **names, int n)
{
    char part[PATH_MAX + 8];
    struct stat sb;
    FILE *f;
    uint64_t done = 0;
    int rc;

    /* The rename would replace a device or a link instead of writing to it. */
    if (lstat(path, &sb) == 0 && !S_ISREG(sb.st_mode)) {
        ctl_error("%s is not a regular file; name a regular file or a new one", path);
        return 1;
    }
    if ((size_t)snprintf(part, sizeof(part), "%s.part", path) >= sizeof(part)) {
        errno = ENAMETOOLONG;
        print_file_error(path, "written");
        return 1;
    }
    f = fopen(part, "wb");
    if (f == NULL || fwrite(EXPORT_MAGIC, 1, 8, f) != 8) {
        print_file_error(part, "written");
        rc = 1;
    } else {
        rc = n > 0 ? export_named(ctl, f, part, names, n, &done) : export_all(ctl, f, part, &done);
    }
    if (rc == 0 && (fflush(f) != 0 || fsync(fileno(f)) != 0)) {
        print_file_error(part, "written");
        rc = 1;
    }
    if (f == NULL)
        return rc;
    fclose(f);
    if (rc == 0 && rename(part, path) != 0) {
        print_file_error(path, "written");
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

struct importing {
    struct ctl *ctl;
    FILE *f;
    const char *path;
    struct moved moved;
    uint64_t done; /* entries */
};

/* Sends n bytes of the file, in chunks that fit into a message with any max-message. */
static int send_entry(struct importing *im, struct npugraph__stream *st, uint64_t n, struct npugraph_error *err)
{
    Npugraph__V1__ImportStoreRequest req = NPUGRAPH__V1__IMPORT_STORE_REQUEST__INIT;
    static uint8_t chunk[IMPORT_CHUNK]; /* static since it is large, and there is only one thread */
    int rc = 0;

    req.total = n;
    for (uint64_t left = n; rc == 0 && left > 0; left -= req.data.len) {
        req.data.data = chunk;
        req.data.len = left < sizeof(chunk) ? (size_t)left : sizeof(chunk);
        if (fread(chunk, 1, req.data.len, im->f) != req.data.len)
            return npugraph__error(err, 3, "", "%s ends in the middle of an entry, or is damaged", im->path);
        rc = npugraph__stream_send(st, &req.base, err);
        advance_progress(&im->moved, req.data.len);
        req.total = 0;
    }
    return rc;
}

static int import_one(struct importing *im, uint64_t n)
{
    struct npugraph__stream *st;
    struct npugraph_error err = {0};
    ProtobufCMessage *r = NULL;
    int rc = npugraph__stream_open(im->ctl->client, "/npugraph.v1.Admin/ImportStore", &st, &err);

    if (rc != 0)
        return ctl_fail(&err);
    rc = send_entry(im, st, n, &err);
    if (rc == 0)
        rc = npugraph__stream_half_close(st, &err);
    if (rc == 0)
        rc = npugraph__stream_recv(st, &npugraph__v1__import_store_response__descriptor, &r, &err);
    if (rc == 0 && r == NULL)
        rc = npugraph__error(&err, 15, "", "the daemon did not report whether it imported an entry");
    npugraph__free_message(r);
    npugraph__stream_close(st);
    return rc != 0 ? ctl_fail(&err) : 0;
}

static int import_entries(struct importing *im)
{
    uint8_t head[8];

    if (fread(head, 1, 8, im->f) != 8 || memcmp(head, EXPORT_MAGIC, 8) != 0) {
        ctl_error("%s is not a file of exported entries", im->path);
        return 1;
    }
    for (size_t got; (got = fread(head, 1, 8, im->f)) > 0; im->done++) {
        uint64_t n = got == 8 ? get_u64(head) : 0;
        int rc;

        if (n == 0 || n > ENTRY_MAX) {
            ctl_error("%s ends in the middle of an entry, or is damaged", im->path);
            return 1;
        }
        rc = import_one(im, n);
        if (rc != 0)
            return rc;
        advance_progress(&im->moved, 8);
    }
    return 0;
}

static int cache_import(struct ctl *ctl, const char *path)
{
    struct importing im = {.ctl = ctl, .path = path, .f = fopen(path, "rb")};
    struct ctl_fields *fields;
    int rc;

    if (im.f == NULL) {
        print_file_error(path, "read");
        return 1;
    }
    if (fseeko(im.f, 0, SEEK_END) == 0)
        im.moved.total = (uint64_t)ftello(im.f);
    rewind(im.f);
    rc = ctl_connect(ctl) ? 0 : 1;
    ctl_progress_start(&im.moved.bar, ctl, "importing");
    if (rc == 0)
        rc = import_entries(&im);
    ctl_progress_end(&im.moved.bar);
    fclose(im.f);
    fields = ctl_fields_new(ctl, NULL);
    ctl_field_int(fields, "Imported", "imported", im.done);
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
