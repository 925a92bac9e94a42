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

KERNEL_RELEASE=$(release_of_this_machine)
# shellcheck disable=SC2034 # What make_guest_system goes by.
readonly KERNEL_RELEASE PACKAGES=ocfs2-tools,iproute2,kmod,dropbear-bin,python3,util-linux,libgcc-s1,strace \
    MODULES='virtio_pci virtio_scsi sd_mod virtio_net virtio_rng 9p 9pnet_virtio configfs crc32c_generic loop
    ocfs2 ocfs2_stackglue ocfs2_stack_o2cb ocfs2_dlm'

# Gives the hosts their key, and the one by which they are reached.
# shellcheck disable=SC2317,SC2329 # make_guest_system calls it.
finish_root() {
    local root=$1 folder=$2
    mkdir -p "$root/etc/dropbear" "$root/root/.ssh"
    chroot "$root" dropbearkey -t ed25519 -f /etc/dropbear/hostkey >/dev/null 2>&1
    rm -f "$folder"/key{,.pub}
    ssh-keygen -q -t ed25519 -N '' -C onefold-cluster -f "$folder/key"
    install -m 600 "$folder/key.pub" "$root/root/.ssh/authorized_keys"
    chmod 700 "$root/root" "$root/root/.ssh"
}

(($# == 1)) || die_usage 'one folder is to be named' 'image.sh FOLDER'
make_guest_system "$here/image.sh" "$1" "the hosts' system" 80
