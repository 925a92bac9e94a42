# A user's own `share run` charges each shared block once more to that user's XFS quota, and little else; root's run charges nothing
# limit: 180 s
needs mkfs.xfs xfs_quota losetup setpriv python3
readonly user=65534
as_user() {
    setpriv --reuid $user --regid $user --clear-groups "$@"
}

# The user reaches the file system and the binary.
path=$dir
while [[ $path != / ]]; do
    as_user test -x "$path" || chmod o+x "$path" || skip "no way to $dir"
    path=$(dirname "$path")
done
if ! as_user test -x "$ONEFOLD"; then
    cp "$ONEFOLD" "$dir/onefold"
    ONEFOLD=$dir/onefold
fi

truncate -s 1G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
fs=$dir/xfs
mkdir "$fs"
mount -t xfs -o uquota "$loop" "$fs" || skip "this kernel counts no quotas of XFS"
chown $user "$fs"

# KiB that are charged to the user.
charged_kib() {
    sync -f "$fs"
    xfs_quota -x -c 'report -u -b -n -N' "$fs" | awk -v user="#$user" '$1 == user { print $2; found = 1 } END { if (!found) print 0 }'
}

free_kib() {
    sync -f "$fs"
    df --block-size=1K --output=avail "$fs" | tail -n 1
}

# Makes the images anew: 160 MiB in three, two of which are equal.
readonly equal_kib=$((64 << 10)) other_kib=$((32 << 10))
make_images() {
    rm -rf "$fs"/images "$fs"/.onefold*
    mkdir "$fs/images"
    head -c "${equal_kib}K" /dev/urandom >"$fs/images/one.raw"
    cp --reflink=never "$fs/images/one.raw" "$fs/images/two.raw"
    head -c "${other_kib}K" /dev/urandom >"$fs/images/other.raw"
    chown -R $user "$fs/images"
    sync -f "$fs"
    # A file that has just been written is no candidate.
    sleep 0.1
}

# runs_as COMMAND...: has it share, and sets $more_kib to what the user is charged more after that, and $freed_kib.
runs_as() {
    local before free
    make_images
    before=$(charged_kib)
    free=$(free_kib)
    ((before >= 2 * equal_kib + other_kib)) || fail "only $before KiB are charged for the images"
    "$@" share run --quiet "$fs/images" >/dev/null
    more_kib=$(($(charged_kib) - before))
    freed_kib=$(($(free_kib) - free))
}

runs_as as_user "$ONEFOLD"
note "a user's own run: $((equal_kib >> 10)) MiB became shared, $more_kib KiB more are charged, $freed_kib KiB came free"
# The arena's blocks, and the records of sharing: the claim of docs/guide/permissions.md.
((more_kib >= equal_kib && more_kib <= equal_kib * 105 / 100)) ||
    fail "$more_kib KiB more are charged to the user for $equal_kib KiB that became shared"
((freed_kib >= equal_kib * 95 / 100)) || fail "$freed_kib KiB came free of $equal_kib"

runs_as "$ONEFOLD"
note "root's run: $more_kib KiB more are charged to the user, $freed_kib KiB came free"
((more_kib == 0)) || fail "root's run charges the user $more_kib KiB"
((freed_kib >= equal_kib * 95 / 100)) || fail "$freed_kib KiB came free of $equal_kib by root's run"
umount "$fs"
losetup --detach "$loop"
