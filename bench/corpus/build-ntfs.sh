#!/bin/bash
# Builds one disk with NTFS and files: build-ntfs.sh [options] IMAGE
#
#   --from IMAGE    where the files come from: an image of build-image.sh's with ext4
#   --bytes N       exact length of the raw image
#   --seed TEXT     decides which of the files there are, in which order they were
#                   written, and which were removed or changed since
#
# Disks of several seeds hold mostly the same files at other places. NTFS-3G writes
# them, in mount and process namespaces of its own: nothing is left however it ends.
# IMAGE appears under its name when it is whole.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=builder.sh
source "$here/builder.sh"
# shellcheck source-path=SCRIPTDIR source=partition.sh
source "$here/partition.sh"

readonly SECTOR_BYTES=512
readonly FIRST_SECTOR=2048

from='' bytes='' seed='' built=''

parse_arguments() {
    read_options 'from bytes seed' "$@"
    require "$from" "$seed" "$built"
    require_number "$bytes"
    require_image "$from"
}

# In namespaces of its own: copies files from one root into the other.
fill() {
    local part=$1 from=$2 seed=$3 work=$4
    mkdir "$work/files" "$work/ntfs"
    mount -o "loop,ro,noload,offset=$(partition_offset "$from")" "$from" "$work/files"
    # In the foreground of a job, so that its end can be waited for.
    ntfs-3g -o no_detach,big_writes "$part" "$work/ntfs" &
    until mountpoint --quiet "$work/ntfs"; do
        kill -0 $! || die "cannot fill $part" 'ntfs-3g has ended'
        sleep 0.1
    done
    python3 "$here/ntfs_files.py" "$work/files/usr" "$work/ntfs" "$seed"
    umount "$work/ntfs"
    wait $!
    umount "$work/files"
}

build() {
    local part=$work/ntfs.part sectors
    sectors=$((bytes / SECTOR_BYTES - FIRST_SECTOR))
    truncate --size=$((sectors * SECTOR_BYTES)) "$part"
    mkntfs --force --quick --quiet --cluster-size 4096 --partition-start "$FIRST_SECTOR" \
        --sector-size "$SECTOR_BYTES" --heads 255 --sectors-per-track 63 "$part"
    unshare --mount --pid --fork --kill-child --mount-proc "$0" --fill "$part" "$from" "$seed" "$work"
    ntfsfix --no-action "$part"
    truncate --size="$bytes" "$work/image.raw"
    sfdisk --quiet "$work/image.raw" <<TABLE
label: dos
label-id: 0x$(printf '%s' "$seed" | sha256sum | head -c 8)
unit: sectors
start=$FIRST_SECTOR, size=$sectors, type=7
TABLE
    put_part "$part" "$work/image.raw" $((FIRST_SECTOR * SECTOR_BYTES))
    fallocate --dig-holes "$work/image.raw"
    finish "$work/image.raw"
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
