#!/usr/bin/env bash
# Runs one of the long targets, and ends with its verdict: target.sh NAME [ARGUMENT...]
#
# The names are those of `make`: crash, damage, races, sim, sim-images, soak, kill, fuzz, posix, test-cluster,
# test-guest, test-files, test-images, test-serve. Installs and builds what the target needs. The last line on standard
# output is
#
#     NAME: passed, seed N, COUNTS        or        NAME: failed, seed N, COUNTS
#
# also where the target was interrupted. COUNTS begins with a number; a target that tried nothing has failed. The exit
# code is 0 if it passed.
#
#     ONEFOLD_SEED=n   what the target draws from (a number drawn now unless given)
#     ONEFOLD=path     the binary that targets with mounts and hosts test (a release build of what is here unless given)
#     LONG_SECONDS=n   about how long it may take, with what is built first; unless given, the target's own variables
#                      decide
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source scripts/lib.sh

readonly limit=${LONG_SECONDS-}
target=${CARGO_TARGET_DIR:-$PWD/target}
# As `make test` has it: what that has built is not built anew.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
log=
finished=

# Runs a command; what it says is shown, and counted at the end.
logged() {
    "$@" 2>&1 | tee --append "$log"
}

prepare() {
    scripts/install-deps.sh "$@"
    use_rust_toolchain
}

build_release() {
    if [[ -z ${ONEFOLD-} ]]; then
        cargo build --release --locked
        export ONEFOLD=$target/release/onefold
    fi
}

# The seconds that are left of the limit, and never none.
left() {
    printf '%d\n' $((limit - SECONDS > 10 ? limit - SECONDS : 10))
}

# rounds COMMAND...: runs a command once, or with new seeds again and again as long as one more round fits the limit.
rounds() {
    local round=0 began
    while true; do
        began=$SECONDS
        # A round goes on to the seeds that follow its own.
        ONEFOLD_SEED=$((seed + round * 1000)) logged "$@"
        round=$((round + 1))
        if [[ -z $limit ]] || ((SECONDS - began > limit - SECONDS)); then
            break
        fi
    done
}

# whole_or_round WHOLE ROUND: how much one round tries: all, or a part where the limit decides how many there are.
whole_or_round() {
    printf '%s\n' "${limit:+$2}" "$1" | awk 'NF' | head -n 1
}

# sum PATTERN: adds up the numbers that begin each match of an extended regular expression in what the target has said.
sum() {
    { grep -aoE "$1" "$log" || true; } | awk '{ sum += $1 } END { printf "%d\n", sum }'
}

# last PATTERN: the number that begins the last match.
last() {
    { grep -aoE "$1" "$log" || true; } | awk '{ last = $1 } END { printf "%d\n", last }'
}

# Writes a number with commas between its thousands.
grouped() {
    sed -E ':again; s/^([0-9]+)([0-9]{3})/\1,\2/; t again' <<<"$1"
}

# One function runs each target, and one says how much of it was tried. Tests are built as for `make test`: for one
# package alone, what it depends on would be built anew with other features.

run_crash() {
    prepare build
    export ONEFOLD_CRASH_IMAGES=${ONEFOLD_CRASH_IMAGES:-$(whole_or_round 1000000 20000)}
    cargo test --locked --workspace --test crash --no-run
    rounds cargo test --locked --workspace --test crash -- --nocapture
}

count_crash() {
    # One line for each workload and seed.
    sed -nE 's/^crash: [^:]* seed [0-9]+: [0-9]+ events, //p' "$log" >"$log.seeds"
    mv "$log.seeds" "$log"
    printf '%s images, %s of them of recoveries that were cut\n' \
        "$(grouped "$(sum '^[0-9]+ images')")" "$(grouped "$(sum '[0-9]+ of them')")"
}

run_damage() {
    prepare build
    export ONEFOLD_EFFORT=${ONEFOLD_EFFORT:-$(whole_or_round 20 4)}
    cargo test --locked --workspace --test check --no-run
    rounds cargo test --locked --workspace --test check -- --nocapture
}

count_damage() {
    printf '%s cases of damage, %s repairs that were cut, %s damaged journals, %s mutated pools\n' \
        "$(grouped "$(sum '[0-9]+ cases, [0-9]+ lost nothing')")" "$(grouped "$(sum '[0-9]+ repairs cut')")" \
        "$(grouped "$(sum '[0-9]+ damaged journals')")" "$(grouped "$(sum '[0-9]+ mutated pools')")"
}

run_races() {
    prepare build
    export ONEFOLD_SCHEDULES=${ONEFOLD_SCHEDULES:-$(whole_or_round 20000 1000)}
    scripts/races.sh --build
    rounds scripts/races.sh
}

count_races() {
    printf '%s schedules\n' "$(grouped "$(sum '[0-9]+ schedules in [0-9.]+ s')")"
}

run_sim() {
    prepare build
    cargo test --locked --workspace --test simulation --no-run
    [[ -z $limit ]] || ONEFOLD_SIM_SECONDS=$(left)
    # To the tests, ONEFOLD_SEED is the one simulation to repeat.
    logged env -u ONEFOLD_SEED ONEFOLD_FIRST_SEED="$seed" ONEFOLD_SIM_SECONDS="${ONEFOLD_SIM_SECONDS:-1800}" \
        scripts/sim.sh
}

count_sim() {
    printf '%s simulations, %s steps, %s shares\n' "$(grouped "$(last '[0-9]+ simulations, [0-9]+ steps')")" \
        "$(grouped "$(last '[0-9]+ steps, [0-9]+ hosts')")" "$(grouped "$(last '[0-9]+ shares')")"
}

run_sim-images() {
    prepare build
    cargo test --locked --workspace --lib --no-run
    [[ -z $limit ]] || ONEFOLD_SIM_SECONDS=$(left)
    # To the tests, ONEFOLD_SEED is the one simulation to repeat.
    logged env -u ONEFOLD_SEED ONEFOLD_FIRST_SEED="$seed" ONEFOLD_SIM_SECONDS="${ONEFOLD_SIM_SECONDS:-1800}" \
        scripts/sim-images.sh
}

count_sim-images() {
    printf '%s simulations, %s changes, %s captures\n' "$(grouped "$(last '[0-9]+ simulations, [0-9]+ changes')")" \
        "$(grouped "$(last '[0-9]+ changes, [0-9]+ captures')")" "$(grouped "$(last '[0-9]+ captures')")"
}

run_soak() {
    prepare build test
    build_release
    [[ -z $limit ]] || ONEFOLD_SOAK_SECONDS=$(left)
    logged python3 tests/soak/soak.py --seconds "${ONEFOLD_SOAK_SECONDS:-14400}" --pool-mib 512 --round-seconds 60 \
        --folder "$target" --seed "$seed"
}

run_kill() {
    prepare build test
    build_release
    local length=(--rounds "${ONEFOLD_KILL_ROUNDS:-400}") archives=(--kills "${ONEFOLD_IMAGE_KILLS:-300}")
    local servers=(--kills "${ONEFOLD_SERVE_KILLS:-200}")
    [[ -z $limit ]] || length=(--seconds $(($(left) / 2)))
    logged python3 tests/soak/soak.py "${length[@]}" --round-seconds 2 --pool-mib 256 --full 60 \
        --ends kill,kill-umount,kill-mount,sync-kill --folder "$target" --seed "$seed"
    [[ -z $limit ]] || archives+=(--seconds $(($(left) / 2)))
    logged python3 tests/images/trial.py --parts kills "${archives[@]}" --folder "$target" --seed "$seed"
    [[ -z $limit ]] || servers+=(--seconds "$(left)")
    logged python3 tests/serve/trial.py --cases killed-server,killed-clients,continued "${servers[@]}" \
        --folder "$target" --seed "$seed"
}

count_soak() {
    # Its lines count from the beginning.
    printf '%s rounds, %s operations, %s promises found\n' "$(grouped "$(last '[0-9]+ rounds \(')")" \
        "$(grouped "$(last '[0-9]+ operations, [0-9]+ refused')")" "$(grouped "$(last '[0-9]+ promised and found')")"
}

count_kill() {
    printf '%s, %s kills of verbs of an archive, %s kills of servers and machines\n' "$(count_soak)" \
        "$(grouped "$(last '[0-9]+ kills, [0-9]+ ends')")" "$(grouped "$(last '[0-9]+ kills, [0-9]+ boots')")"
}

run_fuzz() {
    local jobs=${FUZZ_JOBS:-$(nproc)} turns
    prepare build fuzz
    scripts/fuzz.sh --build
    turns=$((($(scripts/fuzz.sh --list | wc -l) + jobs - 1) / jobs))
    [[ -z $limit ]] || export FUZZ_SECONDS=$(($(left) / turns > 1 ? $(left) / turns : 1))
    FUZZ_SEED=$seed logged scripts/fuzz.sh "$@"
}

count_fuzz() {
    printf '%s inputs of %s targets\n' "$(grouped "$(sum '[0-9]+ inputs, +[0-9]+ edges')")" \
        "$(grep -acE '[0-9]+ inputs, +[0-9]+ edges' "$log" || true)"
}

run_posix() {
    prepare build test suites
    build_release
    POSIX_SEED=$seed POSIX_SECONDS=${limit:+$(left)} logged scripts/posix.sh
}

count_posix() {
    local operations
    operations=$(sed -n 's/.*fsx: \([0-9]* operations\)$/\1/p' "$log" | awk '{ sum += $1 } END { printf "%d\n", sum }')
    printf '%s cases, %s operations of fsx\n' "$(sum '[0-9]+ of [0-9]+ passed')" "$(grouped "$operations")"
}

run_test-cluster() {
    prepare build cluster
    build_release
    local options=("$@")
    # The rest of it, boots among it, takes what it takes.
    [[ -z $limit ]] || options=(all --danger-seconds $(($(left) / 5)) --engine-seconds $(($(left) / 3)) "$@")
    ((${#options[@]} > 0)) || options=(all)
    logged tests/cluster/run.sh "${options[@]}" --seed "$seed"
}

count_test-cluster() {
    local facts cuts
    facts=$(last '[0-9]+ of [0-9]+ are as said')
    # Its last line has all counts; a run that was cut off has told of rounds only.
    cuts=$(sed -nE 's/^engine: .*\bkills ([0-9]+),.*/\1/p' "$log" | tail -n 1)
    cuts=${cuts:-$(grep -cE '^(round|holes) [0-9]+: ' "$log" || true)}
    if ((facts > 0 && cuts > 0)); then
        printf '%d facts as said, %d power cuts\n' "$facts" "$cuts"
    elif ((facts > 0)); then
        printf '%d facts as said\n' "$facts"
    else
        printf '%d power cuts\n' "$cuts"
    fi
}

run_test-guest() {
    local whole=(cargo test --locked --workspace --test guests -- --nocapture) targets targets_seconds
    # What is drawn: copies of busy images.
    local drawn=(copies_of_a_busy_file_system an_image_in_use a_poisoned_image)
    prepare build test demo fuzz
    cargo test --locked --workspace --test guests --no-run
    cargo test --locked --workspace --test guest --no-run
    scripts/fuzz.sh --build
    # A whole Debian, its packages, its files on XFS on LVM2, and newer programs. Tests skip what is not there.
    bench/corpus/corpus.sh build debian-12-base debian-12-web debian-12-lvm debian-13-xfs
    ONEFOLD_SEED=$seed logged "${whole[@]}" --include-ignored
    # The command line, on ten million files and within its memory.
    ONEFOLD_SEED=$seed logged cargo test --locked --workspace --test guest -- --nocapture --include-ignored
    ONEFOLD_SEED=$seed ONEFOLD_GUEST_TIMES=${ONEFOLD_GUEST_TIMES:-$(whole_or_round 20 4)} logged "${whole[@]}" "${drawn[@]}"
    mapfile -t targets < <(scripts/fuzz.sh --list guest)
    targets_seconds=$(($(left) * ${FUZZ_JOBS:-$(nproc)} / ${#targets[@]}))
    [[ -z $limit ]] || export FUZZ_SECONDS=$((targets_seconds > 1 ? targets_seconds : 1))
    FUZZ_SEED=$seed logged scripts/fuzz.sh "${targets[@]}"
}

count_test-guest() {
    printf '%s file systems, %s verbs on ten million files, %s copies of busy images, %s boots, %s hostile inputs\n' \
        "$(grouped "$(sum '[0-9]+ file systems made and compared')")" \
        "$(grep -c ' of ten million files: at most ' "$log" || true)" \
        "$(grouped "$(sum '[0-9]+ copies of busy images compared')")" \
        "$(sum '[0-9]+ boots of an image whose free bytes are noise')" \
        "$(grouped "$(sum '[0-9]+ inputs, +[0-9]+ edges')")"
}

run_test-files() {
    local options=() image=${ONEFOLD_GUEST_IMAGE-bench/corpus/cache/debian-12-base.raw}
    prepare build test files demo
    build_release
    # An empty name leaves the boot out.
    if [[ -n $image ]]; then
        [[ -e $image ]] || bench/corpus/corpus.sh build debian-12-base
        options=(--boot "$image")
    fi
    [[ -z $limit ]] || ONEFOLD_FILES_SECONDS=$(left)
    logged python3 tests/guest-files/trial.py --seconds "${ONEFOLD_FILES_SECONDS:-1800}" --folder "$target" \
        --seed "$seed" "${options[@]}" "$@"
}

count_test-files() {
    # Its lines count from the beginning.
    printf '%s rounds, %s kills, %s failed calls, %s runs on full disks, %s passes beside guests, ' \
        "$(last '[0-9]+ rounds')" "$(grouped "$(last '[0-9]+ kills')")" "$(grouped "$(last '[0-9]+ faults')")" \
        "$(grouped "$(last '[0-9]+ full')")" "$(grouped "$(last '[0-9]+ passes beside guests')")"
    printf '%s power cuts, %s boots\n' "$(grouped "$(last '[0-9]+ power cuts')")" "$(last '[0-9]+ boots')"
}

run_test-images() {
    local small=(cargo test --locked --workspace --lib capture::tests:: -- --nocapture) image images=() boot=()
    local names=(demo distros ntfs lvm)
    prepare build test demo corpus
    build_release
    # To build all of them takes half an hour: more than there is, where time is limited.
    if [[ -n $limit ]]; then
        bench/corpus/corpus.sh build debian-12-base
    else
        bench/corpus/corpus.sh build "${names[@]}"
    fi
    while read -r image; do
        [[ ! -f $image ]] || images+=("$image")
    done < <(bench/corpus/corpus.sh path "${names[@]}")
    cargo test --locked --workspace --lib --no-run
    ONEFOLD_SEED=$seed ONEFOLD_IMAGE_TIMES=${ONEFOLD_IMAGE_TIMES:-$(whole_or_round 20 2)} logged "${small[@]}"
    [[ -z ${ONEFOLD_NO_BOOT-} ]] || boot=(--no-boot)
    logged python3 tests/images/trial.py --parts disks --images "${images[@]}" "${boot[@]}" --folder "$target" \
        --seed "$seed"
}

count_test-images() {
    # The trial counts from its beginning, tests tell of what each has tried.
    printf '%s images with %s file systems and %s files, %s boots, %s small file systems and disks\n' \
        "$(last '[0-9]+ images, [0-9]+ file systems')" "$(last '[0-9]+ file systems, [0-9]+ files')" \
        "$(grouped "$(last '[0-9]+ files, [0-9]+ boots')")" "$(last '[0-9]+ boots, [0-9]+ second')" \
        "$(grouped "$(sum '[0-9]+ [a-z ]+ captured and installed over noise')")"
}

run_test-serve() {
    local options=() image=${ONEFOLD_GUEST_IMAGE-bench/corpus/cache/debian-12-base.raw}
    prepare build test demo
    build_release
    # An empty name leaves the boot out.
    if [[ -n $image ]]; then
        [[ -e $image ]] || bench/corpus/corpus.sh build debian-12-base
        options=(--boot "$image")
    fi
    [[ -z $limit ]] || options+=(--seconds "$(left)")
    logged python3 tests/serve/trial.py --folder "$target" --seed "$seed" "${options[@]}" "$@"
}

count_test-serve() {
    printf '%s cases, %s disks, %s kills, %s boots\n' "$(last '[0-9]+ cases, [0-9]+ disks')" \
        "$(grouped "$(last '[0-9]+ disks, [0-9]+ kills')")" "$(grouped "$(last '[0-9]+ kills, [0-9]+ boots')")" \
        "$(last '[0-9]+ boots; ')"
}

# shellcheck disable=SC2317,SC2329 # The trap calls it.
end() {
    local status=$? result=failed counts
    trap - EXIT
    counts=$("count_$name") || counts='0 things counted'
    if [[ -n $finished && $counts != 0\ * ]]; then
        result=passed
    elif ((status == 0)); then
        status=1
    fi
    rm -f "$log"
    printf '%s: %s, seed %s, %s\n' "$name" "$result" "$seed" "$counts"
    exit "$status"
}

name=${1-}
declare -F "run_$name" >/dev/null || die_usage "there is no long target \`$name\`" "see the head of $0"
shift
# 31 bits: what all of them take for a seed.
seed=${ONEFOLD_SEED:-$((RANDOM << 16 | RANDOM))}
log=$(mktemp)
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say "$name: seed $seed"
"run_$name" "$@"
finished=yes
