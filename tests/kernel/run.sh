#!/usr/bin/env bash
# Tests under another kernel than this machine's: run.sh [CASE...]
#
# Boots Debian 12's kernel (6.1) in QEMU, without hardware virtualisation, and runs there cases of tests/clients and test
# programs of the doors; `run.sh none` runs only the programs. Installs nothing: `make test-kernel` does. The exit code is
# 0 if all passed.
#
#     ONEFOLD=path              the binary to test (target/release/onefold unless given)
#     ONEFOLD_KERNEL=folder     where the guest's system is kept (target/kernel unless given)
#     KERNEL_PROGRAMS="a b"     test programs of onefold-export (those of PROGRAMS below unless given)
#     KERNEL_TESTS="a b"        arguments of these programs: names of tests
#     PROGRAM_SECONDS=n         time for each of them (1,200 unless given)
#     KERNEL_SECONDS=n          time for all of it (3,600 unless given)
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"

readonly CASES=(posix copies clone-mapped terminated-mapped killed killed-often killed-ending share-quota
    direct-beside-cached mapped-holes)
# Not `seeking`: its tests map files of a pool that the same process serves. Under this kernel a page fault holds the lock
# of the address space while it waits for the daemon, so a daemon in the same process may wait for itself. The case
# `mapped-holes` has a daemon of its own.
readonly PROGRAMS='control durability ending content mixed_caching'
readonly MEMORY_MIB=2048
readonly DISK=16G
target=${CARGO_TARGET_DIR:-$repo/target}
ONEFOLD=$(readlink -m "${ONEFOLD:-$target/release/onefold}")
system=$(readlink -m "${ONEFOLD_KERNEL:-$target/kernel}")
guest=

# shellcheck disable=SC2317,SC2329 # The trap calls it.
clean_up() {
    [[ -z $guest ]] || kill -KILL "$guest" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}

# Puts what the guest is to run into the folder that it sees as /host.
fill_host() {
    local program path
    mkdir -p "$work/host/programs"
    cp "$ONEFOLD" "$work/host/onefold"
    cp -r "$repo/packaging" "$work/host/packaging"
    mkdir "$work/host/tests"
    cp -r "$repo"/tests/{clients,soak} "$work/host/tests/"
    for program in ${KERNEL_PROGRAMS-$PROGRAMS}; do
        path=$(cargo test --locked -p onefold-export --test "$program" --no-run --message-format=json 2>"$work/cargo.log" |
            sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
        [[ -n $path ]] || die "cannot build the tests \`$program\`" "$(tail -n 1 "$work/cargo.log")"
        # What is read over the guest's line is short.
        strip -o "$work/host/programs/$program" "$path"
    done
    cat >"$work/host/settings" <<SETTINGS
CASES='$*'
ARGUMENTS='${KERNEL_TESTS-}'
JOBS=2
PATIENCE=20
PROGRAM_SECONDS=${PROGRAM_SECONDS:-1200}
SETTINGS
}

boot() {
    local kernel='console=ttyS0 quiet loglevel=3 mitigations=off nokaslr audit=0 random.trust_cpu=on panic=1'
    # Clocks that are measured at boot go wrong on a busy machine; HPET goes by QEMU's clock.
    kernel+=' tsc=unstable clocksource=hpet'
    local command=(qemu-system-x86_64 -name kernel -accel 'tcg,thread=multi' -cpu max -smp 2 -m "$MEMORY_MIB")
    command+=(-nodefaults -no-user-config -display none -no-reboot -kernel "$system/kernel" -initrd "$system/root")
    command+=(-append "$kernel" -serial stdio -device virtio-rng-pci)
    command+=(-drive "file=$work/disk,format=raw,if=virtio,cache=unsafe,discard=unmap")
    command+=(-virtfs "local,path=$work/host,mount_tag=host,security_model=none,multidevs=remap")
    truncate --size="$DISK" "$work/disk"
    timeout --kill-after=10 "${KERNEL_SECONDS:-3600}" "${command[@]}" </dev/null &
    guest=$!
    wait "$guest" || true
    guest=
}

main() {
    ((EUID == 0)) || die 'cannot make a guest' 'making its system takes root' 'run the same command as root'
    # shellcheck disable=SC2016 # The backquotes are for the reader.
    [[ -x $ONEFOLD ]] || die "there is no binary at $ONEFOLD" '' '`make build` makes it, ONEFOLD=path names another'
    (($#)) || set -- "${CASES[@]}"
    [[ $* != none ]] || set --
    mkdir -p "$system"
    work=$(mktemp -d "$system/run.XXXXXX")
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    "$here/image.sh" "$system"
    fill_host "$@"
    step "booting $(basename "$(readlink -f "$system")")"
    boot
    local status=none
    [[ ! -e $work/host/status ]] || status=$(<"$work/host/status")
    [[ ! -s $work/host/kernel.log ]] || sed 's/^/  kernel: /' "$work/host/kernel.log"
    case $status in
    0) say 'all passed' ;;
    1) die 'a test failed under the other kernel' ;;
    *) die 'the guest did not come to its end' "$status" ;;
    esac
}

main "$@"
