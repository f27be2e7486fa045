/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sockets.h"

#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

START_TEST(senders_are_addresses_of_ipv4_and_networks_of_ipv6)
{
    static const char *const rows[][2] = {
        {"192.0.2.1", "192.0.2.1"},
        {"127.0.0.1", "127.0.0.1"},
        {"::1", "::1"},
        {"::ffff:192.0.2.1", "192.0.2.1"},
        {"::ffff:127.0.0.1", "127.0.0.1"},
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {"2001:db8:1:2::", "2001:db8:1:2::/64"},
        {"2001:db8:1:3::6", "2001:db8:1:3::/64"},
        {"fe80::1", "fe80::/64"},
        {"::2", "::/64"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(1)};
        const bool four = inet_pton(AF_INET, rows[i][0], &v4.sin_addr) == 1;
        char text[NGD_ADDRESS_MAX];

        ck_assert(four || inet_pton(AF_INET6, rows[i][0], &v6.sin6_addr) == 1);
        if (four)
            ngd_sockaddr_print_sender((struct sockaddr *)&v4, sizeof(v4), text);
        else
            ngd_sockaddr_print_sender((struct sockaddr *)&v6, sizeof(v6), text);
        ck_assert_str_eq(text, rows[i][1]);
    }
}
END_TEST

UNIT_MAIN("daemon/sockets", senders_are_addresses_of_ipv4_and_networks_of_ipv6)
