#!/usr/bin/env bash
# What the cases share. `lib.sh CASE FOLDER` runs one case in its folder; run.sh calls it, and cleans up after it.
#
# A case finds: $dir, its own folder on the host's file system; $pool, where its pool lies; $mnt, where that is mounted;
# $tools, our helpers; $repo, the source tree; $ONEFOLD, the binary. It ends at the first command that fails.
set -eEuo pipefail
trap 'printf "%s line %s: failed: %s\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$BASH_COMMAND" >&2' ERR

case_file=$1
dir=$2
pool=$dir/test.pool
mnt=$dir/mnt
tools=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/tools
readonly case_file dir mnt tools
read -ra mount_flags <<<"${MOUNT_FLAGS:---memory 256M}"
export PYTHONDONTWRITEBYTECODE=1 LC_ALL=C

onefold() {
    "$ONEFOLD" "$@"
}

fail() {
    printf 'failed: %s\n' "$*" >&2
    exit 1
}

# Ends the case because this machine can't run it.
skip() {
    printf '%s\n' "$*"
    exit 77
}

# A figure that run.sh shows even when all is well.
note() {
    printf 'note: %s\n' "$*"
}

# needs COMMAND...: skips the case where one is missing.
needs() {
    local command
    for command; do
        command -v "$command" >/dev/null || skip "there is no $command here"
    done
}

# wait_until SECONDS COMMAND...: waits until the command succeeds.
wait_until() {
    local ends=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < ends)) || fail "waited in vain for: $*"
        sleep 0.05
    done
}

is_mounted() {
    awk -v at="$1" '$2 == at { found = 1 } END { exit !found }' /proc/self/mounts
}

# ended_before SECONDS COMMAND...: kills the command at that moment and waits until it is gone, with its locks; returns
# whether it had ended well before.
ended_before() {
    local after=$1 status=0
    shift
    # Not by the function: the process in the background is to be the command itself.
    "$@" >"$dir/killed.out" 2>&1 &
    local command=$!
    sleep "$after"
    kill -KILL "$command" 2>/dev/null || true
    wait "$command" 2>/dev/null || status=$?
    ((status == 0 || status == 137)) || fail "it ended with $status: $(<"$dir/killed.out")"
    ((status == 0))
}

# is_mounted_or_ended PID: a daemon is ready, or will never be.
is_mounted_or_ended() {
    is_mounted "$mnt" || ! kill -0 "$1" 2>/dev/null
}

# Runs the case anew, in a mount namespace of its own: $in_namespace says there that it is so.
run_in_namespace() {
    in_namespace=yes exec unshare --mount --propagation private bash "$tools/../lib.sh" "$case_file" "$dir"
}

# leave_others FOLDER: in a new mount namespace, takes away what others have mounted outside of the folder, below where
# tests work. It would stay mounted here when they unmount it, and keep its disk and its daemon.
leave_others() {
    local mountpoint
    while read -r mountpoint; do
        umount -i --lazy "$mountpoint" 2>/dev/null || true
    done < <(awk -v below="${CARGO_TARGET_DIR:-$repo/target}/" -v own="$1/" \
        'index($2, below) == 1 && index($2, own) != 1 { print $2 }' /proc/self/mounts | tac)
}

# create_pool SIZE [FLAG...]
create_pool() {
    local size=$1
    shift
    onefold pool create --quiet --size "$size" "$@" "$pool" >/dev/null
}

# Mounts $pool on $mnt. The daemon stays in the foreground, so that daemon.log has all it says.
mount_pool() {
    mkdir -p "$mnt"
    # Not by the function above: the process in the background is to be the daemon itself.
    "$ONEFOLD" pool mount --foreground "${mount_flags[@]}" "$pool" "$mnt" >>"$dir/daemon.log" 2>&1 &
    daemon=$!
    wait_until 20 is_mounted_or_ended "$daemon"
    is_mounted "$mnt" || fail "the pool was not mounted"
}

# new_pool SIZE [FLAG...]: creates and mounts.
new_pool() {
    create_pool "$@"
    mount_pool
}

unmount_pool() {
    onefold pool umount "$mnt" >/dev/null
    wait "$daemon" || fail "the daemon ended with code $?"
}

remount_pool() {
    unmount_pool
    mount_pool
}

# The end of most cases: nothing is left mounted and the pool is sound.
unmount_and_check() {
    unmount_pool
    check_pool "$@"
}

check_pool() {
    onefold pool check --quiet "$@" "$pool"
}

# member PATH: prints a member of the JSON document that comes in, by the names and places on the way to it
# (`tiers.0.files`); tools/member.awk says how.
member() {
    awk -v path="$1" -f "$tools/member.awk" || fail "the document has no $1"
}

# number PATH: prints a member as a whole number: 1 for what is true, and of a list how many members it has.
number() {
    local value
    value=$(member "$1")
    case $value in
        true) value=1 ;;
        false | '[]' | '{}') value=0 ;;
        '['*) value=${value:1:-1} ;;
        '{'*) value=${value:1:-1} ;;
        *.*) value=${value%.*} ;;
    esac
    [[ $value =~ ^-?[0-9]+$ ]] || fail "$1 is no number: $value"
    printf '%s\n' "$value"
}

# pool_number MEMBER: one number of `stat`.
pool_number() {
    onefold pool stat --json "$mnt" | number "pool.$1"
}

# make_image FILE MIB SEED: a sparse image with repeated, unique and zero blocks. The same seed makes the same one.
make_image() {
    python3 "$tools/make_image.py" "$@"
}

# refused CODE TEXT COMMAND...: the command must end with this exit code and say this (an extended regular expression).
refused() {
    local code=$1 text=$2 status=0 said
    shift 2
    said=$("$@" 2>&1) || status=$?
    printf '%s\n' "$said"
    ((status == code)) || fail "exit code $status, not $code: $*"
    grep -qE -e "$text" <<<"$said" || fail "it does not say \"$text\": $*"
}

# fails_with TEXT COMMAND...: the command must fail and give this reason.
fails_with() {
    local reason=$1 said
    shift
    if said=$("$@" 2>&1); then
        fail "it must not succeed: $*"
    fi
    printf '%s\n' "$said"
    grep -qF -e "$reason" <<<"$said" || fail "the reason is not \"$reason\": $*"
}

# as_user COMMAND...: runs it as an ordinary user.
as_user() {
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}

# let_users_in: has others reach the case's folder and the program.
let_users_in() {
    local path=$dir
    while [[ $path != / ]]; do
        as_user test -x "$path" || chmod o+x "$path" || skip "no way to $dir"
        path=$(dirname "$path")
    done
    if ! as_user test -x "$ONEFOLD"; then
        cp "$ONEFOLD" "$dir/onefold"
        ONEFOLD=$dir/onefold
    fi
}

# attach_loop FILE [FLAG...]: sets $loop to a new loop device over the file.
attach_loop() {
    local file=$1
    shift
    # shellcheck disable=SC2034 # It is the result.
    loop=$(losetup --find --show "$@" "$file") || skip "no loop device can be had here"
}

# Takes $loop away, and waits until it is gone: another mount namespace may have copied the mount of its file system,
# which writes to the file as long as it is mounted there.
detach_loop() {
    losetup --detach "$loop"
    wait_until 30 is_detached "$loop"
}

is_detached() {
    [[ ! -e /sys/block/${1##*/}/loop/backing_file ]]
}

[[ $EUID == 0 && -w /dev/fuse ]] || skip "mounting needs root and /dev/fuse"
[[ -z ${in_namespace-} ]] || leave_others "$dir"
# shellcheck source=/dev/null
source "$case_file"
