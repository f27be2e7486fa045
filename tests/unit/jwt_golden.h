/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, and tokens that PyJWT has signed with them; tests/unit/jwt_golden.py has made them. */
#ifndef NGD_TESTS_JWT_GOLDEN_H
#define NGD_TESTS_JWT_GOLDEN_H

/* clang-format off */
#define GOLDEN_KEYS \
    "{\"keys\": [{\"kid\": \"r\", \"use\": \"sig\", \"kty\": \"RSA\", \"n\": \"xrNSAvqDCrED9S7isG4LYJZhKkA4yomDoM8CBV4czg5" \
    "loqptYW0TtnZtkH5nx5Ylf2v_ZvU42le_OCEjaIJ55h7vJLkje9yy11UHk9SsOmRxlsvomlIS2h_CJPTt-CecYkYdmuyyCujyHoH" \
    "zf8zb5XDYoqcJekdz94xTiYr8uadF-wO-V8PP1O62z6NvZMsNUiaraHNwlSt3L6eWL2O2LaX3z8FTAz2OQ53X2bnasc2JiGE-N-S" \
    "95dHUkdDreumv_zPcZ-tN58yNspZ4yTheJ4iThRdpKHcV8aO1bT2azC9a-dZfjA9PCSxbv_hDlMFlLSpf1rRHmzSpWK38FH22Tw\"" \
    ", \"e\": \"AQAB\"}, {\"kid\": \"e\", \"kty\": \"EC\", \"crv\": \"P-256\", \"x\": " \
    "\"dtHjiuGTxT_8ms3f9kQm5RbWI5Ip0KmKoyUHiu_vYKU\", \"y\": \"BbuUWfwBdPvlWvG59aP3HD9gyJVPO4D1gGPqCULd9uU\"}, " \
    "{\"kid\": \"f\", \"kty\": \"EC\", \"crv\": \"P-521\", \"x\": " \
    "\"Acq_S17kPM1DFLstiuJDfLDXEwYZunFd7YgQCVdE52QVOTKdWZHYVOqOj_-L8hPJw0gS3jflOSz8LT9RhIDS8DzC\", \"y\": " \
    "\"AUysjlnVLRWkwtSkzASmxCzpvSb21izktFsiWCQCVrpmn91xUrcZ7JzcWUnwPTVaWOulR6xNDkH28QYZrQxS4_gm\"}, {\"kid\":" \
    " \"d\", \"kty\": \"OKP\", \"crv\": \"Ed25519\", \"x\": \"i9Uz8ZbtSGG7uAqlFg6QcK5XaCK7sSBTrKbCOLqPkfA\"}]}"
#define GOLDEN_RS256 \
    "eyJhbGciOiJSUzI1NiIsImtpZCI6InIiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLm9yZyIsI" \
    "mF1ZCI6WyJvdGhlciIsIm5wdWdyYXBoZCJdLCJzdWIiOiJ0cmFpbmVyIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjQxMDI0NDQ3O" \
    "TksImdyb3VwcyI6WyJvcHMiLCJkZXYiXX0.ntdcRddmWwPANlCsBcoOEkmtjI1-KvCz-yYRSSdzyiYVnpiE-7N2VmvEWAq7misZ0" \
    "Z1Xz5usPzuHEFNz9W1Lh8Oy21ixSjHjqFfJdWJjgJ6BpK61K-tgErql-kMkZXEg4jffKmBgjrYR4AnLYCsf0S0c_IzD9lCExXmgk" \
    "NEJkXwfSEx4ZbPh8YZbCbUiJnzYBAmjwHELr4FAFlwU4N4_FlnXPe60zMYSIxwX8qvrbtr-ZDq4-Yya5WIpMLlHBjYTWtsOvdEO8" \
    "NIym8KdTBxHObDL0LSaqEI7WrNAc9R4for7H4_xZ_nuS-hxRGNp84_nVn2OhjJB63FGs1BGg8R8vQ"
#define GOLDEN_PS256 \
    "eyJhbGciOiJQUzI1NiIsImtpZCI6InIiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLm9yZyIsI" \
    "mF1ZCI6WyJvdGhlciIsIm5wdWdyYXBoZCJdLCJzdWIiOiJ0cmFpbmVyIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjQxMDI0NDQ3O" \
    "TksImdyb3VwcyI6WyJvcHMiLCJkZXYiXX0.mpa5f1s2gHyd-gXJrWpaL3z7FtUsGvYY6KJcGy_7AAWEoVglem8CfkTUjaEmN3rlP" \
    "1suhKCUyZsT0JFI7ud_99N3msoHmzmMIon82vVr4Rac4lASZ4siClAwrXucmYrg_TBjUZVYjVmuiIy_dT4hpJzxjBy2ufqL4buen" \
    "r6XzK3yc4JMFhEo-Xv6IxOnn_53XfckCpA2kt89Re0x3kYq1PPh95sfv-crBrA_fHbR451e-9GC79Fw4UWyuacy20SjVVT9ZbpOi" \
    "lPjBExfOncVVb4C25yhwbs-mBMgPpX46mUsNHAoddwC2vfeogtp-1CP5FQrsrWEXPYOsZDD9TjTRA"
#define GOLDEN_PS512 \
    "eyJhbGciOiJQUzUxMiIsImtpZCI6InIiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLm9yZyIsI" \
    "mF1ZCI6WyJvdGhlciIsIm5wdWdyYXBoZCJdLCJzdWIiOiJ0cmFpbmVyIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjQxMDI0NDQ3O" \
    "TksImdyb3VwcyI6WyJvcHMiLCJkZXYiXX0.ev1wI1IOr9S6jcxoGC0HVF1VdqQnrbYzkl9dBbJH9scQ2ribHf1Dakb2AqGFhj_pJ" \
    "ux1TBTbhi_jNnQdPLYmfrdsmwuQwBvNDqST0-Pu-H0AoybOgUUUkQRdOkEAqsQFOt0zOJaCZ6Ue3WsjcCTLB-7NDSAgNV9JuIFia" \
    "oOgpdTQnzDK1u0V7GdEL6Ago9uc_tM0yrwcZM8CxHm8w2dHSdsqTOl8YxePf-T0WgCO0vtMndi_5sNVZMAF3Ir7mUJtIXZmrwZVe" \
    "Ysry2-8_CDm_yOyJ5kbQocyyybQAW8K6EaJDe1bfAr3PA6alAsCmXJKnPo6ER-E7W4kZrgmYsDsXw"
#define GOLDEN_ES256 \
    "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLm9yZyIsI" \
    "mF1ZCI6WyJvdGhlciIsIm5wdWdyYXBoZCJdLCJzdWIiOiJ0cmFpbmVyIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjQxMDI0NDQ3O" \
    "TksImdyb3VwcyI6WyJvcHMiLCJkZXYiXX0.o52CViAVWLDzQgW8asZ_do0EYPDOq5L_BoSrYfImsX5D9KOMg_zg13v80IDAzpChj" \
    "wV4LREK8T_r9c5J2IkcrA"
#define GOLDEN_ES512 \
    "eyJhbGciOiJFUzUxMiIsImtpZCI6ImYiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLm9yZyIsI" \
    "mF1ZCI6WyJvdGhlciIsIm5wdWdyYXBoZCJdLCJzdWIiOiJ0cmFpbmVyIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjQxMDI0NDQ3O" \
    "TksImdyb3VwcyI6WyJvcHMiLCJkZXYiXX0.ASajlPssUBGup9dk3q_Ad0lQpIDVxXi9MpF690AQ6D3WC5eS9acrYKykAisY0Mi7S" \
    "Pv7KaLcHxemU6PwflCE57lQAP4xlHspfmJ5SFJrL_NHNJ4VcQboJVxUfyyM3FbzUGMgbOmiX2ZQ4TNekXbNjVLMJVx1q3BfcoHky" \
    "6U1IuuSVA_A"
#define GOLDEN_EDDSA \
    "eyJhbGciOiJFZERTQSIsImtpZCI6ImQiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLm9yZyIsI" \
    "mF1ZCI6WyJvdGhlciIsIm5wdWdyYXBoZCJdLCJzdWIiOiJ0cmFpbmVyIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAiOjQxMDI0NDQ3O" \
    "TksImdyb3VwcyI6WyJvcHMiLCJkZXYiXX0.wwbo5-mNyMKGcuJj8f-inGLT0ZQye2fHFZ_Y7leusGyVKn8HzNxMZdOUdMXz7IlS5" \
    "NtjXJgD-EJoEQu5wF9BAQ"
/* clang-format on */

#endif
