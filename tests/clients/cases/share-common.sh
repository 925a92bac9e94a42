# A common volume takes packaged content by clone, serves as the source of sharing, and survives kills and bad input
# limit: 240 s
needs mkfs.xfs mkfs.btrfs losetup mke2fs debugfs e2fsck setpriv flock python3 dpkg-deb ar
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
let_users_in

used_bytes() {
    sync -f "$1"
    df --output=used -B1 "$1" | tail -1
}

# sound VOLUME: no draft is left beside the volume, and all of it is as it should be.
sound() {
    local left
    left=$(find "$(dirname "$1")" -name '.*.onefold-*')
    [[ -z $left ]] || fail "left behind: $left"
    onefold share common check "$1" >"$dir/check" || fail "$(cat "$dir/check")"
    e2fsck -fn "$1" >"$dir/e2fsck" 2>&1 || fail "e2fsck: $(cat "$dir/e2fsck")"
    [[ $(stat -c %a "$1") == 600 ]] || fail "mode $(stat -c %a "$1")"
}

# mounted VOLUME FOLDER: mounts it read-only. Asked for more, the kernel does no more.
mounted() {
    mkdir -p "$2"
    mount -o loop "$1" "$2" 2>"$dir/mount" || fail "$(cat "$dir/mount")"
    ! touch "$2/new" 2>/dev/null || fail "the kernel let a process write into the volume"
}

# same FOLDER: each packaged file in the mounted volume has the bytes that its guest has.
same() {
    local package
    for package in "$1"/dpkg/tool-*; do
        (cd "$package" && find usr -type f -exec md5sum {} +)
    done >"$dir/packaged"
    (cd "$dir/tree" && md5sum --quiet --check "$dir/packaged") || fail "a file in the volume is not that of a guest"
    found=$(wc -l <"$dir/packaged")
}

mkdir "$dir/made"
for seed in 1 2 3; do
    guest "$dir/made/$seed.raw" "$seed"
done
guest "$dir/made/liar" 9 --lie
guest "$dir/made/5.raw" 5
make_tree "$dir/tree" 5

for kind in xfs btrfs; do
    new_host "$kind"
    cp --sparse=always "$dir"/made/[123].raw "$images"
    remember '*'
    volume=$images/common.img

    fails_with 'no common volume' "$ONEFOLD" share common ls "$images"
    onefold share common create --size 1G "$volume" >/dev/null
    fails_with 'exists' "$ONEFOLD" share common create "$volume"
    sound "$volume"

    # What a user adds comes by clone: it takes next to no room, and no image changes.
    before=$(used_bytes "$images")
    onefold share common add "$images" --from "$images/1.raw" --package tool-3 --package tool-4 --json >"$dir/add"
    (($(number added <"$dir/add") == 120 && $(number differed <"$dir/add") == 0)) || fail "added $(cat "$dir/add")"
    taken=$(($(used_bytes "$images") - before))
    ((taken < 1 << 20)) || fail "$kind: $taken bytes were taken for $(number added_bytes <"$dir/add")"
    note "$kind: $(($(number added_bytes <"$dir/add") >> 10)) KiB added, $((taken >> 10)) KiB taken"
    whole
    sound "$volume"
    mounted "$volume" "$dir/at"
    same "$dir/at"
    ((found == 120)) || fail "$found files are in the volume"
    onefold share common ls "$images" | grep -q 'tool-3_1.3_amd64.*added by a user' || fail "ls does not list a package"

    # The same again changes nothing, and a process that has it mounted is not in the way.
    onefold share common add "$images" --from "$images/2.raw" --package tool-3 --json >"$dir/add"
    (($(number added <"$dir/add") == 0)) || fail "added twice"

    # A pass brings in what two images hold, and shares with the volume. The package whose file differs is left out.
    onefold share files --tiers 1 --common --json --quiet "$images" >"$dir/run"
    whole
    umount "$dir/at"
    sound "$volume"
    (($(number common.contents <"$dir/run") == 480)) || fail "$(number common.contents <"$dir/run") contents"
    (($(number common.changed.differed <"$dir/run") == 1)) || fail "a file that differs came in"
    (($(number shared.now_bytes <"$dir/run") > 10 << 20)) || fail "shared $(number shared.now_bytes <"$dir/run")"
    mounted "$volume" "$dir/at"
    same "$dir/at"
    ((found == 480)) || fail "$found files are in the volume"
    umount "$dir/at"

    # A new machine shares all of them with the volume.
    cp --sparse=always "$dir/made/5.raw" "$images/5.raw"
    remember
    onefold share files --tiers 1 --common --json --quiet "$images" >"$dir/run"
    whole
    (($(number common.changed.added <"$dir/run") == 0)) || fail "a new machine brought something in"
    (($(number shared.now_bytes <"$dir/run") > 5 << 20)) || fail "a new machine shared $(number shared.now_bytes <"$dir/run")"

    # A liar brings nothing in.
    cp --sparse=always "$dir/made/liar" "$images/liar.raw"
    onefold share common create --size 64M "$images/second.img" >/dev/null
    fails_with 'several common volumes' "$ONEFOLD" share common ls "$images"
    onefold share common add "$images/second.img" --from "$images/liar.raw" --json >"$dir/add"
    (($(number added <"$dir/add") == 0 && $(number differed <"$dir/add") > 400)) || fail "a liar: $(cat "$dir/add")"
    sound "$images/second.img"
    (($(stat -c %b "$images/second.img") < 4096)) || fail "blocks of a liar are in the volume"
    rm "$images/second.img" "$images/liar.raw"
    whole

    # Content that only the volume refers to goes, unless a user added it.
    rm "$images"/[1235].raw
    sync -f "$images"
    sleep 1
    onefold share files --tiers 1 --common --json --quiet "$images" >"$dir/run"
    (($(number common.contents <"$dir/run") == 120)) || fail "$(number common.contents <"$dir/run") contents are left"
    sound "$volume"
    onefold share common rm "$images" tool-3 tool-4_1.4_amd64 >/dev/null
    onefold share common ls "$images" | grep -q 'nothing is in' || fail "something is left in the volume"
    sound "$volume"
    fails_with 'no content of these packages' "$ONEFOLD" share common rm "$images" tool-3
done

# Whenever a process is killed, the volume is as it was, or as it should become; the next one removes what is left.
cp --sparse=always "$dir"/made/[12].raw "$images"
remember
for delay in 0.02 0.05 0.1 0.2 0.4; do
    ended_before "$delay" "$ONEFOLD" share common add "$images" --from "$images/1.raw" || true
    ended_before "$delay" "$ONEFOLD" share files --tiers 1 --common --quiet "$images" || true
    onefold share common check "$volume" >"$dir/check" || fail "after a kill: $(cat "$dir/check")"
done
onefold share common add "$images" --from "$images/1.raw" >/dev/null
whole
sound "$volume"

# A process that changes the volume keeps others out, and a pass goes on with the volume as it is.
exec 9<"$volume"
flock 9
fails_with 'another process changes' "$ONEFOLD" share common rm "$images" tool-1
onefold share files --tiers 1 --common --quiet "$images" >/dev/null
exec 9<&-

# A volume that is not the user's own, that others may read, that is none, or that is damaged.
fails_with 'is not used' "$ONEFOLD" share common ls "$images/1.raw"
fails_with 'cannot' "$ONEFOLD" share common ls "$images/gone.img"
chmod 644 "$volume"
fails_with 'others than its owner' "$ONEFOLD" share common ls "$images"
chmod 600 "$volume"
chmod o+rx "$dir/btrfs" "$images"
fails_with 'cannot' as_user "$ONEFOLD" share common ls "$volume"
block=$(debugfs -R 'bmap /dpkg/tool-1_1.1_amd64/usr/bin/tool-1-1 0' "$volume" 2>/dev/null)
cp --reflink "$volume" "$dir/btrfs/kept"
printf x | dd of="$volume" bs=1 seek=$((block * 4096 + 5)) conv=notrunc status=none
status=0
"$ONEFOLD" share common check "$images" >"$dir/out" 2>&1 || status=$?
((status == 3)) || fail "status $status: $(cat "$dir/out")"
grep -q 'is not what its digest' "$dir/out" || fail "$(cat "$dir/out")"
cp --reflink "$dir/btrfs/kept" "$volume"
dd if=/dev/urandom of="$volume" bs=4096 count=8 conv=notrunc status=none
fails_with 'is damaged' "$ONEFOLD" share common ls "$images"
fails_with 'is damaged' "$ONEFOLD" share files --tiers 1 --common --quiet "$images"
rm "$volume" "$dir/btrfs/kept"
whole

# Package archives: content is written, configuration files are left out, odd names are replaced.
onefold share common create --size 256M "$volume" >/dev/null
tree=$dir/deb
mkdir -p "$tree/DEBIAN" "$tree/usr/lib/thing" "$tree/etc"
printf 'Package: thing\nVersion: 1:2.0\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n' >"$tree/DEBIAN/control"
echo /etc/thing.conf >"$tree/DEBIAN/conffiles"
head -c 5000 /dev/urandom >"$tree/etc/thing.conf"
# Longer than what one call of the kernel clones.
head -c 40000000 /dev/urandom >"$tree/usr/lib/thing/big"
cp "$tree/usr/lib/thing/big" "$tree/usr/lib/thing/again"
head -c 4096 /dev/urandom >"$tree/usr/lib/thing/a \"b\" <2>"
head -c 1 /dev/urandom >"$tree/usr/lib/thing/$(printf 'n%.0s' {1..200})"
: >"$tree/usr/lib/thing/empty"
# As quickly as it goes: the other archives are compressed as they usually are.
dpkg-deb --root-owner-group -Zgzip -z1 --build "$tree" "$dir/thing.deb" >/dev/null
onefold share common add "$images" "$dir/thing.deb" --json >"$dir/add"
(($(number added <"$dir/add") == 3 && $(number linked <"$dir/add") == 1)) || fail "an archive: $(cat "$dir/add")"
sound "$volume"
mounted "$volume" "$dir/at"
inside=$dir/at/dpkg/thing_1:2.0_all
cmp "$inside/usr/lib/thing/big" "$tree/usr/lib/thing/big"
[[ $(stat -c %h "$inside/usr/lib/thing/big") == 2 ]] || fail "a content has $(stat -c %h "$inside/usr/lib/thing/big") names"
[[ ! -e $inside/etc ]] || fail "a configuration file came in"
(($(find "$inside/usr/lib/thing" -name '~*' | wc -l) == 2)) || fail "$(ls "$inside/usr/lib/thing")"
umount "$dir/at"

# Another version with equal files: they get names, more than one block of a folder holds. No path is a file and a folder.
rm -rf "${tree:?}/usr/lib/thing" "${tree:?}/etc" "${tree:?}/DEBIAN/conffiles"
mkdir "$tree/usr/lib/thing"
for number in {1..300}; do
    echo "$number" >"$tree/usr/lib/thing/a file with a name of some length $number"
done
for version in 3 4; do
    sed -i "s/^Version:.*/Version: $version/" "$tree/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$tree" "$dir/thing-$version.deb" >/dev/null
    onefold share common add "$images" "$dir/thing-$version.deb" --json >"$dir/add"
    (($(number added <"$dir/add") + $(number linked <"$dir/add") == 300)) || fail "version $version: $(cat "$dir/add")"
done
rm -r "$tree/usr/lib/thing"
echo file >"$tree/usr/lib/thing"
dpkg-deb --root-owner-group --build "$tree" "$dir/thing-file.deb" >/dev/null
onefold share common add "$images" "$dir/thing-file.deb" --json >"$dir/add"
(($(number added <"$dir/add") == 1)) || fail "a path is a file and a folder: $(cat "$dir/add")"
debugfs -R 'ls -p /dpkg/thing_4_all/usr/lib' "$volume" 2>/dev/null | grep -q '/~' || fail "it has no path of its own"
sound "$volume"

# Archives that are none, and archives of a hostile maker.
cp "$volume" "$dir/before"
head -c 100000 /dev/urandom >"$dir/noise.deb"
fails_with 'is not added' "$ONEFOLD" share common add "$images" "$dir/noise.deb"
head -c 200000 "$dir/thing.deb" >"$dir/cut.deb"
fails_with 'is not added' "$ONEFOLD" share common add "$images" "$dir/cut.deb"
fails_with 'cannot' "$ONEFOLD" share common add "$images" "$dir/gone.deb"
for kind in outside device long; do
    python3 - "$dir" "$kind" <<'PYTHON'
import io, sys, tarfile

folder, kind = sys.argv[1:]
with tarfile.open(f"{folder}/data.tar", "w", format=tarfile.GNU_FORMAT) as tar:
    entry = tarfile.TarInfo({"outside": "./usr/../../etc/passwd", "device": "./dev/sda", "long": "./" + "n" * 9000}[kind])
    entry.type = tarfile.BLKTYPE if kind == "device" else tarfile.REGTYPE
    entry.size = 0 if kind == "device" else 5
    tar.addfile(entry, io.BytesIO(b"12345"))
PYTHON
    (cd "$dir" && ar x thing.deb debian-binary control.tar.gz && rm -f "$kind.deb" &&
        ar q "$kind.deb" debian-binary control.tar.gz data.tar 2>/dev/null)
    case $kind in
        outside) reason='leads out of its folder' ;;
        device) reason='it has a device' ;;
        *) reason='a name that is too long' ;;
    esac
    fails_with "$reason" "$ONEFOLD" share common add "$images" "$dir/thing.deb" "$dir/$kind.deb"
done
truncate -s 200M "$tree/usr/lib/thing"
dpkg-deb --root-owner-group -Zgzip --build "$tree" "$dir/bomb.deb" >/dev/null
fails_with 'far longer' "$ONEFOLD" share common add "$images" "$dir/bomb.deb"
mkfifo "$dir/pipe.deb"
fails_with 'not a regular file' "$ONEFOLD" share common add "$images" "$dir/pipe.deb"
cmp "$volume" "$dir/before"
rm "$volume" "$dir/before"

# No room in the volume: the old generation stays.
onefold share common create --size 16M "$volume" >/dev/null
onefold share common add "$images" --from "$images/1.raw" --package tool-0 >/dev/null
head -c 30M /dev/urandom >"$dir/tree/usr/lib/huge"
printf 'Package: huge\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n' >>"$dir/tree/var/lib/dpkg/status"
printf '/usr/lib/huge\n' >"$dir/tree/var/lib/dpkg/info/huge.list"
(cd "$dir/tree" && md5sum usr/lib/huge) >"$dir/tree/var/lib/dpkg/info/huge.md5sums"
truncate -s 64M "$images/huge.raw"
mke2fs -q -F -t ext4 -b 4096 -d "$dir/tree" "$images/huge.raw"
fails_with 'no room' "$ONEFOLD" share common add "$images" --from "$images/huge.raw" --package huge
onefold share common ls "$images" | grep -q 'tool-0' || fail "the old generation is gone"
sound "$volume"
# A pass shares all the same.
cp --sparse=always "$images/huge.raw" "$images/huge-2.raw"
sync -f "$images"
status=0
"$ONEFOLD" share files --tiers 1 --common --json --quiet "$images" >"$dir/run" || status=$?
((status == 1)) || fail "status $status with a full volume"
grep -q 'no room' "$dir/run" || fail "a pass does not say that the volume is full"
(($(number shared.now_bytes <"$dir/run") > 10 << 20)) || fail "shared $(number shared.now_bytes <"$dir/run")"
sound "$volume"
rm "$volume" "$images"/huge*.raw

# Another user's images do not get into the volume.
onefold share common create --size 64M "$volume" >/dev/null
cp --reflink "$images/1.raw" "$images/other.raw"
chown 65534 "$images/other.raw"
fails_with 'sharing domain' "$ONEFOLD" share common add "$images" --from "$images/other.raw"
rm "$volume" "$images/other.raw"

# A volume with a label of its own keeps it from generation to generation, and takes content of that domain only.
onefold share common create --size 64M "$volume" >/dev/null
cp --reflink "$images/1.raw" "$images/labelled.raw"
onefold share domain set "$images/labelled.raw" customer-a >/dev/null
onefold share domain set "$volume" customer-a >/dev/null
for package in tool-2 tool-3; do
    onefold share common add "$images" --from "$images/labelled.raw" --package "$package" --json >"$dir/add"
    (($(number added <"$dir/add") == 60)) || fail "of $package: $(cat "$dir/add")"
done
fails_with 'sharing domain' "$ONEFOLD" share common add "$images" --from "$images/1.raw"
sound "$volume"
rm "$volume" "$images/labelled.raw"

# An ordinary user has a volume of its own.
chown -R 65534:65534 "$dir/btrfs"
as_user "$ONEFOLD" share common create --size 1G "$volume" >/dev/null
as_user "$ONEFOLD" share common add "$images" --from "$images/1.raw" --package tool-2 >/dev/null
as_user "$ONEFOLD" share files --tiers 1 --common --json --quiet "$images" >"$dir/run"
(($(number common.contents <"$dir/run") == 480)) || fail "a user: $(number common.contents <"$dir/run") contents"
whole
[[ $(stat -c %u "$volume") == 65534 ]] || fail "the volume belongs to $(stat -c %u "$volume")"
as_user "$ONEFOLD" share common check "$images" >/dev/null
# Root adds to it for that user, and it stays the user's.
onefold share common rm "$images" tool-2 >/dev/null
[[ $(stat -c '%u %a' "$volume") == '65534 600' ]] || fail "the volume became $(stat -c '%u %a' "$volume")"
as_user "$ONEFOLD" share common check "$images" >/dev/null
