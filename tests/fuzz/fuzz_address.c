/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses to listen on. What is accepted is terminated and has a path, or a host and a port; nothing is resolved. */
#include "daemon/sockets.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 50000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_address address;
    struct ngd_diag diag = {0};
    char *text = fuzz_text(data, n);

    if (ngd_address_parse(text, &address, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "an address is refused without a diagnosis");
    } else if (address.kind == NGD_ADDRESS_UNIX) {
        fuzz_demand(memchr(address.path, '\0', sizeof(address.path)) && address.path[0], "a socket has no path");
    } else {
        fuzz_demand(memchr(address.host, '\0', sizeof(address.host)) != NULL, "a host does not end");
        fuzz_demand(memchr(address.port, '\0', sizeof(address.port)) && address.port[0], "an address has no port");
    }
    ngd_free(text);
    return 0;
}
