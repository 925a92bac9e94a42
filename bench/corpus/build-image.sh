#!/bin/bash
# Builds one bootable Debian disk image: build-image.sh [options] IMAGE
#
#   --release NAME      Debian release (bookworm, trixie)
#   --packages SET      package set, a file in packages/
#   --bytes N           exact length of the raw image
#   --seed TEXT         decides the image's UUIDs, so that a set can be built again
#   --arch NAME         Debian architecture: amd64 unless given, i386, arm64
#   --filesystem NAME   of the root: ext4 unless given, xfs, btrfs
#   --as-released       without the updates that came since the release
#   --root-sector N     where the root begins; by default where 4 KiB divide it
#
# The image is shaped as Debian's own cloud images are: GPT, a BIOS boot partition
# with GRUB (a small FAT partition for UEFI on arm64), a root with its file system's
# defaults, a console on the first serial port. Each is bootstrapped from packages by
# itself; none is made from another one.
#
# No device is left behind: roots are filled from a folder, XFS in a mount namespace
# of its own, and boot loaders are written to their fixed places. IMAGE appears under
# its name when it is whole, never before.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=builder.sh
source "$here/builder.sh"
# shellcheck source-path=SCRIPTDIR source=apt-sources.sh
source "$here/apt-sources.sh"
# shellcheck source-path=SCRIPTDIR source=boot-loader.sh
source "$here/boot-loader.sh"
# shellcheck source-path=SCRIPTDIR source=partition.sh
source "$here/partition.sh"

# The backup GPT (33 sectors) lies behind the root; one more MiB keeps it aligned.
readonly TAIL_SECTORS=2048

release='' packages='' bytes='' seed='' built=''
arch=amd64 filesystem=ext4 root_sector=''
# What sed makes of the list of archives.
updates=''

parse_arguments() {
    while (($# > 0)); do
        case $1 in
        --release) release=${2-}; shift 2 ;;
        --packages) packages=${2-}; shift 2 ;;
        --bytes) bytes=${2-}; shift 2 ;;
        --seed) seed=${2-}; shift 2 ;;
        --arch) arch=${2-}; shift 2 ;;
        --filesystem) filesystem=${2-}; shift 2 ;;
        --as-released) updates='1q'; shift ;;
        --root-sector) root_sector=${2-}; shift 2 ;;
        -*) die_usage "unknown option \`$1\`" "see the head of $0" ;;
        *) built=$1; shift ;;
        esac
    done
    require "$release" "$packages" "$seed" "$built"
    require_number "$bytes"
    [[ -f $here/packages/$packages.txt ]] ||
        die_usage "there is no package set \`$packages\`" "the sets are the files in $here/packages"
    [[ -f $here/packages/boot-$arch.txt ]] ||
        die_usage "there is no architecture \`$arch\`" 'take amd64, i386 or arm64'
    [[ $filesystem =~ ^(ext4|xfs|btrfs)$ ]] ||
        die_usage "there is no file system \`$filesystem\`" 'take ext4, xfs or btrfs'
    root_sector=${root_sector:-$(boot_end_sector "$arch")}
    ((root_sector >= $(boot_end_sector "$arch"))) ||
        die_usage "a root at sector $root_sector is not possible" \
            "what boots lies before $(boot_end_sector "$arch")"
    ((bytes % (1 << 20) == 0 && bytes >= 1 << 30)) ||
        die_usage "an image of $bytes bytes is not possible" 'give whole MiB, at least 1 GiB'
}

# The package set, and what else is not as in most images.
variant() {
    local words=$packages
    [[ $arch == amd64 ]] || words+=-$arch
    [[ $filesystem == ext4 ]] || words+=-$filesystem
    ((root_sector % 8 == 0)) || words+=-misaligned
    printf '%s\n' "$words"
}

# A UUID that depends on the seed, the image's kind and the purpose alone.
seeded_uuid() {
    uuid_of "$seed/$release/$(variant)/$1"
}

# What a guest checks its root with.
declare -rA GUEST_TOOLS=([ext4]=e2fsprogs [xfs]=xfsprogs [btrfs]=btrfs-progs)

# The names in the common and the chosen package set, separated by commas.
package_list() {
    sed -e 's/#.*//' -e '/^ *$/d' "$here/packages/common.txt" \
        "$here/packages/boot-$arch.txt" "$here/packages/$packages.txt" |
        cat - <(printf '%s\n' "${GUEST_TOOLS[$filesystem]}") | paste -sd,
}

bootstrap() {
    local root=$1 options sources
    options=$work/apt.conf
    sources=$(apt_sources "$release")
    apt_transport_options >"$options"
    # In a mount namespace of its own, so that no mount outlives mmdebstrap, however
    # it ends. The hook takes back options that were meant for this machine only; its
    # $1 is the root, as mmdebstrap calls it.
    # shellcheck disable=SC2016
    sed "$updates" <<<"$sources" | unshare --mount mmdebstrap --mode=root --variant=important \
        --format=directory --architectures="$arch" --keyring="$DEBIAN_KEYRING" \
        --include="$(package_list)" --aptopt="$options" --dpkgopt=force-unsafe-io \
        --customize-hook='rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"' "$release" "$root" -
    rm -f "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
    # The image's own users get updates.
    printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
}

# Flags of the root, and whether and when it is checked at boot.
declare -rA MOUNT_FLAGS=(
    [ext4]='rw,discard,errors=remount-ro 0 1' [xfs]='rw,discard 0 0' [btrfs]='rw,discard=async 0 0')

# Gives the fresh root its name, its network, its services and its boot menu.
configure() {
    local root=$1 root_uuid=$2 hostname
    hostname=debian-$release-$(variant)
    printf '%s\n' "$hostname" >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost\n' "$hostname" \
        >"$root/etc/hosts"
    # The resolver that QEMU's user network offers.
    printf 'nameserver 10.0.2.3\n' >"$root/etc/resolv.conf"
    printf 'UUID=%s / %s %s\n' "$root_uuid" "$filesystem" "${MOUNT_FLAGS[$filesystem]}" >"$root/etc/fstab"
    # An empty machine-id is filled in at the first boot, as on any cloud image.
    : >"$root/etc/machine-id"

    install -m 644 "$here/guest/80-dhcp.network" "$root/etc/systemd/network/"
    install -m 644 "$here/guest/onefold-guest-up.service" "$root/etc/systemd/system/"
    systemctl_in "$root" enable onefold-guest-up.service systemd-networkd.service
    # A guest under emulation spends its minutes on these, and nobody waits for them.
    systemctl_in "$root" mask systemd-networkd-wait-online.service networking.service \
        apt-daily.timer apt-daily-upgrade.timer man-db.timer e2scrub_reap.service \
        dpkg-db-backup.timer fstrim.timer

    install_boot_menu "$root" "$root_uuid" "$arch"
}

systemctl_in() {
    local root=$1
    shift
    SYSTEMD_OFFLINE=1 chroot "$root" systemctl --quiet "$@"
}

write_partition_table() {
    local target=$1 root_sectors=$2
    # The names before the colons only tell sfdisk the partitions' numbers.
    sfdisk --quiet "$target" <<TABLE
label: gpt
label-id: $(seeded_uuid disk)
unit: sectors
sector-size: $SECTOR_BYTES
disk1 : start=$root_sector, size=$root_sectors, type=${TYPE_ROOT[$arch]}, uuid=$(seeded_uuid root-partition)
$(boot_partition "$arch"), uuid=$(seeded_uuid boot-partition)
TABLE
}

# Fills the root of the image, of so many sectors, from a folder.
make_root() {
    local root=$1 root_uuid=$2 target=$3 sectors=$4
    local offset=$((root_sector * SECTOR_BYTES)) part=$work/root.part
    case $filesystem in
    ext4)
        mke2fs -q -F -t ext4 -U "$root_uuid" -E "offset=$offset,hash_seed=$(seeded_uuid hash)" \
            -d "$root" "$target" "$((sectors * SECTOR_BYTES / 1024))k"
        ;;
    btrfs)
        truncate --size=$((sectors * SECTOR_BYTES)) "$part"
        mkfs.btrfs --quiet --uuid "$root_uuid" --rootdir "$root" "$part"
        put_part "$part" "$target" "$offset"
        rm "$part"
        ;;
    xfs)
        truncate --size=$((sectors * SECTOR_BYTES)) "$part"
        mkfs.xfs -q -m "uuid=$root_uuid" "$part"
        mkdir "$work/mount"
        # The mount goes with its namespace, and the loop device with the mount.
        # shellcheck disable=SC2016
        unshare --mount bash -euc 'mount -o loop,nouuid "$2" "$3"; cp -a "$1/." "$3/"; umount "$3"' \
            - "$root" "$part" "$work/mount"
        put_part "$part" "$target" "$offset"
        rm "$part"
        ;;
    esac
}

assemble() {
    local root=$1 root_uuid=$2 target=$3
    local sectors root_sectors
    sectors=$((bytes / SECTOR_BYTES))
    root_sectors=$(((sectors - root_sector - TAIL_SECTORS) / 8 * 8))
    truncate --size="$bytes" "$target"
    write_partition_table "$target" "$root_sectors"
    make_root "$root" "$root_uuid" "$target" "$root_sectors"
    install_boot_loader "$root" "$root_uuid" "$target" "$arch" "$filesystem"
    fallocate --dig-holes "$target"
}

check_root() {
    local target=$1 offset=$2 part=$work/check.part
    if [[ $filesystem == ext4 ]]; then
        # e2fsck reads a file system from the middle of a file when told so.
        e2fsck -fn "$target?offset=$offset"
        return
    fi
    dd if="$target" of="$part" bs=1M skip="$offset" iflag=skip_bytes conv=sparse status=none
    case $filesystem in
    xfs) xfs_repair -n -f "$part" ;;
    btrfs) btrfs check --readonly "$part" ;;
    esac
    rm "$part"
}

# Refuses an image whose parts do not stand where they should.
verify() {
    local target=$1
    (($(stat --format=%s "$target") == bytes)) ||
        die "the image $target has a wrong length" "it is not $bytes bytes long"
    sfdisk --quiet --verify "$target" >&2
    check_root "$target" $((root_sector * SECTOR_BYTES)) >&2
}

build() {
    local root=$work/root root_uuid
    root_uuid=$(seeded_uuid root)
    say "installing Debian $release ($arch) with the packages of \`$packages\`"
    ensure_guest_programs_run "$arch"
    bootstrap "$root"
    configure "$root" "$root_uuid"
    say 'writing partitions, file system and boot loader'
    assemble "$root" "$root_uuid" "$work/image.raw"
    verify "$work/image.raw"
    say 'waiting until the image is on disk'
    finish "$work/image.raw"
    say 'the image is complete'
}

main() {
    parse_arguments "$@"
    begin_work 'the image needs files of many owners'
    # mmdebstrap's helpers run as other users and must reach the root.
    chmod 755 "$work"
    build
}

main "$@"
