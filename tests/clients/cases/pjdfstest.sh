# A public POSIX suite, pjdfstest: every case that can run passes
# limit: 120 s
needs pjdfstest unshare
new_pool 1G
mkdir "$mnt/suite" "$dir/other"
chmod 755 "$dir" "$mnt" "$mnt/suite"
# Without the helper for the type: a remount changes flags in the kernel, and needs no daemon.
mkdir "$dir/bin"
printf '#!/bin/sh\nexec %s --internal-only "$@"\n' "$(command -v mount)" >"$dir/bin/mount"
chmod 755 "$dir/bin/mount"
PATH=$dir/bin:$PATH

# suite REMOUNT [PATTERN]: runs the suite; it fails if a case does.
suite() {
    sed "s/REMOUNT/$1/" >"$dir/suite.toml" <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
allow_remount = REMOUNT
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
    shift
    export -f leave_others
    # In a mount namespace of its own the pool has a short path, as sockets need.
    # shellcheck disable=SC2016 # The inner shell expands it.
    RUST_BACKTRACE=0 unshare --mount --propagation private bash -ec '
        leave_others "$(dirname "$1")"
        mount --bind "$1" /mnt
        other=$2 settings=$3
        shift 3
        exec pjdfstest -c "$settings" -p /mnt/suite -s "$other" "$@"
    ' suite "$mnt" "$dir/other" "$dir/suite.toml" "$@" | tee "$dir/suite.log"
    note "pjdfstest${1:+ $1}: $(sed -n 's/^Summary: //p' "$dir/suite.log")"
}

suite false
# By themselves: the suite leaves files open, which keeps any file system from becoming read-only.
suite true erofs
unmount_and_check
