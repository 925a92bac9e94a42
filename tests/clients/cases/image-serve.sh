# Images are installed from a server in another namespace, over noise and over a kill -9; any HTTP client reads them
# limit: 120 s
needs mke2fs ip unshare nsenter curl
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
archive=$dir/archive
export ONEFOLD_TRUSTED_KEYS=$dir/trusted
: >"$dir/trusted"

# Two namespaces that end with the processes in them, and a link between them.
unshare --net sleep 600 &
server_space=$!
unshare --net sleep 600 &
client_space=$!
for space in $server_space $client_space; do
    wait_until 10 bash -c "[[ \$(readlink /proc/$space/ns/net) != \$(readlink /proc/self/ns/net) ]]"
done
ip link add s0 netns "$server_space" type veth peer name c0 netns "$client_space" ||
    skip "this machine makes no veth"
at_server() { nsenter --net="/proc/$server_space/ns/net" "$@"; }
at_client() { nsenter --net="/proc/$client_space/ns/net" "$@"; }
at_server ip addr add 192.0.2.1/24 dev s0
at_client ip addr add 192.0.2.2/24 dev c0
at_server ip link set s0 up
at_server ip link set lo up
at_client ip link set c0 up

# serve OPTION...: starts the server, and waits until it serves. Sets $server.
serve() {
    : >"$dir/serve.log"
    # No function stands between: the process that is killed has to be the server.
    nsenter --net="/proc/$server_space/ns/net" "$ONEFOLD" image serve --plain --interface s0 "$@" "$archive" \
        2>"$dir/serve.log" &
    server=$!
    wait_until 20 grep -q 'serving' "$dir/serve.log"
}
address=http://192.0.2.1:7443
raw=$address/v1/images/web/raw

onefold archive create "$archive"
guest "$dir/web.raw" 1
onefold image capture --quiet "$archive" "$dir/web.raw" web
bytes=$(stat --format=%s "$dir/web.raw")
onefold image export --quiet "$archive" web "$dir/web.export"
serve
grep -q ' at http://192.0.2.1:7443$' "$dir/serve.log" || fail "the server names no address: $(<"$dir/serve.log")"

# Over noise: all bytes are those of the export, and free sectors are zeros where that is asked for.
head -c "$bytes" /dev/urandom >"$dir/target.raw"
refused 2 'plain connection to another machine' at_client "$ONEFOLD" image install "$address" web "$dir/target.raw"
refused 1 'not blank' at_client "$ONEFOLD" image install --unsigned --allow-http "$address" web "$dir/target.raw"
refused 1 'there is `web`' at_client "$ONEFOLD" image install --allow-http "$address" wbe "$dir/none.raw"
refused 1 'no key is trusted' at_client "$ONEFOLD" image install --allow-http "$address" web "$dir/none.raw"
at_client "$ONEFOLD" image install --quiet --unsigned --allow-http --force --verify --free zero \
    "$address" web "$dir/target.raw"
cmp "$dir/target.raw" "$dir/web.export"
e2fsck -fn "$dir/target.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"

# A trusted key's signature is demanded from a server, too.
onefold key create --no-password "$dir/key"
onefold key trust "$dir/key.pub" 'web*'
refused 1 'no key that is trusted' at_client "$ONEFOLD" image install --allow-http "$address" web "$dir/none.raw"
onefold image sign "$archive" web "$dir/key"
at_client "$ONEFOLD" image install --quiet --allow-http "$address" web "$dir/signed.raw"
cmp "$dir/signed.raw" "$dir/web.export"
: >"$dir/trusted"

# Any HTTP client reads the disk, or a part of it.
at_client curl --silent --show-error --fail "$raw" | cmp - "$dir/web.export"
at_client curl --silent --show-error --fail -r 1080-5000 "$raw" >"$dir/part"
cmp "$dir/part" <(dd if="$dir/web.export" bs=1 skip=1080 count=3921 status=none)
length=$(at_client curl --silent --head "$raw" | tr -d '\r' | sed -n 's/^content-length: //pI')
((length == bytes)) || fail "HEAD says $length bytes, not $bytes"
qemu_disk="json:{\"driver\":\"raw\",\"file\":{\"driver\":\"http\",\"url\":\"$raw\"}}"
if ! command -v qemu-img >/dev/null; then
    note "there is no qemu-img here, so QEMU reads no image over HTTP"
elif said=$(at_client qemu-img info "$qemu_disk" 2>&1) || ! grep -q 'Unknown driver' <<<"$said"; then
    # QEMU 7.2 sometimes waits for ever although all answers have come: its trace shows every byte.
    for attempt in 1 2 3 4 5 6; do
        at_client timeout 10 qemu-img convert -O raw "$qemu_disk" "$dir/qemu.raw" && break
        ((attempt < 6)) || fail 'QEMU reads no image'
    done
    cmp "$dir/qemu.raw" "$dir/web.export"
else
    note "QEMU has no curl driver here (Debian: qemu-block-extra), so it reads no image over HTTP"
fi

# The server is killed in the middle of an installation, and a new one takes its place: the client goes on.
head -c 64M /dev/urandom >"$dir/noise.raw"
onefold image capture --quiet "$archive" "$dir/noise.raw" noise
# The list of a server may be a second old.
sleep 1.2
at_client "$ONEFOLD" image install --quiet --unsigned --allow-http --rate 16M "$address" noise "$dir/copy.raw" \
    2>"$dir/install.log" &
client=$!
sleep 1.5
kill -KILL "$server"
wait "$server" || true
sleep 2
kill -0 "$client" 2>/dev/null || fail "the client is gone: $(<"$dir/install.log")"
serve
wait "$client" || fail "$(<"$dir/install.log")"
cmp "$dir/copy.raw" "$dir/noise.raw"
grep -q 'waiting for the server' "$dir/install.log" || fail "the server was not missed: $(<"$dir/install.log")"

# A server that is asked to end does so at once, and says where it served.
kill -TERM "$server"
ends=$((SECONDS + 5))
wait "$server" || fail "$(<"$dir/serve.log")"
((SECONDS <= ends)) || fail "the server took too long to end"

# The ways to make chunks that measurements compare: what is installed is the same.
refused 2 'chunks prebuilt' onefold image serve --plain --chunk-folder "$dir/chunks" "$archive"
refused 2 'chunk-folder' onefold image serve --plain --chunks prebuilt "$archive"
refused 2 'headers' onefold image serve --plain --chunks recompress --headers at-serve "$archive"
refused 2 'multicast' onefold image serve --plain --repairs bitmaps "$archive"
for way in '--chunks recompress' '--headers at-serve' "--chunks prebuilt --chunk-folder $dir/chunks"; do
    # shellcheck disable=SC2086  # Words of their own.
    serve $way
    at_client "$ONEFOLD" image install --quiet --unsigned --allow-http "$address" web "$dir/compared.raw"
    cmp "$dir/compared.raw" "$dir/web.export"
    rm "$dir/compared.raw"
    kill -TERM "$server"
    wait "$server" || fail "$(<"$dir/serve.log")"
done
files=$(find "$dir/chunks" -type f | wc -l)
((files > 0)) || fail 'no chunk was made beforehand'

refused 1 'does not answer|gave up|refused' \
    at_client "$ONEFOLD" image install --allow-http --patience 1 "$address" web "$dir/none.raw"
[[ ! -e $dir/none.raw ]] || fail "a failed installation leaves a file"
kill "$server_space" "$client_space"
