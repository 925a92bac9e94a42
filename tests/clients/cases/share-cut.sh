# `share run` that is interrupted or killed leaves no block in the arena without an entry, and gets further each time
# limit: 180 s
needs mkfs.xfs losetup

truncate -s 2G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop" 2>/dev/null
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
images=$dir/xfs/images
mkdir "$images"
blocks=$((192 << 8))
head -c "$((blocks << 12))" /dev/urandom >"$images/one.raw"
cp --reflink=never "$images/one.raw" "$images/two.raw"
sync -f "$images"
(cd "$images" && sha256sum ./*.raw) >"$dir/sums"

# The entries that name a slot of the arena, as of the last look.
shared=0

# What the arena refers to, in KiB.
arena_kib() {
    du --summarize --block-size=1K "$dir/xfs/.onefold/arena" 2>/dev/null | cut -f1 || echo 0
}

# status MEMBER: a number of `share status`.
status() {
    onefold share status --details --json "$images" | number "state.$1"
}

# has_filled KIB: the arena refers to so much, or the run has ended.
has_filled() {
    (($(arena_kib) >= $1)) || ! kill -0 "$sharer" 2>/dev/null
}

# stop_run SIGNAL KIB: starts a run, and stops it when the arena refers to so much. The limit has it filled slowly enough.
stop_run() {
    "$ONEFOLD" share run --quiet --io-limit "$limit" "$images" >"$dir/out" 2>"$dir/err" &
    sharer=$!
    wait_until 60 has_filled "$2"
    kill "-$1" "$sharer" 2>/dev/null || fail "the run ended before the arena had $2 KiB: $(<"$dir/err")"
    wait "$sharer" 2>/dev/null || true
    sync -f "$images"
}

# cut_soundly KIB: after the signal, each slot has an entry.
cut_soundly() {
    stop_run INT "$1"
    local slots entries
    slots=$(status arena.slots) entries=$(status index.shared_entries)
    note "cut at $1 KiB: $slots slots, $entries shared entries"
    ((slots == entries)) || fail "$slots slots are filled, and $entries entries name one"
    ((entries >= shared)) || fail "$entries entries are left of $shared"
    shared=$entries
}

limit=64M
cut_soundly 4096
# Nothing has to be read to be known any more.
limit=32M
# The first 32 MiB have been read by then.
cut_soundly 40960
((shared > 0)) || fail "an interrupted run has shared nothing"
first=$shared
stop_run KILL $(((shared << 2) + 40960))
# It empties first what the killed one has filled.
cut_soundly $(((shared << 2) + 81920))
((shared > first)) || fail "the run after the kill got no further than $first entries"
onefold share run --quiet "$images" >"$dir/out"
(cd "$images" && sha256sum --quiet --check "$dir/sums")
slots=$(status arena.slots) entries=$(status index.shared_entries)
((slots == blocks && entries == blocks)) || fail "$slots slots and $entries entries for $blocks distinct blocks"
rm "$images"/*.raw
onefold share run --quiet "$images" >"$dir/out"
sync -f "$images"
left=$(arena_kib)
((left <= 1024)) || fail "the arena holds $left KiB of images that are gone"
