/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CANN needs from the environment. A shell gets it from CANN's own script, a unit of systemd does not: variables
 * that are not set are derived from where the libraries are. setenv() moves the environment, which getenv() of another
 * thread may be reading: variables are set only while the process has one thread, which is when the daemon opens its
 * devices at the start. When the doctor opens a device later, what is not set stays so.
 */
#include "devices/ascend/acl_environment.h"
#include "base/log.h"
#include "devices/doctor_device.h"
#include <dirent.h>
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum origin { ORIGIN_START, ORIGIN_DERIVED, ORIGIN_TOO_LATE };

static struct variable {
    const char *name, *below;
    bool need;
    const char *why;
    _Atomic enum origin origin;
} variables[] = {
#define NGD_ACL_VARIABLE(name, below, need, why) {name, below, need, why, ORIGIN_START},
#include "devices/ascend/acl_environment.def"
#undef NGD_ACL_VARIABLE
};
#define N_VARIABLES (sizeof(variables) / sizeof(variables[0]))

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool ngd_acl_is_alone(void)
{
#if defined(__SANITIZE_THREAD__)
    const int own = 2; /* the sanitizer has a thread too, which reads no variable */
#else
    const int own = 1;
#endif
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;

    if (!tasks)
        return false;
    while ((entry = readdir(tasks)))
        threads += entry->d_name[0] != '.';
    closedir(tasks);
    return threads <= own;
}

/* A link stays as it is: it may be one that moves with an update. */
static bool make_absolute(const char *dir, char path[PATH_MAX])
{
    if (*dir != '/')
        return realpath(dir, path) != NULL;
    snprintf(path, PATH_MAX, "%s", dir);
    return true;
}

bool ngd_acl_find_folder(void *library, char path[PATH_MAX])
{
    struct link_map *map = NULL;
    char file[PATH_MAX];

    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !strchr(map->l_name, '/'))
        return false;
    snprintf(file, sizeof(file), "%s", map->l_name);
    return make_absolute(dirname(file), path);
}

/* The folder above lib64, and above that of the architecture ("aarch64-linux"), if it is between the two; it is CANN's
 * home if it has operators. */
static bool find_home_above(const char *libs, char home[PATH_MAX])
{
    char path[PATH_MAX], *name;

    snprintf(path, sizeof(path), "%s", libs);
    snprintf(home, PATH_MAX, "%s", dirname(path));
    name = strrchr(home, '/');
    if (name && name != home && strlen(name) > 6 && strcmp(name + strlen(name) - 6, "-linux") == 0)
        *name = '\0';
    snprintf(path, sizeof(path), "%.3000s/opp", home);
    return is_folder(path);
}

/* One library may lie apart from the others: then the folder of these decides. */
static bool find_home(const char *dir, void *library, char home[PATH_MAX])
{
    char libs[PATH_MAX];

    return (ngd_acl_find_folder(library, libs) && find_home_above(libs, home)) ||
           (*dir && make_absolute(dir, libs) && find_home_above(libs, home));
}

/* CANN's log goes to the user's home, which a unit may not have; systemd names a folder of the unit's own. */
static bool find_log(char *path, size_t room)
{
    static const char *const folders[] = {"LOGS_DIRECTORY", "STATE_DIRECTORY"};
    const char *home = getenv("HOME");

    if (home && *home && access(home, W_OK) == 0)
        return false;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        const char *folder = getenv(folders[i]);

        if (folder && *folder) {
            snprintf(path, room, "%.*s/ascend", (int)strcspn(folder, ":"), folder);
            return true;
        }
    }
    return false;
}

static void derive(struct variable *v, const char *value, bool alone)
{
    if (alone && setenv(v->name, value, 1) == 0) {
        atomic_store(&v->origin, ORIGIN_DERIVED);
        ngd_info("devices", "%s is not set, it is %s now", v->name, value);
    } else {
        atomic_store(&v->origin, ORIGIN_TOO_LATE);
    }
}

/* home: "" if it was not found. */
static bool find_variable_value(const struct variable *v, const char *home, char path[PATH_MAX])
{
    if (strcmp(v->below, "log") == 0)
        return find_log(path, PATH_MAX);
    snprintf(path, PATH_MAX, "%.3000s%s%s", home, *v->below ? "/" : "", v->below);
    return *home != '\0';
}

static void derive_unless_set(struct variable *v, const char *home, bool alone)
{
    char path[PATH_MAX];

    if (!is_set(v->name) && find_variable_value(v, home, path))
        derive(v, path, alone);
}

void ngd_acl_derive_environment(const char *dir, void *library, bool alone)
{
    char home[PATH_MAX];

    if (!find_home(dir, library, home))
        home[0] = '\0';
    for (size_t i = 0; i < N_VARIABLES; i++)
        derive_unless_set(&variables[i], home, alone);
}

void ngd_acl_doctor_environment(bool open, struct ngd_doctor_device_report *report)
{
    for (size_t i = 0; i < N_VARIABLES; i++) {
        const struct variable *v = &variables[i];
        char step[80];

        snprintf(step, sizeof(step), "environment %s", v->name);
        if (is_set(v->name))
            ngd_doctor_device_add(report, step, "passed", 0, "%.300s, %s", getenv(v->name),
                                  atomic_load(&v->origin) == ORIGIN_DERIVED ? "from where the libraries are"
                                                                            : "as the daemon was started with it");
        else if (atomic_load(&v->origin) == ORIGIN_TOO_LATE)
            ngd_doctor_device_add(report, step, v->need && !open ? "failed" : "missing", 0,
                                  "it is not set, and can be derived only when the daemon starts, since other threads "
                                  "read the environment now: restart the daemon (%s)",
                                  v->why);
        else if (v->need)
            ngd_doctor_device_add(report, step, open ? "missing" : "failed", 0,
                                  "it is not set, and there is no %s folder beside the libraries: %s", v->below,
                                  v->why);
        else
            ngd_doctor_device_add(report, step, "passed", 0, "not set: %s", v->why);
    }
}
