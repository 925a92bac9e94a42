# shellcheck shell=bash
# What the programs that build the corpus's files have in common: options, a folder to work in, and the end. To be
# sourced; it sources scripts/lib.sh. What is built appears under its name when it is whole.

# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

# read_options "NAME..." WORD...: sets the variable NAME for each `--NAME VALUE`, and `built` to the other word, the file
# that is built. Options that a program does not have are wrong usage.
read_options() {
    local known=" $1 " name
    shift
    while (($# > 0)); do
        case $1 in
        -*)
            name=${1#--}
            [[ $known == *" $name "* ]] || die_usage "unknown option \`$1\`" "see the head of $0"
            printf -v "$name" '%s' "${2-}"
            shift $(($# > 1 ? 2 : 1))
            ;;
        *) built=$1; shift ;;
        esac
    done
}

# require WORD...: refuses an empty option, or a missing one.
require() {
    local word
    for word in "$@"; do
        [[ -n $word ]] || die_usage 'an option is missing' "see the head of $0"
    done
}

require_number() {
    [[ $1 =~ ^[1-9][0-9]*$ ]] || die_usage 'an option is missing, or no number' "see the head of $0"
}

require_image() {
    [[ -f $1 ]] || die "cannot take files from $1" 'there is no such image'
}

# begin_work REASON: makes `work`, a folder beside the file that is built. It goes however the program ends: `cleanup`
# does that, which a program with more to clean up defines anew.
begin_work() {
    ((EUID == 0)) || die "cannot build $built" 'not running as root' "$1"
    work=$(mktemp --directory "$built.tmp.XXXXXX")
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

cleanup() {
    remove_work
}

remove_work() {
    [[ -z ${work-} ]] || rm -rf --one-file-system "$work"
}

# finish FILE: has a whole file of `work` appear under its name, once it is on the disk.
finish() {
    sync "$1"
    mv "$1" "$built"
}

# uuid_of TEXT: prints a UUID that depends on the text alone.
uuid_of() {
    local digest
    digest=$(printf '%s' "$1" | sha256sum)
    printf '%s-%s-4%s-a%s-%s\n' "${digest:0:8}" "${digest:8:4}" "${digest:13:3}" "${digest:17:3}" "${digest:20:12}"
}
