# `pool dedup --files` shares equal files of guests first, within a sharing domain, and ends where `pool dedup` ends
# limit: 180 s
needs mke2fs qemu-img setfattr python3
mount_flags+=(--dedup off)

# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

distinct_bytes() {
    onefold pool stat --json "$pool" | number pool.distinct_bytes
}

# filled NAME: a pool of this name that has each image as it was written.
filled() {
    pool=$dir/$1.pool
    new_pool 1G
    mkdir "$mnt/images" "$mnt/tenant" "$mnt/tenant-2"
    setfattr --name user.onefold.domain --value 7 "$mnt/tenant"
    setfattr --name user.onefold.domain --value 8 "$mnt/tenant-2"
    cp --sparse=always "$dir"/made/* "$mnt/images"
    cp --sparse=always "$dir/made/1.raw" "$mnt/tenant/one.raw"
    cp --sparse=always "$dir/made/2.raw" "$mnt/tenant-2/two.raw"
    unmount_pool
}

# whole: each image of the pool has the bytes that were written.
whole() {
    mount_pool
    (cd "$mnt" && sha256sum --quiet --check "$dir/sums") || fail "an image changed"
    [[ ! -e $mnt/.onefold && ! -e $mnt/tenant/.onefold ]] || fail "records were left in the pool"
    unmount_and_check --data
}

mkdir "$dir/made"
guest "$dir/made/1.raw" 1
guest "$dir/made/2.raw" 2
guest "$dir/made/liar.raw" 3 --lie
guest "$dir/4.raw" 4
qemu-img convert -O qcow2 "$dir/4.raw" "$dir/made/4.qcow2"
{
    (cd "$dir/made" && sha256sum ./*) | sed 's|\./|images/|'
    (cd "$dir/made" && sha256sum 1.raw) | sed 's|1.raw|tenant/one.raw|'
    (cd "$dir/made" && sha256sum 2.raw) | sed 's|2.raw|tenant-2/two.raw|'
} >"$dir/sums"

# Killed at any moment, every byte stays as it was. The next run waits for ten seconds, as another host might have the pool.
filled files
ended_before 0.3 "$ONEFOLD" pool dedup --files --quiet "$pool" || true
check_pool
filled_again=$(distinct_bytes)
"$ONEFOLD" pool dedup --files --json --quiet "$pool" >"$dir/files" &
worker=$!

filled plain
before=$(distinct_bytes)
onefold pool dedup --json --quiet "$pool" >"$dir/plain"
[[ $(member by_files <"$dir/plain") == null ]] || fail "files"
plain=$(distinct_bytes)

wait "$worker" || fail "the run after a kill ended with code $?"
pool=$dir/files.pool
after=$(distinct_bytes)
note "$((before >> 10)) KiB were stored; $((plain >> 10)) KiB by content, $((after >> 10)) KiB by files and content"
((filled_again <= before && after == plain)) || fail "$after bytes are stored, $plain by content alone"
# Of the domain of the root, three guests are read; each tenant's is alone in its domain.
(($(number by_files.images_with_packages <"$dir/files") == 5)) || fail "$(cat "$dir/files")"
shared=$(number by_files.now_bytes <"$dir/files") again=$(number by_files.before_bytes <"$dir/files")
((shared + again > 3 << 20)) || fail "files share $shared and $again bytes"
# The liar's digests cost comparisons, and are no damage.
(($(number by_files.differed_bytes <"$dir/files") > 0 && $(number differed_bytes <"$dir/files") == 0)) || fail "$(cat "$dir/files")"
grep -q '"path":"images/4.qcow2"' <(tr -d ' ' <"$dir/files") || fail "the qcow2 image is not named: $(cat "$dir/files")"
# Blocks that share by files are read once.
(($(number read_bytes <"$dir/files") < $(number read_bytes <"$dir/plain"))) || fail "everything was read"
whole

# A second run shares nothing more, and says so.
onefold pool dedup --files "$pool" >"$dir/out"
grep -q 'shared by files of guests  *0 B' "$dir/out" || fail "$(cat "$dir/out")"
# shellcheck disable=SC2016
grep -qF '`images/4.qcow2` is shared by content only' "$dir/out" || fail "$(cat "$dir/out")"
((after == $(distinct_bytes))) || fail "a second run changed what is stored"
whole
