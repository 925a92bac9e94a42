# A full disk ends a capture or an installation with the reason; the archive is as before, and goes on once there is room
# limit: 90 s
needs mke2fs mkfs.ext4 losetup e2fsck
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# Two guests with noise of their own.
for seed in 1 2; do
    guest "$dir/$seed.raw" "$seed"
    head -c 8M /dev/urandom >"$dir/own"
    debugfs -w -R "write $dir/own own" "$dir/$seed.raw" >/dev/null 2>&1
done
truncate -s 40M "$dir/host.raw"
attach_loop "$dir/host.raw"
host=$loop
mkfs.ext4 -q -m 0 "$host"
mkdir "$dir/host"
mount "$host" "$dir/host"
archive=$dir/host/archive

onefold archive create "$archive"
onefold image capture --quiet "$archive" "$dir/1.raw" one
onefold image export --quiet "$archive" one "$dir/one.export"
# Room for half of the next one.
free=$(df --output=avail -B1 "$dir/host" | tail -n 1)
fallocate -l $((free - (4 << 20))) "$dir/host/filler"
refused 1 'No space left on device' onefold image capture --quiet "$archive" "$dir/2.raw" two
refused 1 'hint: make room' onefold image capture --quiet "$archive" "$dir/2.raw" two
onefold archive check --data --quiet "$archive"
(($(onefold image list "$archive" | grep -c '@') == 1)) || fail "$(onefold image list "$archive")"
onefold image export --quiet "$archive" one - | cmp - "$dir/one.export"
refused 1 'No space left on device' onefold image install --quiet "$archive" one "$dir/host/new.raw"
[[ $(ls -A "$dir/host" | tr '\n' ' ') == 'archive filler lost+found ' ]] || fail "something is left: $(ls -A "$dir/host")"

rm "$dir/host/filler"
onefold image capture --quiet "$archive" "$dir/2.raw" two
onefold image export --quiet "$archive" two "$dir/two.export"
e2fsck -fn "$dir/two.export" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
onefold archive check --data --quiet "$archive"
