# The guide's commands for guests and archives run as they stand there, as root and as an ordinary user
# limit: 120 s
needs setpriv unshare losetup mke2fs debugfs sfdisk qemu-img blkdiscard python3
[[ -n ${in_namespace-} ]] || run_in_namespace
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
# shellcheck source=../guide.sh
source "$repo/tests/clients/guide.sh"
private_host

# partitioned IMAGE FOLDER: a disk as Debian makes it for clouds, with the tree in its first partition.
partitioned() {
    debian_image "$dir/partition" "$2" 128M
    truncate -s 136M "$1"
    printf 'label: gpt\n14: start=2048,size=6144,type=U\n1: start=8192,size=262144,type=L\n' | sfdisk --quiet "$1"
    dd if="$dir/partition" of="$1" bs=1M seek=4 conv=notrunc,sparse status=none
    # No file system: its BIOS boot partition holds a boot loader.
    printf 'GRUB' | dd of="$1" bs=1M seek=1 conv=notrunc status=none
}

# renamed FOLDER OLD NEW VERSION ARCHITECTURE: a package of the tree gets another name.
renamed() {
    local info=$1/var/lib/dpkg/info
    mv "$info/$2.list" "$info/$3.list"
    mv "$info/$2.md5sums" "$info/$3.md5sums"
    sed -i "/^Package: $2\$/,/^\$/ { s/^Architecture: .*/Architecture: $5/
        s/^Package: .*/Package: $3/; s/^Version: .*/Version: $4/ }" "$1/var/lib/dpkg/status"
}

# shown_tree FOLDER SEED: what the page shows of its images: a kernel, large files of no package, gzip, settings.
shown_tree() {
    debian_tree "$1" "$2"
    renamed "$1" tool-2 gzip 1.12-1 amd64
    renamed "$1" tool-3 libssl3 3.0.15-1 amd64
    mkdir -p "$1/boot/grub" "$1/usr/lib/udev"
    printf 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n' >"$1/etc/os-release"
    printf '/dev/sda1 / ext4 defaults 0 %d\n' "$2" >"$1/etc/fstab"
    head -c 11M /dev/urandom >"$1/boot/initrd.img-6.1.0-56-cloud-amd64"
    head -c 11M /dev/urandom >"$1/usr/lib/udev/hwdb.bin"
    printf 'debian-bookworm-web\n' >"$1/etc/hostname"
    # The first bytes of a program for x86_64.
    printf '\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01%044d' 0 >"$1/usr/bin/sh"
    printf 'kernel' >"$1/boot/vmlinuz-6.1.0-56-cloud-amd64"
    head -c 98136 /dev/urandom >"$1/usr/bin/gzip"
    ln -s usr/bin "$1/bin"
}

shown_tree "$dir/web" 1
cp -a "$dir/web" "$dir/base"
renamed "$dir/base" tool-1 bash-completion 1:2.11-6 all
rm "$dir"/web/var/lib/dpkg/info/tool-1.*
sed -i '/^Package: tool-1$/,/^$/d' "$dir/web/var/lib/dpkg/status"
sed -i 's/defaults/errors=r/' "$dir/web/etc/fstab"
# mke2fs keeps whole seconds. A file of the same length, time and place passes for the same one without being read.
touch -d '2026-01-02 03:04:05' "$dir/web/etc/fstab"
partitioned "$dir/web.raw" "$dir/web"
partitioned "$dir/base.raw" "$dir/base"
attach_disk vdc 256M
attach_disk vg/disk1 16M

# What a reader of these pages has: a folder of images, and a pool. The ordinary user owns the paths that are given.
lay_out() {
    cd "$dir"
    rm -rf /srv/*
    mkdir /srv/vm
    cp --sparse=always "$dir/web.raw" /srv/web.raw
    cp --sparse=always "$dir/web.raw" /srv/debian-12-web.raw
    cp --sparse=always "$dir/base.raw" /srv/debian-12-base.raw
    cp --sparse=always "$dir/web.raw" "$dir/base.raw" /srv/vm
    qemu-img convert -O qcow2 /srv/debian-12-web.raw /srv/web.qcow2
    qemu-img convert -O qcow2 /srv/debian-12-base.raw /srv/db.qcow2
    onefold pool create --quiet --size 512M /srv/images.pool >/dev/null
    chmod 755 /srv
    give_user "$@"
    cd /srv
}

lay_out
follow docs/guide/analyze.md
follow docs/guide/guest.md
follow docs/guide/archives.md
# What the pages have made as root: keys that count for all users, and an installed disk.
rm -r /etc/onefold
blkdiscard --zeroout /dev/vdc
lay_out /srv
follow docs/guide/analyze.md as_guide_user
follow docs/guide/guest.md as_guide_user
follow docs/guide/archives.md as_guide_user
