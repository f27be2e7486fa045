/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel shows of the machine: its memory, or that of the control group; the temperature of its CPUs (hwmon,
 * else thermal zones); the power of its CPU packages (RAPL), as their energy since the reading before. What a file does
 * not give as one number within reason is absent. The kernel shows RAPL's energy to root alone, as a rule.
 */
#include "base/mem.h"
#include "devices/host/host.h"
#include "devices/telemetry.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_ROOM    4096 /* of /proc/meminfo; others are shorter */
#define ROOT_ROOM    256
#define PATH_ROOM    1536 /* below 1 KiB of a folder */
#define PLACES_MOST  64   /* sensors' folders, and sensors of one */
#define PACKAGES     16
#define WATTS_MOST   1000 /* of a package */
#define MILLIDEGREES 1000.0
#define MICROJOULES  1e6

struct host_source {
    char root[ROOT_ROOM]; /* above /sys and /proc: "", except in tests */
    uint64_t energy[PACKAGES];
    ngd_nsec_t energy_at; /* 0: the packages were not read */
    int n_packages;
};

void *ngd_host_telemetry_open(void *dev)
{
    struct host_source *s = NGD_NEW(struct host_source);
    const char *root = getenv("NGD_HOST_ROOT");

    (void)dev;
    if (s)
        snprintf(s->root, sizeof(s->root), "%s", root ? root : "");
    return s;
}

void ngd_host_telemetry_close(void *source)
{
    ngd_free(source);
}

/* ---- files --------------------------------------------------------------------------------------- */

/* Reads a whole file as a string. Returns false if there is none, if it is no plain file, or if it is longer. */
static bool read_sensor_file(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n = -1;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = read(fd, text, room);
    close(fd);
    if (n <= 0 || (size_t)n >= room)
        return false;
    text[n] = '\0';
    return strlen(text) == (size_t)n;
}

/* Reads a file that has one whole number and at most a newline behind it. */
static bool read_sensor_number(const char *path, int64_t *number_p)
{
    char text[32], *end;
    long long number;

    if (!read_sensor_file(path, text, sizeof(text)) || (text[0] != '-' && (text[0] < '0' || text[0] > '9')))
        return false;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno || end == text || (*end != '\0' && strcmp(end, "\n") != 0))
        return false;
    *number_p = number;
    return true;
}

static bool read_sensor_word(const char *path, char *word, size_t room)
{
    if (!read_sensor_file(path, word, room))
        return false;
    word[strcspn(word, "\n")] = '\0';
    return true;
}

/* Calls fn for the folder's entries whose names begin with the prefix and go on with a number, up to PLACES_MOST. */
static void for_each_place(const char *folder, const char *prefix,
                           void (*fn)(void *ctx, const char *folder, const char *entry), void *ctx)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    for (int n = 0; dir && n < PLACES_MOST && (entry = readdir(dir)) != NULL;) {
        const char *number = entry->d_name + strlen(prefix);

        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || *number < '0' || *number > '9')
            continue;
        fn(ctx, folder, entry->d_name);
        n++;
    }
    if (dir)
        closedir(dir);
}

/* ---- memory -------------------------------------------------------------------------------------- */

/* The number of a line that begins with the name: "Name:  123 kB" of /proc/meminfo, "name 123" of memory.stat. */
static bool find_memory_line(const char *text, const char *name, uint64_t *number_p)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), " %15" SCNu64, number_p) == 1)
            return true;
    return false;
}

/* What the group uses but for pages of files that the kernel drops when memory is asked for. */
static bool read_group_used(const struct host_source *s, const char *group, uint64_t *used_p)
{
    char path[PATH_ROOM], text[FILE_ROOM];
    uint64_t cache;
    int64_t used;

    snprintf(path, sizeof(path), "%s/sys/fs/cgroup%.1000s/memory.current", s->root, group);
    if (!read_sensor_number(path, &used) || used < 0)
        return false;
    *used_p = (uint64_t)used;
    snprintf(path, sizeof(path), "%s/sys/fs/cgroup%.1000s/memory.stat", s->root, group);
    if (read_sensor_file(path, text, sizeof(text)) && find_memory_line(text, "inactive_file ", &cache) &&
        cache <= *used_p)
        *used_p -= cache;
    return true;
}

/* The control group (version 2) of this process or the one above it that limits its memory most. */
static bool find_group_memory(const struct host_source *s, uint64_t machine, uint64_t *limit_p, uint64_t *used_p)
{
    char path[PATH_ROOM], text[FILE_ROOM], *group, *slash;
    int64_t limit;
    bool found = false;

    snprintf(path, sizeof(path), "%s/proc/self/cgroup", s->root);
    group = read_sensor_file(path, text, sizeof(text)) ? strstr(text, "0::/") : NULL;
    if (!group || (group != text && group[-1] != '\n'))
        return false;
    group += strlen("0::");
    group[strcspn(group, "\n")] = '\0';
    do {
        slash = strrchr(group, '/');
        snprintf(path, sizeof(path), "%s/sys/fs/cgroup%.1000s/memory.max", s->root, group);
        if (read_sensor_number(path, &limit) && limit > 0 && (uint64_t)limit < (found ? *limit_p : machine) &&
            read_group_used(s, group, used_p)) {
            *limit_p = (uint64_t)limit;
            found = true;
        }
        if (slash)
            *slash = '\0';
    } while (slash);
    return found;
}

static void sample_machine_memory(const struct host_source *s, struct ngd_telemetry *t)
{
    char path[PATH_ROOM], text[FILE_ROOM];
    uint64_t total, available, used;

    snprintf(path, sizeof(path), "%s/proc/meminfo", s->root);
    if (!read_sensor_file(path, text, sizeof(text)) || !find_memory_line(text, "MemTotal:", &total))
        return;
    total <<= 10;
    if (find_group_memory(s, total, &total, &used))
        ngd_telemetry_set(t, NGD_TELEMETRY_MEMORY_USED, (double)used);
    else if (find_memory_line(text, "MemAvailable:", &available) && available <= total >> 10)
        ngd_telemetry_set(t, NGD_TELEMETRY_MEMORY_USED, (double)(total - (available << 10)));
    ngd_telemetry_set(t, NGD_TELEMETRY_MEMORY_TOTAL, (double)total);
}

/* ---- temperature --------------------------------------------------------------------------------- */

struct hottest {
    bool found;
    double celsius;
};

static void note_temperature(struct hottest *h, const char *path)
{
    int64_t millidegrees;

    /* A sensor that is not connected shows an absurd value. */
    if (!read_sensor_number(path, &millidegrees) || millidegrees < -50000 || millidegrees > 150000)
        return;
    if (!h->found || (double)millidegrees / MILLIDEGREES > h->celsius)
        h->celsius = (double)millidegrees / MILLIDEGREES;
    h->found = true;
}

static void note_input(void *ctx, const char *folder, const char *entry)
{
    const char *end = strrchr(entry, '_');
    char path[PATH_ROOM];

    if (!end || strcmp(end, "_input") != 0)
        return;
    snprintf(path, sizeof(path), "%.1200s/%.255s", folder, entry);
    note_temperature(ctx, path);
}

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void note_monitor(void *ctx, const char *folder, const char *entry)
{
    static const char *const cpus[] = {"coretemp",    "k10temp",      "zenpower", "cpu_thermal",
                                       "soc_thermal", "scpi_sensors", NULL};
    char path[PATH_ROOM], name[64];

    snprintf(path, sizeof(path), "%.1000s/%.255s/name", folder, entry);
    if (!read_sensor_word(path, name, sizeof(name)) || !is_among(name, cpus))
        return;
    snprintf(path, sizeof(path), "%.1000s/%.255s", folder, entry);
    for_each_place(path, "temp", note_input, ctx);
}

static void note_zone(void *ctx, const char *folder, const char *entry)
{
    static const char *const cpus[] = {"x86_pkg_temp", "cpu-thermal", "cpu_thermal",
                                       "soc-thermal",  "soc_thermal", NULL};
    char path[PATH_ROOM], type[64];

    snprintf(path, sizeof(path), "%.1000s/%.255s/type", folder, entry);
    if (!read_sensor_word(path, type, sizeof(type)) || !is_among(type, cpus))
        return;
    snprintf(path, sizeof(path), "%.1000s/%.255s/temp", folder, entry);
    note_temperature(ctx, path);
}

static void sample_cpu_temperature(const struct host_source *s, struct ngd_telemetry *t)
{
    struct hottest h = {0};
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), "%s/sys/class/hwmon", s->root);
    for_each_place(path, "hwmon", note_monitor, &h);
    snprintf(path, sizeof(path), "%s/sys/class/thermal", s->root);
    if (!h.found)
        for_each_place(path, "thermal_zone", note_zone, &h);
    if (h.found)
        ngd_telemetry_set(t, NGD_TELEMETRY_TEMPERATURE, h.celsius);
}

/* ---- power --------------------------------------------------------------------------------------- */

struct packages {
    int n;
    bool failed; /* one cannot be read, so the sum of the others would be wrong */
    uint64_t energy[PACKAGES], range[PACKAGES];
};

static void note_package(void *ctx, const char *folder, const char *entry)
{
    struct packages *p = ctx;
    char path[PATH_ROOM], name[64];
    int64_t energy = -1, range = -1;

    if (strchr(strchr(entry, ':') + 1, ':')) /* a part of a package */
        return;
    snprintf(path, sizeof(path), "%.1000s/%.255s/name", folder, entry);
    if (!read_sensor_word(path, name, sizeof(name)) || strncmp(name, "package-", 8) != 0)
        return;
    snprintf(path, sizeof(path), "%.1000s/%.255s/energy_uj", folder, entry);
    p->failed |= !read_sensor_number(path, &energy) || energy < 0 || p->n == PACKAGES;
    snprintf(path, sizeof(path), "%.1000s/%.255s/max_energy_range_uj", folder, entry);
    p->failed |= !read_sensor_number(path, &range) || range < energy;
    if (p->failed)
        return;
    p->energy[p->n] = (uint64_t)energy;
    p->range[p->n++] = (uint64_t)range;
}

/* The power since the reading before. A counter that is lower has passed its range once; false: it may have passed it
 * more than once. */
static bool find_power(const struct host_source *s, const struct packages *p, double seconds, double *watts_p)
{
    double sum = 0;

    for (int i = 0; i < p->n; i++) {
        if ((double)p->range[i] / MICROJOULES < WATTS_MOST * seconds)
            return false;
        sum += (double)(p->energy[i] >= s->energy[i] ? p->energy[i] - s->energy[i]
                                                     : p->range[i] - s->energy[i] + p->energy[i]);
    }
    *watts_p = sum / MICROJOULES / seconds;
    return true;
}

static void sample_cpu_power(struct host_source *s, struct ngd_telemetry *t)
{
    const ngd_nsec_t now = ngd_now();
    struct packages p = {0};
    char path[PATH_ROOM];
    double watts;

    snprintf(path, sizeof(path), "%s/sys/class/powercap", s->root);
    for_each_place(path, "intel-rapl:", note_package, &p);
    if (p.failed || p.n == 0) {
        s->energy_at = 0;
        return;
    }
    if (s->energy_at && s->n_packages == p.n && now > s->energy_at &&
        find_power(s, &p, (double)(now - s->energy_at) / (double)NGD_SEC, &watts))
        ngd_telemetry_set(t, NGD_TELEMETRY_POWER, watts);
    memcpy(s->energy, p.energy, sizeof(s->energy));
    s->n_packages = p.n;
    s->energy_at = now;
}

void ngd_host_telemetry_sample(void *source, struct ngd_telemetry *t)
{
    struct host_source *s = source;

    sample_machine_memory(s, t);
    sample_cpu_temperature(s, t);
    sample_cpu_power(s, t);
}
