/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CANN needs from the environment. A shell gets it from CANN's own script, a unit of systemd does not: variables
 * that are not set are derived from where the libraries are. The environment is changed before CANN starts threads,
 * once.
 */
#include "devices/ascend/acl_environment.h"
#include "base/log.h"
#include "devices/doctor_device.h"
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct variable {
    const char *name, *below;
    bool need;
    const char *why;
    bool derived; /* under acl_load.c's lock until CANN is loaded, then constant */
} variables[] = {
#define NGD_ACL_VARIABLE(name, below, need, why) {name, below, need, why, false},
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

/* The folder above lib64, and above that of the architecture ("aarch64-linux"), if it is between the two. */
static void find_home(const char *libs, char *home, size_t room)
{
    char path[PATH_MAX], *name;

    snprintf(path, sizeof(path), "%s", libs);
    snprintf(home, room, "%s", dirname(path));
    name = strrchr(home, '/');
    if (name && name != home && strlen(name) > 6 && strcmp(name + strlen(name) - 6, "-linux") == 0)
        *name = '\0';
}

/* Where the library lies: the folder that was named, or where the linker has found it. */
static bool find_libs(const char *dir, void *library, char *libs, size_t room)
{
    struct link_map *map = NULL;
    char path[PATH_MAX];

    if (*dir) {
        snprintf(libs, room, "%s", dir);
        return true;
    }
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !strchr(map->l_name, '/'))
        return false;
    snprintf(path, sizeof(path), "%s", map->l_name);
    snprintf(libs, room, "%s", dirname(path));
    return true;
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

static bool find_variable_value(const struct variable *v, const char *home, char *path, size_t room)
{
    if (strcmp(v->below, "log") == 0)
        return find_log(path, room);
    snprintf(path, room, "%.3000s/opp", home); /* without it the folder is not CANN's home */
    if (!is_folder(path))
        return false;
    snprintf(path, room, "%.3000s%s%s", home, *v->below ? "/" : "", v->below);
    return true;
}

void ngd_acl_derive_environment(const char *dir, void *library)
{
    char libs[PATH_MAX], home[PATH_MAX], path[PATH_MAX];

    if (!find_libs(dir, library, libs, sizeof(libs)))
        return;
    find_home(libs, home, sizeof(home));
    for (size_t i = 0; i < N_VARIABLES; i++) {
        if (is_set(variables[i].name) || !find_variable_value(&variables[i], home, path, sizeof(path)) ||
            setenv(variables[i].name, path, 1))
            continue;
        variables[i].derived = true;
        ngd_info("devices", "%s is not set, it is %s now", variables[i].name, path);
    }
}

void ngd_acl_doctor_environment(bool open, struct ngd_doctor_device_report *report)
{
    for (size_t i = 0; i < N_VARIABLES; i++) {
        const struct variable *v = &variables[i];
        char step[80];

        snprintf(step, sizeof(step), "environment %s", v->name);
        if (is_set(v->name))
            ngd_doctor_device_add(report, step, "passed", 0, "%.300s, %s", getenv(v->name),
                                  v->derived ? "from where the libraries are" : "as the daemon was started with it");
        else if (v->need)
            ngd_doctor_device_add(report, step, open ? "missing" : "failed", 0,
                                  "it is not set, and there is no %s folder beside the libraries: %s", v->below,
                                  v->why);
        else
            ngd_doctor_device_add(report, step, "passed", 0, "not set: %s", v->why);
    }
}
