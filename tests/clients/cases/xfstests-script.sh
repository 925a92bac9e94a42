# `make xfstests` gives `check` two pools to mount, hands on its exit code, names damage, and leaves nothing behind
# limit: 120 s
needs make unshare
readonly suite=$dir/suite
mkdir "$suite" "$dir/work"
export XFSTESTS_WORK=$dir/work XFSTESTS_SIZE=128M

# What stands in for `check`: it uses the mounts as xfstests does, and leaves one mounted.
cat >"$suite/check" <<'CHECK'
#!/bin/bash
set -eEuo pipefail
trap 'echo "line $LINENO: failed: $BASH_COMMAND" >&2; exit 99' ERR
source "$HOST_OPTIONS"
printf '%s ' "$@" >arguments
# With the test pool mounted. xfstests knows no type with a dot in it.
[[ $($DF_PROG "$TEST_DIR" | awk 'NR == 2 { print $1, $2 }') == "$TEST_DEV fuse" ]]
readonly type=$FSTYP$FUSE_SUBTYP
umount "$TEST_DIR"
# shellcheck disable=SC2086 # Several words.
mount -t "$type" $TEST_FS_MOUNT_OPTS "$TEST_DEV" "$TEST_DIR"
# shellcheck disable=SC2086
mount -t "$type" $MOUNT_OPTIONS "$SCRATCH_DEV" "$SCRATCH_MNT"
echo content >"$SCRATCH_MNT/file"
mount -o remount,ro "$SCRATCH_MNT"
! touch "$SCRATCH_MNT/none" 2>/dev/null
mount -o remount,rw "$SCRATCH_MNT"
umount "$SCRATCH_MNT"
if [[ -e damages ]]; then
    dd if=/dev/zero of="$SCRATCH_DEV" bs=1M count=2 conv=notrunc status=none
else
    # shellcheck disable=SC2086
    mount -t "$type" $MOUNT_OPTIONS "$SCRATCH_DEV" "$SCRATCH_MNT"
    [[ $(<"$SCRATCH_MNT/file") == content ]]
fi
echo "a line of a result"
exit "$(<code)"
CHECK
chmod +x "$suite/check"

processes() {
    grep -lF "$dir/work/" /proc/[0-9]*/cmdline 2>/dev/null || true
}

# ends_with CODE TEXT COMMAND...: like `refused`, for any code; whatever it is, nothing stays.
ends_with() {
    refused "$@"
    [[ -z $(ls -A "$dir/work") ]] || fail "left in the folder of its pools: $(ls -A "$dir/work")"
    [[ -z $(processes) ]] || fail "still running: $(processes)"
    ! grep -qF "$dir/" /proc/self/mounts || fail "mounted outside of its namespace"
}

readonly script=$repo/scripts/xfstests.sh
echo 0 >"$suite/code"
ends_with 0 "a line of a result" make --no-print-directory -C "$repo" xfstests DIR="$suite" CHECK="-g auto generic/003"
[[ $(<"$suite/arguments") == "-g auto generic/003 " ]] || fail "arguments of check: $(<"$suite/arguments")"
# A test that fails.
echo 7 >"$suite/code"
ends_with 7 "results are in $suite/results" "$script" "$suite"
[[ $(<"$suite/arguments") == "-g quick " ]] || fail "arguments of check: $(<"$suite/arguments")"
# All tests pass on a pool that is damaged afterwards.
echo 0 >"$suite/code"
touch "$suite/damages"
ends_with 3 "scratch.pool is damaged" "$script" "$suite"

ends_with 2 "no folder of xfstests was given" "$script"
ends_with 1 "no program .check" "$script" "$dir/work"
