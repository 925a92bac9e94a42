# A disk that vanishes half way: its machine says so, and names the cause; another machine gets the image meanwhile
# limit: 60 s
needs losetup mkfs.xfs xfs_io
archive=$dir/archive
onefold archive create "$archive" >/dev/null
head -c 96M /dev/urandom >"$dir/web.raw"
onefold image capture --quiet "$archive" "$dir/web.raw" web

# The disk lies on a file system that is shut down, after which each of its calls fails.
truncate -s 400M "$dir/host.raw"
attach_loop "$dir/host.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/host"
mount "$loop" "$dir/host"
truncate -s 96M "$dir/host/disk"
attach_loop "$dir/host/disk"
disk=$loop

"$ONEFOLD" image serve --plain --listen 127.0.0.1:0 "$archive" 2>"$dir/serve.log" &
server=$!
wait_until 20 grep -q 'serving' "$dir/serve.log"
address=$(grep -o 'http://[0-9.:]*' "$dir/serve.log" | head -1)

# install TARGET: begins an installation that takes some seconds. Sets $client.
install() {
    (cd "$dir" && exec "$ONEFOLD" image install --quiet --unsigned --force --rate 16M "$address" web "$1") 2>"$dir/$1.log" &
    client=$!
}
ln -s "$disk" "$dir/vanishing"
install vanishing
vanishing=$client
install other
other=$client
has_written() {
    (($(sed -n 's/^wchar: //p' "/proc/$vanishing/io") > 40 << 20))
}
wait_until 20 has_written
# It goes by itself when the installation ends.
losetup --detach "$disk"
xfs_io -x -c shutdown "$dir/host"
status=0
wait "$vanishing" || status=$?
((status == 1)) || fail "exit code $status: $(<"$dir/vanishing.log")"
note "$(sed -n '/cause/p' "$dir/vanishing.log")"
grep -q '[Ii]nput/output error' "$dir/vanishing.log" || fail "it names no cause: $(<"$dir/vanishing.log")"
# The kernel writes later than the program, so only the kernel knows the place.
grep -q 'dry-run' "$dir/vanishing.log" || fail "it does not say how to find the place: $(<"$dir/vanishing.log")"
grep -q 'does not boot' "$dir/vanishing.log" || fail "it does not say what is left: $(<"$dir/vanishing.log")"
wait "$other" || fail "the other machine: $(<"$dir/other.log")"
cmp "$dir/other" "$dir/web.raw"
kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"
