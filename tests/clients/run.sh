#!/usr/bin/env bash
# Other people's programs on a really mounted pool.
#
#     tests/clients/run.sh [CASE...]
#
# Each case is one claim: a file in cases/, run by itself in a folder of its own, within a time limit. One line per case
# tells how it went; a failed one shows its log. A case that this machine can't run is skipped, with the reason.
# Exit codes: 0 all passed, 1 a case failed, 2 wrong usage.
#
#     ONEFOLD=path   the binary to test (target/release/onefold unless given)
#     TMPDIR=folder  where pools are made (target/clients unless given); on a disk, not in memory
#     KEEP=1         leaves the folders of failed cases where they are
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repo=$(dirname "$(dirname "$here")")
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
readonly here repo
readonly limit_default_s=60
readonly exit_skipped=77

target=${CARGO_TARGET_DIR:-$repo/target}
ONEFOLD=$(readlink -m "${ONEFOLD:-$target/release/onefold}")
export ONEFOLD repo

# The case that runs now: its process group and its folder. Empty between cases.
group=
folder=

# Takes away all that a case may have left: processes first, so that nothing waits for a daemon that hangs.
clean_up() {
    local pid mountpoint device file
    if [[ -n $group ]]; then
        kill -KILL -- "-$group" 2>/dev/null || true
        # Collected here, or the shell would tell of it.
        wait "$group" 2>/dev/null || true
        group=
    fi
    [[ -n $folder ]] || return 0
    if [[ -s $folder/daemons ]]; then
        while read -r pid; do
            # A number may have gone to another process since.
            if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$folder/"; then
                kill -KILL "$pid" 2>/dev/null || true
            fi
        done <"$folder/daemons"
    fi
    # The last mounted comes first: it may lie on a file in an earlier one.
    while read -r mountpoint; do
        # Forced: of a daemon that can't end, this ends the connection.
        umount -i -f -l "$mountpoint" 2>/dev/null || true
    done < <(awk -v below="$folder/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | tac)
    while read -r device file; do
        [[ $file != "$folder/"* ]] || losetup --detach "$device" 2>/dev/null || true
    done < <(losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null)
}

remove_folder() {
    [[ -z $folder ]] || rm -rf --one-file-system "$folder" || true
    folder=
}

# Shows what a failed case said, and what its daemons said.
show_logs() {
    local log
    for log in "$folder/log" "$folder/daemon.log"; do
        [[ -s $log ]] || continue
        printf '    --- %s\n' "${log##*/}"
        tail -n 60 "$log" | sed 's/^/    /'
    done
}

# Tells what a case claims: its first line of comment.
claim_of() {
    sed -n '1s/^# //p' "$1"
}

limit_of() {
    local limit_s
    limit_s=$(sed -n 's/^# limit: \([0-9]*\) s$/\1/p' "$1")
    printf '%s\n' "${limit_s:-$limit_default_s}"
}

# Runs the case in file $1; returns its exit code.
run_case() {
    local file=$1 name status=0
    name=$(basename "$file" .sh)
    folder=$(mktemp -d "$work/$name.XXXXXX")
    # A session of its own: Ctrl-C comes to this script only, which then cleans up.
    setsid timeout --kill-after=10 "$(limit_of "$file")" \
        bash "$here/lib.sh" "$file" "$folder" >"$folder/log" 2>&1 </dev/null &
    group=$!
    wait "$group" || status=$?
    clean_up
    if ((status == 0)) && grep -qs 'panicked at' "$folder/daemon.log"; then
        printf 'the daemon panicked\n' >>"$folder/log"
        status=1
    fi
    ((status != 124)) || printf 'not done within %s s\n' "$(limit_of "$file")" >>"$folder/log"
    return "$status"
}

die() {
    printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2
    exit 2
}

select_cases() {
    local name
    if (($# == 0)); then
        cases=("$here"/cases/*.sh)
        return
    fi
    for name; do
        [[ -f $here/cases/$name.sh ]] || die "there is no case \`$name\`" "the cases are the files in $here/cases"
        cases+=("$here/cases/$name.sh")
    done
}

main() {
    local cases=() file name status started took passed=0 failed=0 skipped=0
    select_cases "$@"
    [[ -x $ONEFOLD ]] || die "there is no binary at $ONEFOLD" "\`make build\` makes it, ONEFOLD=path names another"
    local parent=${TMPDIR:-$target/clients}
    mkdir -p "$parent"
    work=$(mktemp -d "$(readlink -f "$parent")/onefold-clients.XXXXXX")
    trap 'clean_up; [[ -n ${KEEP-} ]] || { remove_folder; rmdir "$work" 2>/dev/null || true; }' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    for file in "${cases[@]}"; do
        name=$(basename "$file" .sh)
        started=${EPOCHREALTIME/./}
        status=0
        run_case "$file" || status=$?
        took=$((${EPOCHREALTIME/./} - started))
        took=$(printf '%d.%d s' $((took / 1000000)) $((took / 100000 % 10)))
        case $status in
            0)
                passed=$((passed + 1))
                printf 'ok    %-16s %8s  %s\n' "$name" "$took" "$(claim_of "$file")"
                # What a case measured is worth seeing.
                sed -n 's/^note: /          /p' "$folder/log"
                ;;
            "$exit_skipped")
                skipped=$((skipped + 1))
                printf 'skip  %-16s %8s  %s\n' "$name" "$took" "$(tail -n 1 "$folder/log")"
                ;;
            *)
                failed=$((failed + 1))
                printf 'FAIL  %-16s %8s  %s\n' "$name" "$took" "$(claim_of "$file")"
                show_logs
                [[ -z ${KEEP-} ]] || { printf '    kept: %s\n' "$folder"; folder=; }
                ;;
        esac
        remove_folder
    done
    printf '%d passed, %d failed' "$passed" "$failed"
    ((skipped == 0)) || printf ', %d skipped' "$skipped"
    printf '\n'
    ((failed == 0))
}

main "$@"
