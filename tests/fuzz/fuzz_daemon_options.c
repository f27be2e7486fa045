/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's options file. Whatever the bytes are, the answer is options or an error that names the line; nothing
 * leaks. The seed is the sample file.
 */
#include "base/config.h"
#include "daemon/options.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 5000;

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    struct ngd_strbuf sample;

    ngd_strbuf_init(&sample);
    ngd_config_describe(ngd_options_table, NGD_CONFIG_SAMPLE, &sample);
    /* The sample has its values as comments; the second seed takes them for settings. */
    for (const char *p = ngd_strbuf_str(&sample); *p; p++)
        if (i == 0 || *p != '#' || (p[1] != ' ' && p[1] != '\n'))
            ngd_strbuf_putc(out, i == 1 && *p == '#' ? ' ' : *p);
    ngd_strbuf_fini(&sample);
    return i < 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_options options = {0};
    struct ngd_diag diag = {0};
    char *text = fuzz_text(data, n);

    fuzz_demand(ngd_config_init(ngd_options_table, &options, &diag) == NGD_OK, diag.text);
    if (ngd_config_read_text(ngd_options_table, &options, text, n, "fuzz", &diag) != NGD_OK)
        fuzz_demand(diag.text[0] != '\0', "a file is refused without a diagnosis");
    (void)ngd_options_weight(&options, "uid:1000");
    ngd_config_fini(ngd_options_table, &options);
    ngd_free(text);
    return 0;
}
