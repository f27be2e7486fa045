/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device needs from the machine: the driver's device nodes and files, and a process that may use them. CANN says
 * of them only that it sees no device, or a number: which of them is missing, or closed to the daemon's user, is found
 * by looking. Permissions are tried, since the rules of units and containers are not in a node's mode; but not on a
 * node that this process has open: a driver may count what a process opens and closes.
 */
#include "devices/ascend/acl_environment.h"
#include "devices/ascend/ascend.h"
#include "devices/doctor_device.h"
#include "devices/telemetry.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NAME_ROOM   64
#define PATH_ROOM   240
#define TEXT_ROOM   960
#define GROUPS_MOST 64
#define NODES_MOST  64
#define SHORT_ROOM  20
#define NSS_ROOM    4096

/* Nodes that all devices share; each has one of its own, davinci<number of its chip in the machine>. */
static const char *const shared_nodes[] = {"davinci_manager", "devmm_svm", "hisi_hdc"};
#define N_SHARED (sizeof(shared_nodes) / sizeof(shared_nodes[0]))

struct node {
    char path[PATH_ROOM];
    char owner[NAME_ROOM], group[NAME_ROOM];
    struct stat st;
    int missing; /* errno of looking at it; 0: it is there */
    bool held;   /* this process has it open */
    int closed;  /* errno of opening it; 0: it can be opened, or is held */
};

/* ---- names --------------------------------------------------------------------------------------- */

/* The folder of the nodes: another one in containers that map them elsewhere, and in tests. */
static const char *root(void)
{
    const char *dir = getenv("NGD_ASCEND_DEV_ROOT");

    return dir && *dir ? dir : "/dev";
}

/* A user's or group's name, or its number where it has none. */
static void name_user(uid_t uid, char name[NAME_ROOM])
{
    struct passwd entry, *found = NULL;
    char room[NSS_ROOM];

    if (getpwuid_r(uid, &entry, room, sizeof(room), &found) == 0 && found)
        snprintf(name, NAME_ROOM, "%s", found->pw_name);
    else
        snprintf(name, NAME_ROOM, "%u", (unsigned)uid);
}

static void name_group(gid_t gid, char name[NAME_ROOM])
{
    struct group entry, *found = NULL;
    char room[NSS_ROOM];

    if (getgrgid_r(gid, &entry, room, sizeof(room), &found) == 0 && found)
        snprintf(name, NAME_ROOM, "%s", found->gr_name);
    else
        snprintf(name, NAME_ROOM, "%u", (unsigned)gid);
}

/* ---- one node ------------------------------------------------------------------------------------ */

static bool is_same_node(const struct stat *a, const struct stat *b)
{
    if (S_ISCHR(a->st_mode) && S_ISCHR(b->st_mode))
        return a->st_rdev == b->st_rdev;
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool has_open(const struct stat *node)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    struct stat st;
    bool found = false;

    while (dir && !found && (entry = readdir(dir)) != NULL)
        found = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && is_same_node(&st, node);
    if (dir)
        closedir(dir);
    return found;
}

static int try_open(const char *path)
{
    int fd = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static void look_at_node(const char *name, struct node *node)
{
    memset(node, 0, sizeof(*node));
    snprintf(node->path, sizeof(node->path), "%.160s/%.60s", root(), name);
    if (stat(node->path, &node->st)) {
        node->missing = errno;
        return;
    }
    name_user(node->st.st_uid, node->owner);
    name_group(node->st.st_gid, node->group);
    node->held = has_open(&node->st);
    if (!node->held)
        node->closed = try_open(node->path);
}

/* The best known number of the node: the chip's in the machine, else the driver's, else CANN's. */
static int32_t node_number(const struct ngd_ascend_numbers *n)
{
    if (n->physical != NGD_NUMBER_UNKNOWN)
        return n->physical;
    return n->logical != NGD_NUMBER_UNKNOWN ? n->logical : n->user;
}

static void look_at_own(const struct ngd_ascend_numbers *numbers, struct node *node)
{
    char name[32];

    snprintf(name, sizeof(name), "davinci%d", (int)node_number(numbers));
    look_at_node(name, node);
}

/* Its mode lets this process read and write; a unit or a container may forbid it nevertheless. */
static bool mode_allows(const struct node *node)
{
    return faccessat(AT_FDCWD, node->path, R_OK | W_OK, AT_EACCESS) == 0;
}

/* What is wrong with a node, and what to do, in text; false: nothing. */
static bool is_wrong(const struct node *node, char text[TEXT_ROOM])
{
    char user[NAME_ROOM];

    if (node->missing == ENOENT) {
        snprintf(text, TEXT_ROOM,
                 "%s is not there: the driver (HDK) is not loaded, or a container or unit does not pass it on",
                 node->path);
    } else if (node->missing) {
        snprintf(text, TEXT_ROOM, "%s cannot be looked at: %s", node->path, strerror(node->missing));
    } else if ((node->closed == EACCES || node->closed == EPERM) && mode_allows(node)) {
        snprintf(text, TEXT_ROOM,
                 "%s is closed by the rules of the daemon's unit or container, not by its mode: DeviceAllow=%s rw, or "
                 "--device=%s",
                 node->path, node->path, node->path);
    } else if (node->closed == EACCES || node->closed == EPERM) {
        name_user(geteuid(), user);
        snprintf(text, TEXT_ROOM,
                 "%s cannot be read and written by user %.32s: it is mode %03o of %.32s:%.32s. Put the user in the "
                 "node's group (HwHiAiUser as a rule: usermod -aG GROUP %.32s), and allow the node in its unit "
                 "(DeviceAllow=)",
                 node->path, user, (unsigned)(node->st.st_mode & 0777), node->owner, node->group, user);
    } else if (node->closed) {
        snprintf(text, TEXT_ROOM, "%s does not open: %s; the driver's lines in dmesg say more", node->path,
                 strerror(node->closed));
    }
    return node->missing || node->closed;
}

void ngd_ascend_explain_nodes(const struct ascend_device *dev, struct ngd_diag *diag)
{
    char text[TEXT_ROOM], before[NGD_DIAG_MAX];
    struct node node;
    bool wrong;

    look_at_own(&dev->numbers, &node);
    wrong = is_wrong(&node, text);
    for (size_t i = 0; i < N_SHARED && !wrong; i++) {
        look_at_node(shared_nodes[i], &node);
        wrong = is_wrong(&node, text);
    }
    if (!wrong || !diag)
        return;
    snprintf(before, sizeof(before), "%s", diag->text);
    ngd_diag_set(diag, diag->status, "%.400s; %.500s", before, text);
}

/* ---- steps of the doctor -------------------------------------------------------------------------- */

static void add_user(struct ngd_doctor_device_report *report)
{
    char user[NAME_ROOM], name[NAME_ROOM], list[160] = "";
    gid_t groups[GROUPS_MOST];
    int n = getgroups(GROUPS_MOST, groups);
    size_t at = 0;

    name_user(geteuid(), user);
    name_group(getegid(), name);
    for (int i = 0; i < n && at < sizeof(list); i++) {
        char other[NAME_ROOM];

        name_group(groups[i], other);
        if (groups[i] != getegid())
            at += (size_t)snprintf(list + at, sizeof(list) - at, ", %s", other);
    }
    ngd_doctor_device_add(report, "user", "passed", 0, "the daemon runs as %.32s, of the groups %.32s%s", user, name,
                          n < 0 ? " and more than can be listed" : list);
}

/* A device that opened needs nothing more of its nodes: they may be elsewhere than we look. */
static void add_node(const struct node *node, bool open, struct ngd_doctor_device_report *report)
{
    const char *name = strrchr(node->path, '/') + 1;
    char step[NAME_ROOM], text[TEXT_ROOM];

    snprintf(step, sizeof(step), "node %.50s", name);
    if (is_wrong(node, text))
        ngd_doctor_device_add(report, step, open ? "missing" : "failed", 0, "%s", text);
    else
        ngd_doctor_device_add(report, step, "passed", 0, "%s is mode %03o of %.32s:%.32s, number %u:%u; %s", node->path,
                              (unsigned)(node->st.st_mode & 0777), node->owner, node->group, major(node->st.st_rdev),
                              minor(node->st.st_rdev),
                              node->held ? "the daemon has it open" : "the daemon can open it");
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(a, b);
}

/* The names of nodes of devices and their parts, up to NODES_MOST; how many. */
static size_t find_davincis(char names[NODES_MOST][SHORT_ROOM])
{
    DIR *dir = opendir(root());
    struct dirent *entry;
    size_t n = 0;

    while (dir && n < NODES_MOST && (entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, "davinci", 7) == 0 || strncmp(entry->d_name, "vdavinci", 8) == 0)
            snprintf(names[n++], SHORT_ROOM, "%.*s", SHORT_ROOM - 1, entry->d_name);
    if (dir)
        closedir(dir);
    qsort(names, n, SHORT_ROOM, by_version);
    return n;
}

/* Which devices the machine, or what the container passes on, has: numbers may be others than those expected. */
static void add_davincis(bool open, struct ngd_doctor_device_report *report)
{
    char names[NODES_MOST][SHORT_ROOM], list[NODES_MOST * (SHORT_ROOM + 1) + 1] = "";
    size_t n = find_davincis(names), at = 0;

    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, " %s", names[i]);
    if (n > 0)
        ngd_doctor_device_add(report, "nodes", "passed", 0, "in %.60s:%s", root(), list);
    else
        ngd_doctor_device_add(
            report, "nodes", open ? "missing" : "failed", 0,
            "%.60s has no davinci* at all: no driver (HDK) is loaded, or the unit or container hides it "
            "(PrivateDevices=no)",
            root());
}

/* ---- the driver's files -------------------------------------------------------------------------- */

/* The value of KEY=VALUE in a file; false: it is not there, or the file is not. */
static bool find_info_value(const char *path, const char *key, char *value, size_t room)
{
    FILE *f = fopen(path, "re");
    size_t n = strlen(key);
    bool found = false;
    char line[512];

    while (f && !found && fgets(line, sizeof(line), f)) {
        found = strncmp(line, key, n) == 0 && line[n] == '=';
        if (found) {
            line[strcspn(line, "\r\n")] = '\0';
            snprintf(value, room, "%s", line + n + 1);
        }
    }
    if (f)
        fclose(f);
    return found;
}

/* What the driver's installer has written; its place is fixed, except in tests. */
static const char *install_info(void)
{
    const char *path = getenv("NGD_ASCEND_INSTALL_INFO");

    return path && *path ? path : "/etc/ascend_install.info";
}

/* Where the driver is, its group, and the file with its version. */
static void find_driver(char home[160], char group[NAME_ROOM], char path[PATH_ROOM])
{
    snprintf(home, 160, "/usr/local/Ascend");
    snprintf(group, NAME_ROOM, "HwHiAiUser");
    find_info_value(install_info(), "Driver_Install_Path_Param", home, 160);
    find_info_value(install_info(), "UserGroup", group, NAME_ROOM);
    snprintf(path, PATH_ROOM, "%s/driver/version.info", home);
}

void ngd_ascend_driver_version(char *version, size_t room)
{
    char home[160], group[NAME_ROOM], path[PATH_ROOM];

    find_driver(home, group, path);
    if (!find_info_value(path, "Version", version, room))
        snprintf(version, room, "unknown");
}

static void add_driver(bool open, struct ngd_doctor_device_report *report)
{
    char home[160], group[NAME_ROOM], version[80], path[PATH_ROOM];
    const char *info = install_info();

    find_driver(home, group, path);
    if (find_info_value(path, "Version", version, sizeof(version)))
        ngd_doctor_device_add(report, "driver", "passed", 0, "%s of %s", version, path);
    else
        ngd_doctor_device_add(report, "driver", "missing", 0, "its version is not in %.130s (%.60s names the folder)",
                              path, info);
    snprintf(path, sizeof(path), "%s/driver/lib64/driver/libascend_hal.so", home);
    if (access(path, R_OK) == 0)
        ngd_doctor_device_add(report, "driver's library", "passed", 0, "%s can be read", path);
    else if (errno == EACCES)
        ngd_doctor_device_add(report, "driver's library", open ? "missing" : "failed", 0,
                              "%.120s is closed to the daemon's user: put it in group %.32s", path, group);
    else
        ngd_doctor_device_add(report, "driver's library", "missing", 0, "%.160s: %s", path, strerror(errno));
}

/* Which chip it is: CANN, the driver and the machine have numbers of their own. */
static void add_numbers(const struct ngd_ascend_numbers *n, bool open, struct ngd_doctor_device_report *report)
{
    const char *text = getenv(NGD_VISIBLE_NAME);
    char logical[24] = "not known", physical[24] = "not known";
    struct ngd_visible v;
    bool wrong;

    ngd_visible_parse(text, NGD_VISIBLE_MAX, &v);
    wrong = v.state != NGD_VISIBLE_ALL && v.state != NGD_VISIBLE_SOME;
    if (n->logical != NGD_NUMBER_UNKNOWN)
        snprintf(logical, sizeof(logical), "%d", (int)n->logical);
    if (n->physical != NGD_NUMBER_UNKNOWN)
        snprintf(physical, sizeof(physical), "%d", (int)n->physical);
    ngd_doctor_device_add(
        report, "numbers",
        !wrong ? "passed"
        : open ? "missing"
               : "failed",
        0, "CANN's %d, the driver's (logical) %s, the machine's (physical) %s%s; %s %s%.60s%s: %s", (int)n->user,
        logical, physical, n->physical == NGD_NUMBER_UNKNOWN ? ", in a container another one than the driver's" : "",
        NGD_VISIBLE_NAME, text ? "is \"" : "", text ? text : "", text ? "\"" : "", ngd_visible_explain(&v));
}

void ngd_ascend_doctor(uint32_t index, bool open, struct ngd_doctor_device_report *report)
{
    struct ngd_ascend_numbers numbers;
    struct node node;

    ngd_ascend_find_numbers(NULL, index, &numbers);
    add_user(report);
    add_davincis(open, report);
    add_numbers(&numbers, open, report);
    look_at_own(&numbers, &node);
    add_node(&node, open, report);
    for (size_t i = 0; i < N_SHARED; i++) {
        look_at_node(shared_nodes[i], &node);
        add_node(&node, open, report);
    }
    add_driver(open, report);
    ngd_acl_doctor_environment(open, report);
}
