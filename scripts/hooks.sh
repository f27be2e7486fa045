#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Git hooks: scripts/hooks.sh install | remove
#   pre-commit   clang-format of the C files that are committed, and the quick tests of tests/meta
#   commit-msg   the subject: folder/object: Imperative, at most 72 columns
# The hooks call this script as `hooks.sh pre-commit` and `hooks.sh commit-msg FILE`. `git commit --no-verify` does without.
set -u
top=$(git rev-parse --show-toplevel) && cd "$top" || exit 1
mark="scripts/hooks.sh of npugraphd"
quick=(layers.py forbidden.py makefiles.py def_files.py prose.py)

hook_path() { # name
    git rev-parse --git-path "hooks/$1"
}

install_hook() { # name
    local path
    path=$(hook_path "$1")
    if [ -e "$path" ] && ! grep -q "$mark" "$path"; then
        echo "hooks.sh: $path is a hook of somebody else; move it away first" >&2
        return 1
    fi
    mkdir -p "$(dirname "$path")"
    # A branch that is older than the script has no hooks.
    cat >"$path" <<EOF
#!/bin/bash
# $mark
script=\$(git rev-parse --show-toplevel)/scripts/hooks.sh
[ ! -x "\$script" ] || exec "\$script" $1 "\$@"
EOF
    chmod +x "$path"
    echo "installed $path"
}

remove_hook() { # name
    local path
    path=$(hook_path "$1")
    if [ -e "$path" ] && grep -q "$mark" "$path"; then
        rm "$path"
        echo "removed $path"
    fi
}

# What is committed is in the index, which may differ from the file.
check_format() {
    local file status=0
    if ! command -v clang-format >/dev/null; then
        echo "hooks.sh: clang-format is not installed; the format is not checked" >&2
        return 0
    fi
    while IFS= read -r -d '' file; do
        if ! git show ":$file" | clang-format --assume-filename="$file" --dry-run --Werror >/dev/null 2>&1; then
            echo "hooks.sh: $file is not formatted; run: clang-format -i $file" >&2
            status=1
        fi
    done < <(git diff --cached --name-only --diff-filter=ACMR -z -- '*.c' '*.h')
    return $status
}

check_meta() {
    local test out status=0
    for test in "${quick[@]}"; do
        if ! out=$("${PYTHON3:-python3}" "tests/meta/$test" 2>&1); then
            echo "hooks.sh: tests/meta/$test fails:" >&2
            grep -v '^ok - ' <<<"$out" >&2
            status=1
        fi
    done
    return $status
}

case ${1:-} in
install)
    install_hook pre-commit && install_hook commit-msg && exit 0
    ;;
remove)
    remove_hook pre-commit
    remove_hook commit-msg
    exit 0
    ;;
pre-commit)
    check_format
    formatted=$?
    check_meta && exit $formatted
    ;;
commit-msg)
    exec "${PYTHON3:-python3}" tests/meta/commits.py --message "$2"
    ;;
*)
    echo "usage: scripts/hooks.sh install | remove" >&2
    exit 2
    ;;
esac
exit 1
