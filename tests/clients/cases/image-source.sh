# An archived image is read like a file: imported, captured, analysed, and its files listed and compared
# limit: 120 s
needs mke2fs setpriv python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
let_users_in
archive=$dir/archive

guest "$dir/web.raw" 1
guest "$dir/other.raw" 2
onefold archive create "$archive"
onefold image capture --quiet "$archive" "$dir/web.raw" web
onefold image capture --quiet "$archive" "$dir/other.raw" web
onefold image capture --quiet "$archive" "$dir/other.raw" debian/other
onefold image export --quiet "$archive" web@1 "$dir/web.export"

# In a pool it is what an export is.
create_pool 256M
onefold pool import --quiet --json "$pool" "$archive#web@1" "$archive#debian/other" >"$dir/imported"
grep -q '"format": *"archive"' "$dir/imported" || fail "$(<"$dir/imported")"
onefold pool export --quiet "$pool" web.raw "$dir/back.raw"
cmp "$dir/back.raw" "$dir/web.export"
onefold pool ls "$pool" | grep -q 'other.raw' || fail "$(onefold pool ls "$pool")"

# Its files are those of the captured disk.
for image in "$dir/web.raw" "$archive#web@1"; do
    onefold guest cat "$image" /var/lib/dpkg/status
    onefold guest ls -lR "$image" /etc
    onefold guest packages "$image"
    onefold guest tar "$image" /usr | sha256sum
done >"$dir/both"
lines=$(wc -l <"$dir/both")
cmp <(head -n $((lines / 2)) "$dir/both") <(tail -n $((lines / 2)) "$dir/both")
onefold guest info "$archive#web@1" | grep -q 'archive' || fail "$(onefold guest info "$archive#web@1")"
onefold guest diff "$dir/web.raw" "$dir/other.raw" >"$dir/differences" || true
onefold guest diff "$archive#web@1" "$archive#web" >"$dir/archived"
cmp "$dir/differences" "$dir/archived"
[[ -s $dir/archived ]] || fail "two guests do not differ"
onefold guest df --json "$archive" >"$dir/df"
grep -q '#debian/other' "$dir/df" && grep -q '#web' "$dir/df" || fail "$(<"$dir/df")"

# An analysis of archived images has the figures of their exports.
onefold image export --quiet "$archive" debian/other "$dir/other.export"
onefold analyze --quiet --json "$dir/web.export" "$dir/other.export" >"$dir/files.json"
onefold analyze --quiet --json "$archive#web@1" "$archive#debian/other" >"$dir/archived.json"
python3 - "$dir/files.json" "$dir/archived.json" <<'PYTHON'
import json, sys

def sizes(path):
    analysis = json.load(open(path))
    assert len(analysis["images"]) == 2, analysis["images"]
    return analysis["block_sizes"]

files, archived = map(sizes, sys.argv[1:])
assert files == archived, (files, archived)
PYTHON
onefold analyze --quiet "$archive" >/dev/null

# Into another archive, one by one or all newest versions at once.
onefold archive create "$dir/copy"
onefold image capture --quiet "$dir/copy" "$archive#web@1"
onefold image export --quiet "$dir/copy" web - | cmp - "$dir/web.export"
onefold image capture --quiet "$dir/copy" --each "$archive"
onefold image list "$dir/copy" >"$dir/list"
grep -q '^web@2 ' "$dir/list" && grep -q '^debian/other@1 ' "$dir/list" || fail "$(<"$dir/list")"

# A file of that name wins, and the message names both readings where there is neither.
cp "$dir/other.raw" "$dir/archive#web"
onefold guest cat "$archive#web" /etc/hostname | cmp - <(onefold guest cat "$dir/other.raw" /etc/hostname)
rm "$dir/archive#web"
refused 1 'there is no file' onefold guest cat "$archive#wbe" /etc/hostname
refused 1 'no image `wbe` in the archive' onefold guest cat "$archive#wbe" /etc/hostname
refused 1 'hint: there is `web`' onefold guest cat "$archive#wbe" /etc/hostname
refused 1 'newest version of that name is web@2' onefold pool import "$pool" "$archive#web@3" --to third.raw
refused 1 'hint: check the path' onefold guest ls "$dir/none#web"
refused 1 'archive#NAME' onefold guest ls "$archive"

# An ordinary user reads an archive of that user, and no other.
mkdir "$dir/user"
chown 65534:65534 "$dir/user"
cp -a "$archive" "$dir/user/archive"
chown -R 65534:65534 "$dir/user/archive"
as_user "$ONEFOLD" guest cat "$dir/user/archive#web@1" /etc/hostname >/dev/null
refused 1 'Permission denied' as_user "$ONEFOLD" guest cat "$archive#web@1" /etc/hostname

# Damage has its own exit code, whichever verb meets it.
find "$archive/packs" -type f -exec truncate -s 100 {} +
refused 3 'archive check' onefold guest cat "$archive#web@1" /etc/hostname
refused 3 'archive check' onefold pool import "$pool" "$archive#web@1" --to lost.raw
refused 3 'archive check' onefold image capture "$dir/copy" "$archive#web@1" lost
find "$archive/manifests" -type f -exec truncate -s 100 {} +
refused 3 'archive check' onefold guest cat "$archive#web@1" /etc/hostname
refused 3 'manifest' onefold analyze "$archive#web@1"
onefold archive check --quiet "$dir/copy"
check_pool
