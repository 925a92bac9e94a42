#!/usr/bin/env bash
# Other people's programs on a really mounted pool.
#
#     tests/clients/run.sh [CASE...]
#
# Each case is one claim: a file in cases/, run by itself in a folder of its own, within a time limit. As many run at
# once as there are cores, the long ones first. One line per case tells how it went; a failed one shows its log. A case
# that this machine can't run is skipped, with the reason. Exit codes: 0 all passed, 1 a case failed, 2 wrong usage.
#
#     ONEFOLD=path   the binary to test (target/release/onefold unless given)
#     TMPDIR=folder  where pools are made (target/clients unless given); on a disk, not in memory
#     JOBS=n         how many cases run at once
#     PATIENCE=n     how many times as long as usual a case may take
#     MOUNT_FLAGS=.. flags of `onefold pool mount` for cases that have none of their own (--memory 256M unless given)
#     KEEP=1         leaves the folders of failed cases where they are
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repo=$(dirname "$(dirname "$here")")
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
readonly here repo
readonly limit_default_s=60
readonly exit_skipped=77

target=${CARGO_TARGET_DIR:-$repo/target}
# Where scripts/install-deps.sh puts what it does not get from apt.
PATH=$target/tools/bin:$PATH
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
    printf '%s\n' "$((${limit_s:-$limit_default_s} * ${PATIENCE:-1}))"
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

# Prints the names of the cases that are wanted, those that may take long first: the last ones then end together.
select_cases() {
    local name file
    for name; do
        [[ -f $here/cases/$name.sh ]] || die "there is no case \`$name\`" "the cases are the files in $here/cases"
    done
    for file in "$here"/cases/*.sh; do
        name=$(basename "$file" .sh)
        (($# == 0)) || [[ " $* " == *" $name "* ]] || continue
        printf '%s %s\n' "$(limit_of "$file")" "$name"
    done | sort --stable --key=1,1nr | cut -d' ' -f2
}

# Runs the case named $1 and prints how it went, in one piece: other cases run beside it. Notes the result for the sum.
report_case() {
    local file=$here/cases/$1.sh status=0 started=${EPOCHREALTIME/./} took result
    trap 'clean_up; [[ -n ${KEEP-} ]] || remove_folder' EXIT
    run_case "$file" || status=$?
    took=$((${EPOCHREALTIME/./} - started))
    took=$(printf '%d.%d s' $((took / 1000000)) $((took / 100000 % 10)))
    case $status in
        0)
            result=passed
            printf 'ok    %-16s %8s  %s\n' "$1" "$took" "$(claim_of "$file")"
            # What a case measured is worth seeing.
            sed -n 's/^note: /          /p' "$folder/log"
            ;;
        "$exit_skipped")
            result=skipped
            printf 'skip  %-16s %8s  %s\n' "$1" "$took" "$(tail -n 1 "$folder/log")"
            ;;
        *)
            result=failed
            printf 'FAIL  %-16s %8s  %s\n' "$1" "$took" "$(claim_of "$file")"
            show_logs
            [[ -z ${KEEP-} ]] || { printf '    kept: %s\n' "$folder"; folder=; }
            ;;
    esac >"$work/$1.report"
    cat "$work/$1.report"
    printf '%s\n' "$result" >>"$work/results"
}

count_of() {
    grep -cx "$1" "$work/results" || true
}

main() {
    if [[ ${1-} == --in ]]; then
        work=$2
        report_case "$3"
        return
    fi
    [[ -x $ONEFOLD ]] || die "there is no binary at $ONEFOLD" "\`make build\` makes it, ONEFOLD=path names another"
    local cases parent=${TMPDIR:-$target/clients} wanted
    cases=$(select_cases "$@")
    wanted=$(wc -l <<<"$cases")
    mkdir -p "$parent"
    work=$(mktemp -d "$(readlink -f "$parent")/onefold-clients.XXXXXX")
    trap 'rm -rf "$work/guests"; rm -f "$work"/*.report "$work/results"; rmdir "$work" 2>/dev/null || true' EXIT
    : >"$work/results"
    # Disks of guests, which cases with guests copy.
    export GUESTS=$work/guests

    xargs --max-procs="${JOBS:-$(nproc)}" --max-args=1 "$here/run.sh" --in "$work" <<<"$cases" || true

    printf '%d of %d passed, %d failed' "$(count_of passed)" "$wanted" "$(count_of failed)"
    (($(count_of skipped) == 0)) || printf ', %d skipped' "$(count_of skipped)"
    printf '\n'
    # One that could not even report has not passed either.
    (($(count_of passed) + $(count_of skipped) == wanted))
}

trap 'exit 130' INT
trap 'exit 143' TERM
main "$@"
