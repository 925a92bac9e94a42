# Collection frees what removed images and killed captures leave, whatever runs beside it and wherever it is killed
# limit: 60 s
needs mke2fs e2fsck debugfs setpriv
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
let_users_in
archive=$dir/archive

# noisy IMAGE SEED: a guest with some noise of its own.
noisy() {
    guest "$1" "$2"
    head -c 6M /dev/urandom >"$dir/own"
    debugfs -w -R "write $dir/own own" "$1" >/dev/null 2>&1
}

# stored: the bytes of all packs.
stored() {
    find "$archive/packs" -type f -name '[0-9a-f]*' -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }'
}

gc() {
    onefold archive gc --quiet --delay 0 "$@" "$archive"
}

# sound: no image is damaged, and the one that stays is as it was.
sound() {
    onefold archive check --data --quiet "$archive" >"$dir/check" || fail "$1: $(<"$dir/check")"
    onefold image export --quiet "$archive" kept - | cmp - "$dir/kept.export" || fail "$1: the image is another"
}

onefold archive create "$archive" >/dev/null
for seed in 0 1 2; do
    noisy "$dir/$seed.raw" "$seed"
done
onefold image capture --quiet "$archive" "$dir/0.raw" kept >/dev/null
onefold image export --quiet "$archive" kept "$dir/kept.export"
one=$(stored)
for seed in 1 2; do
    onefold image capture --quiet "$archive" "$dir/$seed.raw" gone >/dev/null
done
[[ $(onefold image rm --dry-run --keep-last 1 "$archive" 'g*' | head -n 1) == 'would remove gone@1' ]] || fail 'dry run'
onefold image rm --keep-last 1 "$archive" gone >/dev/null
[[ $(onefold image list "$archive" | grep -c gone@) == 1 ]] || fail "$(onefold image list "$archive")"
onefold image rm "$archive" gone@2 >/dev/null

before=$(stored)
onefold archive stat --json "$archive" >"$dir/stat"
grep -q '"unneeded_bytes": *0' "$dir/stat" && fail "$(<"$dir/stat")"
onefold archive gc --quiet "$archive" >/dev/null
(($(stored) >= before)) || fail 'packs were deleted before the delay was over'
gc --dry-run >"$dir/dry"
(($(stored) >= before)) || fail 'a dry run changes nothing'
gc >"$dir/said"
diff <(head -n 1 "$dir/dry" | grep -o '[0-9.]* MiB') <(head -n 1 "$dir/said" | grep -o '[0-9.]* MiB') ||
    fail "$(cat "$dir/dry" "$dir/said")"
sound 'after a collection'
(($(stored) <= one + one / 10)) || fail "$(stored) bytes stay of $one"
note "$before bytes of packs became $(stored)"

# Killed at many moments, also while it rewrites packs.
for round in $(seq 12); do
    onefold image capture --quiet "$archive" "$dir/$((round % 2 + 1)).raw" gone >/dev/null
    onefold image rm --keep-last 1 "$archive" gone >/dev/null
    for moment in 0.002 0.006 0.01 0.016; do
        "$ONEFOLD" archive gc --quiet --delay 0 --needed 100 --level 9 "$archive" >"$dir/said" 2>&1 &
        command=$!
        sleep "$moment"
        kill -KILL "$command" 2>/dev/null || true
        status=0
        wait "$command" 2>/dev/null || status=$?
        ((status == 0 || status == 137)) || fail "it ended with $status: $(<"$dir/said")"
    done
    ((round % 4)) || sound "round $round"
done
onefold image rm --keep-last 1 "$archive" gone >/dev/null
gc >/dev/null
sound 'after all kills'

# A capture and an installation beside collections that delete at once and give everybody up.
onefold image capture --quiet "$archive" "$dir/1.raw" gone >/dev/null
for round in 1 2 3 4; do
    onefold image capture --quiet "$archive" "$dir/2.raw" beside >"$dir/captured" 2>&1 &
    capture=$!
    onefold image install --quiet --force "$archive" kept "$dir/installed.raw" >"$dir/install" 2>&1 &
    install=$!
    for _ in 1 2 3; do
        gc --silence 0 --needed 100 >"$dir/said" 2>&1 || fail "$(<"$dir/said")"
    done
    wait "$capture" || fail "round $round: $(<"$dir/captured")"
    wait "$install" || fail "round $round: $(<"$dir/install")"
    onefold image rm --keep-last 1 "$archive" '*' >/dev/null
done
cmp <(onefold image export --quiet "$archive" kept -) "$dir/kept.export"
e2fsck -fn "$dir/installed.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
sound 'beside captures'

# What a killed capture left.
onefold image rm --keep-last 1 "$archive" '*' >/dev/null
gc --silence 0 >/dev/null
before=$(stored)
noisy "$dir/3.raw" 3
"$ONEFOLD" image capture --quiet "$archive" "$dir/3.raw" killed >"$dir/said" 2>&1 &
command=$!
until (($(stored) > before)) || ! kill -0 "$command" 2>/dev/null; do :; done
kill -KILL "$command" 2>/dev/null || true
wait "$command" 2>/dev/null || true
gc --silence 0 >/dev/null
if ! onefold image list "$archive" | grep -q killed@; then
    (($(stored) == before)) || fail "the killed capture left $(($(stored) - before)) bytes"
fi
find "$archive" -name '.new-*' -exec touch -d '2 hours ago' {} +
gc --silence 0 >/dev/null
[[ -z $(find "$archive" -name '.new-*') ]] || fail 'temporary files stay'
sound 'at the end'

# An ordinary user collects an archive of that user. --exact, as a loop device of another program may hide its file.
mkdir "$dir/user"
cp "$dir/1.raw" "$dir/user/own.raw"
chown -R 65534:65534 "$dir/user"
as_user "$ONEFOLD" archive create "$dir/user/archive" >/dev/null
as_user "$ONEFOLD" image capture --exact --quiet "$dir/user/archive" "$dir/user/own.raw" web >/dev/null
as_user "$ONEFOLD" image rm "$dir/user/archive" web@1 >/dev/null
as_user "$ONEFOLD" archive gc --quiet --delay 0 "$dir/user/archive" >/dev/null
[[ -z $(find "$dir/user/archive/packs" -type f) ]] || fail "packs of no image stay: $(find "$dir/user/archive")"
