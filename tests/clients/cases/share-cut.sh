# `share run` that is interrupted leaves no blocks in the arena, and a later run shares as if nothing had been
# limit: 120 s
needs mkfs.xfs losetup

truncate -s 1G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop" 2>/dev/null
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
images=$dir/xfs/images
mkdir "$images"
head -c 64M /dev/urandom >"$images/one.raw"
cp --reflink=never "$images/one.raw" "$images/two.raw"
sync -f "$images"
(cd "$images" && sha256sum ./*.raw) >"$dir/sums"

# What the arena refers to, in KiB.
arena_kib() {
    du --summarize --block-size=1K "$dir/xfs/.onefold/arena" 2>/dev/null | cut -f1 || echo 0
}

fills() {
    (($(arena_kib) >= 4096)) || ! kill -0 "$sharer" 2>/dev/null
}

# The limit has the arena filled slowly enough to be caught at it.
interrupted=0
for round in 1 2 3; do
    "$ONEFOLD" share run --quiet --io-limit 24M "$images" >"$dir/out" 2>"$dir/err" &
    sharer=$!
    wait_until 30 fills
    if kill -INT "$sharer" 2>/dev/null; then
        interrupted=$((interrupted + 1))
    fi
    wait "$sharer" 2>/dev/null || true
    sync -f "$images"
    left=$(arena_kib)
    note "round $round: $left KiB are left in the arena"
    ((left <= 1024)) || fail "an interrupted run has left $left KiB in the arena"
done
((interrupted == 3)) || fail "only $interrupted runs were interrupted"
onefold share run --quiet "$images" >"$dir/out"
(cd "$images" && sha256sum --quiet --check "$dir/sums")
sync -f "$images"
filled=$(arena_kib)
((filled >= 65536 && filled <= 66560)) || fail "the arena holds $filled KiB for 65536 KiB of distinct blocks"
