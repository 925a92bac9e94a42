# What `share files` and `share run` share is the same in either order, neither undoes what the other did, and `share run --files` does both
# limit: 240 s
needs mkfs.xfs mkfs.btrfs losetup mke2fs filefrag
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# Places on the host's disk that the images take, in blocks.
places() {
    sync -f "$images"
    filefrag -v -b4096 "$images"/*.raw | python3 -c 'import re, sys
blocks = set()
for line in sys.stdin:
    found = re.match(r" *\d+: *\d+\.\. *\d+: *(\d+)\.\. *(\d+):.*", line)
    if found and "unwritten" not in line:
        blocks.update(range(int(found[1]), int(found[2]) + 1))
print(len(blocks))'
}

# add IMAGE...: copies images into the file system.
add() {
    local image
    for image; do
        cp --sparse=always "$dir/made/$image.raw" "$images"
    done
    remember
}

new_case() {
    rm -rf "$images" "$mount/.onefold"
    mkdir "$images"
    add 1 2 3 blob
}

# step VERB...: what a run says; nothing that images hold may change.
step() {
    onefold share "$@" --json --quiet "$images" >"$dir/step"
    whole
}

mkdir "$dir/made"
for seed in 1 2 3 5; do
    guest "$dir/made/$seed.raw" "$seed"
done
# Only content tells that this equals a part of a guest.
dd if="$dir/made/2.raw" of="$dir/made/blob.raw" bs=1M skip=4 count=24 status=none

for kind in xfs btrfs; do
    new_host "$kind"

    # Content first. A machine that comes later joins what is shared, though its files lie in fewer pieces.
    new_case
    whole_places=$(places)
    step run
    read_bytes=$(number scanned.read_bytes <"$dir/step")
    run_places=$(places)
    step files
    (($(places) == run_places)) || fail "$kind: share files undid what share run did: $(places) blocks, not $run_places"
    add 5
    step files
    step run
    (($(places) < run_places + 4000)) || fail "$kind: a new machine took $(($(places) - run_places)) blocks"
    content_first=$(places)
    step files
    (($(places) == content_first)) || fail "$kind: share files took $(($(places) - content_first)) blocks"

    # Files first.
    new_case
    step files
    (($(number shared.now_bytes <"$dir/step") > 5 << 20)) || fail "$kind: files did not share"
    step run
    (($(places) == run_places)) || fail "$kind: files first: $(places) blocks; content first: $run_places"
    add 5
    step run
    step files
    files_first=$(places)
    ((files_first == content_first)) || fail "$kind: files first: $files_first blocks; content first: $content_first"

    # Both at once read less than content alone.
    new_case
    step run --files
    both_read=$(number scanned.read_bytes <"$dir/step")
    (($(number files.now_bytes <"$dir/step") > 5 << 20)) || fail "$kind: files did not share first"
    (($(places) == run_places)) || fail "$kind: both at once: $(places) blocks; content alone: $run_places"
    ((both_read + $(number scanned.once_bytes <"$dir/step") == read_bytes)) || fail "$kind: not all was read or known"
    ((both_read < read_bytes - (5 << 20))) || fail "$kind: $both_read of $read_bytes bytes were read"
    add 5
    step run --files
    (($(places) == content_first)) || fail "$kind: both at once: $(places) blocks; one by one: $content_first"
    step run --files
    (($(number scanned.read_bytes <"$dir/step") == 0)) || fail "$kind: unchanged images were read"
    (($(number files.now_bytes <"$dir/step") == 0 && $(number shared.now_bytes <"$dir/step") == 0)) || fail "$kind: it shared again"
    note "$kind: $whole_places blocks before, $run_places after; $((both_read >> 20)) of $((read_bytes >> 20)) MiB read"

    # A dry run shares nothing.
    new_case
    step run --files --dry-run
    (($(places) == whole_places)) || fail "$kind: a dry run shared"
    (($(number files.believed_bytes <"$dir/step") > 5 << 20)) || fail "$kind: a dry run found no files"
done
