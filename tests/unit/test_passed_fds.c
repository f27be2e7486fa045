/* SPDX-License-Identifier: Apache-2.0 */
#include "base/passed_fds.h"
#include "base/memfd.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <sys/mman.h>

static int pair[2];

static void pair_open(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
}

static void pair_close(void)
{
    close(pair[0]);
    close(pair[1]);
}

/* Sends a packet with n descriptors of one file. */
static void send_with(const char *text, size_t n)
{
    const int file = memfd_create("passed", 0);
    int fds[NGD_PASSED_FDS_MAX];

    for (size_t i = 0; i < n; i++)
        fds[i] = file;
    ck_assert_int_eq(ngd_passed_fds_send(pair[0], text, strlen(text), fds, n, 0), (ssize_t)strlen(text));
    close(file);
}

/* A descriptor that is open: the lowest that is free. */
static int lowest_free(void)
{
    const int fd = dup(0);

    close(fd);
    return fd;
}

START_TEST(what_there_is_no_room_for_is_closed_and_told)
{
    static const struct {
        size_t sent, most, bytes;
        bool cut;
    } cases[] = {
        {0, 0, 5, false}, {0, 2, 4, true}, {2, 2, 5, false}, {3, 2, 5, true}, {NGD_PASSED_FDS_MAX, 0, 5, true}};

    pair_open();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int before = lowest_free();
        size_t n_fds = 99;
        char data[8];
        bool cut;
        int fds[2];

        send_with("bytes", cases[i].sent);
        ck_assert_int_eq(ngd_passed_fds_receive(pair[1], data, cases[i].bytes, 0, cases[i].most, fds, &n_fds, &cut),
                         (ssize_t)cases[i].bytes);
        ck_assert_uint_eq(n_fds, cases[i].sent < cases[i].most ? cases[i].sent : cases[i].most);
        ck_assert(cut == cases[i].cut);
        for (size_t k = 0; k < n_fds; k++) {
            ck_assert_int_eq(fcntl(fds[k], F_GETFD), FD_CLOEXEC);
            close(fds[k]);
        }
        ck_assert_int_eq(lowest_free(), before);
    }
    pair_close();
}
END_TEST

START_TEST(an_empty_socket_and_the_end_write_no_descriptors)
{
    size_t n_fds = 7;
    char data[8];
    bool cut;
    int fds[1];

    pair_open();
    ck_assert_int_eq(ngd_passed_fds_receive(pair[1], data, 8, MSG_DONTWAIT, 1, fds, &n_fds, &cut), -1);
    ck_assert(errno == EAGAIN && n_fds == 7);
    shutdown(pair[0], SHUT_RDWR);
    ck_assert_int_eq(ngd_passed_fds_receive(pair[1], data, 8, MSG_DONTWAIT, 1, fds, &n_fds, &cut), 0);
    ck_assert(n_fds == 0 && !cut);
    pair_close();
}
END_TEST

START_TEST(memory_is_taken_as_sealed_and_as_large_as_it_was_said)
{
    static const struct {
        int has, needs;
        uint64_t bytes;
        const char *says; /* NULL: it is taken */
    } cases[] = {
        {NGD_MEMFD_SIZED, NGD_MEMFD_SIZED, 64, NULL},
        {NGD_MEMFD_WRITTEN, NGD_MEMFD_SIZED, 64, NULL},
        {NGD_MEMFD_WRITTEN, NGD_MEMFD_WRITTEN, 64, NULL},
        {NGD_MEMFD_SIZED, NGD_MEMFD_WRITTEN, 64, "can still be written"},
        {NGD_MEMFD_SIZED & ~F_SEAL_GROW, NGD_MEMFD_SIZED, 64, "size can still change"},
        {NGD_MEMFD_SIZED, NGD_MEMFD_SIZED, 63, "has 64 bytes"},
        {NGD_MEMFD_SIZED, NGD_MEMFD_SIZED, 0, "has 64 bytes"},
    };
    struct ngd_diag diag;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int fd = memfd_create("sealed", MFD_ALLOW_SEALING);

        ck_assert(ftruncate(fd, 64) == 0 && fcntl(fd, F_ADD_SEALS, cases[i].has) == 0);
        diag = (struct ngd_diag){0};
        ck_assert_int_eq(ngd_memfd_check(fd, cases[i].bytes, cases[i].needs, &diag),
                         cases[i].says ? NGD_ERR_INVALID_ARGUMENT : NGD_OK);
        ck_assert_msg(!cases[i].says || strstr(diag.text, cases[i].says), "%zu: %s", i, diag.text);
        close(fd);
    }
    pair_open();
    ck_assert_int_eq(ngd_memfd_check(pair[0], 64, NGD_MEMFD_SIZED, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_memfd_check(-1, 64, NGD_MEMFD_SIZED, &diag), NGD_ERR_INVALID_ARGUMENT);
    pair_close();
}
END_TEST

UNIT_MAIN("base/passed_fds", what_there_is_no_room_for_is_closed_and_told,
          an_empty_socket_and_the_end_write_no_descriptors, memory_is_taken_as_sealed_and_as_large_as_it_was_said)
