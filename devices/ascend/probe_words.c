/* SPDX-License-Identifier: Apache-2.0 */
/* Makes CANN's words fit for a file that is sent to others. See probe.h. */
#include "devices/ascend/probe.h"
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_LEAST  3 /* characters; a shorter name hides only a word that is the name */
#define SERIAL      7 /* digits of a word that may be a serial number */
#define PASSWD_ROOM 4096

void ngd_ascend_find_secrets(struct ascend_secrets *s_p)
{
    const char *user = getenv("USER");
    size_t label;
    struct passwd entry, *found = NULL;
    char room[PASSWD_ROOM];

    memset(s_p, 0, sizeof(*s_p));
    gethostname(s_p->names[0], sizeof(s_p->names[0]) - 1);
    label = strcspn(s_p->names[0], ".");
    if (label >= NAME_LEAST) /* a domain's names begin with it */
        s_p->names[0][label] = '\0';
    snprintf(s_p->names[1], sizeof(s_p->names[1]), "%s", user ? user : "");
    if (getpwuid_r(getuid(), &entry, room, sizeof(room), &found) == 0 && found)
        snprintf(s_p->names[2], sizeof(s_p->names[2]), "%s", entry.pw_name);
}

static bool has_name(const char *word, size_t n, const char *name)
{
    const size_t length = strlen(name);

    return length < NAME_LEAST ? length == n && memcmp(word, name, n) == 0 : memmem(word, n, name, length) != NULL;
}

static bool is_digit_of_word(char c)
{
    return c >= '0' && c <= '9';
}

/* Has it many digits, or four numbers with dots between them, as an address has? */
static bool is_numbered(const char *word, size_t n)
{
    int digits = 0, dots = 0;

    for (size_t i = 0; i < n; i++) {
        digits += is_digit_of_word(word[i]);
        if (word[i] == '.' && i > 0 && is_digit_of_word(word[i - 1]) && i + 1 < n && is_digit_of_word(word[i + 1]))
            dots++;
        else if (!is_digit_of_word(word[i]))
            dots = 0;
        if (dots == 3)
            return true;
    }
    return digits >= SERIAL;
}

static bool is_secret(const struct ascend_secrets *s, const char *word, size_t n)
{
    if (memchr(word, '/', n) || memchr(word, '@', n) || is_numbered(word, n))
        return true;
    for (size_t i = 0; i < sizeof(s->names) / sizeof(s->names[0]); i++)
        if (s->names[i][0] && has_name(word, n, s->names[i]))
            return true;
    return false;
}

void ngd_ascend_clean_words(const struct ascend_secrets *s, char text[ASCEND_REPLY_TEXT])
{
    char from[ASCEND_REPLY_TEXT];
    size_t at = 0;

    memcpy(from, text, sizeof(from));
    from[sizeof(from) - 1] = '\0';
    for (const char *p = from; *p;) {
        const size_t n = strcspn(p, " \t\r\n");

        if (n && at + n + 2 < ASCEND_REPLY_TEXT) {
            if (at)
                text[at++] = ' ';
            if (is_secret(s, p, n)) {
                text[at++] = '*';
            } else {
                for (size_t i = 0; i < n; i++)
                    text[at++] = p[i] == '"' ? '\'' : p[i] < ' ' || p[i] > '~' ? '?' : p[i];
            }
        }
        p += n + (p[n] != '\0');
    }
    text[at] = '\0';
}
