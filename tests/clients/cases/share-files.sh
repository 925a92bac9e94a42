# Files that packages of several guests have share their blocks on XFS and Btrfs; lying guests and bad images change nothing
# limit: 120 s
needs mkfs.xfs mkfs.btrfs losetup mke2fs setpriv e2fsck debugfs
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
let_users_in

free_bytes() {
    sync -f "$1"
    df --output=avail -B1 "$1" | tail -1
}

mkdir "$dir/made"
for seed in 1 2 3; do
    guest "$dir/made/$seed.raw" "$seed"
done

for kind in xfs btrfs; do
    new_host "$kind"
    cp --sparse=always "$dir"/made/*.raw "$images"
    printf 'KDMV\1\0\0\0' | cat - "$images/1.raw" >"$images/other.vmdk"
    head -c 1M /dev/zero >"$images/none.raw"
    remember '*'
    before=$(free_bytes "$images")

    # A dry run names the packages, and shares nothing.
    onefold share files --tiers 1 --dry-run --json --quiet "$images" >"$dir/dry"
    (($(number shared.now_bytes <"$dir/dry") == 0)) || fail "a dry run shared"
    grep -q '"tool-3 1.3 amd64"' "$dir/dry" || fail "a dry run does not name a package"
    planned=$(number tiers.0.believed_bytes <"$dir/dry")

    # All files of packages share, but for the block that differs.
    onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
    whole
    gained=$(($(free_bytes "$images") - before))
    shared=$(number shared.now_bytes <"$dir/run") differed=$(number tiers.0.differed_bytes <"$dir/run")
    note "$kind: $((planned >> 10)) KiB believed equal, $((shared >> 10)) KiB share, $((gained >> 10)) KiB came free," \
        "$(number calls.shares <"$dir/run") calls"
    ((shared + differed == planned && differed == 2 * 4096)) || fail "$shared and $differed bytes of $planned"
    ((gained > shared * 9 / 10)) || fail "$gained bytes came free of $shared"
    (($(number examined.images_with_packages <"$dir/run") == 3)) || fail "not all guests were found"
    grep -q 'format vmdk are not read yet' "$dir/run" || fail "an image that is not read is not named"

    # The next run finds it in the maps, and `share run` finds nothing of it again.
    shared_of_raw=$shared
    onefold share files --tiers 1 --json --quiet "$images" >"$dir/again"
    seen_again "$dir/run" "$dir/again"
    rm "$images/other.vmdk"
    forget other.vmdk
    onefold share run --json --quiet "$images" >"$dir/run"
    whole
    # What is left are two files of no package, 90 blocks long, and texts of the systems.
    (($(number shared.now_bytes <"$dir/run") < (256 << 10) + 2 * 90 * 4096)) || fail "share run shared $(number shared.now_bytes <"$dir/run")"
    for image in "$images"/[123].raw; do
        e2fsck -fn "$image" >/dev/null 2>&1 || fail "$image is damaged"
    done
done

# What is outside of the selection, or opted out, is neither source nor target.
new_case() {
    rm -rf "$images" "$dir/btrfs/.onefold"
    mkdir "$images"
    cp --sparse=always "$dir"/made/*.raw "$images"
    remember
}
new_case
onefold share exclude "$images/1.raw" >/dev/null
onefold share files --tiers 1 --json --quiet --exclude '2.raw' "$images" >"$dir/run"
(($(number tiers.0.believed_bytes <"$dir/run") == 0)) || fail "files outside of the selection were believed equal"
onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
(($(number examined.images <"$dir/run") == 2 && $(number shared.now_bytes <"$dir/run") > 1 << 20)) || fail "two of three"
whole

# Files of two users are of two domains.
new_case
chown 65534 "$images/1.raw"
onefold share files --tiers 1 --json --quiet --include '[12].raw' "$images" >"$dir/run"
(($(number tiers.0.believed_bytes <"$dir/run") == 0)) || fail "two domains were joined"

# A guest whose database lies: nothing changes.
new_case
guest "$images/liar.raw" 9 --lie
remember
onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
whole
(($(number tiers.0.differed_bytes <"$dir/run") > 100000)) || fail "no lie was met"
(($(number shared.now_bytes <"$dir/run") > 5 << 20)) || fail "honest guests did not share beside a liar"

# Switches for experiments: the same by more calls, the same after reading all of it, and only files that are equal as a whole.
new_case
onefold share files --tiers 1 --json --quiet "$images" >"$dir/usual"
new_case
onefold share files --tiers 1 --no-join --compare read --json --quiet "$images" >"$dir/run"
whole
(($(number shared.now_bytes <"$dir/run") == $(number shared.now_bytes <"$dir/usual"))) || fail "--compare read shared something else"
(($(number calls.shares <"$dir/run") > 3 * $(number calls.shares <"$dir/usual"))) || fail "--no-join joined runs"
(($(number examined.digested_bytes <"$dir/run") > 3 * 6 << 20)) || fail "--compare read read too little"
new_case
onefold share files --tiers 1 --whole-files --json --quiet "$images" >"$dir/run"
whole
(($(number shared.now_bytes <"$dir/run") == $(number shared.now_bytes <"$dir/usual") - 2 * 99 * 4096)) ||
    fail "--whole-files shared $(number shared.now_bytes <"$dir/run")"
(($(number tiers.0.differed_bytes <"$dir/run") == 0)) || fail "--whole-files compared files that differ"

# A liar that is the first source of all others takes nothing away from them.
new_case
onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
honest=$(number shared.now_bytes <"$dir/run")
new_case
mv "$images" "$dir/aside"
mkdir "$images"
guest "$images/liar.raw" 9 --lie
onefold share files --tiers 1 --quiet "$images" >/dev/null
mv "$dir"/aside/*.raw "$images"
rm -r "$dir/aside"
remember
onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
whole
(($(number tiers.0.second_bytes <"$dir/run") > 500000)) || fail "the liar was not the first source"
(($(number shared.now_bytes <"$dir/run") >= honest)) || fail "a liar took away $honest bytes"

# Clusters of qcow2 images share with raw images, and with each other. Compressed ones are left alone, and so is an image
# that names another file.
if command -v qemu-img >/dev/null; then
    new_case
    for seed in 2 3; do
        qemu-img convert -O qcow2 -o cluster_size=$((seed == 2 ? 65536 : 4096)) "$images/$seed.raw" "$images/$seed.qcow2"
        rm "$images/$seed.raw"
    done
    qemu-img convert -c -O qcow2 "$images/1.raw" "$images/packed.qcow2"
    qemu-img create -q -f qcow2 -b 1.raw -F raw "$images/overlay.qcow2"
    remember '*'
    onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
    whole
    (($(number examined.images_with_packages <"$dir/run") == 4)) || fail "not all qcow2 images were read"
    (($(number shared.now_bytes <"$dir/run") >= shared_of_raw)) || fail "qcow2 shared $(number shared.now_bytes <"$dir/run")"
    (($(number examined.unmapped_bytes <"$dir/run") > 5 << 20)) || fail "compressed clusters were not counted"
    grep -q 'overlay.qcow2.*it has a backing file' "$dir/run" || fail "an image with a backing file was not named"
    for seed in 2 3; do
        qemu-img check -q "$images/$seed.qcow2" || fail "qemu-img finds damage"
        qemu-img compare -q "$images/$seed.qcow2" "$dir/made/$seed.raw" || fail "the guest of $seed.qcow2 changed"
    done
    onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
    (($(number shared.now_bytes <"$dir/run") == 0)) || fail "qcow2 shared twice"
fi

# A guest on XFS, in a partition that begins at a whole block, shares with those on ext4; one at sector 63 cannot.
new_case
python3 "$tools/make_debian.py" "$dir/tree-xfs" guest-4 4
for start in 2048 63; do
    image=$images/at-$start.raw
    truncate -s 400M "$image"
    python3 - "$image" "$start" <<'PYTHON'
import struct, sys

start = int(sys.argv[2])
table = bytearray(512)
table[446:462] = struct.pack("<BBHBBHII", 0, 0, 0, 0x83, 0, 0, start, 380 * 2048)
table[510:] = b"\x55\xaa"
with open(sys.argv[1], "r+b") as image:
    image.write(table)
PYTHON
    attach_loop "$image" --offset $((start * 512)) --sizelimit $((380 << 20))
    mkfs.xfs -q "$loop"
    mkdir "$dir/guest-$start"
    mount "$loop" "$dir/guest-$start"
    cp -a "$dir/tree-xfs/." "$dir/guest-$start"
    umount "$dir/guest-$start"
    losetup --detach "$loop"
done
remember
onefold share files --tiers 1 --json --quiet --include 1.raw --include at-2048.raw "$images" >"$dir/run"
whole
(($(number shared.now_bytes <"$dir/run") > 5 << 20)) || fail "XFS and ext4 share $(number shared.now_bytes <"$dir/run")"
onefold share files --tiers 1 --json --quiet --include 1.raw --include at-63.raw "$images" >"$dir/run"
(($(number tiers.0.believed_bytes <"$dir/run") == 0)) || fail "a misaligned guest was compared"
(($(number examined.misaligned_bytes <"$dir/run") > 5 << 20)) || fail "a misaligned guest was not counted"

# Files of no package: equal by path, length and time, or by path and length; a probe tells others apart. Short ones with other
# times share, too.
new_case
onefold share files --tiers 3,5 --json --quiet "$images" >"$dir/run"
whole
(($(number tiers.0.believed_bytes <"$dir/run") == 0)) || fail "a tier that is not wanted was followed"
tier_3=$(number tiers.2.shared_bytes <"$dir/run") tier_5=$(number tiers.3.shared_bytes <"$dir/run")
((tier_3 >= 2 * 50 * 4096 && tier_5 >= 2 * 40 * 4096)) || fail "tier 3: $tier_3, tier 5: $tier_5"
# A short file of two guests belongs to tier 3 if both were made in the same second.
((tier_3 + tier_5 > 2 * 90 * 4096)) || fail "no short files: tier 3: $tier_3, tier 5: $tier_5"
(($(number tiers.3.differed_bytes <"$dir/run") == 0)) || fail "a probe told no files apart"
fails_with 'tiers are 1, 2, 3 and 5' "$ONEFOLD" share files --tiers 4 "$images"

# Copies of one image, each with a file of its own since: what was copied has the same record at the same place.
new_case
rm "$images"/[23].raw
for seed in 4 5; do
    cp --reflink=never "$images/1.raw" "$images/copy-$seed.raw"
    # Of different lengths: written in one second, the two have one record otherwise.
    head -c $((100000 + seed * 4096)) /dev/urandom >"$dir/own"
    debugfs -w -R "write $dir/own own" "$images/copy-$seed.raw" >/dev/null 2>&1
done
remember
onefold share files --tiers 2 --json --quiet "$images" >"$dir/run"
whole
(($(number tiers.1.shared_bytes <"$dir/run") > 16 << 20)) || fail "tier 2: $(number tiers.1.shared_bytes <"$dir/run")"
(($(number tiers.1.differed_bytes <"$dir/run") == 0)) || fail "copies differ"
onefold share files --tiers 1,2 --json --quiet "$images" >"$dir/run"
(($(number shared.now_bytes <"$dir/run") == 0)) || fail "another tier found more of copies"

# Images that are cut off or full of noise are named or passed over.
new_case
truncate -s 3M "$images/2.raw"
head -c 8M /dev/urandom | dd of="$images/3.raw" bs=1M seek=1 conv=notrunc status=none
remember
onefold share files --tiers 1 --quiet "$images" >"$dir/out"
whole

# An ordinary user shares the files of its own images.
new_case
chown -R 65534:65534 "$dir/btrfs"
as_user "$ONEFOLD" share files --tiers 1 --json --quiet "$images" >"$dir/run"
whole
(($(number shared.now_bytes <"$dir/run") > 5 << 20)) || fail "a user shared $(number shared.now_bytes <"$dir/run")"

fails_with 'cannot share blocks' "$ONEFOLD" share files /proc/self
fails_with 'different file systems' "$ONEFOLD" share files "$dir/xfs" "$dir/btrfs"
