#!/usr/bin/env bash
# Makes what the cluster's hosts boot: image.sh FOLDER
#
# FOLDER gets `kernel`, a Debian kernel as it is shipped, and `root`, a small Debian in memory with the modules and
# programs that OCFS2 needs, which boots by itself. Nothing is written to it: each start of a host is the same. FOLDER also
# gets the keys by which the hosts are reached. Packages come from wherever this machine gets its own.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../scripts/guest-system.sh
source "$here/../../scripts/guest-system.sh"

readonly PACKAGES=ocfs2-tools,iproute2,kmod,dropbear-bin,python3,util-linux,libgcc-s1,strace
readonly MODULES='virtio_pci virtio_scsi sd_mod virtio_net virtio_rng 9p 9pnet_virtio configfs crc32c_generic loop
    ocfs2 ocfs2_stackglue ocfs2_stack_o2cb ocfs2_dlm'

bootstrap_system() {
    bootstrap_root "$release" "$root" "$PACKAGES"
    fetch_kernel "$release" "$work/fetched"
}

main() {
    (($# == 1)) || die_usage 'one folder is to be named' 'image.sh FOLDER'
    local folder version
    folder=$(readlink -m "$1")
    if [[ -e $folder/complete ]] && cmp -s "$folder/complete" <(fingerprint); then
        say "the hosts' system is in $folder"
        add_start
        return
    fi
    mkdir -p "$folder"
    work=$(mktemp -d)
    # mmdebstrap's helpers run as other users and must reach the root.
    chmod 755 "$work"
    trap 'stop_progress; rm -rf --one-file-system "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    root=$work/root
    release=$(release_of_this_machine)
    say "making the hosts' system, Debian $release, from this machine's mirrors (about 80 MB are fetched)"
    with_progress mmdebstrap "$folder/mmdebstrap.log" bootstrap_system ||
        die "cannot make the hosts' system" 'mmdebstrap failed, see above'

    version=$(add_kernel "$work/fetched/kernel" "$root" "$MODULES")
    cp "$work/fetched/kernel/boot/vmlinuz-$version" "$folder/kernel"
    rm -rf "${root:?}"/boot/* "$root"/var/{cache,lib/apt/lists}/* "$root/etc/resolv.conf"
    mkdir -p "$root/etc/dropbear" "$root/root/.ssh"
    chroot "$root" dropbearkey -t ed25519 -f /etc/dropbear/hostkey >/dev/null 2>&1
    rm -f "$folder"/key{,.pub}
    ssh-keygen -q -t ed25519 -N '' -C onefold-cluster -f "$folder/key"
    install -m 600 "$folder/key.pub" "$root/root/.ssh/authorized_keys"
    chmod 700 "$root/root" "$root/root/.ssh"
    pack "$root" >"$folder/base"
    printf '%s\n' "$version" >"$folder/version"
    add_start
    fingerprint >"$folder/complete"
    say "the hosts' system: kernel $version, $(human_bytes "$(stat --format=%s "$folder/root")") in memory"
}

add_start() {
    pack_with_init "$folder/base" "$here/guest/start.sh" >"$folder/root"
}

# What the system was made by; another one is made anew.
fingerprint() {
    cat "$here/image.sh" "$repo/scripts/guest-system.sh" | sha256sum
}

main "$@"
