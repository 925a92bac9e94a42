# shellcheck shell=bash
# Makes an image boot by itself: GRUB for BIOSes, or for the UEFI of arm64. To be sourced.
#
# Partitions bear the numbers that Debian's cloud images give them: 1 is the root, 14
# boots BIOSes, 15 is what UEFI boots from. `work` is the caller's folder for what is on
# its way.
: "${work=}"

readonly SECTOR_BYTES=512
readonly BOOT_FIRST_SECTOR=2048
readonly BIOS_BOOT_SECTORS=6144
readonly EFI_SECTORS=65536

# What firmware and systemd look for.
# shellcheck disable=SC2034 # for scripts that source this
declare -rA TYPE_ROOT=(
    [amd64]=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
    [i386]=44479540-F297-41B2-9AF7-D131D5F0458A
    [arm64]=B921B045-1DF0-41C3-AF44-4C6F280D3FAE)
readonly TYPE_BIOS_BOOT=21686148-6449-6E6F-744E-656564454649
readonly TYPE_EFI=C12A7328-F81F-11D2-BA4B-00A0C93EC93B

readonly GRUB_MODULES=(part_gpt search_fs_uuid)
declare -rA GRUB_FILESYSTEM=([ext4]=ext2 [xfs]=xfs [btrfs]=btrfs)

# boot_end_sector ARCH: prints the first sector behind what boots.
boot_end_sector() {
    case $1 in
    arm64) printf '%d\n' $((BOOT_FIRST_SECTOR + EFI_SECTORS)) ;;
    *) printf '%d\n' $((BOOT_FIRST_SECTOR + BIOS_BOOT_SECTORS)) ;;
    esac
}

# boot_partition ARCH: prints the beginning of the boot partition's line for sfdisk.
boot_partition() {
    case $1 in
    arm64) printf 'disk15 : start=%d, size=%d, type=%s\n' "$BOOT_FIRST_SECTOR" "$EFI_SECTORS" "$TYPE_EFI" ;;
    *) printf 'disk14 : start=%d, size=%d, type=%s\n' "$BOOT_FIRST_SECTOR" "$BIOS_BOOT_SECTORS" "$TYPE_BIOS_BOOT" ;;
    esac
}

grub_platform() {
    case $1 in
    arm64) printf 'arm64-efi\n' ;;
    *) printf 'i386-pc\n' ;;
    esac
}

# install_boot_menu ROOT ROOT_UUID ARCH: writes what GRUB reads from the root, its
# modules and a menu without a pause.
install_boot_menu() {
    local root=$1 root_uuid=$2 arch=$3 kernel version platform terminal console=ttyS0
    kernel=$(cd "$root/boot" && printf '%s\n' vmlinuz-* | sort --version-sort | tail -n 1)
    version=${kernel#vmlinuz-}
    [[ -f $root/boot/$kernel && -f $root/boot/initrd.img-$version ]] ||
        die "cannot make an image bootable" "no kernel with an initramfs in its /boot"
    platform=$(grub_platform "$arch")
    terminal='serial --unit=0 --speed=115200
terminal_input serial console
terminal_output serial console'
    if [[ $arch == arm64 ]]; then
        console=ttyAMA0
        terminal='terminal_input console
terminal_output console'
    fi
    mkdir -p "$root/boot/grub/$platform"
    cp "$root/usr/lib/grub/$platform"/*.{mod,lst} "$root/boot/grub/$platform/"
    cat >"$root/boot/grub/grub.cfg" <<MENU
set timeout=0
$terminal
menuentry 'Debian GNU/Linux' {
    search --no-floppy --fs-uuid --set=root $root_uuid
    linux /boot/$kernel root=UUID=$root_uuid ro console=tty0 console=$console,115200
    initrd /boot/initrd.img-$version
}
MENU
}

# install_boot_loader ROOT ROOT_UUID IMAGE ARCH FILESYSTEM: writes GRUB where firmware finds it.
install_boot_loader() {
    local root=$1 root_uuid=$2 image=$3 arch=$4 filesystem=$5
    case $arch in
    arm64) install_efi "$root" "$root_uuid" "$image" "$filesystem" ;;
    *) install_bios "$root" "$image" "$filesystem" ;;
    esac
}

# Writes GRUB as grub-bios-setup does, but without a device.
#
# boot.img is the first sector: it loads the one sector whose number stands at 0x5c.
# That one is the head of core.img, whose last twelve bytes say where the rest lies
# (first sector 8 bytes, count 2, segment 2); the count is already right.
install_bios() {
    local root=$1 image=$2 filesystem=$3
    local boot=$work/boot.img core=$work/core.img core_bytes
    cp "$root/usr/lib/grub/i386-pc/boot.img" "$boot"
    chroot "$root" grub-mkimage --format=i386-pc --prefix='(hd0,gpt1)/boot/grub' \
        biosdisk "${GRUB_MODULES[@]}" "${GRUB_FILESYSTEM[$filesystem]}" >"$core"
    core_bytes=$(stat --format=%s "$core")
    ((core_bytes > SECTOR_BYTES && core_bytes <= BIOS_BOOT_SECTORS * SECTOR_BYTES)) ||
        die "cannot make an image bootable" "GRUB's core of $core_bytes bytes does not fit into its partition"

    little_endian "$BOOT_FIRST_SECTOR" 8 | write_at "$boot" $((0x5c))
    # Two NOPs: believe the BIOS about the drive, as for every hard disk.
    printf '\x90\x90' | write_at "$boot" $((0x66))
    little_endian $((BOOT_FIRST_SECTOR + 1)) 8 | write_at "$core" $((SECTOR_BYTES - 12))

    # From byte 440 on, the first sector belongs to the partition table.
    head --bytes=440 "$boot" | write_at "$image" 0
    write_at "$image" $((BOOT_FIRST_SECTOR * SECTOR_BYTES)) <"$core"
}

# Writes a FAT file system with GRUB under the name that UEFI looks for.
install_efi() {
    local root=$1 root_uuid=$2 image=$3 filesystem=$4
    local part=$work/efi.part loader=$work/grub.efi
    # The prefix is found by the first thing that it does: the root's number is not known to firmware.
    cat >"$root/boot/grub/early.cfg" <<EARLY
search --no-floppy --fs-uuid --set=root $root_uuid
set prefix=(\$root)/boot/grub
configfile (\$root)/boot/grub/grub.cfg
EARLY
    chroot "$root" grub-mkimage --format=arm64-efi --prefix=/boot/grub --config=/boot/grub/early.cfg \
        "${GRUB_MODULES[@]}" fat linux normal configfile search "${GRUB_FILESYSTEM[$filesystem]}" >"$loader"
    truncate --size=$((EFI_SECTORS * SECTOR_BYTES)) "$part"
    mkfs.vfat -F 16 -i "${root_uuid:0:8}" "$part" >&2
    mmd -i "$part" ::EFI ::EFI/BOOT
    mcopy -i "$part" "$loader" ::EFI/BOOT/BOOTAA64.EFI
    write_at "$image" $((BOOT_FIRST_SECTOR * SECTOR_BYTES)) <"$part"
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

# ensure_guest_programs_run ARCH: fails where this machine cannot run the architecture's programs, by emulation
# or by itself, after trying to have it so.
ensure_guest_programs_run() {
    local arch=$1
    case $arch in
    arm64) ;;
    *) return 0 ;;
    esac
    [[ $(dpkg --print-architecture) != arm64 ]] || return 0
    if [[ ! -e /proc/sys/fs/binfmt_misc/register ]]; then
        say 'telling the kernel to run arm64 programs by QEMU'
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc >&2 || true
    fi
    [[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]] || update-binfmts --enable qemu-aarch64 >&2 || true
    [[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]] ||
        die "cannot build an image of $arch" 'this machine does not run its programs' \
            'install qemu-user-static and binfmt-support; in a container, do so on its host'
}
