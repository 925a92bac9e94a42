# What guests say is kept between runs: an image that has not changed is not examined, and what is kept may be lost, damaged or deleted
# limit: 240 s
needs mkfs.xfs mkfs.btrfs losetup mke2fs filefrag debugfs

# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# guests: the records of images.
guests() {
    find "$kept" -type f -name '[0-9]*'
}

# files UNCHANGED FLAG...: shares files; so many images are not examined.
files() {
    local expected=$1 unchanged
    shift
    onefold share files --json --quiet "$@" "$images" >"$dir/run"
    unchanged=$(number examined.unchanged_images <"$dir/run")
    ((unchanged == expected)) || fail "$kind: $unchanged images were not examined, and not $expected ($*)"
}

# change COMMAND: has the second guest do what debugfs does.
change() {
    debugfs -w -R "$1" "$images/2.raw" 2>/dev/null
    remember
    sleep 0.1
}

# repeats EXPECTED FLAG...: shares files; 1 where it has to repeat what an earlier run has found, and 0 where not.
repeats() {
    local expected=$1
    shift
    onefold share files --json --quiet "$@" "$images" >"$dir/run"
    (($(number unchanged <"$dir/run") == expected)) || fail "$kind: $expected runs should repeat another ($*)"
}

# same_sums FILE: the last run has counted as that one.
same_sums() {
    local sum before now
    for sum in examined.images examined.images_with_packages examined.packages examined.files examined.empty_files \
        examined.resident_bytes examined.unwritten_bytes examined.misaligned_bytes shared.now_bytes shared.before_bytes \
        shared.{repeated,differed}_bytes tiers.{0,1,2,3}.{believed,before,differed,empty,crowded,given_up}_bytes; do
        before=$(number "$sum" <"$1") now=$(number "$sum" <"$dir/run")
        ((before == now)) || fail "$kind: $sum is $now, and was $before"
    done
}

# known COUNT: shares files; in so many changed images the packages are known.
known() {
    files 2
    whole
    (($(number examined.unchanged_databases <"$dir/run") == $1)) || fail "$kind: packages of $1 images should be known"
}

new_file_system() {
    new_host "$kind"
    [[ $kind != xfs ]] || device=$loop
    kept=$mount/.onefold/guests
    cp --sparse=always "$dir"/made/*.raw "$images"
    remember
    # Times of a file that was just written do not tell of later changes.
    sleep 0.1
}

mkdir "$dir/made"
for seed in 1 2 3; do
    guest "$dir/made/$seed.raw" "$seed"
done

ls "$dir" >"$dir/made/names"

for kind in xfs btrfs; do
    new_file_system
    # A dry run keeps nothing.
    files 0 --dry-run
    [[ -z $(ls "$kept") ]] || fail "$kind: a dry run has kept $(ls "$kept")"
    files 0
    cp "$dir/run" "$dir/first"
    shared=$(number shared.now_bytes <"$dir/run")
    whole
    ((shared > 5 << 20)) || fail "$kind: only $shared bytes are shared"
    (($(guests | wc -l) == 3)) || fail "$kind: $(ls "$kept") is kept"
    note "$kind: $(du -bc "$kept"/* | tail -1 | cut -f1) bytes are kept of three images"

    # What is kept says the same as the images, though sharing has set times of them (XFS).
    files 3
    (($(number unchanged <"$dir/run") == 0)) || fail "$kind: a run that has shared was repeated, and not followed up"
    seen_again "$dir/first" "$dir/run"
    for sum in images_with_packages packages files empty_files resident_bytes unwritten_bytes; do
        same_number "examined.$sum" "$dir/first" "$dir/run"
    done
    files 3 --dry-run

    # Since the second run has shared nothing, later ones repeat it until something changes. One that looks at everything
    # counts the same.
    repeats 1
    cp "$dir/run" "$dir/repeated"
    (($(number calls.shares <"$dir/run") == 0)) || fail "$kind: a run that repeats another one has shared"
    whole
    repeats 0 --full
    same_sums "$dir/repeated"
    repeats 1
    same_sums "$dir/repeated"
    repeats 0 --min-run 8K
    repeats 0
    "$ONEFOLD" share exclude "$images/3.raw"
    repeats 0
    repeats 1
    "$ONEFOLD" share include "$images/3.raw"
    sleep 0.1
    repeats 0
    repeats 1
    rm "$(guests | sort | tail -1)"
    repeats 0
    repeats 1
    # A time that is set is a change.
    touch "$images/1.raw"
    sleep 0.1
    repeats 0
    repeats 1
    printf '\377' | dd of="$kept/run" bs=1 seek=100 conv=notrunc status=none
    ! onefold share files --json --quiet "$images" >"$dir/run" || fail "$kind: a damaged file of the state is no failure"
    grep -q 'guests/run.*damaged' "$dir/run" || fail "$kind: what is damaged is not named"
    repeats 1

    # Another search is not kept, or is another one.
    files 0 --since 2020-01-01
    files 3
    files 0 --tiers 1,2
    files 3 --tiers 1,2
    files 0

    # Each change of an image is seen, also one that keeps length and time of the content.
    sleep 0.1
    touch -r "$images/2.raw" "$dir/time"
    dd if="$images/2.raw" of="$images/2.raw" bs=4096 count=1 skip=1000 seek=1000 conv=notrunc,fsync status=none
    touch -r "$dir/time" "$images/2.raw"
    sleep 0.1
    files 2
    files 3

    # A guest that writes is examined again. What its packages have is known, until they or one of their files change.
    change "write $dir/made/names /srv/names"
    known 1
    cp "$dir/run" "$dir/known"
    rm "$kept"/*
    files 0
    for sum in examined.files examined.packages examined.images_with_packages examined.resident_bytes \
        tiers.0.believed_bytes tiers.1.believed_bytes tiers.2.believed_bytes tiers.3.believed_bytes; do
        same_number "$sum" "$dir/known" "$dir/run"
    done
    change "set_inode_field /usr/bin/tool-0-1 mtime 1700000000"
    known 0
    change "write $dir/made/names /var/lib/dpkg/updates"
    known 0
    change "write $dir/made/names /srv/more"
    known 1

    # A machine that comes later finds what is kept of the others.
    guest "$images/4.raw" 4
    remember
    sleep 0.1
    files 3
    whole
    (($(number shared.now_bytes <"$dir/run") > 1 << 20)) || fail "$kind: a new machine shares nothing"
    rm "$images/4.raw"
    forget 4.raw
    files 3
    (($(guests | wc -l) == 3)) || fail "$kind: an image that is gone is kept: $(ls "$kept")"

    # What is damaged is dropped and named; what belongs to another user is refused; what is deleted is made again.
    one=$(guests | sort | head -1)
    printf '\377' | dd of="$one" bs=1 seek=5000 conv=notrunc status=none
    ! onefold share files --json --quiet --full "$images" >"$dir/run" || fail "$kind: a damaged file of the state is no failure"
    (($(number examined.unchanged_images <"$dir/run") == 2)) || fail "$kind: what is damaged was believed"
    grep -q 'guests/.*damaged' "$dir/run" || fail "$kind: what is damaged is not named"
    files 3
    chown 65534 "$one"
    ! onefold share files --quiet "$images" >"$dir/refused" 2>&1 || fail "$kind: what another user keeps was believed"
    grep -q 'belongs to' "$dir/refused" || fail "$kind: no reason is given"
    chown 0 "$kept"/*
    files 3
    rm -r "$mount/.onefold"
    files 0
    files 3
    # `share run --files` works with the same.
    onefold share run --files --json --quiet "$images" >"$dir/run"
    whole
    (($(number files.unchanged_images <"$dir/run") == 3)) || fail "$kind: share run --files opened images"
done

# Nothing of an unchanged image is read: without its superblock, which goes under the file system, no guest could be opened.
kind=xfs mount=$dir/xfs images=$dir/xfs/images kept=$dir/xfs/.onefold/guests
remember
files 3
place=$(filefrag -v -b4096 "$images/1.raw" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 }')
umount "$mount"
dd if=/dev/zero of="$device" bs=4096 seek="$place" count=1 conv=notrunc,fsync status=none
mount "$device" "$mount"
cmp -s -n 4096 "$images/1.raw" /dev/zero || fail "the superblock is still there"
remember
files 3 --full
(($(number examined.images_with_packages <"$dir/run") == 3)) || fail "an unchanged image was opened"
rm "$kept"/*
files 0
(($(number examined.images_with_packages <"$dir/run") == 2)) || fail "an image without a superblock was read"

# The limit holds for what is read of guests, and a run that waits for it ends when it is told to.
rm "$kept"/*
ended=0
timeout -s INT -k 5 2 "$ONEFOLD" share files --quiet --io-limit 64K "$images" >"$dir/limited" 2>&1 || ended=$?
((ended == 124)) || fail "with a limit, the run ended with $ended: $(cat "$dir/limited")"
