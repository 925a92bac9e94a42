# A damaged archive is repaired: what is intact stays, and what is lost comes back from the disk or the next capture
# limit: 120 s
needs mke2fs python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

guest "$dir/web.raw" 1
guest "$dir/db.raw" 2
whole=$dir/whole copy=$dir/copy
onefold archive create "$whole"
onefold image capture --quiet "$whole" "$dir/web.raw" web
onefold image capture --quiet "$whole" "$dir/db.raw" db
for image in web db; do
    onefold image export --quiet "$whole" "$image" "$dir/$image.export"
done

# ends CODE COMMAND...: the command must end with this exit code; what it says is in $dir/said.
ends() {
    local code=$1 status=0
    shift
    "$@" >"$dir/said" 2>&1 || status=$?
    ((status == code)) || fail "exit code $status, not $code: $*: $(<"$dir/said")"
}

# harmed: makes a fresh copy of the archive with a flipped byte in each of the ten parts of its longest pack.
harmed() {
    rm -rf "$copy"
    cp -a "$whole" "$copy"
    python3 - "$copy" <<'PYTHON'
import os, sys

packs = [os.path.join(folder, file) for folder, _, files in os.walk(os.path.join(sys.argv[1], "packs")) for file in files]
path = max(packs, key=os.path.getsize)
content = bytearray(open(path, "rb").read())
for part in range(1, 10):
    content[len(content) * part // 12] ^= 0x40
open(path, "wb").write(content)
PYTHON
}

# exports_whole ARCHIVE: fails unless both images are what they were.
exports_whole() {
    local image
    for image in web db; do
        rm -f "$dir/again"
        onefold image export --quiet "$1" "$image" "$dir/again"
        cmp "$dir/again" "$dir/$image.export" || fail "$image has changed"
    done
}

# A check names the files of guests. Without a repair, an image that is hit is exported only with its gaps.
harmed
ends 3 onefold archive check --data --quiet "$copy"
grep -q '^  the whole disk: /' "$dir/said" || fail "no file is named: $(<"$dir/said")"
ends 3 onefold archive check --data --json "$copy"
[[ $(number hits <"$dir/said") -ge 1 ]] || fail "no image is hit: $(<"$dir/said")"
ends 3 onefold archive check --sample 100% --seed 5 --quiet "$copy"
grep -q 'seed 5' "$dir/said" || fail "the seed is not told: $(<"$dir/said")"
ends 3 onefold image export --quiet "$copy" web "$dir/damaged"
ends 3 onefold image export --damaged --json "$copy" web "$dir/damaged"
python3 - "$dir/damaged" "$dir/web.export" "$dir/said" <<'PYTHON' || fail "the gaps are not what differs"
import json, sys

damaged, whole = (open(path, "rb").read() for path in sys.argv[1:3])
gaps = json.load(open(sys.argv[3]))["gaps"]
at = 0
for gap in gaps:
    offset, length = gap["offset"], gap["length_bytes"]
    assert damaged[at:offset] == whole[at:offset]
    assert not any(damaged[offset : offset + length])
    at = offset + length
assert gaps and damaged[at:] == whole[at:]
PYTHON

# A dry run changes nothing. A repair without a source loses nothing more, and the disk brings all back.
before=$(cd "$copy" && find . -type f -exec sha256sum {} + | sort)
ends 3 onefold archive repair --dry-run --quiet "$copy"
[[ $before == "$(cd "$copy" && find . -type f -exec sha256sum {} + | sort)" ]] || fail "a dry run changed the archive"
ends 3 onefold archive repair --quiet "$copy"
ends 3 onefold image export --quiet "$copy" web "$dir/none"
ends 0 onefold archive repair --quiet --from "$dir/web.raw" "$copy"
exports_whole "$copy"
ends 0 onefold archive check --data --quiet "$copy"

# The next capture of the content heals, too.
harmed
ends 3 onefold archive repair --quiet "$copy"
ends 0 onefold image capture --quiet "$copy" "$dir/web.raw" again
exports_whole "$copy"
ends 0 onefold archive check --data --quiet "$copy"

# All packs, segments and a descriptor are gone: each disk brings its own.
rm -rf "$copy"
cp -a "$whole" "$copy"
rm -rf "$copy/packs" "$copy/segments" "$copy/descriptor"
ends 3 onefold archive repair --quiet --from "$dir/web.raw" "$copy"
ends 0 onefold archive repair --quiet --from "$dir/db.raw" "$copy"
exports_whole "$copy"
ends 0 onefold archive check --data --quiet "$copy"

# A repair that is killed at any moment is repeated.
for after in 0.05 0.2; do
    harmed
    ended_before "$after" "$ONEFOLD" archive repair --quiet --from "$dir/web.raw" "$copy" || true
    ends 0 onefold archive repair --quiet --from "$dir/web.raw" "$copy"
    exports_whole "$copy"
done

# A capture that is killed late stores little when it is repeated.
head -c 96M /dev/urandom >"$dir/noise.raw"
onefold archive create "$dir/killed"
capture=(image capture --quiet --memory 64M "$dir/killed" "$dir/noise.raw" noise)
"$ONEFOLD" "${capture[@]}" >/dev/null 2>&1 &
process=$!
many_packs() {
    (($(find "$dir/killed/packs" -type f ! -name '.*' 2>/dev/null | wc -l) >= 9)) || ! kill -0 "$process" 2>/dev/null
}
wait_until 60 many_packs
kill -KILL "$process" 2>/dev/null || true
wait "$process" 2>/dev/null || true
onefold "${capture[@]}" --json >"$dir/said"
if (($(number images.0.version <"$dir/said") == 1)); then
    stored=$(number images.0.stored_bytes <"$dir/said") reused=$(number images.0.reused_units <"$dir/said")
    ((reused > 500 && stored < 48 << 20)) || fail "stored again: $stored bytes, and $reused units were used"
    note "a repeated capture stored $stored of $((96 << 20)) bytes"
fi
rm -f "$dir/again"
onefold image export --quiet "$dir/killed" noise "$dir/again"
cmp "$dir/again" "$dir/noise.raw"
ends 0 onefold archive check --data --quiet "$dir/killed"
