# POSIX odds: unlinked and replaced files, links, special files, holes, fallocate, limits, times, ACLs
needs setfacl getfacl fallocate
new_pool 2G
python3 "$tools/posix.py" "$mnt"

# ACLs: kept, inherited from the directory's default, and obeyed.
cd "$mnt"
mkdir shared
setfacl -m u:1234:rwx -d -m u:1234:rwx,o::- shared
touch shared/file
mkdir shared/below
getfacl -cn shared/file | tee "$dir/acl"
grep -qx 'user:1234:rwx.*#effective:rw-' "$dir/acl"
grep -qx 'other::---' "$dir/acl"
getfacl -cn shared/below | grep -qx 'default:user:1234:rwx'
chmod 755 .
setpriv --reuid=1234 --regid=1234 --clear-groups sh -c 'echo mine >shared/file && echo mine >shared/new'
fails_with 'Permission denied' setpriv --reuid=1235 --regid=1235 --clear-groups cat shared/file
chmod g-w shared/file
fails_with 'Permission denied' setpriv --reuid=1234 --regid=1234 --clear-groups sh -c 'echo again >shared/file'
setfacl -b shared/file
[[ -z $(getfacl -sc shared/file) ]]

# What fallocate(1) does.
make_image "$dir/image" 8 1
cp "$dir/image" image
for flags in '-p -o 8192 -l 1000000' '-z -o 3000001 -l 70000' '-n -l 20000000'; do
    # shellcheck disable=SC2086
    fallocate $flags image && fallocate $flags "$dir/image"
done
cmp image "$dir/image"

# df adds up, and a file that is stored once more takes nothing.
read -r size used free < <(df --block-size=1 --output=size,used,avail . | tail -n 1)
((size > 1900 << 20 && used + free <= size && free > 1500 << 20)) || fail "df: $size $used $free"
cd "$dir"

remount_pool
cmp "$mnt/image" "$dir/image"
getfacl -cn "$mnt/shared/below" | grep -qx 'default:user:1234:rwx'
unmount_and_check --data
