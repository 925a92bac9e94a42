# rsync keeps links, ACLs, attributes, holes and times, finds nothing to do a second time, and updates in place
needs rsync setfacl setfattr
new_pool 2G
source=$dir/source
mkdir "$source"
rsync -a --exclude target "$repo/crates" "$repo/docs" "$source/"
make_image "$source/image.raw" 48 3
ln "$source/image.raw" "$source/hard-link.raw"
ln -s docs/guide "$source/symbolic-link"
mkfifo "$source/pipe"
mknod "$source/null" c 1 3
touch -d '2001-02-03 04:05:06.123456789' "$source/old"
chown 1234:5678 "$source/old"
chmod 4750 "$source/old"
setfacl -m u:1234:rwx,g:5678:r "$source/docs"
setfacl -d -m u:1234:rx "$source/docs"
setfattr -n user.origin -v 'a text' "$source/old"

copy() {
    rsync -aHAX --numeric-ids "$@" "$source/" "$mnt/copy/"
}

copy --sparse
[[ -z $(copy --checksum --itemize-changes) ]] || fail "a second run finds differences"
diff -r --no-dereference --exclude pipe --exclude null "$source" "$mnt/copy"
[[ $(stat -c '%y %u %g %a' "$source/old") == "$(stat -c '%y %u %g %a' "$mnt/copy/old")" ]]
[[ $(stat -c '%h' "$mnt/copy/image.raw") == 2 ]]

# A change in the middle, written in place. rsync looks at whole seconds of the time only: on a fast machine the change
# would fall into the second in which the file was made.
printf 'changed' | dd of="$source/image.raw" bs=1 seek=20000001 conv=notrunc status=none
touch -d '2030-01-02 03:04:05' "$source/image.raw"
copy --inplace --no-whole-file
cmp "$source/image.raw" "$mnt/copy/hard-link.raw"

remount_pool
[[ -z $(copy --checksum --itemize-changes) ]] || fail "a remount changed something"
unmount_and_check --data
