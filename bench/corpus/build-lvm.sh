#!/bin/bash
# Builds one disk with LVM2: build-lvm.sh [options] IMAGE
#
#   --from IMAGE    where the files come from: an image of build-image.sh's with ext4
#   --bytes N       exact length of the raw image
#   --seed TEXT     decides the UUIDs of the file systems
#
# The disk is laid out as installers of Red Hat's kind do it: /boot on a partition with
# XFS of its own, the root on XFS and swap on logical volumes. A second physical volume
# holds the end of the root, as after an extension. The files are Debian's: this is not
# a Red Hat system, and it has no boot loader.
#
# LVM2's tools make the group without the kernel's driver; file systems are written to
# the places of their extents. IMAGE appears under its name when it is whole.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=builder.sh
source "$here/builder.sh"
# shellcheck source-path=SCRIPTDIR source=partition.sh
source "$here/partition.sh"

readonly MIB=$((1 << 20))
readonly EXTENT_BYTES=$((4 * MIB))
readonly BOOT_MIB=320 SWAP_MIB=128 SECOND_MIB=256
# The first MiB before the partitions, and the last one with the backup GPT.
readonly AROUND_MIB=2
readonly TYPE_LINUX=0FC63DAF-8483-4772-8E79-3D69D8477DE4
readonly TYPE_LVM=E6D6D379-F507-44C2-A23C-238F2A3DF928

from='' bytes='' seed='' built='' loops=()

parse_arguments() {
    read_options 'from bytes seed' "$@"
    require "$from" "$seed" "$built"
    require_number "$bytes"
    ((bytes % MIB == 0 && bytes >= 2 << 30)) ||
        die_usage "an image of $bytes bytes is not possible" 'give whole MiB, at least 2 GiB'
    require_image "$from"
}

# A UUID that depends on the seed and the purpose alone.
seeded_uuid() {
    uuid_of "$seed/lvm/$1"
}

# Runs a tool of LVM2 that sees the two partitions alone and asks nothing of the kernel.
lvm_tool() {
    local tool=$1 filter="[\"a|^${loops[0]}\$|\", \"a|^${loops[1]}\$|\", \"r|.*|\"]"
    shift
    LVM_SUPPRESS_FD_WARNINGS=1 "$tool" --config "
        devices { use_devicesfile=0 scan_lvs=0 external_device_info_source=\"none\" filter=$filter global_filter=$filter }
        activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 }
        global { event_activation=0 locking_dir=\"$work/lock\" }" "$@"
}

# new_volume NAME MIB DEVICE: makes a linear volume.
new_volume() {
    lvm_tool lvcreate -q -an -Zn -Wn --driverloaded n --size "$2m" --name "$1" debian "$3"
}

# Makes the partitions and the group; sets `root_mib`.
make_group() {
    local target=$1 first_mib
    first_mib=$((bytes / MIB - AROUND_MIB - BOOT_MIB - SECOND_MIB))
    # A physical volume keeps an extent for itself.
    root_mib=$((first_mib / 4 * 4 - 4 - SWAP_MIB + SECOND_MIB - 4))
    truncate --size="$bytes" "$target"
    sfdisk --quiet "$target" <<TABLE
label: gpt
label-id: $(seeded_uuid disk)
start=1MiB, size=${BOOT_MIB}MiB, type=$TYPE_LINUX, uuid=$(seeded_uuid boot-partition)
size=${first_mib}MiB, type=$TYPE_LVM, uuid=$(seeded_uuid first-partition)
size=${SECOND_MIB}MiB, type=$TYPE_LVM, uuid=$(seeded_uuid second-partition)
TABLE
    starts=($(((1 + BOOT_MIB) * MIB)) $(((1 + BOOT_MIB + first_mib) * MIB)))
    new_loop "$target" "${starts[0]}" $((first_mib * MIB))
    new_loop "$target" "${starts[1]}" $((SECOND_MIB * MIB))
    mkdir "$work/lock"
    lvm_tool pvcreate -q "${loops[@]}"
    lvm_tool vgcreate -q --physicalextentsize "$EXTENT_BYTES"b debian "${loops[@]}"
    new_volume swap "$SWAP_MIB" "${loops[0]}"
    new_volume root $((root_mib - SECOND_MIB + 4)) "${loops[0]}"
    lvm_tool lvextend -q --driverloaded n --size "${root_mib}m" debian/root "${loops[1]}"
}

# Makes the file systems in files of their own, in a mount namespace that ends with it.
fill() {
    local work=$1 from=$2 boot_uuid=$3
    mkdir "$work/files" "$work/root"
    mount -o "loop,ro,noload,offset=$(partition_offset "$from")" "$from" "$work/files"
    mount -o loop,nouuid "$work/root.part" "$work/root"
    mkdir "$work/root/boot"
    mount -o loop,nouuid "$work/boot.part" "$work/root/boot"
    cp -a "$work/files/." "$work/root/"
    cat >"$work/root/etc/fstab" <<TABLE
/dev/mapper/debian-root / xfs defaults 0 0
UUID=$boot_uuid /boot xfs defaults 0 0
/dev/mapper/debian-swap none swap defaults 0 0
TABLE
    umount "$work/root/boot" "$work/root" "$work/files"
}

make_file_systems() {
    local boot_uuid
    boot_uuid=$(seeded_uuid boot)
    truncate --size="${BOOT_MIB}M" "$work/boot.part"
    truncate --size="${root_mib}M" "$work/root.part"
    truncate --size="${SWAP_MIB}M" "$work/swap.part"
    mkfs.xfs -q -L boot -m "uuid=$boot_uuid" "$work/boot.part"
    mkfs.xfs -q -L root -m "uuid=$(seeded_uuid root)" "$work/root.part"
    mkswap --uuid "$(seeded_uuid swap)" "$work/swap.part"
    unshare --mount "$0" --fill "$work" "$from" "$boot_uuid"
    xfs_repair -n -f "$work/boot.part"
    xfs_repair -n -f "$work/root.part"
}

# Writes the volumes to the places of their extents, which LVM2 tells.
place_volumes() {
    local target=$1 name segment device first last start side
    local -A data_starts=()
    while read -r device start; do
        data_starts[$device]=$start
    done < <(lvm_tool pvs --noheadings --units b --nosuffix --options pv_name,pe_start)
    while IFS=' :-' read -r name segment device first last; do
        side=0
        [[ $device == "${loops[0]}" ]] || side=1
        put_part "$work/$name.part" "$target" $((starts[side] + data_starts[$device] + first * EXTENT_BYTES)) \
            $((segment * EXTENT_BYTES)) $(((last - first + 1) * EXTENT_BYTES))
    done < <(lvm_tool lvs --noheadings --driverloaded n --segments --options lv_name,seg_start_pe,seg_pe_ranges)
}

build() {
    local target=$work/image.raw root_mib starts=()
    make_group "$target"
    make_file_systems
    place_volumes "$target"
    put_part "$work/boot.part" "$target" "$MIB"
    release_loops
    fallocate --dig-holes "$target"
    finish "$target"
}

# new_loop IMAGE START_BYTES BYTES: adds a loop device over a part of an image to `loops`.
new_loop() {
    local device
    device=$(losetup --find --show --offset "$2" --sizelimit "$3" "$1")
    loops+=("$device")
}

release_loops() {
    ((${#loops[@]} == 0)) || losetup --detach "${loops[@]}"
    loops=()
}

cleanup() {
    # A device that stays must not keep the folder.
    release_loops || true
    remove_work
}

main() {
    if [[ ${1-} == --fill ]]; then
        shift
        fill "$@"
        return
    fi
    parse_arguments "$@"
    begin_work 'file systems are mounted for it'
    build >&2
    say 'the image is complete'
}

main "$@"
