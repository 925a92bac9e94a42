# libvirt sees true sizes of volumes in a pool, and clones them; with --st-blocks mapped it writes and reserves their data only
# limit: 120 s
needs virsh libvirtd setpriv cmp
new_pool 2G
chown 65534:65534 "$mnt"

# An ordinary user's libvirt, which ends when nobody asks it any more.
path=$dir
while [[ $path != / ]]; do
    setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$path" || chmod o+x "$path" || skip "no way to $dir"
    path=$(dirname "$path")
done
# A socket's path is short.
user=$(mktemp --directory)
# The daemon is in no group of this case's.
end_libvirt() {
    [[ ! -e $user/run/libvirt/libvirtd.pid ]] || kill "$(cat "$user/run/libvirt/libvirtd.pid")" || true
    rm -rf "$user"
}
trap end_libvirt EXIT
install -d -m 700 -o 65534 -g 65534 "$user" "$user/run"
libvirt() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_CONFIG_HOME -u XDG_CACHE_HOME \
        HOME="$user" XDG_RUNTIME_DIR="$user/run" timeout 60 virsh --connect qemu:///session "$@"
}
libvirt version >/dev/null || skip 'libvirt does not start here'

# allocation NAME: what libvirt takes for the room of a volume, in MiB.
allocation() {
    libvirt vol-info --bytes --pool disks "$1" | awk '$1 == "Allocation:" { print int($2 / 1048576) }'
}
# An image of 300 MiB of which 96 are data, and an empty one.
truncate -s 300M "$dir/image.raw"
dd if=/dev/urandom of="$dir/image.raw" bs=1M count=96 seek=7 conv=notrunc status=none

# clones_as MAPPED RESERVED: the volumes look as long as said, and so do their clones.
clones_as() {
    cp --sparse=always "$dir/image.raw" "$mnt/image.raw"
    chown 65534:65534 "$mnt/image.raw"
    libvirt pool-define-as disks dir --target "$mnt" >/dev/null
    libvirt pool-start disks >/dev/null
    libvirt vol-create-as disks empty.raw 300M --allocation 0 --format raw >/dev/null
    (($(allocation image.raw) == $1)) || fail "libvirt tells of $(allocation image.raw) MiB, not $1"
    (($(allocation empty.raw) == 0)) || fail "libvirt tells of $(allocation empty.raw) MiB in an empty volume"
    libvirt vol-clone --pool disks image.raw clone.raw >/dev/null
    cmp "$mnt/image.raw" "$mnt/clone.raw"
    (($(allocation clone.raw) == $2)) || fail "libvirt tells of $(allocation clone.raw) MiB in the clone, not $2"
    libvirt vol-delete --pool disks clone.raw >/dev/null
    libvirt vol-delete --pool disks empty.raw >/dev/null
    libvirt pool-destroy disks >/dev/null
    libvirt pool-undefine disks >/dev/null
    rm "$mnt/image.raw"
}
# By default a large image shows its length, so that cp clones it; libvirt reserves all of it for a clone.
clones_as 300 300
mount_flags+=(--st-blocks mapped)
remount_pool
clones_as 96 96
unmount_and_check
