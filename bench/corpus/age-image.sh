#!/bin/bash
# Makes a clone of a disk image that has been in use for a while:
# age-image.sh --from IMAGE --recipe NAME --seed TEXT IMAGE
#
#   --from IMAGE    the image that is cloned, one of build-image.sh's with ext4
#   --recipe NAME   what happens to it: `desktop` or `server`, see guest_life.py
#   --seed TEXT     decides what happens, and when
#
# The clone's root is mounted and changed in place, so that what is new lies where a
# guest's file system puts it. That is done in mount and process namespaces of its own:
# however it ends, no mount, loop device or service of the guest is left. IMAGE appears
# under its name when it is whole.
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

from='' recipe='' seed='' built=''

parse_arguments() {
    read_options 'from recipe seed' "$@"
    require "$from" "$recipe" "$seed" "$built"
    require_image "$from"
}

# Does one step of a plan.
live() {
    local step=$1
    shift
    say "$step $*"
    case $step in
    days) python3 "$here/guest_life.py" days "$root" "$recipe" "$1" "$seed" ;;
    install) apt_in_guest install "$@" ;;
    remove) apt_in_guest purge --auto-remove "$@" ;;
    upgrade) apt_in_guest upgrade ;;
    clean) apt_in_guest clean ;;
    esac
}

# In namespaces of its own, with the clone in `work`.
age() {
    local step words
    root=$work/root
    mkdir "$root"
    mount -o "loop,offset=$(partition_offset "$work/image.raw")" "$work/image.raw" "$root"
    enter
    apt_in_guest update
    # Not from a pipe: what runs in the guest must not read the plan.
    mapfile -t plan < <(python3 "$here/guest_life.py" plan "$recipe" "$seed")
    for step in "${plan[@]}"; do
        read -ra words <<<"$step"
        live "${words[@]}" </dev/null
    done
    leave
}

main() {
    if [[ ${1-} == --inside ]]; then
        recipe=$2 seed=$3 work=$4
        age
        return
    fi
    parse_arguments "$@"
    begin_work 'the guest is mounted for it'
    cp --sparse=always "$from" "$work/image.raw"
    unshare --mount --pid --fork --kill-child "$0" --inside "$recipe" "$seed" "$work" >&2
    e2fsck -fn "$work/image.raw?offset=$(partition_offset "$work/image.raw")" >&2
    finish "$work/image.raw"
    say 'the image is complete'
}

main "$@"
