#!/usr/bin/env bash
# Makes what the guest boots: image.sh FOLDER
#
# FOLDER gets `kernel`, that of Debian 12 as it is shipped, and `root`, a small Debian in memory with what the tests need.
# Programs are of this machine's release, since what is built here runs on its C library.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../scripts/guest-system.sh
source "$here/../../scripts/guest-system.sh"

readonly KERNEL_RELEASE=bookworm
readonly PACKAGES=acl,attr,e2fsprogs,fuse3,jq,kmod,libgcc-s1,procps,python3,qemu-utils,rsync,sqlite3,strace,udev,util-linux
readonly MODULES='virtio_pci virtio_blk virtio_rng 9p 9pnet_virtio fuse ext4 crc32c_generic loop'

bootstrap_system() {
    bootstrap_root "$(release_of_this_machine)" "$work/root" "$PACKAGES"
    fetch_kernel "$KERNEL_RELEASE" "$work/fetched"
}

main() {
    (($# == 1)) || die_usage 'one folder is to be named' 'image.sh FOLDER'
    local folder version
    folder=$(readlink -m "$1")
    if [[ -e $folder/complete ]] && cmp -s "$folder/complete" <(fingerprint); then
        say "the guest's system is in $folder"
    else
        make_system
    fi
    pack_with_init "$folder/base" "$here/guest/start.sh" >"$folder/root"
}

make_system() {
    mkdir -p "$folder"
    rm -f "$folder/complete"
    work=$(mktemp -d)
    # mmdebstrap's helpers run as other users and must reach the root.
    chmod 755 "$work"
    trap 'stop_progress; rm -rf --one-file-system "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    say "making the guest's system from this machine's mirrors (about 170 MB are fetched)"
    with_progress mmdebstrap "$folder/mmdebstrap.log" bootstrap_system ||
        die "cannot make the guest's system" 'mmdebstrap failed, see above'
    version=$(add_kernel "$work/fetched/kernel" "$work/root" "$MODULES")
    cp "$work/fetched/kernel/boot/vmlinuz-$version" "$folder/kernel"
    rm -rf "$work"/root/boot/* "$work"/root/var/{cache,lib/apt/lists}/*
    pack "$work/root" >"$folder/base"
    fingerprint >"$folder/complete"
    say "the guest's system: kernel $version, $(human_bytes "$(stat --format=%s "$folder/base")") in memory"
}

# What the system was made by; another one is made anew.
fingerprint() {
    cat "$here/image.sh" "$repo/scripts/guest-system.sh" | sha256sum
}

main "$@"
