# SPDX-License-Identifier: Apache-2.0

dist_man_MANS += man/npugraphctl.1
dist_man_MANS += man/npugraphd.8 man/npugraphd.conf.5
