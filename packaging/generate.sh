#!/bin/sh
# Writes man pages and completions from the command line's one definition. A package is made with what it writes; nothing
# of that is kept beside the source, where it could be old.
#
# usage: packaging/generate.sh [FOLDER [path of the onefold program]]
#
# FOLDER, target/packaging unless given, gets man/ and completions/ in the place of those that it has.
set -eu
repo=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$repo/target}
folder=${1:-$target/packaging}
onefold=${2:-$target/release/onefold}
if [ ! -x "$onefold" ]; then
    echo "error: no program at $onefold: build it first (\`make build\`), or name it" >&2
    exit 1
fi

rm -rf "$folder/man" "$folder/completions"
mkdir -p "$folder/man" "$folder/completions"
"$onefold" man-pages "$folder/man"
"$onefold" completions bash >"$folder/completions/onefold"
"$onefold" completions zsh >"$folder/completions/_onefold"
"$onefold" completions fish >"$folder/completions/onefold.fish"
