# packaging/ makes man pages and completions; mount(8), fstab and the systemd unit mount a pool by what it installs, again after a kill, and unmount it
needs unshare systemd-escape findmnt

# mount(8) looks for helpers in /sbin alone: a mount namespace gives this case one of its own.
[[ -n ${in_namespace-} ]] || run_in_namespace
sbin=$(readlink -f /sbin)
mkdir "$dir/sbin" "$dir/host-sbin" "$mnt"
mount --bind "$sbin" "$dir/host-sbin"
find "$dir/host-sbin" -mindepth 1 -maxdepth 1 -exec ln -s -t "$dir/sbin" {} +
ln -s "$ONEFOLD" "$dir/sbin/mount.fuse.onefold"
# umount(8) leaves its helpers no PATH, and the shell's own has this folder.
ln -s "$ONEFOLD" "$dir/sbin/onefold"
install -m 755 "$repo/packaging/umount.fuse.onefold" "$dir/sbin/umount.fuse.onefold"
mount --bind "$dir/sbin" "$sbin"

# Man pages and completions, as a package is made: they are readable, and complete commands.
"$repo/packaging/generate.sh" "$dir/package" "$ONEFOLD"
[[ -s $dir/package/man/mount.fuse.onefold.8 ]] || fail "the mount helper has no page"
for page in "$dir"/package/man/*.[18]; do
    [[ -s $page ]] || fail "$page is empty"
    command -v man >/dev/null || continue
    said=$(MANWIDTH=80 man --warnings --local-file "$page" 2>&1 >"$dir/page") || fail "$page cannot be shown: $said"
    [[ -z $said ]] || fail "$page: $said"
    grep -q SYNOPSIS "$dir/page" || fail "$page shows no synopsis"
done
completed=$(
    # shellcheck disable=SC1091
    source "$dir/package/completions/onefold"
    COMP_WORDS=(onefold pool um) COMP_CWORD=2
    _onefold onefold um pool
    printf '%s\n' "${COMPREPLY[@]}"
)
[[ $completed == umount ]] || fail "'onefold pool um' is completed as '$completed'"

# Only the daemon has the pool's file open.
daemon_of_pool() {
    local pids
    # Processes end while they are looked at.
    pids=$( (find /proc/[0-9]*/fd -lname "$pool" 2>/dev/null || true) | cut -d / -f 3 | sort -u)
    [[ $pids =~ ^[0-9]+$ ]] || fail "the daemon is not to be found: $pids"
    printf '%s\n' "$pids" | tee -a "$dir/daemons"
}

create_pool 256M
mount -t fuse.onefold -o memory=128M,noatime,uhelper=fuse.onefold "$pool" "$mnt"
is_mounted "$mnt" || fail "mount(8) did not mount"
echo by-hand >"$mnt/file"
fails_with 'mounted' mount -t fuse.onefold "$pool" "$mnt"
umount "$mnt"
# umount(8) has waited: nobody holds the pool.
check_pool
# Without `uhelper` it goes by the number of the file system, finds no helper and does not wait. Then the mount does.
mount -t fuse.onefold "$pool" "$mnt"
umount "$mnt"
mount -t fuse.onefold "$pool" "$mnt"
# This is how systemd calls it.
umount -c "$mnt"
check_pool

# Seen: of `-f -l` one was lost, and -N unmounted in the wrong namespace.
mount -t fuse.onefold "$pool" "$mnt"
refused 1 'another namespace' "$dir/sbin/umount.fuse.onefold" "$mnt" -N 1
is_mounted "$mnt" || fail "it was unmounted in the wrong namespace"
exec 8<"$mnt/file"
"$dir/sbin/umount.fuse.onefold" "$mnt" -n -f -l
is_mounted "$mnt" && fail "a forced and lazy unmount leaves the mount"
fails_with 'not connected' cat <&8
exec 8<&-
# With the helper, or the check could come before the daemon has closed the pool.
mount -t fuse.onefold -o uhelper=fuse.onefold "$pool" "$mnt"
umount "$mnt"
check_pool

# umount(8) of a bind-mounted file calls the helper, which takes away that mount alone.
mount -t fuse.onefold -o uhelper=fuse.onefold "$pool" "$mnt"
touch "$dir/target"
# The helper expands these.
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$1" >>"%s"\nexec sh "%s" "$@"\n' "$dir/helped" "$repo/packaging/umount.fuse.onefold" \
    >"$dir/sbin/umount.fuse.onefold"
mount --bind -o uhelper=fuse.onefold "$mnt/file" "$dir/target"
umount "$dir/target"
[[ $(<"$dir/helped") == "$dir/target" ]] || fail "umount(8) did not call the helper"
is_mounted "$dir/target" && fail "the bind-mounted file is still there"
is_mounted "$mnt" || fail "unmounting the file unmounted the pool"
umount "$mnt"
check_pool

# Seen: the helper refused what every file system takes, and mounted anew for `remount` (xfstests generic/003).
options_of_mount() {
    findmnt --noheadings --output OPTIONS --target "$mnt"
}
mount -t fuse.onefold \
    -o strictatime,lazytime,sync,dirsync,nosymfollow,acl,user_xattr,default_permissions,fsname=x,subtype=y "$pool" "$mnt"
for option in nosymfollow sync dirsync lazytime; do
    [[ ,$(options_of_mount), == *,$option,* ]] || fail "$option: $(options_of_mount)"
done
[[ ,$(options_of_mount), != *atime,* ]] || fail "strictatime: $(options_of_mount)"
# The second access is later than the last change, and the page cache has the content.
for access in first second; do
    accessed=$(stat -c %x "$mnt/file")
    sleep 0.05
    cat "$mnt/file" >/dev/null
    [[ $(stat -c %x "$mnt/file") > $accessed ]] || fail "strictatime: the $access access left the access time at $accessed"
done
ln -s file "$mnt/link"
fails_with 'symbolic links' cat "$mnt/link"
mount -o remount,ro "$mnt"
fails_with 'Read-only' touch "$mnt/file"
mount -o remount,rw,noatime,symfollow,memory=64M "$mnt" 2>"$dir/said"
grep -q 'remount does not support .*memory=64M' "$dir/said" || fail "a remount keeps the memory and says only: $(<"$dir/said")"
touch "$mnt/file"
cat "$mnt/link" >/dev/null
[[ ,$(options_of_mount), == *,noatime,* && ,$(options_of_mount), == *,nosuid,*nodev,* ]] || fail "$(options_of_mount)"
onefold pool umount "$mnt"
check_pool

printf '%s %s fuse.onefold memory=128M,nofail,x-systemd.automount,uhelper=fuse.onefold 0 0\n' "$pool" "$mnt" >"$dir/fstab"
mount --all --fstab "$dir/fstab"
[[ $(<"$mnt/file") == by-hand ]]
echo by-fstab >"$mnt/file"
sync "$mnt"
# The daemon dies; the same line of fstab brings it back.
killed=$(daemon_of_pool)
kill -KILL "$killed"
has_ended() { ! kill -0 "$killed" 2>/dev/null; }
wait_until 10 has_ended
fails_with 'Transport endpoint is not connected' ls "$mnt"
mount -t fuse.onefold -o memory=128M "$pool" "$mnt"
[[ $(<"$mnt/file") == by-fstab ]]
umount "$mnt"
mount --fstab "$dir/fstab" "$mnt"
[[ $(<"$mnt/file") == by-fstab ]]
umount "$mnt"
printf '%s %s fuse.onefold ro,uhelper=fuse.onefold 0 0\n' "$pool" "$mnt" >"$dir/fstab"
mount --all --fstab "$dir/fstab"
fails_with 'Read-only file system' touch "$mnt/new"
umount "$mnt"
refused 2 '.noexec. is not an option' mount -t fuse.onefold -o noexec "$pool" "$mnt"
is_mounted "$mnt" && fail "an option was forgotten"

# The unit, as systemd reads it: %f is the directory that the instance names.
unit=$dir/onefold-pool@$(systemd-escape --path "$mnt").service
sed "s|/usr/bin/onefold|$ONEFOLD|" "$repo/packaging/systemd/onefold-pool@.service" >"$unit"
verify() {
    local said
    command -v systemd-analyze >/dev/null || return 0
    said=$(systemd-analyze verify --man=no "$1" 2>&1) || fail "the unit is wrong: $said"
    ! grep -F "${1##*/}" <<<"$said" || fail "the unit has mistakes"
}
verify "$unit"
for ending in service timer; do
    other=$dir/onefold-pool-trim@$(systemd-escape --path "$mnt").$ending
    sed "s|/usr/bin/onefold|$ONEFOLD|" "$repo/packaging/systemd/onefold-pool-trim@.$ending" >"$other"
done
verify "$other"
for name in onefold-share onefold-share-mend; do
    other=$dir/$name@$(systemd-escape --path "$mnt").service
    sed "s|/usr/bin/onefold|$ONEFOLD|" "$repo/packaging/systemd/$name@.service" >"$other"
    verify "$other"
    # No group of system calls that services have holds this one; and a lease of a guest's image is not its owner's.
    grep -q '^SystemCallFilter=.* open_by_handle_at' "$other" || fail "$name@ cannot open images by their handles"
    grep -q '^CapabilityBoundingSet=.* CAP_LEASE ' "$other" || fail "$name@ cannot have an image for itself"
done
other=$dir/onefold-serve@lab.service
sed "s|/usr/bin/onefold|$ONEFOLD|" "$repo/packaging/systemd/onefold-serve@.service" >"$other"
verify "$other"
command_of() {
    sed -n "s|^$1=-\{0,1\}||p" "$unit" | sed "s|%f|$mnt|g"
}
# As its configuration file has them; $OPTIONS is split into words, ${POOL} is one.
export POOL=$pool OPTIONS='--memory 128M'
for round in stopped killed; do
    python3 "$tools/notified.py" "$dir/notify" READY=1 >"$dir/notified" &
    notified=$!
    wait_until 10 test -S "$dir/notify"
    NOTIFY_SOCKET=$dir/notify bash -c "exec $(command_of ExecStart)" >>"$dir/daemon.log" 2>&1 &
    daemon=$!
    wait "$notified" || fail "the unit's daemon did not say that it is ready"
    [[ $(<"$mnt/file") == by-fstab ]]
    if [[ $round == stopped ]]; then
        kill -TERM "$daemon"
        wait "$daemon" || fail "the daemon ended with code $?"
        is_mounted "$mnt" && fail "a stopped service leaves its mount"
    else
        kill -KILL "$daemon"
        wait "$daemon" || true
        after_the_end=$(command_of ExecStopPost | sed 's/\$\$/$/g')
        # As after a start that was refused: the mount is somebody else's.
        EXIT_CODE=exited bash -c "exec $after_the_end"
        is_mounted "$mnt" || fail "a service that did not start takes a mount away"
        EXIT_CODE=killed bash -c "exec $after_the_end"
        is_mounted "$mnt" && fail "a killed service leaves its mount"
    fi
done
check_pool --data
