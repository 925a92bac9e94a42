#!/bin/sh
# Writes man pages and completions from the command line's one definition. Run after every change of it; a test fails
# where that was forgotten.
#
# usage: packaging/generate.sh [path of the onefold program]
set -eu
cd "$(dirname "$0")"
onefold=${1:-../target/debug/onefold}
case $onefold in
/*) ;;
*) [ -x "$onefold" ] || { echo "error: no program at packaging/$onefold: build it first, or name it" >&2; exit 1; } ;;
esac

rm -rf man completions
mkdir man completions
"$onefold" man-pages man
"$onefold" completions bash >completions/onefold
"$onefold" completions zsh >completions/_onefold
"$onefold" completions fish >completions/onefold.fish
