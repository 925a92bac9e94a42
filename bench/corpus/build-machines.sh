#!/bin/bash
# Builds a set of machines that came from one template: build-machines.sh [options] FILE
#
#   --from IMAGE    the template, one of build-image.sh's with ext4
#   --count N       how many machines there are
#   --bytes N       length of the file system that holds them
#
# FILE is an XFS with `template.raw`, `machine-01.raw` and so on. Each machine begins as a
# reflink of the template, gets an identity of its own (machine_identity.py), and then the
# same packages (packages/libreoffice.txt), which are fetched once. They stay in the
# folder `packages`, with a list of their names, versions and installed bytes.
#
# All is mounted in namespaces of its own: however it ends, no mount, loop device or
# service of a guest is left. FILE appears under its name when it is whole.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=builder.sh
source "$here/builder.sh"
# shellcheck source-path=SCRIPTDIR source=apt-sources.sh
source "$here/apt-sources.sh"
# shellcheck source-path=SCRIPTDIR source=guest-root.sh
source "$here/guest-root.sh"
# shellcheck source-path=SCRIPTDIR source=partition.sh
source "$here/partition.sh"

# What is installed on each machine, in all: as in the FBS paper, within 5 %.
readonly INSTALLED_BYTES=438000000
readonly PACKAGES=$here/packages/libreoffice.txt

from='' count='' bytes='' built=''

parse_arguments() {
    read_options 'from count bytes' "$@"
    require "$from" "$built"
    require_number "$count"
    ((count < 100)) || die_usage "$count machines are not possible" 'give at most 99'
    require_number "$bytes"
    require_image "$from"
}

# Mounts an image's root, and makes it a place for the guest's programs.
open_guest() {
    mount -o "loop,offset=$(partition_offset "$1")" "$1" "$root"
    enter
}

# Fetches the packages with all that they need, by a clone of the template.
fetch() {
    local scratch=$set/scratch.raw
    mapfile -t names < <(sed -e 's/#.*//' -e '/^ *$/d' "$PACKAGES")
    cp --reflink=always "$set/template.raw" "$scratch"
    open_guest "$scratch"
    apt_in_guest update
    apt_in_guest install --download-only "${names[@]}"
    mkdir "$set/packages"
    mv "$root"/var/cache/apt/archives/*.deb "$set/packages/"
    leave
    rm "$scratch"
}

# Writes the list of the packages, and refuses them where they are not as large as in the paper.
list_packages() {
    local deb length name total=0
    for deb in "$set"/packages/*.deb; do
        # The third part of a line of tar's is the length.
        length=$(dpkg-deb --fsys-tarfile "$deb" | tar --list --verbose | awk '/^-/ { sum += $3 } END { print sum + 0 }')
        total=$((total + length))
        # The variables are dpkg-deb's own.
        # shellcheck disable=SC2016
        name=$(dpkg-deb --show --showformat '${Package} ${Version} ${Architecture}' "$deb")
        printf '%s %s\n' "$name" "$length"
    done >"$set/packages/list"
    say "$(wc -l <"$set/packages/list") packages with $total bytes of files"
    ((total * 100 > INSTALLED_BYTES * 95 && total * 100 < INSTALLED_BYTES * 105)) ||
        die "cannot build $built" "the packages have $total bytes of files, not $INSTALLED_BYTES within 5 %" \
            "choose others in $PACKAGES"
}

# Makes one machine: a clone with an identity and the packages.
make_machine() {
    local number=$1 image
    image=$set/machine-$(printf '%02d' "$number").raw
    say "machine $number of $count"
    cp --reflink=always "$set/template.raw" "$image"
    open_guest "$image"
    python3 "$here/machine_identity.py" "$root" "$number"
    mkdir "$root/tmp/packages"
    mount --bind "$set/packages" "$root/tmp/packages"
    DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$root" dpkg --force-unsafe-io --force-confold \
        --install --recursive /tmp/packages </dev/null
    leave
    e2fsck -fn "$image?offset=$(partition_offset "$image")"
}

# In namespaces of its own, with the file system in `work`.
fill() {
    local number
    set=$work/set root=$work/root
    mkdir "$set" "$root"
    mount -o loop "$work/machines.xfs" "$set"
    cp --sparse=always "$from" "$set/template.raw"
    fetch
    list_packages
    for ((number = 1; number <= count; number++)); do
        make_machine "$number"
    done
    umount "$set"
}

main() {
    if [[ ${1-} == --inside ]]; then
        from=$2 count=$3 built=$4 work=$5
        fill
        return
    fi
    parse_arguments "$@"
    begin_work 'guests are mounted for it'
    truncate --size="$bytes" "$work/machines.xfs"
    mkfs.xfs -q -m reflink=1 "$work/machines.xfs"
    unshare --mount --pid --fork --kill-child "$0" --inside "$from" "$count" "$built" "$work" >&2
    finish "$work/machines.xfs"
    say 'the set is complete'
}

main "$@"
