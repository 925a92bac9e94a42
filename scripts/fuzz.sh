#!/usr/bin/env bash
# Coverage-guided fuzzing: fuzz.sh [--build|--list [guest]|--merge] [TARGET...]; without targets, all of them one after the other.
#
#   FUZZ_SECONDS  time for each target (default 120)
#   FUZZ_JOBS     fuzzers side by side, each with a target of its own (default: one for each core)
#   FUZZ_SEED     what the fuzzers draw from, a number below 2^32 (one drawn by each of them)
#   --build       only builds the fuzzer
#   --list        only prints the names of all targets; `--list guest` those of the readers of guests
#   --merge       does not fuzz: keeps of what was bred so far the smallest set that reaches the same code, in fuzz/corpus
#
# What is bred stays in fuzz/work and is taken up again by the next run. An input that breaks something is kept in
# fuzz/work/findings, and the script fails. fuzz/README.md says what to do with it. The script also fails if a fuzzer is
# interrupted. Each line has the inputs and the processor time of a target, which is less than FUZZ_SECONDS if fuzzers
# share processors with others.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

readonly seconds=${FUZZ_SECONDS:-120} jobs=${FUZZ_JOBS:-$(nproc)}
# Longest input in bytes, and the most memory and time that one may take.
readonly limits=(-max_len=600 -rss_limit_mb=2048 -timeout=60)
# How a fuzzer exits after SIGINT or SIGTERM.
readonly interrupted_code=72
# What the compiler adds so that the engine sees which code ran: no unstable option is among them, so that any toolchain
# that builds Onefold will do. Overflows and assertions are looked at as in the tests.
readonly coverage="-Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"

targets() {
    sed -n 's/.*Target { name: "\([a-z_]*\)".*/\1/p' crates/onefold-hostile/src/targets/mod.rs
}

# Those of the readers of guests.
guest_targets() {
    targets | grep -xE 'partitions|packages|ext|ext_journal|fat|volumes|ntfs|xfs|xfs_log'
}

build() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    # With a target of its own the flags reach the fuzzer, not the build scripts.
    RUSTFLAGS=$coverage cargo build --release --locked --manifest-path fuzz/Cargo.toml --target "$host" \
        --target-dir "${CARGO_TARGET_DIR:-fuzz/target}"
    fuzzer=${CARGO_TARGET_DIR:-fuzz/target}/$host/release/onefold-fuzz
}

# Prints the inputs and the edges of a log, and the processor time in seconds: describe_run TARGET LOG SECONDS.
describe_run() {
    awk -v target="$1" -v cpu="$3" '/number_of_executed_units/ { runs = $2 } / cov: / { for (i = 1; i < NF; i++)
        if ($i == "cov:") reached = $(i + 1) }
        END { printf "%-13s %9d inputs, %6d edges of code reached, %8.1f s of processor", target, runs, reached, cpu }' "$2"
}

fuzz() {
    local target=$1 log=fuzz/work/$1.log times line code=0
    mkdir -p "fuzz/work/corpus/$target" fuzz/work/findings "fuzz/corpus/$target"
    times=$(
        TIMEFORMAT='%U %S'
        { time ONEFOLD_TARGET=$target nice -n 19 "$fuzzer" "${limits[@]}" -max_total_time="$seconds" \
            -seed="${FUZZ_SEED:-0}" -print_final_stats=1 -artifact_prefix="fuzz/work/findings/$target-" \
            "fuzz/work/corpus/$target" "fuzz/corpus/$target" >"$log" 2>&1; } 2>&1
    ) || code=$?
    line=$(describe_run "$target" "$log" "$(awk '{ print $1 + $2 }' <<<"$times")")
    case $code in
    0) printf '%s\n' "$line" ;;
    "$interrupted_code")
        printf '%s, interrupted\n' "$line"
        return "$interrupted_code"
        ;;
    *)
        printf '%-13s broken, see %s; the input is in fuzz/work/findings\n' "$target" "$log"
        return 1
        ;;
    esac
}

merge() {
    local target=$1
    mkdir -p "fuzz/work/merged/$target" "fuzz/work/corpus/$target" "fuzz/corpus/$target"
    ONEFOLD_TARGET=$target "$fuzzer" "${limits[@]}" -merge=1 "fuzz/work/merged/$target" "fuzz/corpus/$target" \
        "fuzz/work/corpus/$target" >"fuzz/work/$target.log" 2>&1
    # What was given a name tells of something that once broke: it stays.
    find "fuzz/corpus/$target" -type f -name '*-*' -exec mv -t "fuzz/work/merged/$target" {} +
    rm -rf "fuzz/corpus/$target"
    mv "fuzz/work/merged/$target" "fuzz/corpus/$target"
}

# Waits for one of the targets, and notes how it ended.
ended() {
    local code=0
    wait -n || code=$?
    case $code in
    0) ;;
    "$interrupted_code") interrupted=yes ;;
    *) failed=yes ;;
    esac
}

main() {
    local verb=fuzz wanted target failed='' interrupted=''
    if [[ ${1-} == --list ]]; then
        if [[ ${2-} == guest ]]; then guest_targets; else targets; fi
        return
    fi
    if [[ ${1-} == --merge || ${1-} == --build ]]; then
        verb=${1#--}
        shift
    fi
    wanted=("$@")
    (($# > 0)) || mapfile -t wanted < <(targets)
    scripts/install-deps.sh build fuzz
    use_rust_toolchain
    mkdir -p fuzz/work
    build
    [[ $verb != build ]] || return 0
    for target in "${wanted[@]}"; do
        while (($(jobs -rp | wc -l) >= jobs)); do
            ended
        done
        "$verb" "$target" &
    done
    while (($(jobs -p | wc -l) > 0)); do
        ended
    done
    [[ -z $failed ]] || die 'fuzzing broke something' 'see the lines above' 'fuzz/README.md says how to see it again'
    [[ -z $interrupted ]] ||
        die 'a fuzzer was interrupted' 'see the lines above' 'what was bred is kept, and the next run continues with it'
}

main "$@"
