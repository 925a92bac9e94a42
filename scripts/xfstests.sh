#!/usr/bin/env bash
# Runs a built xfstests on really mounted pools.
#
#     scripts/xfstests.sh FOLDER [ARGUMENT...]
#
# FOLDER is where xfstests was built (it has `check`); nothing is downloaded. The arguments go to `check` (-g quick unless
# given). Two pools are made and mounted by mount(8), as xfstests has it, in a mount namespace of their own: there /sbin has
# the helper of this build, and what is mounted ends with the run. Needs root. The exit code is that of `check`.
#
#     ONEFOLD=path        the binary to test (target/release/onefold, which is built, unless given)
#     XFSTESTS_WORK=path  where pools are made (target/xfstests unless given); on a disk, not in memory
#     XFSTESTS_SIZE=size  size of each pool (8G unless given; sparse)
#     MOUNT_WITH=options  options of each mount, as in fstab (memory=256M unless given)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

source scripts/lib.sh

readonly suite=${1-}
[[ -n $suite ]] || die_usage "no folder of xfstests was given" "make xfstests DIR=/path/to/xfstests"
[[ -x $suite/check ]] || die "cannot run xfstests in \`$suite\`" "there is no program \`check\`" "build xfstests there first"
[[ $EUID == 0 ]] || die "cannot run xfstests" "it mounts, which only root may do" "run this as root"

# What runs in the namespace: mount(8) looks for helpers in /sbin alone, so /sbin is covered by a copy with ours in it.
run_suite() {
    local sbin status=0
    sbin=$(readlink -f /sbin)
    mkdir -p "$work/sbin" "$work/host-sbin" "$work/test" "$work/scratch"
    mount --bind "$sbin" "$work/host-sbin"
    find "$work/host-sbin" -mindepth 1 -maxdepth 1 -exec ln -sf -t "$work/sbin" {} +
    ln -sf "$ONEFOLD" "$work/sbin/mount.fuse.onefold"
    ln -sf "$ONEFOLD" "$work/sbin/onefold"
    install -m 755 packaging/umount.fuse.onefold "$work/sbin/umount.fuse.onefold"
    mount --bind "$work/sbin" "$sbin"

    local pool
    for pool in test scratch; do
        "$ONEFOLD" pool create --quiet --size "${XFSTESTS_SIZE:-8G}" "$work/$pool.pool" >/dev/null
    done
    # xfstests knows the type `fuse` only, and asks df.
    cat >"$work/df" <<'DF'
#!/bin/bash
set -o pipefail
df "$@" | sed 's/ fuse\.onefold / fuse /'
DF
    chmod +x "$work/df"
    local options="-o ${MOUNT_WITH:-memory=256M}"
    cat >"$work/config" <<CONFIG
export FSTYP=fuse FUSE_SUBTYP=.onefold
export TEST_DEV='$work/test.pool' TEST_DIR='$work/test'
export SCRATCH_DEV='$work/scratch.pool' SCRATCH_MNT='$work/scratch'
export DF_PROG='$work/df -T -P'
export MOUNT_OPTIONS='$options' TEST_FS_MOUNT_OPTS='$options'
CONFIG
    # `check` takes the file system to test for mounted.
    mount -t fuse.onefold -o "${MOUNT_WITH:-memory=256M}" "$work/test.pool" "$work/test"
    (cd "$suite" && HOST_OPTIONS=$work/config ./check "$@") || status=$?
    for pool in test scratch; do
        "$ONEFOLD" pool umount "$work/$pool" 2>/dev/null || umount -i -f -l "$work/$pool" 2>/dev/null || true
        if ! "$ONEFOLD" pool check --quiet "$work/$pool.pool"; then
            say "the pool $work/$pool.pool is damaged"
            status=3
        fi
    done
    return "$status"
}

if [[ -n ${in_namespace-} ]]; then
    shift
    (($#)) || set -- -g quick
    run_suite "$@"
    exit
fi

if [[ -z ${ONEFOLD-} ]]; then
    scripts/install-deps.sh build
    use_rust_toolchain
    step "building"
    cargo build --release --locked
    ONEFOLD=${CARGO_TARGET_DIR:-$repo/target}/release/onefold
fi
ONEFOLD=$(readlink -f "$ONEFOLD")
work=${XFSTESTS_WORK:-${CARGO_TARGET_DIR:-$repo/target}/xfstests}
mkdir -p "$work"
work=$(readlink -f "$work")
work=$(mktemp -d "$work/run.XXXXXX")
# Tests run programs and use files as other users.
chmod 755 "$work"
export ONEFOLD work
trap 'rm -rf --one-file-system "$work"' EXIT

step "xfstests in $suite"
status=0
in_namespace=yes unshare --mount --propagation private "$(readlink -f scripts/xfstests.sh)" "$(readlink -f "$suite")" "${@:2}" ||
    status=$?
say "its results are in $suite/results"
exit "$status"
