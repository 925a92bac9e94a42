#!/bin/bash
# The main job of Onefold on real input, from nothing to a checked pool: `make demo`.
#
# With IMAGES="a.qcow2 b.raw" in the environment it stores these images (names without
# blanks); otherwise it builds four Debian images of 2 GiB, once, and stores them. Then:
# a table of what was saved, a hundred clones, a guest that runs from one of them, a look
# into the images, an archive of them, from which one is installed over noise and runs,
# and a check of the pool after all that. As root it also puts plain copies of the
# images on an XFS in a file, and has their equal files share blocks; and of its own images
# a server sends one to three machines at once, of which one runs.
#
# Everything it leaves lies in two folders that git ignores: the images in
# bench/corpus/cache, pool and archive in demo-run. Both are made anew by each run.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
# shellcheck source=demo/pool.sh
source "$here/demo/pool.sh"

# The demo's own images are not signed, and no key of this machine counts.
export ONEFOLD_TRUSTED_KEYS=/dev/null

readonly RUN=$repo/demo-run
readonly POOL=$RUN/images.pool
readonly MNT=$RUN/mnt
# Plain copies of the images, whose files are shared: only root can mount it.
readonly PLAIN=$RUN/plain.xfs
readonly PLAIN_MNT=$RUN/plain
readonly ARCHIVE=$RUN/archive
# What an image of the archive is installed to.
readonly TARGET=$RUN/installed.raw
# Machines to which a server sends an image.
readonly SERVED=$RUN/served
readonly CORPUS=$repo/bench/corpus

readonly GIB=$((1 << 30))
# The pool is a sparse file: its length costs nothing until it is filled.
readonly POOL_BYTES_MIN=$((32 * GIB))
readonly CLONE_COUNT=100
readonly BOOT_SECONDS_MAX=300
# For the forecast; measured on two cores.
readonly TOOLS_BYTES=$((1200 << 20)) TARGET_BYTES=$((1500 << 20)) POOL_BYTES=$((1600 << 20)) PLAIN_BYTES=$((2600 << 20))
readonly ARCHIVE_BYTES=$((5 << 30))
readonly COMPILE_MINUTES=3 RUN_MINUTES=6
# `mkfs.xfs` makes none that is smaller.
readonly XFS_BYTES_MIN=$((512 << 20))

# The user's images; empty means the corpus.
read -ra user_images <<<"${IMAGES-}" || true
onefold=${CARGO_TARGET_DIR:-$repo/target}/release/onefold
# Names in the pool of the images that were stored, in order.
stored=()

check_user_images() {
    local image
    for image in "${user_images[@]}"; do
        [[ -f $image && -r $image ]] || die "cannot use the image $image" 'it is not a readable file' \
            'IMAGES takes file names, separated by blanks'
    done
}

# Says what is going to happen, what it costs and how long it takes.
announce() {
    local missing builds build_seconds build_bytes minutes=$RUN_MINUTES bytes=$POOL_BYTES plain_bytes=$PLAIN_BYTES
    missing=$("$here/install-deps.sh" --list build demo | paste -sd' ')
    say 'Onefold demo: store virtual machine images once, and run one from the pool.'
    say ''
    if [[ -n $missing ]]; then
        say "  install   from apt: $missing"
        bytes=$((bytes + TOOLS_BYTES))
        minutes=$((minutes + 1))
    else
        say '  install   nothing, all tools are there'
    fi
    if [[ -x $onefold ]]; then
        say '  compile   what has changed'
    else
        say "  compile   Onefold, into ${onefold%/release/*}"
        bytes=$((bytes + TARGET_BYTES))
        minutes=$((minutes + COMPILE_MINUTES))
    fi
    if ((${#user_images[@]} > 0)); then
        say "  store     your ${#user_images[@]} images; they are only read"
        plain_bytes=$(user_images_bytes)
        bytes=$((bytes - POOL_BYTES + plain_bytes))
    else
        read -r builds build_seconds build_bytes < <("$CORPUS/corpus.sh" forecast demo)
        say "  store     four Debian images of 2 GiB, $builds of them to be built"
        bytes=$((bytes + build_bytes))
        minutes=$((minutes + build_seconds / 60))
    fi
    # The plain copies are gone before the archive comes.
    bytes=$((bytes + (EUID == 0 && plain_bytes > ARCHIVE_BYTES ? plain_bytes : ARCHIVE_BYTES)))
    say "  run       $CLONE_COUNT clones, and a guest from one of them under QEMU"
    say '  archive   the images, compressed; one of them is installed and runs'
    if serves; then
        say '  serve     one of them to three machines at once, in network namespaces; one of these runs'
    fi
    say ''
    say "  In all about $minutes minutes and up to $(human_bytes "$bytes") of disk."
    say "  Images are kept in $CORPUS/cache, the pool in $RUN."
}

# What the user's images take on disk, the most that their blocks can need in the pool
# where none of them is compressed.
user_images_bytes() {
    local image sum=0
    for image in "${user_images[@]}"; do
        sum=$((sum + $(allocated_bytes "$image")))
    done
    printf '%d\n' "$sum"
}

build_onefold() {
    use_rust_toolchain || die 'cannot build Onefold' 'there is no Rust toolchain that is new enough'
    with_progress 'cargo build --release' "$RUN/build.log" \
        cargo build --release --locked --package onefold --manifest-path "$repo/Cargo.toml" ||
        die 'cannot build Onefold' "see $RUN/build.log"
}

# Unmounts what an earlier run that was killed has left.
clear_leftovers() {
    unmount_quietly
    rm -f "$POOL" "$PLAIN" "$TARGET"
    rm -rf "$ARCHIVE" "$SERVED"
}

# Whether a server is to send an image to other machines: one of the demo's own, so that it is known how long that takes.
serves() {
    ((EUID == 0 && ${#user_images[@]} == 0))
}

unmount_quietly() {
    ! mountpoint --quiet "$PLAIN_MNT" 2>/dev/null || umount "$PLAIN_MNT" || true
    mountpoint --quiet "$MNT" 2>/dev/null || return 0
    "$onefold" --quiet pool umount "$MNT" >/dev/null 2>&1 || umount --lazy "$MNT" 2>/dev/null || true
}

# Length of the pool's file: room for every image as if nothing could be shared.
pool_length() {
    local image bytes sum=0
    for image in "${user_images[@]}"; do
        bytes=$(qemu-img info --output=json "$image" | jq '."virtual-size"') ||
            die "cannot use the image $image" 'qemu-img does not know its format'
        sum=$((sum + bytes))
    done
    sum=$((sum * 2))
    printf '%d\n' $((sum > POOL_BYTES_MIN ? sum : POOL_BYTES_MIN))
}

create_pool() {
    local length
    length=$(pool_length)
    truncate --size="$length" "$POOL"
    "$onefold" pool create "$POOL" >&2
    mkdir -p "$MNT"
    # The daemon must not keep the lock of a demo that has ended.
    "$onefold" pool mount "$POOL" "$MNT" >&2 8>&-
    say "    a pool of $(human_bytes "$length") is mounted at $MNT; its file takes $(human_bytes "$(allocated_bytes "$POOL")")"
}

store_corpus() {
    local image name
    while read -r image; do
        name=$(basename "$image")
        with_progress "cp --sparse=always $name" "$RUN/copy.log" cp --sparse=always "$image" "$MNT/$name" ||
            die "cannot store $image" "see $RUN/copy.log"
        stored+=("$name")
    done < <("$CORPUS/corpus.sh" path demo)
}

store_user_images() {
    local image stem name number
    for image in "${user_images[@]}"; do
        stem=$(basename "$image")
        stem=${stem%.*}
        # Two images may have one name in two folders.
        name=$stem.raw
        for ((number = 2; ; number++)); do
            [[ -e $MNT/$name ]] || break
            name=$stem-$number.raw
        done
        # It shows its own progress.
        "$onefold" pool import "$MNT" "$image" --to "$name" >&2 || die "cannot store $image" 'the import failed, see above'
        stored+=("$name")
    done
}

show_table() {
    local overhead distinct
    "$onefold" pool stat "$MNT" "${stored[@]/#/$MNT/}" >&2
    overhead=$(pool_number .pool.metadata_dynamic_bytes)
    distinct=$(pool_number .pool.distinct_bytes)
    say ''
    say "the pool's own overhead: $(human_bytes "$overhead") of maps and names beside $(human_bytes "$distinct") of distinct blocks,"
    say "and $(human_bytes "$(pool_number .pool.metadata_fixed_bytes)") set aside for a pool of this size when it was created"
}

# Shows which packages the images share most: the first table of `analyze --files`.
show_files() {
    say '$ onefold analyze --files ...'
    "$onefold" --quiet analyze --files "${stored[@]/#/$MNT/}" | sed -n '/^most shared/,/^$/p' >&2
}

# Copies the images out of the pool onto an XFS, has `share files` find and share their equal files, and compares each
# copy with the image in the pool.
share_plain_copies() {
    local name bytes=0
    for name in "${stored[@]}"; do
        bytes=$((bytes + $(stat --format=%s "$MNT/$name")))
    done
    # The copies take less than the images are long; the file system's own records fit into the rest.
    bytes=$((bytes > XFS_BYTES_MIN ? bytes : XFS_BYTES_MIN))
    truncate --size="$((bytes + bytes / 8))" "$PLAIN"
    mkfs.xfs -q -f "$PLAIN"
    mkdir -p "$PLAIN_MNT"
    mount -o loop "$PLAIN" "$PLAIN_MNT"
    for name in "${stored[@]}"; do
        with_progress "cp --sparse=always $name" "$RUN/copy.log" cp --sparse=always "$MNT/$name" "$PLAIN_MNT/$name" ||
            die "cannot copy $name onto XFS" "see $RUN/copy.log"
    done
    say '$ onefold share files ...'
    "$onefold" --quiet share files "$PLAIN_MNT" >&2
    for name in "${stored[@]}"; do
        cmp "$MNT/$name" "$PLAIN_MNT/$name" >&2 || die "$name was changed" 'it differs from the image in the pool'
    done
    say '    every image is byte for byte as it was'
    umount "$PLAIN_MNT"
    rm "$PLAIN"
}

# Holds the pool's figures against a count that knows nothing of Onefold.
compare_with_naive_count() {
    local naive used
    naive=$("$CORPUS/count-blocks.py" --json "${stored[@]/#/$CORPUS/cache/}" | jq '.total.distinct * .block_bytes')
    used=$(pool_number '.pool.distinct_bytes + .pool.metadata_dynamic_bytes')
    awk -v naive="$naive" -v used="$used" 'BEGIN {
        printf("    a naive count finds %.1f MiB of distinct blocks; the pool uses %.1f MiB for them (%+.2f %%)\n",
            naive / 2^20, used / 2^20, (used / naive - 1) * 100) }' >&2
}

# Boots one clone of the first image that can boot.
boot_a_clone() {
    local name clone number=0
    for name in "${stored[@]}"; do
        number=$((number + 1))
        clone=clones/boot-$number.raw
        cp --reflink=auto "$MNT/$name" "$MNT/$clone"
        say "    booting a clone of $name from the mounted pool"
        if "$here/boot-image.sh" --timeout "$BOOT_SECONDS_MAX" --log "$RUN/console.log" "$MNT/$clone"; then
            return
        fi
        # Only the demo's own images must boot; a user's may be data disks.
        ((${#user_images[@]} > 0)) || die 'the guest did not come up' "its console is in $RUN/console.log"
        say "    $name cannot boot here, which is all right"
    done
    say '    none of the images can boot here'
}

# Returns the name in the archive of an image in the pool.
archive_name() {
    printf '%s\n' "${1%.raw}" | tr -c 'A-Za-z0-9._+\n-' '-'
}

# Captures the images into an archive, from clones in the pool.
fill_archive() {
    local name
    "$onefold" archive create "$ARCHIVE" >&2
    for name in "${stored[@]}"; do
        "$onefold" image capture "$ARCHIVE" "$MNT/$name" "$(archive_name "$name")" >"$RUN/capture.log" ||
            die "cannot capture $name" "see $RUN/capture.log"
    done
    "$onefold" image list "$ARCHIVE" >&2
    say ''
    "$onefold" archive stat "$ARCHIVE" >&2
    compare_with_zstd
}

# Says what the images would take as compressed files, at the level of the archive. Their free blocks count there.
compare_with_zstd() {
    local name sum=0
    has_command zstd || return 0
    for name in "${stored[@]}"; do
        sum=$((sum + $(zstd -q -3 --stdout "$MNT/$name" | wc --bytes)))
    done
    say "    each image compressed by zstd takes $(human_bytes "$sum") in all"
}

# Installs the first image of the archive that can boot over noise, and boots it. Then removes it from the archive, and
# frees what it alone needed.
boot_an_installed_one() {
    local name
    for name in "${stored[@]}"; do
        head --bytes="$(stat --format=%s "$MNT/$name")" /dev/urandom >"$TARGET"
        "$onefold" image install --force "$ARCHIVE" "$(archive_name "$name")" "$TARGET" >&2
        say "    booting $name as it was installed"
        if "$here/boot-image.sh" --timeout "$BOOT_SECONDS_MAX" --log "$RUN/console.log" "$TARGET"; then
            rm "$TARGET"
            "$onefold" image rm "$ARCHIVE" "$(archive_name "$name")@1" >&2
            # Nobody else reads this archive, so that nothing has to wait for readers.
            "$onefold" archive gc --delay 0s "$ARCHIVE" >&2
            "$onefold" archive check "$ARCHIVE" >&2
            return
        fi
        ((${#user_images[@]} > 0)) || die 'the installed guest did not come up' "its console is in $RUN/console.log"
        say "    $name cannot boot here, which is all right"
    done
    rm "$TARGET"
}

# Sends the first image to three machines at once, and boots the one that was killed meanwhile.
serve_to_three() {
    "$here/demo/serve.py" "$onefold" "$ARCHIVE" "$(archive_name "${stored[0]}")" "$SERVED" ||
        die 'not every machine got the image' "what the machines said is in $SERVED"
    say '    booting machine 1, which was killed and went on'
    if ! "$here/boot-image.sh" --timeout "$BOOT_SECONDS_MAX" --log "$RUN/console.log" "$SERVED/machine-1.raw"; then
        die 'the installed machine did not come up' "its console is in $RUN/console.log"
    fi
    rm -r "$SERVED"
}

cleanup() {
    stop_progress
    unmount_quietly
}

main() {
    local started=$SECONDS apparent zero saved distinct
    check_user_images
    announce
    mkdir -p "$RUN"
    exec 8>"$RUN/lock"
    flock --nonblock 8 || die 'cannot run the demo' 'another one is running' "it uses $RUN too"
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    step 'Install what is missing'
    "$here/install-deps.sh" build demo
    step 'Build Onefold'
    build_onefold
    clear_leftovers
    if ((${#user_images[@]} == 0)); then
        step 'Build the images'
        "$CORPUS/corpus.sh" build demo
    fi

    step 'Create and mount a pool'
    create_pool
    step 'Store the images'
    if ((${#user_images[@]} > 0)); then
        store_user_images
    else
        store_corpus
    fi

    step 'What is stored'
    show_table
    ((${#user_images[@]} > 0)) || compare_with_naive_count
    apparent=$(pool_number .pool.apparent_bytes)
    zero=$(pool_number .pool.zero_bytes)
    saved=$(pool_number .pool.saved_bytes)
    distinct=$(pool_number .pool.distinct_bytes)

    step "Clone ${stored[0]} $CLONE_COUNT times"
    # In a folder of their own, where no image of the user's can have their names.
    mkdir "$MNT/clones"
    "$onefold" pool clone "$MNT" "${stored[0]}" 'clones/vm-%03d.raw' --count "$CLONE_COUNT" >&2
    say "    the pool now shows $(human_bytes "$(pool_number .pool.apparent_bytes)") of images in $(human_bytes "$(pool_number .pool.distinct_bytes)")"
    step 'Run a guest from a clone'
    boot_a_clone
    step 'Delete the clones'
    delete_clones

    if ((EUID == 0)); then
        step 'Share the equal files of plain copies on XFS'
        share_plain_copies
    else
        say ''
        say 'As root the demo would also share the equal files of plain copies on XFS.'
    fi

    step 'Capture the images into an archive'
    fill_archive
    if serves; then
        step "Send ${stored[0]} to three machines at once, of which each loses 2 % of all packets"
        serve_to_three
    elif ((EUID != 0)); then
        say ''
        say 'As root the demo would also send an image to three machines at once.'
    fi
    step 'Install one of them over noise, and run it'
    boot_an_installed_one

    step "Look into ${stored[0]}, and into what all images share"
    # An image without a file system that is known is no failure of the demo.
    "$onefold" guest info "$MNT/${stored[0]}" >&2 || say '    nothing in it is known'
    say ''
    show_files

    step 'Unmount and check the pool'
    "$onefold" pool umount "$MNT" >&2
    "$onefold" pool check "$POOL" >&2 || die 'the pool is not clean' "it is kept as $POOL"

    say ''
    say "The pool stays in $POOL, the archive in $ARCHIVE (remove both with rm -r $RUN)."
    awk -v count="${#stored[@]}" -v apparent="$(human_bytes "$apparent")" -v data=$((apparent - zero)) \
        -v data_text="$(human_bytes $((apparent - zero)))" -v saved="$saved" -v saved_text="$(human_bytes "$saved")" \
        -v distinct="$(human_bytes "$distinct")" -v seconds=$((SECONDS - started)) 'BEGIN {
        printf("Done in %d s: %d images of %s hold %s that is not zero; the pool stores %s and saves %s (%.1f %%).\n",
            seconds, count, apparent, data_text, distinct, saved_text, data > 0 ? saved * 100 / data : 0) }'
}

main "$@"
