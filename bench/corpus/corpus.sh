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

# One image a line: set, name, builder, its kind, length in bytes, seed. A new set
# needs its lines here and, where the builder is new, a function build_<builder>,
# which is given the kind, the length, the seed and the file to make.
readonly IMAGES="
demo  debian-12-base  debian  bookworm/base  $((2 * GIB))  onefold-1
demo  debian-12-web   debian  bookworm/web   $((2 * GIB))  onefold-1
demo  debian-13-base  debian  trixie/base    $((2 * GIB))  onefold-1
demo  debian-13-web   debian  trixie/web     $((2 * GIB))  onefold-1
"
readonly DEFAULT_SET=demo

# What one image costs on two cores, and on disk: a little more than the image itself,
# because its root lies beside it while it is built.
readonly IMAGE_SECONDS=90
readonly IMAGE_BYTES=$((900 << 20))

build_debian() {
    local kind=$1 bytes=$2 seed=$3 image=$4
    "$here/build-image.sh" --release "${kind%/*}" --packages "${kind#*/}" \
        --bytes "$bytes" --seed "$seed" "$image"
}

# Prints the table's lines for the given images and sets; all of the default set
# where none is given.
select_images() {
    local wanted lines
    for wanted in "${@:-$DEFAULT_SET}"; do
        lines=$(awk -v wanted="$wanted" 'NF && ($1 == wanted || $2 == wanted)' <<<"$IMAGES")
        [[ -n $lines ]] || die_usage "there is no image or set \`$wanted\`" "see \`$0 list\`"
        printf '%s\n' "$lines"
    done | awk '!seen[$2]++'
}

image_path() {
    printf '%s/%s.raw\n' "$CACHE" "$1"
}

list_images() {
    local set name kind bytes state _
    while read -r set name _ kind bytes _; do
        state=missing
        [[ ! -f $(image_path "$name") ]] || state=built
        printf '%-6s  %-16s  %-8s  %-14s  %s\n' "$set" "$name" "$state" "$kind" "$(human_bytes "$bytes")"
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
    local count
    count=$(missing_of "$1" | wc -l)
    printf '%d %d %d\n' "$count" $((count * IMAGE_SECONDS)) $((count * IMAGE_BYTES))
}

# Says what is about to be built, how long it takes and what it needs, before it is.
announce() {
    local count seconds bytes free
    read -r count seconds bytes < <(forecast "$1")
    say "building $count disk images into $CACHE:"
    say "  $(awk '{ print $2 }' <<<"$1" | paste -sd' ')"
    say "  about $(((seconds + 59) / 60)) minutes and $(human_bytes "$bytes") of disk"
    free=$(df --output=avail --block-size=1 "$CACHE" | tail -n 1)
    ((free > bytes + IMAGE_BYTES)) ||
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
    while read -r _ name builder kind bytes seed; do
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
        lines=$(select_images "$@")
        forecast "$lines"
        ;;
    path)
        lines=$(select_images "$@")
        print_paths "$lines"
        ;;
    build)
        lines=$(select_images "$@")
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
