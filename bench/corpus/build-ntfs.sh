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
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=partition.sh
source "$here/partition.sh"

readonly SECTOR_BYTES=512
readonly FIRST_SECTOR=2048

from='' bytes='' seed='' image=''

parse_arguments() {
    while (($# > 0)); do
        case $1 in
        --from) from=${2-}; shift 2 ;;
        --bytes) bytes=${2-}; shift 2 ;;
        --seed) seed=${2-}; shift 2 ;;
        -*) die_usage "unknown option \`$1\`" "see the head of $0" ;;
        *) image=$1; shift ;;
        esac
    done
    [[ -n $from && -n $seed && -n $image && $bytes =~ ^[0-9]+$ ]] ||
        die_usage 'an option is missing' "see the head of $0"
    [[ -f $from ]] || die "cannot take files from $from" 'there is no such image'
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
    dd if="$part" of="$work/image.raw" bs=1M seek=$((FIRST_SECTOR * SECTOR_BYTES)) \
        oflag=seek_bytes conv=notrunc,sparse status=none
    fallocate --dig-holes "$work/image.raw"
    sync "$work/image.raw"
    mv "$work/image.raw" "$image"
}

cleanup() {
    [[ -z ${work-} ]] || rm -rf --one-file-system "$work"
}

main() {
    if [[ ${1-} == --fill ]]; then
        shift
        fill "$@"
        return
    fi
    parse_arguments "$@"
    ((EUID == 0)) || die "cannot build $image" 'not running as root' 'file systems are mounted for it'
    work=$(mktemp --directory "$image.tmp.XXXXXX")
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    build >&2
    say 'the image is complete'
}

main "$@"
