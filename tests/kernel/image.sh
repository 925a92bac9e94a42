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

# shellcheck disable=SC2034 # What make_guest_system goes by.
readonly KERNEL_RELEASE=bookworm \
    PACKAGES=acl,attr,e2fsprogs,fuse3,jq,kmod,libgcc-s1,procps,python3,qemu-utils,rsync,sqlite3,strace,udev,util-linux,xfsprogs \
    MODULES='virtio_pci virtio_blk virtio_rng 9p 9pnet_virtio fuse ext4 xfs crc32c_generic loop'

(($# == 1)) || die_usage 'one folder is to be named' 'image.sh FOLDER'
make_guest_system "$here/image.sh" "$1" "the guest's system" 170
