# A captured guest comes back over noise: whole by its own checker, equal by digests, and its export is all but free blocks
# limit: 120 s
needs mke2fs e2fsck losetup qemu-img debugfs setpriv python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
let_users_in
archive=$dir/archive

# aged IMAGE: leaves what a deleted file held in free blocks of a guest.
aged() {
    mkdir -p "$dir/guest"
    attach_loop "$1"
    mount "$loop" "$dir/guest"
    head -c 4M /dev/urandom >"$dir/guest/deleted"
    sync -f "$dir/guest"
    rm "$dir/guest/deleted"
    umount "$dir/guest"
    detach_loop
}

# files_of IMAGE: prints the digest of each file in a guest, by the kernel's reader.
files_of() {
    mkdir -p "$dir/guest"
    attach_loop "$1" --read-only
    mount -o ro,noload "$loop" "$dir/guest"
    (cd "$dir/guest" && find . -xdev -type f -print0 | sort -z | xargs -0 sha256sum)
    umount "$dir/guest"
    detach_loop
}

# noise FILE BYTES
noise() {
    head -c "$2" /dev/urandom >"$1"
}

guest "$dir/web.raw" 1
guest "$dir/db.raw" 2
aged "$dir/web.raw"
files_of "$dir/web.raw" >"$dir/files"
qemu-img convert -f raw -O qcow2 "$dir/db.raw" "$dir/db.qcow2"
size=$(stat --format=%s "$dir/web.raw")

onefold archive create "$archive"
# Exact, so that the export can be compared with the disk: a journal that nothing reads is not made zero.
onefold image capture --exact --json --quiet "$archive" "$dir/web.raw" web >"$dir/first"
(($(number images.0.size_bytes <"$dir/first") == size)) || fail "the size is wrong: $(<"$dir/first")"
(($(number images.0.free_bytes <"$dir/first") > 4000000)) || fail "free blocks were taken: $(<"$dir/first")"
sum=0
for part in free zero data; do
    sum=$((sum + $(number "images.0.${part}_bytes" <"$dir/first")))
done
((sum == size)) || fail "the bytes do not add up: $(<"$dir/first")"

# What the archive has is not stored again. Another guest has most of its files in common.
onefold image capture --exact --json --quiet "$archive" "$dir/web.raw" web >"$dir/again"
(($(number images.0.version <"$dir/again") == 2 && $(number images.0.new_bytes <"$dir/again") == 0)) ||
    fail "an unchanged image was stored again: $(<"$dir/again")"
onefold image capture --json --quiet "$archive" "$dir/db.qcow2" >"$dir/other"
new=$(number images.0.new_bytes <"$dir/other")
data=$(number images.0.data_bytes <"$dir/other")
note "a guest with the same packages at other places: $new of $data bytes are new"
((new * 2 < data)) || fail "equal files were stored twice: $(<"$dir/other")"

onefold image list --json "$archive" >"$dir/list"
grep -q '"web@1"' "$dir/list" && grep -q '"web@2"' "$dir/list" && grep -q '"db@1"' "$dir/list" || fail "$(<"$dir/list")"
onefold image show "$archive" web | grep -q 'ext4 .*by its map' || fail "$(onefold image show "$archive" web)"
onefold archive stat --json "$archive" >"$dir/stat"
stored=$(find "$archive" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
(($(number stored_bytes <"$dir/stat") == stored)) || fail "$stored bytes are there: $(<"$dir/stat")"

# Over noise in a file, with all free sectors left, and in the rest of the file.
noise "$dir/target.raw" $((size + 5000))
cp "$dir/target.raw" "$dir/noise.raw"
refused 1 'not blank' onefold image install "$archive" web@1 "$dir/target.raw"
refused 1 'hint: .*--force' onefold image install "$archive" web@1 "$dir/target.raw"
cmp "$dir/target.raw" "$dir/noise.raw"
onefold image install --force --dry-run "$archive" web@1 "$dir/target.raw"
cmp "$dir/target.raw" "$dir/noise.raw"
onefold image install --quiet --force --verify "$archive" web@1 "$dir/target.raw"
cmp <(tail -c 5000 "$dir/target.raw") <(tail -c 5000 "$dir/noise.raw") || fail "the rest of the target was changed"
truncate -s "$size" "$dir/target.raw"
e2fsck -fn "$dir/target.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
files_of "$dir/target.raw" | diff "$dir/files" -
cmp -s "$dir/target.raw" "$dir/web.raw" && fail "free blocks were written"

# Over noise on a disk, with free sectors made zero; its export is the same.
noise "$dir/disk.raw" "$size"
attach_loop "$dir/disk.raw"
refused 1 'not blank' onefold image install "$archive" web@1 "$loop"
onefold image install --quiet --force --verify --free zero "$archive" web@1 "$loop"
e2fsck -fn "$loop" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
onefold image export --quiet "$archive" web@1 "$dir/export.raw"
cmp "$dir/export.raw" "$loop"
detach_loop
files_of "$dir/export.raw" | diff "$dir/files" -

# Every block of the export is the captured one, or zero and free.
python3 - "$dir/web.raw" "$dir/export.raw" <<'PYTHON' || fail "the export is not the captured disk"
import subprocess, sys

captured, exported = (open(path, "rb").read() for path in sys.argv[1:])
assert len(captured) == len(exported)
differ = [at // 4096 for at in range(0, len(captured), 4096) if captured[at : at + 4096] != exported[at : at + 4096]]
assert differ, "no free block held anything"
assert all(not any(exported[block * 4096 : block * 4096 + 4096]) for block in differ), "a block is neither zero nor its own"
asked = "".join(f"testb {block}\n" for block in differ)
said = subprocess.run(["debugfs", "-f", "-", sys.argv[1]], input=asked, text=True, capture_output=True).stdout
assert said.count("not in use") == len(differ), "a block in use is zero"
PYTHON

# As a stream, as qcow2, and by the name of its ending.
onefold image export --quiet "$archive" web@1 - | cmp - "$dir/export.raw"
onefold image export --quiet "$archive" web@1 "$dir/export.qcow2"
qemu-img compare -f raw -F qcow2 "$dir/export.raw" "$dir/export.qcow2"
refused 1 'exists' onefold image export "$archive" web "$dir/export.qcow2"
onefold image install --quiet "$archive" db "$dir/new.raw"
e2fsck -fn "$dir/new.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"

# A removed image is gone, and others stay whole.
refused 2 'version' onefold image rm "$archive" web
onefold image rm "$archive" web@1
refused 1 'newest version' onefold image show "$archive" web@1
onefold archive check --data --quiet "$archive"
onefold image export --quiet "$archive" web - | cmp - "$dir/export.raw"

# An ordinary user does all this with what that user may read, and cannot look into the archives of others.
mkdir "$dir/user"
chown 65534:65534 "$dir/user"
cp "$dir/web.raw" "$dir/user/own.raw"
chown 65534:65534 "$dir/user/own.raw"
as_user "$ONEFOLD" archive create "$dir/user/archive"
# A user is not told on which file a loop device of another case lies, so any of them may lie on this one.
wait_until 60 as_user "$ONEFOLD" image capture --exact --quiet "$dir/user/archive" "$dir/user/own.raw" web
as_user "$ONEFOLD" image install --quiet "$dir/user/archive" web "$dir/user/new.raw"
cmp "$dir/user/new.raw" "$dir/export.raw"
refused 1 'Permission denied' as_user "$ONEFOLD" image list "$archive"
chmod 600 "$dir/db.raw"
refused 1 'Permission denied' as_user "$ONEFOLD" image capture "$dir/user/archive" "$dir/db.raw"
onefold image list "$dir/user/archive" | grep -q '^web@1 ' || fail "the user's capture is lost"
