#!/bin/bash
# Builds one bootable Debian disk image: build-image.sh [options] IMAGE
#
#   --release NAME      Debian release (bookworm, trixie)
#   --packages SET      package set, a file in packages/
#   --bytes N           exact length of the raw image
#   --seed TEXT         decides the image's UUIDs, so that a set can be built again
#
# The image is shaped as Debian's own cloud images are: GPT, a BIOS boot partition
# with GRUB, an ext4 root with mke2fs's defaults, a console on the first serial port.
# Each is bootstrapped from packages by itself; none is made from another one.
#
# No partition is ever mounted: mke2fs fills the root from a folder and GRUB's two
# boot images are written to their fixed places, so there is nothing to leave behind.
# IMAGE appears under its name when it is whole, never before.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=apt-sources.sh
source "$here/apt-sources.sh"

readonly SECTOR_BYTES=512
# Partitions as Debian's cloud images number them: 1 is the root, 14 boots BIOSes.
readonly BOOT_FIRST_SECTOR=2048
readonly BOOT_SECTORS=6144
readonly ROOT_FIRST_SECTOR=8192
# The backup GPT (33 sectors) lies behind the root; one more MiB keeps it aligned.
readonly TAIL_SECTORS=2048

readonly TYPE_BIOS_BOOT=21686148-6449-6E6F-744E-656564454649
readonly TYPE_LINUX_ROOT_X86_64=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709

release='' packages='' bytes='' seed='' image=''

parse_arguments() {
    while (($# > 0)); do
        case $1 in
        --release) release=${2-}; shift 2 ;;
        --packages) packages=${2-}; shift 2 ;;
        --bytes) bytes=${2-}; shift 2 ;;
        --seed) seed=${2-}; shift 2 ;;
        -*) die_usage "unknown option \`$1\`" "see the head of $0" ;;
        *) image=$1; shift ;;
        esac
    done
    [[ -n $release && -n $packages && -n $seed && -n $image && $bytes =~ ^[0-9]+$ ]] ||
        die_usage 'an option is missing' "see the head of $0"
    [[ -f $here/packages/$packages.txt ]] ||
        die_usage "there is no package set \`$packages\`" "the sets are the files in $here/packages"
    ((bytes % (1 << 20) == 0 && bytes >= 1 << 30)) ||
        die_usage "an image of $bytes bytes is not possible" 'give whole MiB, at least 1 GiB'
}

# A UUID that depends on the seed, the image's kind and the purpose alone.
seeded_uuid() {
    local digest
    digest=$(printf '%s/%s/%s/%s' "$seed" "$release" "$packages" "$1" | sha256sum)
    printf '%s-%s-4%s-a%s-%s\n' "${digest:0:8}" "${digest:8:4}" "${digest:13:3}" \
        "${digest:17:3}" "${digest:20:12}"
}

# The names in the common and the chosen package set, separated by commas.
package_list() {
    sed -e 's/#.*//' -e '/^ *$/d' "$here/packages/common.txt" "$here/packages/$packages.txt" |
        paste -sd,
}

bootstrap() {
    local root=$1 options
    options=$work/apt.conf
    apt_transport_options >"$options"
    # In a mount namespace of its own, so that no mount outlives mmdebstrap, however
    # it ends. The hook takes back options that were meant for this machine only; its
    # $1 is the root, as mmdebstrap calls it.
    # shellcheck disable=SC2016
    apt_sources "$release" | unshare --mount mmdebstrap --mode=root --variant=important \
        --format=directory --architectures=amd64 --keyring="$DEBIAN_KEYRING" \
        --include="$(package_list)" --aptopt="$options" --dpkgopt=force-unsafe-io \
        --customize-hook='rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"' "$release" "$root" -
    rm -f "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
}

# Gives the fresh root its name, its network, its services and its boot menu.
configure() {
    local root=$1 root_uuid=$2 hostname
    hostname=debian-$release-$packages
    printf '%s\n' "$hostname" >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost\n' "$hostname" \
        >"$root/etc/hosts"
    # The resolver that QEMU's user network offers.
    printf 'nameserver 10.0.2.3\n' >"$root/etc/resolv.conf"
    printf 'UUID=%s / ext4 rw,discard,errors=remount-ro 0 1\n' "$root_uuid" >"$root/etc/fstab"
    # An empty machine-id is filled in at the first boot, as on any cloud image.
    : >"$root/etc/machine-id"

    install -m 644 "$here/guest/80-dhcp.network" "$root/etc/systemd/network/"
    install -m 644 "$here/guest/onefold-guest-up.service" "$root/etc/systemd/system/"
    systemctl_in "$root" enable onefold-guest-up.service systemd-networkd.service
    # A guest under emulation spends its minutes on these, and nobody waits for them.
    systemctl_in "$root" mask systemd-networkd-wait-online.service networking.service \
        apt-daily.timer apt-daily-upgrade.timer man-db.timer e2scrub_reap.service \
        dpkg-db-backup.timer fstrim.timer

    install_boot_menu "$root" "$root_uuid"
}

systemctl_in() {
    local root=$1
    shift
    SYSTEMD_OFFLINE=1 chroot "$root" systemctl --quiet "$@"
}

# Writes what GRUB reads from the root: its modules and a menu without a pause.
install_boot_menu() {
    local root=$1 root_uuid=$2 kernel version
    kernel=$(cd "$root/boot" && printf '%s\n' vmlinuz-* | sort --version-sort | tail -n 1)
    version=${kernel#vmlinuz-}
    [[ -f $root/boot/$kernel && -f $root/boot/initrd.img-$version ]] ||
        die "cannot make $image bootable" "no kernel with an initramfs in its /boot"
    mkdir -p "$root/boot/grub/i386-pc"
    cp "$root"/usr/lib/grub/i386-pc/*.{mod,lst} "$root/boot/grub/i386-pc/"
    cat >"$root/boot/grub/grub.cfg" <<MENU
set timeout=0
serial --unit=0 --speed=115200
terminal_input serial console
terminal_output serial console
menuentry 'Debian GNU/Linux' {
    search --no-floppy --fs-uuid --set=root $root_uuid
    linux /boot/$kernel root=UUID=$root_uuid ro console=tty0 console=ttyS0,115200
    initrd /boot/initrd.img-$version
}
MENU
}

write_partition_table() {
    local target=$1 root_sectors=$2
    # The names before the colons only tell sfdisk the partitions' numbers.
    sfdisk --quiet "$target" <<TABLE
label: gpt
label-id: $(seeded_uuid disk)
unit: sectors
sector-size: $SECTOR_BYTES
disk1 : start=$ROOT_FIRST_SECTOR, size=$root_sectors, type=$TYPE_LINUX_ROOT_X86_64, uuid=$(seeded_uuid root-partition)
disk14 : start=$BOOT_FIRST_SECTOR, size=$BOOT_SECTORS, type=$TYPE_BIOS_BOOT, uuid=$(seeded_uuid boot-partition)
TABLE
}

# Prints an integer as little-endian bytes: little_endian VALUE COUNT.
little_endian() {
    local value=$1 count=$2
    while ((count-- > 0)); do
        # The inner printf makes the escape that the outer one turns into a byte.
        # shellcheck disable=SC2059
        printf "\\x$(printf '%02x' $((value & 255)))"
        value=$((value >> 8))
    done
}

# write_at FILE OFFSET: puts stdin into FILE without shortening it.
write_at() {
    dd of="$1" bs=65536 seek="$2" oflag=seek_bytes conv=notrunc status=none
}

# Writes GRUB where a BIOS finds it, as grub-bios-setup does, but without a device.
#
# boot.img is the first sector: it loads the one sector whose number stands at 0x5c.
# That one is the head of core.img, whose last twelve bytes say where the rest lies
# (first sector 8 bytes, count 2, segment 2); the count is already right.
install_boot_loader() {
    local root=$1 target=$2
    local boot=$work/boot.img core=$work/core.img core_bytes
    cp "$root/usr/lib/grub/i386-pc/boot.img" "$boot"
    chroot "$root" grub-mkimage --format=i386-pc --prefix='(hd0,gpt1)/boot/grub' \
        biosdisk part_gpt ext2 search_fs_uuid >"$core"
    core_bytes=$(stat --format=%s "$core")
    ((core_bytes > SECTOR_BYTES && core_bytes <= BOOT_SECTORS * SECTOR_BYTES)) ||
        die "cannot make $image bootable" "GRUB's core of $core_bytes bytes does not fit into its partition"

    little_endian "$BOOT_FIRST_SECTOR" 8 | write_at "$boot" $((0x5c))
    # Two NOPs: believe the BIOS about the drive, as for every hard disk.
    printf '\x90\x90' | write_at "$boot" $((0x66))
    little_endian $((BOOT_FIRST_SECTOR + 1)) 8 | write_at "$core" $((SECTOR_BYTES - 12))

    # From byte 440 on, the first sector belongs to the partition table.
    head --bytes=440 "$boot" | write_at "$target" 0
    write_at "$target" $((BOOT_FIRST_SECTOR * SECTOR_BYTES)) <"$core"
}

assemble() {
    local root=$1 root_uuid=$2 target=$3
    local sectors root_sectors
    sectors=$((bytes / SECTOR_BYTES))
    root_sectors=$((sectors - ROOT_FIRST_SECTOR - TAIL_SECTORS))
    truncate --size="$bytes" "$target"
    write_partition_table "$target" "$root_sectors"
    mke2fs -q -F -t ext4 -U "$root_uuid" -E "offset=$((ROOT_FIRST_SECTOR * SECTOR_BYTES)),hash_seed=$(seeded_uuid hash)" \
        -d "$root" "$target" "$((root_sectors * SECTOR_BYTES / 1024))k"
    install_boot_loader "$root" "$target"
    fallocate --dig-holes "$target"
}

# Refuses an image whose parts do not stand where they should.
verify() {
    local target=$1
    (($(stat --format=%s "$target") == bytes)) ||
        die "the image $target has a wrong length" "it is not $bytes bytes long"
    sfdisk --quiet --verify "$target" >&2
    # e2fsck reads a file system from the middle of a file when told so.
    e2fsck -fn "$target?offset=$((ROOT_FIRST_SECTOR * SECTOR_BYTES))" >&2
}

build() {
    local root=$work/root root_uuid
    root_uuid=$(seeded_uuid root)
    say "installing Debian $release with the packages of \`$packages\`"
    bootstrap "$root"
    configure "$root" "$root_uuid"
    say 'writing partitions, file system and boot loader'
    assemble "$root" "$root_uuid" "$work/image.raw"
    verify "$work/image.raw"
    say 'waiting until the image is on disk'
    sync "$work/image.raw"
    mv "$work/image.raw" "$image"
    say 'the image is complete'
}

cleanup() {
    [[ -z ${work-} ]] || rm -rf --one-file-system "$work"
}

main() {
    parse_arguments "$@"
    ((EUID == 0)) || die "cannot build $image" 'not running as root' 'the image needs files of many owners'
    work=$(mktemp --directory "$image.tmp.XXXXXX")
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # mmdebstrap's helpers run as other users and must reach the root.
    chmod 755 "$work"
    build
}

main "$@"
