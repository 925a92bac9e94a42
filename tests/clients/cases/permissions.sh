# Hundreds of calls by three users come out as permission bits, ownership, sticky and set-group-id directories say
new_pool 512M
chmod 755 "$dir" "$mnt"
python3 "$tools/who_may.py" "$mnt"

# A default ACL gives what is made below it its entries, and the mode that was asked for bounds them.
needs setfacl getfacl setfattr getfattr
cd "$mnt"
mkdir inherited
setfacl -m 'd:u::rwx,d:u:3001:rwx,d:g::r-x,d:m::rwx,d:o::---' inherited
as_bob() {
    setpriv --reuid=3002 --regid=3002 --clear-groups "$@"
}
chmod 777 inherited
# The umask has no say here; the group bits that were asked for become the mask.
as_bob sh -c 'umask 077; : >inherited/file; mkdir -p inherited/one/two; umask 0; mkfifo -m 640 inherited/fifo'
expect_acl() {
    local wanted=$2 found
    found=$(getfacl --numeric --omit-header --access "$1" | sed 's/[[:space:]]*#.*//' | paste -sd,)
    [[ $found == "$wanted"* ]] || fail "$1 has the ACL $found, not $wanted"
}
expect_acl inherited/file user::rw-,user:3001:rwx,group::r-x,mask::rw-,other::---
expect_acl inherited/fifo user::rw-,user:3001:rwx,group::r-x,mask::r--,other::---
expect_acl inherited/one/two user::rwx,user:3001:rwx,group::r-x,mask::rwx,other::---
getfacl --numeric --omit-header --default inherited/one/two | grep -qx 'user:3001:rwx'
[[ $(stat -c %a inherited/file) == 660 ]] || fail "the group bits of $(stat -c %a inherited/file) are not the mask"
# chmod of the group bits changes the mask, and with it what the named user may.
setpriv --reuid=3001 --regid=3001 --clear-groups sh -c ': >>inherited/file'
chmod 600 inherited/file
fails_with 'Permission denied' setpriv --reuid=3001 --regid=3001 --clear-groups sh -c ': >>inherited/file'
# A user who is not in the file's group can't keep its set-group-id bit with an ACL.
as_bob sh -c ': >bobs' 2>/dev/null || { : >bobs && chown 3002:3002 bobs; }
chown 3002:3100 bobs
chmod 2770 bobs
as_bob setfacl -m u:3001:r bobs
[[ $(stat -c %a bobs) == 770 ]] || fail "set-group-id was kept: $(stat -c %a bobs)"
# The kernel checks no permission for names that begin with `system.`: the pool has the two of ACLs and refuses others.
for user in env as_bob; do
    fails_with 'Operation not supported' $user setfattr -n system.foo -v planted inherited/file
    fails_with 'Operation not supported' $user getfattr -n system.foo inherited/file
done
value_of() {
    as_bob getfattr -e hex -n "system.posix_acl_$1" "$2" | sed -n 's/^system[^=]*=//p'
}
setfattr -n system.posix_acl_default -v "$(value_of default inherited)" inherited/one
fails_with 'Operation not permitted' as_bob setfattr -n system.posix_acl_access -v "$(value_of access bobs)" inherited
: >by-name
setfattr -n system.posix_acl_access -v "$(value_of access bobs)" by-name
expect_acl by-name user::rwx,user:3001:r--
cd "$dir"
remount_pool
expect_acl "$mnt/inherited/fifo" user::rw-,user:3001:rwx,group::r-x,mask::r--,other::---
unmount_and_check
