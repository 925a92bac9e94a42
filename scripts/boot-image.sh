#!/bin/bash
# Boots a disk image in QEMU until its console says that it is up, then powers it
# off: boot-image.sh [options] IMAGE
#
#   --timeout S         seconds until the boot is given up (default 300)
#   --format NAME       the image's format (default raw)
#   --memory MIB        the guest's memory (default 768)
#   --log FILE          keep the console's output here
#   --snapshot          do not write to the image
#   --record FILE       keep QEMU's account of the guest's reads and writes here, until it was up
#   --seconds           print how long the guest took to come up, on standard output
#
# The guest is up when its console shows ONEFOLD-GUEST-UP or a login prompt. Exits
# with 0 then, with 1 when the image cannot boot; "not bootable" in the message means
# that the fault is the image's, not the machine's. Works without KVM, slowly.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"

readonly UP_PATTERN='ONEFOLD-GUEST-UP|login: *$'
# What firmware, boot loader and kernel say when nothing more will come. The first
# four are SeaBIOS's and GRUB's words.
readonly DEAD_PATTERN='No bootable device|Boot failed: not a bootable disk|grub rescue>|^error: no such device|Kernel panic - not syncing'
# A guest that ignores the power button is cut off after this long.
readonly POWEROFF_SECONDS_MAX=60
# How often the console is looked at; no time is told more exactly.
readonly POLL_SECONDS=0.1

timeout=300 format=raw memory_mib=768 log='' snapshot=off image='' record='' tell_seconds=''
work='' qemu=''

parse_arguments() {
    while (($# > 0)); do
        case $1 in
        --timeout) timeout=${2-}; shift 2 ;;
        --format) format=${2-}; shift 2 ;;
        --memory) memory_mib=${2-}; shift 2 ;;
        --log) log=${2-}; shift 2 ;;
        --snapshot) snapshot=on; shift ;;
        --record) record=${2-}; shift 2 ;;
        --seconds) tell_seconds=yes; shift ;;
        -*) die_usage "unknown option \`$1\`" "see the head of $0" ;;
        *) image=$1; shift ;;
        esac
    done
    [[ -n $image ]] || die_usage 'no image is named' "see the head of $0"
    [[ $timeout =~ ^[0-9]+$ && $memory_mib =~ ^[0-9]+$ ]] ||
        die_usage '--timeout and --memory take whole numbers' "see the head of $0"
    [[ -r $image ]] || die "cannot boot $image" 'the file cannot be read'
}

# Fails where a BIOS would find no boot loader; looks at raw images only.
has_boot_loader() {
    [[ $format == raw ]] || return 0
    # A boot sector ends in 55 aa, and begins with code unless it only guards a GPT.
    [[ $(od -An -v -tx1 -j 510 -N 2 "$image") == ' 55 aa' ]] &&
        (($(od -An -v -tx1 -N 440 "$image" | tr -d ' 0\n' | wc -c) > 0))
}

# `none` where the file system takes O_DIRECT (the guest's cache is then the only
# one), otherwise QEMU's default.
cache_mode() {
    if dd if="$image" of=/dev/null iflag=direct bs=4096 count=1 status=none 2>/dev/null; then
        printf 'none\n'
    else
        printf 'writeback\n'
    fi
}

# The processor's own virtualisation where there is one, else software emulation.
# /dev/kvm alone proves nothing: inside some virtual machines it opens, but guests
# hardly move.
accelerator() {
    if [[ -w /dev/kvm ]] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
        printf 'kvm\n'
    else
        printf 'tcg,thread=multi\n'
    fi
}

# Starts QEMU with its console in $log and its monitor reading from descriptor 9.
start_qemu() {
    local drive recording=()
    # QEMU splits options at commas; a comma in a name is written twice.
    drive="file=${image//,/,,},format=$format,if=none,id=disk,discard=unmap"
    drive+=",cache=$(cache_mode),snapshot=$snapshot"
    if [[ -n $record ]]; then
        recording=(-trace blk_co_preadv -trace blk_co_pwritev -D "$record")
    fi
    mkfifo "$work/monitor"
    # Open for both ways, so that neither end waits for the other.
    exec 9<>"$work/monitor"
    # Without graphics, firmware and boot loader talk to the serial port as well.
    qemu-system-x86_64 -name onefold-boot -machine pc,graphics=off \
        -accel "$(accelerator)" -smp 2 -m "$memory_mib" \
        -drive "$drive" -device virtio-blk-pci,drive=disk \
        -device virtio-rng-pci -nic none -display none -no-reboot "${recording[@]}" \
        -chardev "file,id=console,path=${log//,/,,}" -serial chardev:console \
        -monitor stdio <"$work/monitor" >"$work/qemu.log" 2>&1 &
    qemu=$!
}

# Waits for the guest; prints nothing but progress. Returns 0 when it is up.
wait_until_up() {
    local shown=$SECONDS pause=15
    [[ ! -t 2 ]] || pause=1
    while ((SECONDS - started < timeout)); do
        if grep -qaE "$UP_PATTERN" "$log"; then
            return 0
        fi
        if ! kill -0 "$qemu" 2>/dev/null; then
            problem="QEMU ended by itself: $(last_line "$work/qemu.log")"
            return 1
        fi
        if grep -qaE "$DEAD_PATTERN" "$log"; then
            problem="not bootable: its console says \`$(grep -aoE "$DEAD_PATTERN" "$log" | head -n 1)\`"
            return 1
        fi
        if ((SECONDS - shown >= pause)); then
            shown=$SECONDS
            progress_line booting $((SECONDS - started)) "$(last_line "$log")"
        fi
        sleep $POLL_SECONDS
    done
    problem="not bootable: no login prompt within $timeout s; the last line was \`$(last_line "$log")\`"
    return 1
}

# Presses the power button and waits; pulls the plug where that does not help.
power_off() {
    local pressed=$SECONDS shown=$SECONDS pause=15
    [[ ! -t 2 ]] || pause=1
    printf 'system_powerdown\n' >&9
    while kill -0 "$qemu" 2>/dev/null; do
        if ((SECONDS - pressed >= POWEROFF_SECONDS_MAX)); then
            progress_end "the guest ignores the power button; QEMU is told to quit"
            printf 'quit\n' >&9
            break
        fi
        if ((SECONDS - shown >= pause)); then
            shown=$SECONDS
            progress_line 'shutting down' $((SECONDS - pressed)) "$(last_line "$log")"
        fi
        sleep 0.5
    done
    wait "$qemu" || true
    qemu=''
    progress_end "powered off in $((SECONDS - pressed)) s"
}

cleanup() {
    if [[ -n $qemu ]]; then
        kill -TERM "$qemu" 2>/dev/null || true
        wait "$qemu" 2>/dev/null || true
    fi
    [[ -z $work ]] || rm -rf "$work"
}

main() {
    parse_arguments "$@"
    has_command qemu-system-x86_64 || die "cannot boot $image" 'qemu-system-x86_64 is not installed' \
        "run $here/install-deps.sh demo"
    has_boot_loader || die "cannot boot $image" 'not bootable: its first sector holds no boot loader for a BIOS'
    work=$(mktemp --directory)
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    log=${log:-$work/console.log}
    : >"$log"

    local started=$SECONDS started_us=${EPOCHREALTIME/[.,]/} took_us up_bytes problem=''
    start_qemu
    if wait_until_up; then
        took_us=$((${EPOCHREALTIME/[.,]/} - started_us))
        # QEMU appends, and writes each line out at once: what comes after this is the shutdown's.
        [[ -z $record ]] || up_bytes=$(stat --format=%s "$record")
        [[ -z $tell_seconds ]] || printf '%d.%06d\n' $((took_us / 1000000)) $((took_us % 1000000))
        progress_end "up after $((SECONDS - started)) s: $(grep -aoE 'ONEFOLD-GUEST-UP|[^ ]* login:' "$log" | head -n 1)"
        power_off
        [[ -z $record ]] || truncate --size="$up_bytes" "$record"
    else
        progress_end "gave up after $((SECONDS - started)) s"
        die "cannot boot $image" "$problem"
    fi
}

main "$@"
