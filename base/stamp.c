/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stamp.h"
#include <stdio.h>
#include <time.h>

#define SECONDS_LEN 19 /* of 2026-11-28T10:28:00 */
#define DAY_MINUTES (24 * 60)

/* Reads a number of n digits; -1: they are not all digits. */
static int digits_of(const char *text, size_t n)
{
    int value = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

static bool read_seconds(const char *text, size_t n, int64_t *seconds_p)
{
    struct tm tm = {0}, again;
    time_t t;

    if (n < SECONDS_LEN || text[4] != '-' || text[7] != '-' ||
        (text[10] != 'T' && text[10] != 't' && text[10] != ' ') || text[13] != ':' || text[16] != ':')
        return false;
    tm.tm_year = digits_of(text, 4) - 1900;
    tm.tm_mon = digits_of(text + 5, 2) - 1;
    tm.tm_mday = digits_of(text + 8, 2);
    tm.tm_hour = digits_of(text + 11, 2);
    tm.tm_min = digits_of(text + 14, 2);
    tm.tm_sec = digits_of(text + 17, 2);
    again = tm;
    t = timegm(&again); /* 31 February becomes a day of March */
    *seconds_p = (int64_t)t;
    return tm.tm_year >= 70 && again.tm_year == tm.tm_year && again.tm_mon == tm.tm_mon &&
           again.tm_mday == tm.tm_mday && again.tm_hour == tm.tm_hour && again.tm_min == tm.tm_min &&
           again.tm_sec == tm.tm_sec;
}

/* Reads a fraction of a second, if there is one. Returns its characters; 0 with *right_p false: it has no digit. */
static size_t read_fraction(const char *text, size_t n, int64_t *ms_p, bool *right_p)
{
    size_t i = 1;

    *ms_p = 0;
    *right_p = true;
    if (n == 0 || text[0] != '.')
        return 0;
    for (int64_t worth = 100; i < n && text[i] >= '0' && text[i] <= '9'; i++, worth /= 10)
        *ms_p += worth * (text[i] - '0');
    *right_p = i > 1;
    return i;
}

/* Reads Z or an offset such as +01:00, to the end. */
static bool read_zone(const char *text, size_t n, int64_t *minutes_p)
{
    int hours, minutes;

    *minutes_p = 0;
    if (n == 1 && (text[0] == 'Z' || text[0] == 'z'))
        return true;
    if (n != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':')
        return false;
    hours = digits_of(text + 1, 2);
    minutes = digits_of(text + 4, 2);
    *minutes_p = (hours * 60 + minutes) * (text[0] == '-' ? -1 : 1);
    return hours >= 0 && minutes >= 0 && minutes < 60 && hours * 60 < DAY_MINUTES;
}

bool ngd_stamp_parse(const char *text, size_t n, int64_t *ms_p)
{
    int64_t seconds, ms, minutes;
    bool right;
    size_t at;

    if (!read_seconds(text, n, &seconds))
        return false;
    at = SECONDS_LEN + read_fraction(text + SECONDS_LEN, n - SECONDS_LEN, &ms, &right);
    if (!right || !read_zone(text + at, n - at, &minutes) || seconds < minutes * 60)
        return false;
    *ms_p = (seconds - minutes * 60) * 1000 + ms;
    return true;
}

void ngd_stamp_print(int64_t ms, char to[NGD_STAMP_ROOM])
{
    const time_t at = (time_t)(ms / 1000);
    struct tm tm;
    size_t n = 0;

    if (gmtime_r(&at, &tm) != NULL)
        n = strftime(to, NGD_STAMP_ROOM, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to + n, NGD_STAMP_ROOM - n, ".%03dZ", (int)(ms % 1000));
}
