# Objects of an archive that were cut, flipped, exchanged or taken away: damage is named, and no wrong byte is written
# limit: 120 s
needs mke2fs python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

guest "$dir/web.raw" 1
guest "$dir/db.raw" 2
onefold archive create "$dir/whole"
onefold image capture --quiet "$dir/whole" "$dir/web.raw" web
onefold image capture --quiet "$dir/whole" "$dir/db.raw" db
onefold image export --quiet "$dir/whole" web "$dir/web.export"
size=$(stat --format=%s "$dir/web.raw")
head -c "$size" /dev/urandom >"$dir/noise"
mapfile -t objects < <(cd "$dir/whole" && find . -type f -size +0 | sort)
((${#objects[@]} >= 8)) || fail "only ${#objects[@]} objects: ${objects[*]}"

# harm HOW OBJECT: does it to the copy of an archive.
harm() {
    python3 - "$1" "$dir/copy" "$2" <<'PYTHON'
import os, random, sys

how, archive, name = sys.argv[1:]
path = os.path.normpath(os.path.join(archive, name))
random.seed(how + name)
content = bytearray(open(path, "rb").read())
if how == "cut":
    content = content[: random.randrange(len(content))]
elif how == "flipped":
    for _ in range(8):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
elif how == "longer":
    content += b"x"
elif how == "exchanged":
    others = [os.path.join(folder, file) for folder, _, files in os.walk(archive) for file in files]
    content = bytearray(open(random.choice([other for other in sorted(others) if other != path]), "rb").read())
os.chmod(path, 0o600)
if how == "gone":
    os.unlink(path)
else:
    open(path, "wb").write(content)
PYTHON
}

found=0 survived=0
for object in "${objects[@]}"; do
    for how in cut flipped longer exchanged gone; do
        rm -rf "$dir/copy"
        cp -a "$dir/whole" "$dir/copy"
        harm "$how" "$object"
        # A check names the damage. The last entry of a ledger may be gone without a trace: nothing names it.
        status=0
        onefold archive check --data --quiet "$dir/copy" >"$dir/said" 2>&1 || status=$?
        case $status in
            0) [[ $how == gone && $object == ./ledger/* ]] || fail "$object was $how, and a check finds nothing: $(<"$dir/said")" ;;
            3) found=$((found + 1)) ;;
            1) [[ $how == gone ]] || fail "$object was $how, and a check ends with 1: $(<"$dir/said")" ;;
            *) fail "$object was $how, and a check ends with $status: $(<"$dir/said")" ;;
        esac
        # An export is the captured disk, or there is none.
        status=0
        rm -f "$dir/export"
        onefold image export --quiet "$dir/copy" web@1 "$dir/export" >"$dir/said" 2>&1 || status=$?
        case $status in
            0) cmp "$dir/export" "$dir/web.export" && survived=$((survived + 1)) ;;
            1 | 3) [[ ! -e $dir/export ]] && grep -q 'error: ' "$dir/said" || fail "$object was $how: $(<"$dir/said")" ;;
            *) fail "$object was $how, and an export ends with $status: $(<"$dir/said")" ;;
        esac
    done
    # Each sector of a target is the captured one, zero, or what was there.
    rm -rf "$dir/copy"
    cp -a "$dir/whole" "$dir/copy"
    harm flipped "$object"
    cp "$dir/noise" "$dir/target"
    onefold image install --quiet --force "$dir/copy" web@1 "$dir/target" >"$dir/said" 2>&1 || true
    python3 - "$dir/target" "$dir/web.export" "$dir/noise" <<'PYTHON' || fail "$object: a wrong byte was written"
import sys

target, captured, noise = (open(path, "rb").read() for path in sys.argv[1:])
for at in range(0, len(target), 512):
    sector = target[at : at + 512]
    assert sector in (captured[at : at + 512], noise[at : at + 512], bytes(512)), at
PYTHON
done
note "checks found damage $found times, and $survived exports had no need of the damaged object"
