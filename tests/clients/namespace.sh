#!/usr/bin/env bash
# What run.sh and the cases need in a mount namespace of their own.

# leave_others FOLDER: in a new mount namespace, takes away what others have mounted outside of the folder: what lies
# below where tests work, and the pools of the Rust tests. It would stay mounted here when they unmount it, and keep its
# disk and its daemon.
leave_others() {
    local mountpoint
    while read -r mountpoint; do
        umount -i --lazy "$mountpoint" 2>/dev/null || true
    done < <(awk -v own="$1/" -v below="${CARGO_TARGET_DIR:-$repo/target}/" -v usual="$repo/target/" \
        'index($2, own) != 1 && (index($2, below) == 1 || index($2, usual) == 1 ||
            $3 == "fuse.onefold" && index($2, "/tmp/") == 1) { print $2 }' /proc/self/mounts | tac)
}
