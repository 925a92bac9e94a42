#!/usr/bin/env bash
# Archives in the buckets of real object stores: run.sh
#
#     ONEFOLD=path    the binary to test (target/release/onefold unless given)
#     MINIO=path      MinIO's server, which is tested too; without it the `minio` in PATH, if there is one
#     SERVERS="ceph"  which servers are tested (ceph, and minio where it is)
#     ROUNDS=n        how many captures are killed (12)
#     SEED=n          the seed of the faults in front of the server (the time unless given)
#
# Each server runs on loopback, with all it has in a folder that is removed at the end. Every verb, several writers at
# once, captures that are killed, a proxy that fails one request in eight, and wrong credentials. Exit codes: 0 all
# passed, 1 a check failed.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
repo=$(dirname "$(dirname "$here")")
readonly here repo
ONEFOLD=$(readlink -m "${ONEFOLD:-${CARGO_TARGET_DIR:-$repo/target}/release/onefold}")
readonly rounds=${ROUNDS:-12} seed=${SEED:-$(date +%s)}
parent=${TMPDIR:-${CARGO_TARGET_DIR:-$repo/target}}
mkdir -p "$parent"
work=$(mktemp -d "$parent/s3.XXXXXX")
readonly work
export CEPH_HOME=$work/ceph HOME=$work LC_ALL=C
unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE AWS_SESSION_TOKEN
minio_pid=
passed=0

clean_up() {
    [[ ! -d $CEPH_HOME ]] || "$here/ceph.sh" stop
    [[ -z $minio_pid ]] || kill "$minio_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

onefold() {
    "$ONEFOLD" "$@"
}

fail() {
    printf 'FAIL  %s: %s (SEED=%s)\n' "$server" "$*" "$seed" >&2
    exit 1
}

# check WHAT FUNCTION: runs a part of the test.
check() {
    local started=$SECONDS
    "$2"
    passed=$((passed + 1))
    printf 'ok    %-6s %4d s  %s\n' "$server" $((SECONDS - started)) "$1"
}

start_ceph() {
    "$here/ceph.sh" start >"$work/server"
    { read -r AWS_ENDPOINT_URL && read -r AWS_ACCESS_KEY_ID && read -r AWS_SECRET_ACCESS_KEY; } <"$work/server"
}

start_minio() {
    local port=17491
    AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=onefoldkey AWS_SECRET_ACCESS_KEY=onefoldsecretonefold
    MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
        "$minio" server --address "127.0.0.1:$port" "$work/minio" >"$work/minio.log" 2>&1 </dev/null &
    minio_pid=$!
    for _ in {1..60}; do
        ! curl --silent --fail --output /dev/null "$AWS_ENDPOINT_URL/minio/health/live" || return 0
        sleep 0.5
    done
    return 1
}

make_bucket() {
    curl --silent --show-error --fail --aws-sigv4 aws:amz:us-east-1:s3 \
        --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        --header 'x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' \
        --request PUT "$AWS_ENDPOINT_URL/images"
}

# disk FILE SEED: a disk with a file system, some files that all have and some of its own.
disk() {
    local tree=$work/tree
    rm -rf "$tree"
    mkdir "$tree"
    cp "$work/common" "$tree/common"
    head -c 12M /dev/urandom >"$tree/own-$2"
    truncate -s 96M "$1.new"
    mke2fs -q -F -t ext4 -d "$tree" "$1.new"
    mv "$1.new" "$1"
}

# same IMAGE DISK: the image has the disk's files.
same() {
    rm -f "$work/installed"
    onefold image install --quiet --verify "$archive" "$1" "$work/installed" >/dev/null || fail "cannot install $1"
    cmp <(debugfs -R 'cat common' "$work/installed" 2>/dev/null) "$work/common" || fail "$1 has other content"
    e2fsck -fn "$work/installed" >/dev/null 2>&1 || fail "$1 is no sound file system"
    onefold image export --quiet "$archive" "$1" - >"$work/exported" || fail "cannot export $1"
    cmp "$work/exported" "$2" || fail "$1 is not equal to its disk"
}

is_sound() {
    onefold archive check --data --quiet "$archive" >"$work/check" || fail "$(<"$work/check")"
}

probe() {
    onefold archive probe "$archive" >"$work/probe" || fail "$(<"$work/probe")"
    sed 's/^/          /' "$work/probe"
}

all_verbs() {
    onefold archive create "$archive" >/dev/null
    ! onefold archive create "$archive" 2>/dev/null || fail "an archive was made twice"
    onefold image capture --quiet "$archive" "$work/1.raw" web >/dev/null
    onefold image capture --quiet "$archive" "$work/2.raw" web >/dev/null
    onefold image list "$archive" | grep -q '^web@2' || fail "web@2 is not listed"
    onefold image show "$archive" web@1 >/dev/null
    onefold archive stat "$archive" >/dev/null
    same web@1 "$work/1.raw"
    same web@2 "$work/2.raw"
    onefold image rm "$archive" web@1 >/dev/null
    ! onefold image show "$archive" web@1 2>/dev/null || fail "web@1 was not removed"
    is_sound
}

keys() {
    export ONEFOLD_TRUSTED_KEYS=$work/trusted
    onefold key create --no-password "$work/key-$server" >/dev/null
    onefold key trust "$work/key-$server.pub" '*' >/dev/null
    ! onefold image install "$archive" web "$work/refused" 2>/dev/null || fail "an unsigned image was installed"
    onefold image sign "$archive" web "$work/key-$server" >/dev/null
    onefold image verify "$archive" web >/dev/null || fail "the signature is not valid"
    same web "$work/2.raw"
    unset ONEFOLD_TRUSTED_KEYS
}

several_writers() {
    local writer writers=()
    for writer in {1..6}; do
        onefold image capture --quiet "$archive" "$work/$((1 + writer % 3)).raw" many >"$work/writer-$writer" 2>&1 &
        writers+=($!)
    done
    for writer in "${writers[@]}"; do
        wait "$writer" || fail "a writer failed: $(cat "$work"/writer-*)"
    done
    [[ $(onefold image list "$archive" | grep -c '^many@') == 6 ]] || fail "six captures did not make six versions"
    is_sound
}

kills() {
    local round acknowledged=0 listed command status
    for round in $(seq "$rounds"); do
        disk "$work/next.raw" "$round"
        "$ONEFOLD" image capture --quiet "$archive" "$work/next.raw" next >/dev/null 2>&1 &
        command=$!
        sleep "$(awk -v random="$RANDOM" 'BEGIN { printf "%.3f", 1.2 * random / 32768 }')"
        kill -KILL "$command" 2>/dev/null || true
        status=0
        wait "$command" 2>/dev/null || status=$?
        ((status != 0)) || acknowledged=$((acknowledged + 1))
        listed=$(onefold image list "$archive" | grep -c '^next@' || true)
        ((listed >= acknowledged)) || fail "$listed images of $acknowledged that were acknowledged"
        acknowledged=$listed
    done
    is_sound
    onefold image capture --quiet "$archive" "$work/next.raw" next >/dev/null
    same next "$work/next.raw"
}

faults() {
    local direct=$AWS_ENDPOINT_URL
    mkfifo "$work/hold-$server"
    "$here/proxy.py" --to "$direct" --seed "$seed" <"$work/hold-$server" >"$work/proxy-$server" &
    local proxy=$!
    exec {hold}>"$work/hold-$server"
    until [[ -s $work/proxy-$server ]]; do sleep 0.1; done
    AWS_ENDPOINT_URL=$(<"$work/proxy-$server")
    local round
    for round in 1 2 3 4; do
        disk "$work/faulty.raw" "$round"
        onefold image capture --quiet "$archive" "$work/faulty.raw" faulty >/dev/null || fail "a capture failed"
        same "faulty@$round" "$work/faulty.raw"
    done
    is_sound
    AWS_ENDPOINT_URL=$direct
    is_sound
    exec {hold}>&-
    wait "$proxy"
    sed -n '2s/^/          /p' "$work/proxy-$server"
}

refusals() {
    local said
    said=$(AWS_SECRET_ACCESS_KEY=wrong onefold image list "$archive" 2>&1) && fail "a wrong secret was accepted"
    [[ $said == *'does not accept the access key'* ]] || fail "$said"
    said=$(onefold image list s3://nothing-here/web 2>&1) && fail "a bucket that is not there was read"
    [[ $said == *'no such bucket'* ]] || fail "$said"
    said=$(onefold image list s3://images/nothing 2>&1) && fail "an archive that is not there was read"
    [[ $said == *'no archive'* ]] || fail "$said"
}

# Tests the server that $server names.
test_server() {
    archive=s3://images/site/web
    "start_$server" || fail "the server does not start"
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    make_bucket || fail "cannot make a bucket"
    check 'the probe finds all promises kept' probe
    check 'every verb' all_verbs
    check 'signed images' keys
    check 'six writers at once' several_writers
    check "$rounds captures killed at any moment" kills
    check 'a proxy that fails one request in eight' faults
    check 'refusals name their cause' refusals
}

[[ -x $ONEFOLD ]] || {
    printf 'error: there is no binary at %s\n  hint: `make build` makes it, ONEFOLD=path names another\n' "$ONEFOLD" >&2
    exit 2
}
minio=${MINIO:-$(command -v minio || true)}
servers=${SERVERS:-ceph ${minio:+minio}}
head -c 8M /dev/urandom >"$work/common"
for number in 1 2 3; do
    disk "$work/$number.raw" "$number"
done
for server in $servers; do
    test_server
done
[[ $servers == *minio* ]] || printf 'skip  minio   there is no `minio` in PATH, and MINIO names none\n'
printf '%d passed, 0 failed\n' "$passed"
