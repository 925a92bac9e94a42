# shellcheck shell=bash
# What every script here shares: messages, checks of the machine, progress.
#
# To be sourced, never run. Results go to stdout and talk to stderr, as in the
# command line itself, so that a caller can use `$(script)`.

# Tools of the administrator live in sbin, which a plain user's PATH leaves out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

repo=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..")
readonly repo

# The command that `with_progress` is waiting for; empty when there is none.
progress_child=

# Makes text that holds names of files fit for a terminal: `?` takes the place of each
# control character, and of those that turn around the text beside them or cannot be seen.
shown() {
    local LC_ALL=C text=$1
    text=${text//[[:cntrl:]]/?}
    text=${text//$'\xc2'[$'\x80'-$'\x9f']/?}
    text=${text//$'\xd8\x9c'/?}
    text=${text//$'\xe2\x80'[$'\x8b'-$'\x8f'$'\xa8'-$'\xae']/?}
    text=${text//$'\xe2\x81'[$'\xa0'-$'\xaf']/?}
    printf '%s' "${text//$'\xef\xbb\xbf'/?}"
}

say() {
    printf '%s\n' "$(shown "$*")" >&2
}

# A heading between the steps of a long job, with the time since it began.
step() {
    printf '\n==> %s (at %d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)) >&2
}

# die WHAT [CAUSE [HINT]]: reports a failure in the project's form and ends the script.
die() {
    printf 'error: %s\n' "$(shown "$1")" >&2
    [[ -z ${2-} ]] || printf '  cause: %s\n' "$(shown "$2")" >&2
    [[ -z ${3-} ]] || printf '  hint: %s\n' "$(shown "$3")" >&2
    exit 1
}

# Ends the script with the exit code for wrong usage.
die_usage() {
    printf 'error: %s\n' "$(shown "$1")" >&2
    printf '  hint: %s\n' "$(shown "$2")" >&2
    exit 2
}

has_command() {
    command -v "$1" >/dev/null 2>&1
}

# Bytes as a person reads them, in units of 1024.
human_bytes() {
    awk -v bytes="$1" 'BEGIN {
        split("B KiB MiB GiB TiB", unit, " ")
        n = 1
        while (bytes >= 1024 && n < 5) { bytes /= 1024; n++ }
        printf(n == 1 ? "%d %s" : "%.1f %s", bytes, unit[n])
    }'
}

# Bytes that a file really occupies on its disk, holes not counted.
allocated_bytes() {
    local blocks
    blocks=$(stat --format=%b "$1")
    printf '%d\n' $((blocks * 512))
}

# Minor version of the oldest Rust that builds the workspace: 95 means 1.95.
rust_minor_min() {
    sed -n 's/^rust-version = "1\.\([0-9]*\).*/\1/p' "$repo/Cargo.toml"
}

# Minor version of the toolchain at this path to cargo, or 0 where there is none.
cargo_minor() {
    local version
    # Asked outside the tree, because a rustup proxy obeys a pin it finds in
    # the current folder and might start to download it.
    version=$(cd / && "$1" --version 2>/dev/null) || version=
    if [[ $version =~ ^cargo\ 1\.([0-9]+)\. ]]; then
        printf '%d\n' "${BASH_REMATCH[1]}"
    else
        printf '0\n'
    fi
}

# Puts a toolchain that is new enough first in PATH; fails where there is none.
#
# The user's own comes first. Where that one is too old, it stays untouched and
# only this script's PATH prefers the system's.
use_rust_toolchain() {
    local folder minor_min
    minor_min=$(rust_minor_min)
    for folder in '' /usr/bin "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"; do
        if (($(cargo_minor "${folder:+$folder/}cargo") >= minor_min)); then
            [[ -z $folder ]] || export PATH=$folder:$PATH
            return 0
        fi
    done
    return 1
}

# with_progress LABEL LOG COMMAND...: runs a command with its output in LOG and
# shows every few seconds how long it has run and what it said last.
#
# Returns the command's exit code. A script that uses it calls `stop_progress`
# from its EXIT trap, because a background command does not see Ctrl-C itself.
with_progress() {
    local label=$1 log=$2
    shift 2
    local started=$SECONDS shown=$SECONDS pause=15 status=0
    # A terminal gets one line that moves; a log file a line now and then.
    [[ ! -t 2 ]] || pause=1
    # With job control the command leads a process group, so that all of it can be
    # stopped at once.
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    progress_child=$!
    set +m
    while kill -0 "$progress_child" 2>/dev/null; do
        sleep 0.5
        if ((SECONDS - shown >= pause)); then
            shown=$SECONDS
            progress_line "$label" $((SECONDS - started)) "$(last_line "$log")"
        fi
    done
    wait "$progress_child" || status=$?
    progress_child=
    if ((status == 0)); then
        progress_end "$label: done in $((SECONDS - started)) s"
    else
        progress_end "$label: failed after $((SECONDS - started)) s; the end of $log:"
        tail -n 15 "$log" | sed 's/^/  | /' >&2
    fi
    return "$status"
}

# Ends the command that `with_progress` waits for and all its children, and waits for it.
stop_progress() {
    if [[ -n $progress_child ]]; then
        kill -TERM -- "-$progress_child" 2>/dev/null || true
        wait "$progress_child" 2>/dev/null || true
        progress_child=
    fi
}

progress_line() {
    local text
    text=$(printf '    %s: %d s  %s' "$(shown "$1")" "$2" "$3")
    if [[ -t 2 ]]; then
        printf '\r\033[K%.*s' "$(($(tput cols 2>/dev/null || echo 80) - 1))" "$text" >&2
    else
        printf '%s\n' "$text" >&2
    fi
}

progress_end() {
    [[ ! -t 2 ]] || printf '\r\033[K' >&2
    printf '    %s\n' "$(shown "$1")" >&2
}

# The last line with something on it, without control characters. A file may hold
# only progress made with carriage returns, so both ends of line count.
last_line() {
    tail -c 2048 "$1" 2>/dev/null | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | tr '\r' '\n' |
        tr -cd '[:print:]\n' | grep -v '^ *$' | tail -n 1 | cut -c -100 || true
}
