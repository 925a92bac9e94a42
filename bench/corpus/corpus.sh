#!/bin/bash
# The corpus of disk images that the demo, the tests and the benchmarks read.
#
#   corpus.sh list                what there is: name, state, kind, length
#   corpus.sh build [NAME...]     builds what is missing of the named images and sets
#   corpus.sh path [NAME...]      prints where the named images and sets lie
#   corpus.sh forecast [NAME...]  prints what a build would take: images, seconds, bytes
#
# Without a name, the set `demo` is meant.
#
# What builds them, `scripts/install-deps.sh corpus` installs; `make corpus` does both.
#
# Images are built once, into the folder `cache` beside this script, and each appears
# under its name only when it is whole: an interrupted build is taken up again by
# calling it again. Everything in the table below follows from its line there: the
# seed decides what would otherwise be chance.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"

readonly CACHE=$here/cache
readonly GIB=$((1 << 30))

# One image a line: sets, name, builder, its kind, length in bytes, seed, and what it
# costs: seconds on two cores, MiB on disk while it is built and after. A new set needs
# its lines here and, where the builder is new, a function build_<builder>, which is
# given the kind, the length, the seed and the file to make. An image that is made from
# another one names it first in its kind.
#
# demo     four servers, as most private clouds have them
# distros  one deployable image of each kind: Debian's releases, architectures, package
#          sets, file systems, and one whose first partition is not aligned
# vdi      a desktop and clones of it, each used by somebody else for months
# fbs      a server (demo's) and clones of it that got the same services, each at another
#          time
# builds   a server (demo's) and a second, independent build of the same packages
# ntfs     two disks with NTFS that hold mostly the same files
# lvm      the files of a server (demo's) on XFS on LVM2, laid out as Red Hat's installer
#          does it; no Red Hat system, and it does not boot
# fbs6     six machines: clones of a server (demo's) by reflink. Each has an identity of its
#          own, and then got the same LibreOffice. The image is an XFS that holds all of them
# fbs42    the same with 42 machines, as in the FBS paper. The build takes an hour and about
#          25 GB; full copies would take 60 GB
# emulated a deployable image of another architecture: only a caller that asks for it waits for it, as all
#          that the guest runs while it is built is emulated
readonly IMAGES="
demo,distros,fbs,builds  debian-12-base  debian  bookworm/base                 $((2 * GIB))  onefold-1   90   900
demo,distros      debian-12-web         debian  bookworm/web                  $((2 * GIB))  onefold-1   90   900
demo,distros      debian-13-base        debian  trixie/base                   $((2 * GIB))  onefold-1   90   900
demo,distros      debian-13-web         debian  trixie/web                    $((2 * GIB))  onefold-1   90   900
distros           debian-12-i386        debian  bookworm/base/i386/released   $((2 * GIB))  onefold-1  120  1100
distros           debian-12-misaligned  debian  bookworm/base/misaligned      $((2 * GIB))  onefold-1   90   900
distros           debian-13-xfs         debian  trixie/base/xfs               $((2 * GIB))  onefold-1  100  1000
distros           debian-13-btrfs       debian  trixie/web/btrfs              $((2 * GIB))  onefold-1  120  1300
vdi               desktop               debian  bookworm/desktop/released     $((6 * GIB))  onefold-1  240  2200
vdi               desktop-1             aged    desktop/desktop               $((6 * GIB))  onefold-1  180  3500
vdi               desktop-2             aged    desktop/desktop               $((6 * GIB))  onefold-2  180  3500
vdi               desktop-3             aged    desktop/desktop               $((6 * GIB))  onefold-3  180  3500
vdi               desktop-4             aged    desktop/desktop               $((6 * GIB))  onefold-4  180  3500
vdi               desktop-5             aged    desktop/desktop               $((6 * GIB))  onefold-5  180  3500
fbs               services-1            aged    debian-12-base/server         $((2 * GIB))  onefold-1  120  1800
fbs               services-2            aged    debian-12-base/server         $((2 * GIB))  onefold-2  120  1800
fbs               services-3            aged    debian-12-base/server         $((2 * GIB))  onefold-3  120  1800
fbs               services-4            aged    debian-12-base/server         $((2 * GIB))  onefold-4  120  1800
fbs               services-5            aged    debian-12-base/server         $((2 * GIB))  onefold-5  120  1800
builds            debian-12-base-2      debian  bookworm/base                 $((2 * GIB))  onefold-2   90   900
ntfs              windows-1             ntfs    debian-12-web                 $((2 * GIB))  onefold-1   90  1600
ntfs              windows-2             ntfs    debian-12-web                 $((2 * GIB))  onefold-2   90  1600
lvm               debian-12-lvm         lvm     debian-12-base                $((2 * GIB))  onefold-1   30  1700
fbs6              fbs6.xfs              machines  debian-12-base/6           $((16 * GIB))  onefold-1  480  4000
fbs42             fbs42.xfs             machines  debian-12-base/42          $((64 * GIB))  onefold-1 3600 25000
emulated          debian-12-arm64       debian  bookworm/base/arm64/released  $((2 * GIB))  onefold-1  900   900
"
readonly DEFAULT_SET=demo

# Kept free on the disk beyond what is built.
readonly SPARE_BYTES=$((900 << 20))

# A root that begins at this sector lies across blocks of 4 KiB, as the first partitions
# of old installers' disks do.
readonly MISALIGNED_SECTOR=8255

build_debian() {
    local kind=$1 bytes=$2 seed=$3 image=$4 release packages words word options=()
    IFS=/ read -r release packages words <<<"$kind"
    for word in ${words//\// }; do
        case $word in
        i386 | arm64) options+=(--arch "$word") ;;
        xfs | btrfs) options+=(--filesystem "$word") ;;
        released) options+=(--as-released) ;;
        misaligned) options+=(--root-sector "$MISALIGNED_SECTOR") ;;
        esac
    done
    "$here/build-image.sh" --release "$release" --packages "$packages" \
        --bytes "$bytes" --seed "$seed" "${options[@]}" "$image"
}

build_aged() {
    local kind=$1 seed=$3 image=$4
    "$here/age-image.sh" --from "$(image_path "${kind%/*}")" --recipe "${kind#*/}" --seed "$seed" "$image"
}

build_ntfs() {
    local kind=$1 bytes=$2 seed=$3 image=$4
    "$here/build-ntfs.sh" --from "$(image_path "$kind")" --bytes "$bytes" --seed "$seed" "$image"
}

build_lvm() {
    local kind=$1 bytes=$2 seed=$3 image=$4
    "$here/build-lvm.sh" --from "$(image_path "$kind")" --bytes "$bytes" --seed "$seed" "$image"
}

build_machines() {
    local kind=$1 bytes=$2 image=$4
    "$here/build-machines.sh" --from "$(image_path "${kind%/*}")" --count "${kind#*/}" --bytes "$bytes" "$image"
}

# Prints the table's line of an image, with those that it is made from before it.
with_sources() {
    local name=$1 line builder kind _
    line=$(awk -v name="$name" 'NF && $2 == name' <<<"$IMAGES")
    read -r _ _ builder kind _ <<<"$line"
    [[ $builder == debian ]] || with_sources "${kind%%/*}"
    printf '%s\n' "$line"
}

# Prints the names of the given images and of those in the given sets; all of the
# default set where none is given.
named() {
    local wanted names
    for wanted in "${@:-$DEFAULT_SET}"; do
        names=$(awk -v wanted="$wanted" 'NF && ($2 == wanted || "," $1 "," ~ "," wanted ",") { print $2 }' <<<"$IMAGES")
        [[ -n $names ]] || die_usage "there is no image or set \`$wanted\`" "see \`$0 list\`"
        printf '%s\n' "$names"
    done
}

# Prints the table's lines of the same, each once.
select_images() {
    local names name
    names=$(named "$@") || return
    awk '!seen[$0]++' <<<"$names" | while read -r name; do
        awk -v name="$name" 'NF && $2 == name' <<<"$IMAGES"
    done
}

# Prints the table's lines of the same and of what they are made from, in the order in
# which they can be built.
select_to_build() {
    local names name
    names=$(named "$@") || return
    while read -r name; do
        with_sources "$name"
    done <<<"$names" | awk '!seen[$2]++'
}

# Names in the table have no ending where the image is a raw one.
image_path() {
    case $1 in
    *.*) printf '%s/%s\n' "$CACHE" "$1" ;;
    *) printf '%s/%s.raw\n' "$CACHE" "$1" ;;
    esac
}

list_images() {
    local sets name kind bytes state _
    while read -r sets name _ kind bytes _; do
        state=missing
        [[ ! -f $(image_path "$name") ]] || state=built
        printf '%-16s  %-20s  %-8s  %-27s  %s\n' "$sets" "$name" "$state" "$kind" "$(human_bytes "$bytes")"
    done < <(awk NF <<<"$IMAGES")
}

print_paths() {
    local name _
    while read -r _ name _; do
        image_path "$name"
    done <<<"$1"
}

# Prints the table's lines of those images that are not built yet.
missing_of() {
    local line name _
    while read -r line; do
        read -r _ name _ <<<"$line"
        [[ -f $(image_path "$name") ]] || printf '%s\n' "$line"
    done <<<"$1"
}

# Prints how many of the images are to be built, in how many seconds and bytes.
forecast() {
    missing_of "$1" | awk 'NF { count++; seconds += $7; mib += $8 }
        END { printf "%d %d %.0f\n", count, seconds, mib * 1048576 }'
}

# Says what is about to be built, how long it takes and what it needs, before it is.
announce() {
    local count seconds bytes free
    read -r count seconds bytes < <(forecast "$1")
    say "building $count disk images into $CACHE:"
    say "  $(awk '{ print $2 }' <<<"$1" | paste -sd' ')"
    say "  about $(((seconds + 59) / 60)) minutes and $(human_bytes "$bytes") of disk"
    [[ $1 != *fbs42.xfs* ]] || say '  the machines of fbs42 are reflinks of one template: full copies would take 60 GB'
    free=$(df --output=avail --block-size=1 "$CACHE" | tail -n 1)
    ((free > bytes + SPARE_BYTES)) ||
        die "cannot build $count images" "only $(human_bytes "$free") are free in $CACHE"
}

build_images() {
    local missing count number=0 name builder kind bytes seed image log _
    missing=$(missing_of "$1")
    if [[ -z $missing ]]; then
        say "all $(wc -l <<<"$1") images are there already, in $CACHE"
        return
    fi
    announce "$missing"

    # What an interrupted build left behind is of no use to this one.
    rm -rf --one-file-system "$CACHE"/*.tmp.*
    count=$(wc -l <<<"$missing")
    while read -r _ name builder kind bytes seed _; do
        image=$(image_path "$name")
        log=$CACHE/$name.log
        number=$((number + 1))
        with_progress "[$number/$count] $name" "$log" \
            "build_$builder" "$kind" "$bytes" "$seed" "$image" ||
            die "cannot build the image $name" "see $log"
    done <<<"$missing"
}

main() {
    local verb=${1-} lines
    shift || true
    case $verb in
    list)
        list_images
        ;;
    forecast)
        lines=$(select_to_build "$@")
        forecast "$lines"
        ;;
    path)
        lines=$(select_images "$@")
        print_paths "$lines"
        ;;
    build)
        lines=$(select_to_build "$@")
        mkdir -p "$CACHE"
        # Two builders at once would take away each other's half-made images.
        exec 8>"$CACHE/lock"
        flock --nonblock 8 || { say 'waiting for another build to end'; flock 8; }
        trap stop_progress EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        build_images "$lines"
        ;;
    *)
        die_usage "unknown verb \`$verb\`" "the verbs are list, build, path and forecast; see the head of $0"
        ;;
    esac
}

main "$@"
