# A user without root creates, mounts and unmounts a pool; what is private stays so, whatever verb copies it
# limit: 120 s
needs setpriv fusermount3 setfattr getfattr unshare findmnt
if [[ -z ${in_namespace-} ]]; then
    # Machines without udev have a /dev/fuse for root alone: here users get one of their own, and nobody else does.
    mknod "$dir/fuse" c 10 229
    chmod 666 "$dir/fuse"
    run_in_namespace
fi
mount --bind "$dir/fuse" /dev/fuse
# A socket's path has 107 bytes at most, and $dir may lie deep. A folder in memory ends with the name space.
mount -t tmpfs -o mode=755 onefold-test-run /run
as_user() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR=/run/user "$ONEFOLD" "$@"
}
mode_of() {
    stat --format=%a "$1"
}

# Others reach the user's folder, so that nothing but permissions keeps them out.
path=$dir
while [[ $path != / ]]; do
    setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$path" || chmod o+x "$path" || skip "no way to $dir"
    path=$(dirname "$path")
done
setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$ONEFOLD" || {
    cp "$ONEFOLD" "$dir/onefold"
    ONEFOLD=$dir/onefold
}
mkdir "$dir/home" /run/user
chown 65534:65534 "$dir/home" /run/user
chmod 700 /run/user

# The pool's file holds everybody's data, so only its owner may read it, unless a user made it.
umask 022
as_user pool create --quiet --size 256M "$dir/home/pool"
[[ $(mode_of "$dir/home/pool") == 600 ]] || fail "a new pool's file has mode $(mode_of "$dir/home/pool")"
truncate --size 64M "$dir/own-mode"
chmod 640 "$dir/own-mode"
onefold pool create --quiet "$dir/own-mode"
[[ $(mode_of "$dir/own-mode") == 640 ]] || fail "the mode of a file that was there has changed"

mkdir "$dir/home/mnt"
chown 65534:65534 "$dir/home/mnt"
as_user pool mount --quiet --memory 128M "$dir/home/pool" "$dir/home/mnt"
awk -v at="$dir/home/mnt" '$2 == at' /proc/self/mounts | grep -q 'nosuid.*nodev\|nodev.*nosuid' ||
    fail "the mount takes set-user-id programs or devices"
# A mount without allow_other is not even root's to look at.
if ls "$dir/home/mnt" 2>"$dir/said"; then fail "root sees into a user's own mount"; fi
as_user pool stat "$dir/home/mnt" >/dev/null
as_user pool umount "$dir/home/mnt" >/dev/null
as_user pool check --quiet "$dir/home/pool"

# Seen: without XDG_RUNTIME_DIR (su, sudo -u, cron, units) a user could not mount, and root could not reach the mount.
ONEFOLD_COPY=$dir/onefold-copy
cp "$ONEFOLD" "$ONEFOLD_COPY"
chmod 755 "$ONEFOLD_COPY"
ONEFOLD=$ONEFOLD_COPY
mount -t tmpfs -o mode=1777 onefold-test-tmp /tmp
without_session() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env --unset=XDG_RUNTIME_DIR "$ONEFOLD_COPY" "$@"
}
# No other directory than that in /tmp can be made.
chown 0:0 /run/user
chmod 755 /run/user
mkdir -m 700 /tmp/onefold-65534
chown 1:1 /tmp/onefold-65534
# Another user who has it keeps nobody from mounting: the socket gets a directory of its own, which goes with it.
without_session pool mount --quiet --memory 128M "$dir/home/pool" "$dir/home/mnt"
[[ $(stat --format=%u:%a /tmp/onefold-65534-*) == 65534:700 ]] || fail "the socket's directory is not the user's alone"
as_user pool stat "$dir/home/mnt" >/dev/null
umount "$dir/home/mnt"
wait_until 10 without_session pool check --quiet "$dir/home/pool"
rmdir /tmp/onefold-65534
without_session pool mount --quiet --memory 128M "$dir/home/pool" "$dir/home/mnt"
[[ $(stat --format=%u:%a /tmp/onefold-65534) == 65534:700 ]] || fail "the socket's directory is not the user's alone"
# With a session the same daemon is found, and by root, whom the mount does not admit, too.
as_user pool stat "$dir/home/mnt" >/dev/null
onefold pool stat "$dir/home/mnt" >/dev/null
onefold pool stat "$dir/home/pool" >/dev/null
refused 1 'run the command as the user who mounted' onefold pool ls "$dir/home/mnt"
onefold pool umount "$dir/home/mnt"
is_mounted "$dir/home/mnt" && fail "root's umount left a user's mount"
# Where root does not find the daemon, it learns whose mount that is.
mkdir "$dir/home/run"
chown 65534:65534 "$dir/home/run"
setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR="$dir/home/run" \
    "$ONEFOLD_COPY" pool mount --quiet --memory 128M "$dir/home/pool" "$dir/home/mnt" || note "the socket's path is too long"
if is_mounted "$dir/home/mnt" && [[ -e $(find "$dir/home/run" -name '*.sock') ]]; then
    refused 1 'user .*65534.* has it mounted' onefold pool stat "$dir/home/mnt"
fi
umount "$dir/home/mnt"
wait_until 10 without_session pool check --quiet "$dir/home/pool"
chown 65534:65534 /run/user
chmod 700 /run/user

# Each refusal of fusermount3 leads to a next step.
mkdir -m 755 "$dir/roots"
refused 1 'directory of your own' as_user pool mount "$dir/home/pool" "$dir/roots"
refused 1 'mount without --allow-other' as_user pool mount --allow-other "$dir/home/pool" "$dir/home/mnt"
chmod 600 /dev/fuse
refused 1 'chmod 666 /dev/fuse' as_user pool mount "$dir/home/pool" "$dir/home/mnt"
chmod 666 /dev/fuse
as_user pool check --quiet "$dir/home/pool"

# fusermount3 knows most options of the kernel, and a refusal names the others.
ln -s "$ONEFOLD" "$dir/mount.fuse.onefold"
mount_with() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR=/run/user \
        "$dir/mount.fuse.onefold" "$dir/home/pool" "$dir/home/mnt" -o "memory=128M,$1"
}
for option in lazytime nosymfollow; do
    refused 1 "unknown option '$option'" mount_with "$option"
    is_mounted "$dir/home/mnt" && fail "$option was forgotten"
done
mount_with noatime,sync,dirsync,acl,user_xattr,default_permissions,fsname=x,subtype=y
options=,$(findmnt --noheadings --output OPTIONS "$dir/home/mnt"),
[[ $options == *,noatime,* && $options == *,sync,* && $options == *,dirsync,* ]] || fail "$options"
as_user pool umount "$dir/home/mnt" >/dev/null
mount_with strictatime
[[ ,$(findmnt --noheadings --output OPTIONS "$dir/home/mnt"), != *,noatime,* ]] || fail "strictatime has become noatime"
as_user pool umount "$dir/home/mnt" >/dev/null
as_user pool check --quiet "$dir/home/pool"

# Another user's pool is nobody's business.
create_pool 256M
[[ $(mode_of "$pool") == 600 ]] || fail "a new pool's file has mode $(mode_of "$pool")"
for verb in check stat scrub; do
    refused 1 'ermission denied' as_user pool "$verb" "$pool"
done
refused 1 'ermission denied' as_user pool mount "$pool" "$dir/home/mnt"

# Seen: any user could mount what called itself another's pool. Root's verbs took it for that pool.
mkdir "$dir/home/claimed"
chown 65534:65534 "$dir/home/claimed"
mkfifo "$dir/claims"
python3 "$tools/claimed_mount.py" 65534 "$pool" "$dir/home/claimed" <"$dir/claims" >"$dir/claimed" &
claimer=$!
exec 9>"$dir/claims"
wait_until 10 grep -q mounted "$dir/claimed"
grep -F "$dir/home/claimed" /proc/self/mountinfo | grep -qF "fuse.onefold $pool " || fail "the claim is not made as it should be"
refused 1 'user .*65534.* mounted it' onefold pool stat "$dir/home/claimed"
refused 1 'user .*65534.* mounted it' onefold pool umount "$dir/home/claimed"
refused 1 'is not mounted' onefold pool umount "$pool"
onefold pool stat "$pool" >/dev/null
mount_pool
onefold pool stat --json "$pool" >/dev/null
unmount_pool
is_mounted "$dir/home/claimed" || fail "somebody else's mount was taken away"
exec 9>&-
wait "$claimer"
setpriv --reuid 65534 --regid 65534 --clear-groups fusermount3 -u "$dir/home/claimed"

# Seen: a killed daemon of a user waited in the kernel for its own file system. The user's next mount detached its mount
# and no more: the daemon waited on and kept the pool's lock, where nobody could see it.
[[ -d /sys/fs/fuse/connections ]] && mount -t fusectl none /sys/fs/fuse/connections
python3 "$tools/stuck_daemon.py" 65534 "$dir/home/pool" "$dir/home/mnt" >"$dir/stuck" &
stuck=$!
wait_until 10 grep -q stuck "$dir/stuck"
refused 1 'is in use' onefold pool check "$dir/home/pool"
timeout 30 setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR=/run/user \
    "$ONEFOLD" pool mount --quiet --memory 128M "$dir/home/pool" "$dir/home/mnt"
wait "$stuck"
as_user pool umount "$dir/home/mnt" >/dev/null
as_user pool check --quiet "$dir/home/pool"

# Seen: the user's daemon did not look at a process of root, unmounted, and named nobody. Root's command asks it, too.
without_session pool mount --quiet --memory 128M "$dir/home/pool" "$dir/home/mnt"
unshare --mount --propagation private sleep 120 &
holder=$!
runs_elsewhere() {
    [[ $(readlink /proc/self/ns/mnt) != "$(readlink "/proc/$holder/ns/mnt")" && $(<"/proc/$holder/comm") == sleep ]]
}
wait_until 10 runs_elsewhere
for unmount in as_user onefold; do
    refused 1 "process $holder .*sleep" "$unmount" pool umount "$dir/home/mnt"
    is_mounted "$dir/home/mnt" || fail "a refused unmount took the mount away ($unmount)"
done
refused 1 "it is mounted already, at .*$dir/home/mnt" onefold pool mount "$dir/home/pool" "$dir/home/run"
# Where /proc shows users their own processes alone, only root sees that process.
mount -t proc -o hidepid=2 proc /proc
refused 1 "process $holder .*sleep" onefold pool umount "$dir/home/mnt"
is_mounted "$dir/home/mnt" || fail "a refused unmount took the mount away"
umount /proc
kill "$holder"
wait "$holder" || true
as_user pool umount "$dir/home/mnt" >/dev/null
as_user pool check --quiet "$dir/home/pool"

# What only its owner may read stays so through import, clone and export, whether the pool is mounted or not.
make_image "$dir/private.raw" 4 1
chmod 600 "$dir/private.raw"
cp "$dir/private.raw" "$dir/public.raw"
chmod 666 "$dir/public.raw"
onefold pool import --quiet "$pool" "$dir/private.raw" "$dir/public.raw"
onefold pool clone --quiet "$pool" private.raw offline.raw
mount_pool
onefold pool clone --quiet "$mnt" private.raw mounted.raw
onefold pool import --quiet "$mnt" --to mounted-import.raw "$dir/private.raw"
for name in private offline mounted mounted-import; do
    [[ $(mode_of "$mnt/$name.raw") == 600 ]] || fail "$name.raw has mode $(mode_of "$mnt/$name.raw")"
done
[[ $(mode_of "$mnt/public.raw") == 644 ]]
onefold pool export --quiet "$mnt" private.raw "$dir/exported.raw"
onefold pool export --quiet --format qcow2 "$mnt" private.raw "$dir/exported.qcow2"
onefold pool export --quiet "$mnt" public.raw "$dir/exported-public.raw"
[[ $(mode_of "$dir/exported.raw") == 600 && $(mode_of "$dir/exported.qcow2") == 600 ]]
[[ $(mode_of "$dir/exported-public.raw") == 644 ]]

# What concerns the whole pool is for root and the one who mounted it.
for verb in scrub trim umount grow; do
    refused 1 'only root and the user who mounted' as_user pool "$verb" "$mnt"
done
refused 1 'ermission denied' as_user pool stat "$mnt" private.raw
refused 1 'ermission denied' as_user pool clone "$mnt" private.raw stolen.raw
# One file that a user may not read does not hide the others.
refused 1 'private.raw' as_user pool ls --quiet "$mnt"
as_user pool ls --quiet "$mnt" >"$dir/listed" 2>"$dir/said" || true
grep -q '^public.raw .*iB' "$dir/listed" || fail "a user's listing lacks a public file: $(cat "$dir/listed" "$dir/said")"

# A tenant gets a directory with a sharing domain of its own, and can neither leave it nor enter another's.
mkdir "$mnt/tenant"
setfattr --name user.onefold.domain --value 7 "$mnt/tenant"
chown 65534:65534 "$mnt/tenant"
as_user pool import --quiet "$mnt" --to "$mnt/tenant/own.raw" "$dir/public.raw"
[[ $(getfattr --only-values --name user.onefold.domain "$mnt/tenant/own.raw") == 7 ]]
[[ $(onefold pool stat --json "$mnt" "$mnt/tenant/own.raw" |
    python3 -c "import json, sys; print(json.load(sys.stdin)['files'][0]['shared_bytes'])") == 0 ]] ||
    fail "a tenant's file shares blocks with another domain's"
fails_with 'not permitted' setpriv --reuid 65534 --regid 65534 --clear-groups \
    setfattr --name user.onefold.domain --value 0 "$mnt/tenant"
unmount_and_check
