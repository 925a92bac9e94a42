#!/usr/bin/env bash
# Hosts with a real cluster file system: run.sh [facts|engine|all|hold] [OPTION...], `run.sh --help` for them.
#
# Installs nothing: `make test-cluster` does. Makes the hosts' system, once, and starts run.py in namespaces of its own: its
# networks, mounts and processes end with it, however it ends.
#
#     ONEFOLD=path           the binary to test (target/release/onefold unless given)
#     ONEFOLD_CLUSTER=folder where the hosts' system is kept, and the logs of the last run; unless given, a folder that is
#                            removed at the end
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
ONEFOLD=$(readlink -m "${ONEFOLD:-${CARGO_TARGET_DIR:-$repo/target}/release/onefold}")
export ONEFOLD PYTHONDONTWRITEBYTECODE=1

if [[ ${1-} == list ]]; then
    exec python3 "$here/run.py" --folder . --sockets . list
fi
((EUID == 0)) || die 'cannot make a cluster' 'networks and namespaces take root' 'run the same command as root'
runner=
# shellcheck disable=SC2317,SC2329 # The trap calls it.
clean_up() {
    # The first process of the namespace: the kernel ends all others with it.
    [[ -z $runner ]] || kill -KILL "$runner" 2>/dev/null || true
    rm -rf "$sockets"
    [[ -n ${ONEFOLD_CLUSTER-} ]] || rm -rf --one-file-system "$folder"
}
folder=${ONEFOLD_CLUSTER:-$(mktemp -d --tmpdir onefold-cluster.XXXXXX)}
# Names of sockets must be short.
sockets=$(mktemp -d /tmp/onefold-cluster.XXXXXX)
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$folder"
"$here/image.sh" "$folder/system"
unshare --net --mount --pid --fork --kill-child=KILL --mount-proc \
    python3 "$here/run.py" --folder "$folder" --sockets "$sockets" "${@:-all}" &
runner=$!
status=0
wait "$runner" || status=$?
runner=
exit "$status"
