#!/usr/bin/env bash
# Runs the commands of a page of the guide as they stand there, in one shell session: guide_session.sh PAGE
#
# tools/guide_blocks.py says which these are. The session begins in the current folder and ends at the first command
# that ends with another exit code, or prints something else, than the page says.
set -uo pipefail

page=$1
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
said=$(mktemp)
trap 'rm -f "$said"' EXIT
readonly page here said
# How long a command that runs until it is stopped is left alone.
readonly patience_s=1
# A figure of the page, and what stands for it here.
text= stands_for=

# failed LINE WHAT: ends the session.
failed() {
    printf 'failed: %s line %s: %s\n%s\n  it printed:\n' "${page#"$repo"/}" "$1" "$2" "$command" >&2
    sed 's/^/  | /' "$said" >&2
    exit 1
}

# The form of what a command prints: figures, sizes and the width of columns differ from one machine to the next.
shape() {
    sed -E -e 's/[0-9]+(\.[0-9]+)?/0/g' -e 's/\b0 (B|KiB|MiB|GiB)/0 B/g' -e 's/[[:space:]]+/ /g' -e 's/ $//'
}

# same_shape LINE: fails unless the command prints what the page shows. Figures and what `...` stands for may differ.
same_shape() {
    local wanted printed
    wanted=$(shape <<<"$shown" | sed -e 's/[][*?\\]/\\&/g' -e 's/^ *\.\.\.$/.../' |
        sed -z -e 's/\n\.\.\.\n/\n.../g' -e 's/\.\.\./*/g')
    printed=$(shape <"$said")
    # shellcheck disable=SC2053 # A pattern.
    [[ $printed == $wanted ]] || failed "$1" "the page shows something else:
$shown"
}

# Runs $command in this shell until it has worked for a while; it has to end well, or as a program that was interrupted.
run_stopped() {
    local status=0
    timeout --preserve-status --signal=INT --kill-after=20 "$patience_s" bash -c "$command" >"$said" 2>&1 || status=$?
    ((status == 0 || status == 130))
}

while IFS= read -r -d '' line <&3 && IFS= read -r -d '' kind <&3 && IFS= read -r -d '' command <&3 &&
    IFS= read -r -d '' shown <&3; do
    [[ $kind != root* || $EUID == 0 ]] || continue
    printf '%s:%s: %s\n' "${page#"$repo"/}" "$line" "$command"
    case $kind in
        *stop)
            run_stopped || failed "$line" "it did not end well when it was stopped"
            continue
            ;;
        *file)
            printf '%s\n' "$shown" >"$command"
            continue
            ;;
        *stands)
            text=$shown stands_for=$(eval "$command") || failed "$line" "it prints nothing"
            continue
            ;;
    esac
    [[ -z $text ]] || command=${command//"$text"/$stands_for}
    eval "$command" >"$said" 2>&1 3<&- </dev/null
    status=$?
    case $kind in
        *output) ;;
        *code*) ((status == ${kind##* })) || failed "$line" "exit code $status" ;;
        *) ((status == 0)) || failed "$line" "exit code $status" ;;
    esac
    [[ -z $shown ]] || same_shape "$line"
done 3< <(python3 -IS "$here/guide_blocks.py" "$page" || printf 'x\0all run\0false\0\0')
