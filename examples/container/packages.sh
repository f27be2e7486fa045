#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the Debian packages that have the libraries of these programs, one a line: examples/container/packages.sh PROGRAM...
# Libraries that no package has (our own) are left out.
set -eu

for program in "$@"; do
    while read -r library; do
        # dpkg knows a file by the path that its package has, which may be /lib or /usr/lib.
        real=$(readlink -f "$library")
        for path in "$library" "$real" "${real#/usr}"; do
            package=$(dpkg-query -S "$path" 2>/dev/null) || continue
            package=${package%%:*}
            echo "${package%%,*}"
            break
        done
    done < <(ldd "$program" | awk '$3 ~ "^/" {print $3}')
done | sort -u
