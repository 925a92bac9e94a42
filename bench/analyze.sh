#!/usr/bin/env bash
# How fast `onefold analyze` reads: against `cat` of the same files, cold and warm, against other people's scanners where
# they are installed, and on a set larger than the machine; and how much faster a sample of the same is.
#
#     bench/analyze.sh [IMAGE...]
#
# Without images, the demo's corpus is taken, and built where it is missing. Cold means that nothing of the images is in
# the page cache, which is full of something else: see lib/memory.py.
#
#     ONEFOLD=path   the binary to measure (target/release/onefold unless given)
#     GIB=n          length of the made-up set (64; 1024 takes about half an hour), 0 for none
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source-path=SCRIPTDIR source=../scripts/lib.sh
source "$here/../scripts/lib.sh"

target=${CARGO_TARGET_DIR:-$repo/target}
ONEFOLD=${ONEFOLD:-$target/release/onefold}
[[ -x $ONEFOLD ]] || die "there is no program at $ONEFOLD" "" "build it with \`make build\`"

images=("$@")
if ((${#images[@]} == 0)); then
    "$here/corpus/corpus.sh" build
    mapfile -t images < <("$here/corpus/corpus.sh" path)
fi
bytes=0
for image in "${images[@]}"; do
    bytes=$((bytes + $(allocated_bytes "$image")))
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Drops what the page cache holds of the images, and leaves the processors no memory that the host has to hand out first.
make_cold() {
    local image
    for image in "${images[@]}"; do
        sync "$image"
        dd if="$image" iflag=nocache count=0 status=none
    done
    python3 -B "$here/lib/memory.py" "$scratch/ballast"
}

# measure CACHE WHAT COMMAND...: prints the shortest time of three runs of a command, and its rate by what all images have
# allocated, read or not. Noise only adds time.
measure() {
    local cache=$1 what=$2 started took best=
    shift 2
    for _ in 1 2 3; do
        [[ $cache == warm ]] || make_cold
        started=${EPOCHREALTIME/./}
        "$@" >/dev/null 2>"$scratch/err" || die "$what failed" "$(tail -n 1 "$scratch/err")"
        took=$((${EPOCHREALTIME/./} - started))
        ((${best:-$took} < took)) || best=$took
    done
    awk -v what="$what, $cache" -v bytes="$bytes" -v us="$best" \
        'BEGIN { printf "%-32s %8.2f s %8.2f GiB/s\n", what, us / 1e6, bytes / us * 1e6 / 2 ^ 30 }'
}

printf '%s images, %s allocated, %s processors\n\n' "${#images[@]}" "$(human_bytes "$bytes")" "$(nproc)"
# Once for nothing: below a virtual machine's disk there is a cache that is not ours to drop.
cat "${images[@]}" >/dev/null
measure cold 'cat' cat "${images[@]}"
measure cold 'onefold analyze' "$ONEFOLD" analyze --quiet --json "${images[@]}"
measure cold 'onefold analyze --sample' "$ONEFOLD" analyze --quiet --json --sample "${images[@]}"
cat "${images[@]}" >/dev/null
measure warm 'cat' cat "${images[@]}"
measure warm 'onefold analyze' "$ONEFOLD" analyze --quiet --json "${images[@]}"
measure warm 'onefold analyze --sample' "$ONEFOLD" analyze --quiet --json --sample "${images[@]}"
if has_command duperemove; then
    # Without its file of hashes: with one, the second run would have nothing to do.
    measure warm 'duperemove, scan' duperemove -q --dedupe-options=partial -b 4096 "${images[@]}"
fi
if has_command rmlint; then
    # A real file: rmlint, as root, moves a /dev/null that it is given out of its way.
    measure warm 'rmlint, scan' rmlint -o "json:$scratch/rmlint.json" "${images[@]}"
fi

((${GIB:-64} > 0)) || exit 0
use_rust_toolchain
printf '\na made-up set of %s GiB, with 512 MiB of memory:\n' "${GIB:-64}"
cargo run --quiet --release --locked -p onefold-report --example analyze_scale -- "${GIB:-64}" 512 "${TMPDIR:-/var/tmp}"
