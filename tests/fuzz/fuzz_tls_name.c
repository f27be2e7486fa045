/* SPDX-License-Identifier: Apache-2.0 */
/* Client certificates in DER. A name that is taken says its kind, is printable, and is terminated. */
#include "daemon/front/tls_names.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char name[NGD_WIRE_IDENTITY_MAX];
    struct ngd_diag diag = {0};

    if (ngd_tls_name_of_der(data, n, true, name, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "a certificate is refused without a diagnosis");
        return 0;
    }
    fuzz_demand(memchr(name, '\0', sizeof(name)) != NULL, "a name does not end");
    fuzz_demand(!strncmp(name, "tls-uri:", 8) || !strncmp(name, "tls-dns:", 8) || !strncmp(name, "tls-cn:", 7),
                "a name has no kind");
    for (const char *p = name; *p; p++)
        fuzz_demand(*p > 0x20 && *p < 0x7f, "a name has a character that is not printable");
    return 0;
}
