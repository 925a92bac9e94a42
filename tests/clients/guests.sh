# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets `dir`, `tools` and `loop`.
#
# What cases with disks of guests share, to be sourced by them. A guest is a small Debian (tools/make_debian.py) on ext4:
# it has the packages of all others at places of its own.
#
# Guests are made once for all cases of a run, in the folder $GUESTS, and copied.

# guest IMAGE SEED [FLAG]: makes the disk of a guest. FLAG is one of make_debian.py's. $guest_bytes is the length of the
# disk (32M unless set) and $guest_block that of the guest's blocks (4096).
guest() {
    local image=$1 seed=$2 flag=${3-} bytes=${guest_bytes:-32M} block=${guest_block:-4096} made
    local folder=${GUESTS:-$dir/guests}
    made=$folder/$seed$flag-$bytes-$block
    mkdir -p "$folder"
    (
        flock 8
        [[ ! -s $made ]] || exit 0
        trap 'rm -rf "$made.tree"' EXIT
        make_tree "$made.tree" "$seed" "$flag"
        rm -f "$made.new"
        truncate -s "$bytes" "$made.new"
        mke2fs -q -F -t ext4 -b "$block" -d "$made.tree" "$made.new"
        mv "$made.new" "$made"
    ) 8>"$made.lock"
    cp --sparse=always "$made" "$image"
}

# make_tree FOLDER SEED [FLAG]: makes what a guest's disk holds, in a folder.
make_tree() {
    rm -rf "$1"
    python3 "$tools/make_debian.py" "$1" "guest-$2" "$2" ${3:+"$3"}
}

# new_host KIND [BYTES]: makes a file system for images and mounts it: $mount, with the folder $images, on the device
# $loop.
new_host() {
    local kind=$1
    truncate -s "${2:-1G}" "$dir/$kind.raw"
    attach_loop "$dir/$kind.raw"
    "mkfs.$kind" -q "$loop" 2>/dev/null
    mount=$dir/$kind images=$dir/$kind/images
    mkdir "$mount"
    mount "$loop" "$mount"
    mkdir "$images"
}

# remember [PATTERN]: notes what the images hold (those that match, *.raw unless given), and that it is on the disk.
remember() {
    sync -f "$images"
    # shellcheck disable=SC2086 # A pattern.
    (cd "$images" && python3 -IS "$tools/image_sums.py" note "$dir/sums" ${1:-*.raw})
}

# whole: fails unless all images hold what was noted.
whole() {
    (cd "$images" && python3 -IS "$tools/image_sums.py" check "$dir/sums")
}

# forget PATH: what was noted of an image that is gone.
forget() {
    sed -i "/  ${1//./\\.}\$/d" "$dir/sums"
}

# same_number NAME FILE OTHER: a number of two results of `--json` is one; both are shown where it is not.
same_number() {
    local one other
    one=$(number "$1" <"$2") other=$(number "$1" <"$3")
    ((one == other)) || { cat "$2" "$3"; fail "$1 is $one in ${2##*/}, and $other in ${3##*/}"; }
}

# seen_again FIRST SECOND: what the first run has shared or found shared is what the second one finds, and no more: each
# block counts once. Both results are shown where that is not so.
seen_again() {
    local first second
    first=$(($(number shared.now_bytes <"$1") + $(number shared.before_bytes <"$1")))
    second=$(number shared.before_bytes <"$2")
    (($(number shared.now_bytes <"$2") == 0 && first == second)) || {
        cat "$1" "$2"
        fail "it shared again, or maps show something else than was shared: $second bytes, not $first"
    }
}
