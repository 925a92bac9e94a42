# What xfstests found stays mended, also in a user's own mount: modes after writes, and the space that df tells
# limit: 120 s
needs setpriv fusermount3 unshare dd df fallocate
if [[ -z ${in_namespace-} ]]; then
    # Machines without udev have a /dev/fuse for root alone: here users get one of their own, and nobody else does.
    mknod "$dir/fuse" c 10 229
    chmod 666 "$dir/fuse"
    run_in_namespace
fi
mount --bind "$dir/fuse" /dev/fuse
# A socket's path has 107 bytes at most, and $dir may lie deep. A folder in memory ends with the name space.
mount -t tmpfs -o mode=755 onefold-test-run /run
mkdir -m 700 /run/user
chown 65534:65534 /run/user
let_users_in

# A member of the group of the files below. The user without it owns them, too.
as_member() {
    setpriv --reuid 65534 --regid 65534 --groups 3100 "$@"
}

# new_file FILE GROUP MODE: two blocks of a file of the user.
new_file() {
    as_member dd if=/dev/zero of="$1" bs=4096 count=2 status=none
    as_member chgrp "$2" "$1"
    as_member chmod "$3" "$1"
}

# expect_mode FILE MODE WHAT
expect_mode() {
    local found
    found=$(as_user stat -c %A "$1")
    [[ $found == "$2" ]] || fail "$found, not $2: $3"
}

# generic/355: a program that had seen the mode before saw it unchanged for minutes.
direct_writes_change_the_mode_at_once() {
    local file=$1/direct
    new_file "$file" 65534 6777
    expect_mode "$file" -rwsrwsrwx "before a write"
    as_user dd if=/dev/zero of="$file" bs=4096 count=1 oflag=direct conv=notrunc status=none
    expect_mode "$file" -rwxrwxrwx "after a direct write"
}

# generic/683 to 685, and writes: the bit stayed on a file that its group may not execute.
strangers_to_the_group_take_set_group_id() {
    local file=$1/grouped change
    local changes=(
        "fallocate --length 16384"
        "fallocate --punch-hole --offset 0 --length 4096"
        "fallocate --zero-range --offset 0 --length 4096"
        "dd if=/dev/zero bs=4096 count=1 conv=notrunc status=none of="
        "dd if=/dev/zero bs=4096 count=1 oflag=direct conv=notrunc status=none of="
    )
    for change in "${changes[@]}"; do
        [[ $change == *= ]] || change+=" "
        new_file "$file" 3100 2666
        # shellcheck disable=SC2086 # The words of a command.
        as_member $change"$file"
        expect_mode "$file" -rw-rwSrw- "by a member of the group: $change"
        # shellcheck disable=SC2086
        as_user $change"$file"
        expect_mode "$file" -rw-rw-rw- "by a stranger to the group: $change"
        as_user rm "$file"
    done
}

# available FOLDER: bytes that df tells.
available() {
    as_user df --block-size=1 --output=avail "$1" | tail -n 1 | tr -d ' '
}

# generic/103: df told 0.2 % more than a file can get.
df_tells_what_a_file_gets() {
    local before left
    before=$(available "$1")
    ((before > 64 << 20)) || fail "df tells of $before bytes"
    as_user fallocate --length "$before" "$1/all"
    left=$(available "$1")
    ((left <= before / 1000)) || fail "$left bytes of $before are left"
    as_user rm "$1/all"
}

findings_in() {
    direct_writes_change_the_mode_at_once "$1"
    strangers_to_the_group_take_set_group_id "$1"
    df_tells_what_a_file_gets "$1"
}

new_pool 256M
mkdir "$mnt/folder"
chown 65534:65534 "$mnt/folder"
findings_in "$mnt/folder"
unmount_and_check

own() {
    as_user env XDG_RUNTIME_DIR=/run/user "$ONEFOLD" pool "$@"
}
mkdir "$dir/home" "$dir/home/mnt"
chown -R 65534:65534 "$dir/home"
own create --quiet --size 256M "$dir/home/pool" >/dev/null
own mount --quiet "${mount_flags[@]}" "$dir/home/pool" "$dir/home/mnt"
findings_in "$dir/home/mnt"
own umount "$dir/home/mnt" >/dev/null
own check --quiet "$dir/home/pool"
