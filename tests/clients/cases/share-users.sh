# A user who owns the root folder of an XFS gets no block of root's files out of a state folder, whatever the user put there
# limit: 120 s
needs mkfs.xfs losetup setpriv filefrag
# Nothing but its own permissions keeps others out of the file system.
let_users_in

truncate -s 512M "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
fs=$dir/xfs
mkdir "$fs"
mount "$loop" "$fs"
chown 65534:65534 "$fs"
umask 022

# secrets FOLDER: two equal files of root's that nobody else may read, full of a word.
secrets() {
    mkdir -m 700 "$1"
    python3 -c 'import sys
for block in range(256):
    sys.stdout.write(("%08d a secret of root" % block).ljust(4096, "."))' >"$1/one.raw"
    cp --reflink=never "$1/one.raw" "$1/two.raw"
    chmod 600 "$1"/*.raw
    sync -f "$1"
    sleep 0.1
}

# The user reads all that it may on the file system, without the holes of arena files.
reads_secret() {
    as_user python3 -c 'import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        try:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
        except OSError:
            continue
        at = 0
        while True:
            try:
                at = os.lseek(file, at, os.SEEK_DATA)
            except OSError:
                break
            if b"a secret of root" in os.pread(file, 1 << 20, at):
                sys.exit(0)
            at += 1 << 20
        os.close(file)
sys.exit(1)' "$fs"
}

# The user shares blocks of its own, and keeps a state of its own by another name than root's.
mkdir "$fs/own"
head -c 4M /dev/urandom >"$fs/own/one.raw"
cp --reflink=never "$fs/own/one.raw" "$fs/own/two.raw"
chown -R 65534:65534 "$fs/own"
sleep 0.1
as_user "$ONEFOLD" share run --quiet "$fs" >/dev/null
[[ -d $fs/.onefold-65534 && ! -e $fs/.onefold ]] || fail "the user's state folder: $(ls -A "$fs")"

# It puts its folder where root's will be: earlier versions had it there by themselves.
as_user mv "$fs/.onefold-65534" "$fs/.onefold"
secrets "$fs/secret"
for verb in run status; do
    fails_with 'it belongs to user 65534' "$ONEFOLD" share "$verb" --quiet "$fs"
    fails_with 'remove or rename the state folder' "$ONEFOLD" share "$verb" --quiet "$fs"
done
# Backticks of the message.
# shellcheck disable=SC2016
fails_with '.onefold` is not used' "$ONEFOLD" share explain --quiet "$fs/secret/one.raw"
# Backticks of the message.
# shellcheck disable=SC2016
fails_with '.onefold` is not used' "$ONEFOLD" share mend --quiet "$fs"
! reads_secret || fail "the user reads blocks of root's"
! filefrag -v "$fs/secret/one.raw" | grep -q shared || fail "blocks of root's were shared"

# With a single file in a folder of root's own it is the same.
as_user mv "$fs/.onefold" "$fs/.onefold-65534"
cp -a "$fs/.onefold-65534" "$fs/.onefold"
chown -R 0:0 "$fs/.onefold"
arenas=("$fs"/.onefold/arena/*)
chown 65534 "${arenas[0]}"
fails_with ".onefold/arena/${arenas[0]##*/}\` is not used: it belongs to user 65534" "$ONEFOLD" share run --quiet "$fs"
rm -r "$fs/.onefold"

# Root's own: it shares, tells who could take the folder away, and nobody else gets at it.
onefold share run --quiet "$fs" >"$dir/out" || fail "root's run: $(<"$dir/out")"
grep -q 'the root folder of the file system belongs to user 65534' "$dir/out" || fail "root was not told: $(<"$dir/out")"
filefrag -v "$fs/secret/one.raw" | grep -q shared || fail "nothing was shared"
! reads_secret || fail "the user reads blocks of root's"
[[ $(stat -c '%U %a' "$fs/.onefold") == 'root 700' ]] || fail "the state folder is $(stat -c '%U %a' "$fs/.onefold")"
onefold share index --dump "$fs" >/dev/null

# The user's next run goes beside it, and neither takes the other's folder for images.
as_user "$ONEFOLD" share run --quiet "$fs" >/dev/null 2>"$dir/out" || true
onefold share run --quiet --json "$fs" >"$dir/out"
[[ $(python3 -c 'import json, sys; print(json.load(sys.stdin)["scanned"]["files"])' <"$dir/out") == 4 ]] ||
    fail "other files than the four images: $(<"$dir/out")"
! reads_secret || fail "the user reads blocks of root's"

# A restore with rights for everybody: they are taken away, and the arena file that others could open gets nothing new.
chmod -R go+rX "$fs/.onefold"
exec 7<"$fs/.onefold/arena/0"
secrets "$fs/more"
before=$(filefrag -v /proc/self/fd/7 | sed -n '4,$p')
onefold share run --quiet "$fs" >"$dir/out" || fail "a run after a restore: $(<"$dir/out")"
grep -q 'were taken away' "$dir/out" || fail "nothing was reported: $(<"$dir/out")"
[[ $before == "$(filefrag -v /proc/self/fd/7 | sed -n '4,$p')" ]] || fail "the arena file that was open got blocks"
exec 7<&-
! reads_secret || fail "the user reads blocks of root's"
umount "$fs"
losetup -d "$loop"
