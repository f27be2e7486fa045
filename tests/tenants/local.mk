# SPDX-License-Identifier: Apache-2.0
# What one user may not do to another one, or to the daemon: two users on one live daemon. A line for each file, so that those who
# add one do not get into each other's way.
NGD_TENANT_TESTS =
NGD_TENANT_TESTS += tests/tenants/test_captures.py
NGD_TENANT_TESTS += tests/tenants/test_accounting.py
NGD_TENANT_TESTS += tests/tenants/test_disclosure.py
NGD_TENANT_TESTS += tests/tenants/test_front.py
NGD_TENANT_TESTS += tests/tenants/test_identities.py
NGD_TENANT_TESTS += tests/tenants/test_log.py
NGD_TENANT_TESTS += tests/tenants/test_long_work.py
NGD_TENANT_TESTS += tests/tenants/test_messages.py
NGD_TENANT_TESTS += tests/tenants/test_names.py
NGD_TENANT_TESTS += tests/tenants/test_quota.py
NGD_TENANT_TESTS += tests/tenants/test_repeats.py
NGD_TENANT_TESTS += tests/tenants/test_sessions.py
NGD_TENANT_TESTS += tests/tenants/test_stopping.py
NGD_TENANT_TESTS += tests/tenants/test_store.py
TESTS += $(NGD_TENANT_TESTS)
EXTRA_DIST += tests/tenants/local.mk tests/tenants/http2.py tests/tenants/tenants.py $(NGD_TENANT_TESTS)
$(NGD_TENANT_TESTS:.py=.log): npugraphd npugraphctl
