# One server sends an image to three machines at once: under loss, late, deaf, updated, and over a kill -9 of each side
# limit: 90 s
needs ip unshare nsenter nft
archive=$dir/archive
export ONEFOLD_TRUSTED_KEYS=$dir/trusted
: >"$dir/trusted"

# A namespace for each machine, and one for the bridge between them, which end with the processes in them.
spaces=()
for number in 0 1 2 3 4; do
    unshare --net sleep 600 &
    spaces[number]=$!
done
for space in "${spaces[@]}"; do
    wait_until 10 bash -c "[[ \$(readlink /proc/$space/ns/net) != \$(readlink /proc/self/ns/net) ]]"
done
# at NUMBER COMMAND...: runs a command on a machine. 0 is the bridge, 1 the server, 2 to 4 are clients.
at() {
    nsenter --net="/proc/${spaces[$1]}/ns/net" "${@:2}"
}
at 0 ip link add br0 type bridge mcast_snooping 0 || skip "this machine makes no bridge"
at 0 ip link set br0 up
for number in 1 2 3 4; do
    ip link add "b$number" netns "${spaces[0]}" type veth peer name eth0 netns "${spaces[number]}" ||
        skip "this machine makes no veth"
    at 0 ip link set "b$number" master br0 up
    at "$number" ip addr add "192.0.2.$number/24" dev eth0
    at "$number" ip link set lo up
    at "$number" ip link set eth0 up
done

# drop NUMBER RULE...: has a machine drop packets to groups.
drop() {
    at "$1" nft "add table ip t; add chain ip t in { type filter hook input priority 0; };
        add rule ip t in ip daddr 239.0.0.0/8 ${*:2} drop" || skip "nft sets no rules here"
}
drop 2 numgen random mod 1000 '<' 20
drop 3 numgen random mod 1000 '<' 20
drop 4

onefold archive create "$archive" >/dev/null
head -c 96M /dev/urandom >"$dir/web.raw"
onefold image capture --quiet "$archive" "$dir/web.raw" web
printf '%064d\n' 7 >"$dir/key"
printf '%064d\n' 8 >"$dir/other-key"
chmod 644 "$dir/key"
refused 1 'other users' onefold image serve --plain --interface eth0 --multicast 239.192.3.7 \
    --multicast-key "$dir/key" "$archive"
chmod 600 "$dir/key" "$dir/other-key"
refused 2 'interface' onefold image serve --multicast 239.192.3.7 "$archive"
refused 2 'need the same key in a file' onefold image serve --plain --interface eth0 --multicast 239.192.3.7 "$archive"
refused 2 '--plain' onefold image serve --interface eth0 --multicast 239.192.3.7 --multicast-key "$dir/key" "$archive"
refused 2 'for servers without TLS' onefold image install --multicast-key "$dir/key" \
    https://192.0.2.1:7443 web "$dir/none"
refused 2 '239.192.3.7' onefold image serve --plain --interface eth0 --multicast 192.0.2.1 \
    --multicast-key "$dir/key" "$archive"

# serve OPTION...: starts the server, and waits until it serves. Sets $server.
serve() {
    : >"$dir/serve.log"
    # No function stands between: the process that is killed has to be the server.
    nsenter --net="/proc/${spaces[1]}/ns/net" "$ONEFOLD" image serve "$@" --interface eth0 \
        --multicast 239.192.3.7 --rate 16M "$archive" 2>"$dir/serve.log" &
    server=$!
    wait_until 20 grep -q 'multicast from 192.0.2.1 to 239.192.3.7:7443' "$dir/serve.log"
}
# Keys come over TLS.
serve --state "$dir/state"
pin=$(sed -n 's/.*for --pin: //p' "$dir/serve.log")

sent_bytes() {
    at 1 cat /proc/net/dev | sed -n 's/^ *eth0: *//p' | awk '{ print $9 }'
}

# begin NUMBER [OPTION...]: has a client install to a file. Sets $client.
begin() {
    nsenter --net="/proc/${spaces[$1]}/ns/net" "$ONEFOLD" image install --unsigned --pin "$pin" "${@:2}" \
        https://192.0.2.1:7443 web "$dir/disk-$1" >"$dir/out-$1" 2>"$dir/log-$1" &
    client=$!
}

# whole NUMBER PID: waits for a client, and compares its disk.
whole() {
    wait "$2" || fail "client $1: $(<"$dir/log-$1")"
    cmp "$dir/disk-$1" "$dir/web.raw"
    note "client $1: $(sed -n '/^needed /{n;p}' "$dir/out-$1")"
}

# mostly_by_multicast NUMBER: nearly all chunks have come by multicast.
mostly_by_multicast() {
    local came all
    read -r came all < <(sed -n 's/^by multicast: \([0-9]*\) of \([0-9]*\) chunks.*/\1 \2/p' "$dir/out-$1")
    ((all >= 90 && came * 100 >= all * 95)) || fail "client $1: $(<"$dir/out-$1") $(<"$dir/log-$1")"
}

# The first client is killed, and begins anew while the stream runs; the second one comes late; the third hears nothing.
begin 2
killed=$client
begin 4
deaf=$client
sleep 2
begin 3
late=$client
kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
[[ ! -e $dir/disk-2 ]] || fail "a killed installation leaves a file"
begin 2
whole 2 "$client"
whole 3 "$late"
whole 4 "$deaf"
mostly_by_multicast 2
mostly_by_multicast 3
grep -q '0\.0 % of the packets lost' "$dir/out-2" && fail "no loss: $(<"$dir/out-2")"
grep -q 'multicast from 192.0.2.1 to 239.192.3.7 does not arrive on eth0: is there an IGMP querier' "$dir/log-4" ||
    fail "client 4 says nothing: $(<"$dir/log-4")"

# Three transmissions of their own, as over HTTP, take more.
sent=$(sent_bytes)
note "the server sent $((sent >> 20)) MiB"
((sent < 270 << 20)) || fail "the server sent $sent bytes"

# A disk that has half of the image takes the other half, and most of that by multicast.
{ head -c 48M "$dir/web.raw" && head -c 48M /dev/urandom; } >"$dir/disk-2"
begin 2 --force
whole 2 "$client"
read -r came spared < <(sed -n 's/^by multicast: \([0-9]*\) of .*have most of \([0-9]*\) others.*/\1 \2/p' "$dir/out-2")
((came >= 40 && came <= 60 && spared >= 36)) || fail "client 2: $(<"$dir/out-2") $(<"$dir/log-2")"
half=$(($(sent_bytes) - sent))
note "the server sent $((half >> 20)) MiB to a disk with half of the image"
((half < 64 << 20)) || fail "the server sent $half bytes to a disk with half of the image"

# The server is killed, and a new one takes its place: the clients go on, by either way.
rm "$dir/disk-2" "$dir/disk-3"
begin 2
first=$client
begin 3
second=$client
# has_written PROCESS BYTES: a file that the process has open takes so many bytes of the disk.
has_written() {
    local file blocks
    for file in "/proc/$1/fd/"*; do
        blocks=$(stat --dereference --format='%b' "$file" 2>/dev/null || echo 0)
        ((blocks * 512 < $2)) || return 0
    done
    return 1
}
wait_until 20 has_written "$first" $((8 << 20))
kill -KILL "$server"
wait "$server" 2>/dev/null || true
sleep 1
serve --state "$dir/state"
whole 2 "$first"
whole 3 "$second"
grep -q '^by multicast' "$dir/out-2" || fail "client 2: $(<"$dir/out-2") $(<"$dir/log-2")"
grep -q 'has fallen silent on eth0' "$dir/log-2" || fail "client 2 says nothing: $(<"$dir/log-2")"

kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"

# Without TLS, both sides have a key in a file. With another key, a client is refused, and says so.
serve --plain --multicast-key "$dir/key"
for key in key other-key; do
    at 3 "$ONEFOLD" image install --unsigned --allow-http --multicast-key "$dir/$key" http://192.0.2.1:7443 web \
        "$dir/disk-$key" >"$dir/out-$key" 2>"$dir/log-$key"
    cmp "$dir/disk-$key" "$dir/web.raw"
done
grep -q '^by multicast' "$dir/out-key" || fail "the client with the key: $(<"$dir/out-key") $(<"$dir/log-key")"
grep -q 'over HTTP' "$dir/out-other-key" || fail "the client with another key: $(<"$dir/out-other-key")"
grep -q 'or has another --multicast-key' "$dir/log-other-key" || fail "it says nothing: $(<"$dir/log-other-key")"
kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"
kill "${spaces[@]}"
