/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/address.h"
#include "client/lib/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ADDRESS "unix:/run/npugraphd/npugraphd.sock"

const char *npugraph__address_choose(const char *given)
{
    const char *address = given != NULL ? given : getenv("NPUGRAPH_ADDRESS");

    return address != NULL && address[0] != '\0' ? address : DEFAULT_ADDRESS;
}

int npugraph__address_check(const char *address, struct npugraph_error *err)
{
    const char *colon = strrchr(address, ':');

    if ((strncmp(address, "unix:", 5) == 0 && address[5] != '\0') || strncmp(address, "unix-abstract:", 14) == 0)
        return 0;
    if (colon != NULL && colon != address && colon[1] != '\0' && strspn(colon + 1, "0123456789") == strlen(colon + 1))
        return 0;
    return npugraph__error(err, 3, "INVALID_ARGUMENT", "\"%.200s\" is no address; give unix:PATH or HOST:PORT",
                           address);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Returns what the user can do, by the text of the system or of gRPC. */
static const char *hint_for(const char *address, bool tls, const char *cause)
{
    static const struct {
        const char *end, *hint;
    } hints[] = {
        {"No such file or directory",
         "is npugraphd running? NPUGRAPH_ADDRESS or the address option names another socket"},
        {"Connection refused", "nothing listens there: is npugraphd running?"},
        {"Permission denied", "this user may not use the socket; its file's group may"},
        {"cannot be resolved", "is the host's name right?"},
    };

    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (ends_with(cause, hints[i].end))
            return hints[i].hint;
    if (strncmp(address, "unix", 4) == 0)
        return "is it npugraphd that listens there?";
    return tls ? "does the daemon accept this certificate, and is it of the authority given? its log says why "
                 "it refuses"
               : "if the daemon speaks TLS there, give an authority, a certificate and a key";
}

/* gRPC puts the cause after a list of everything that it tried. */
void npugraph__address_explain(const char *address, bool tls, struct npugraph_error *err)
{
    static const char last[] = "last error: ", unknown[] = "UNKNOWN: ";
    char details[sizeof(err->message)];
    const char *cause = details, *p;
    size_t n = strlen(address);

    memcpy(details, err->message, sizeof(details));
    if ((p = strstr(details, last)) != NULL)
        cause = p + sizeof(last) - 1;
    if (strncmp(cause, unknown, sizeof(unknown) - 1) == 0)
        cause += sizeof(unknown) - 1;
    if (strncmp(cause, address, n) == 0 && strncmp(cause + n, ": ", 2) == 0)
        cause += n + 2;
    else if ((p = strstr(cause, "remote host: ")) != NULL)
        cause = p + strlen("remote host: ");
    if (strncmp(cause, "DNS resolution failed", 21) == 0)
        cause = "the name cannot be resolved";
    snprintf(err->reason, sizeof(err->reason), "UNREACHABLE");
    snprintf(err->message, sizeof(err->message), "cannot reach the daemon at %.200s: %.200s; %s", address, cause,
             hint_for(address, tls, cause));
}
