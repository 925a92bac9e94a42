# The status of a server shows machines and how they end, the log has a line for each, and digests fit the disk
# limit: 60 s
needs curl
archive=$dir/archive
export ONEFOLD_TRUSTED_KEYS=$dir/trusted
: >"$dir/trusted"

onefold archive create "$archive"
head -c 24M /dev/urandom >"$dir/web.raw"
onefold image capture --quiet "$archive" "$dir/web.raw" lab/web
umask 077
: >"$dir/tokens"
for user in lab all; do
    head -c 32 /dev/urandom | base64 | tr -d '\n' >"$dir/$user.token"
    printf 'Authorization: Bearer %s' "$(<"$dir/$user.token")" >"$dir/$user.header"
done
printf 'lab/* %s\n* %s\n' "$(<"$dir/lab.token")" "$(<"$dir/all.token")" >"$dir/tokens"

# serve ADDRESS: starts the server, and waits until it serves. Sets $server.
serve() {
    : >"$dir/serve.log"
    "$ONEFOLD" image serve --listen "$1" --state "$dir/state" --tokens "$dir/tokens" "$archive" 2>"$dir/serve.log" &
    server=$!
    wait_until 20 grep -q 'fingerprint' "$dir/serve.log"
}
serve 127.0.0.1:0
address=$(sed -n 's/^serving .* at //p' "$dir/serve.log")
pin=$(sed -n 's/^fingerprint .*: //p' "$dir/serve.log")
status() { "$ONEFOLD" image serve --status "$address" --pin "$pin" --token-file "$dir/all.token" "$@"; }
shows() { status | grep -Eq "$1"; }
install() {
    "$ONEFOLD" image install --quiet --unsigned --pin "$pin" --token-file "$dir/lab.token" "$address" lab/web "$@"
}
fetch() { curl --silent --show-error --cacert "$dir/state/certificate.pem" -H "@$dir/$1.header" "${@:3}" "$address/v1/$2"; }

# Anybody may ask whether the server answers, and learns nothing else. The status is for tokens of all images.
health=$(curl --silent --show-error --fail --cacert "$dir/state/certificate.pem" "$address/v1/health")
[[ $health == '{"status":"ok"}' ]] || fail "the health is $health"
[[ $(status) == 'no machine has reported lately' ]] || fail "there are machines: $(status)"
refused 1 'may read all images' onefold image serve --status "$address" --pin "$pin" --token-file "$dir/lab.token"
refused 1 'wants a token' onefold image serve --status "$address" --pin "$pin"
refused 2 'for --status' onefold image serve --token-file "$dir/lab.token" "$archive"
refused 2 'cannot be used with' onefold image serve --status "$address" --plain "$archive"

# A machine shows while it installs. One is killed, one is interrupted, and one finishes over a restart of the server.
"$ONEFOLD" image install --quiet --unsigned --pin "$pin" --token-file "$dir/lab.token" --rate 1M --as killed \
    "$address" lab/web "$dir/killed.raw" &
killed=$!
"$ONEFOLD" image install --quiet --unsigned --pin "$pin" --token-file "$dir/lab.token" --rate 1M --as stopped \
    "$address" lab/web "$dir/stopped.raw" 2>/dev/null &
stopped=$!
wait_until 20 shows '^lab/web@1: 2 installing$'
wait_until 20 shows '^killed +127\.0\.0\.1 .* disk +HTTP'
[[ $(status --json | grep -c '"state": "installing"') == 2 ]] || fail "the status is $(status --json)"
kill -KILL "$killed"
wait "$killed" || true
kill -TERM "$stopped"
wait "$stopped" && fail "an interrupted installation succeeds"
wait_until 10 grep -Eq '`stopped` failed at .* received, .* s$' "$dir/serve.log"
shows '^stopped .* failed ' || fail "the status is $(status)"

"$ONEFOLD" image install --unsigned --pin "$pin" --token-file "$dir/lab.token" --rate 8M --as lasting --json \
    "$address" lab/web "$dir/lasting.raw" >"$dir/result" 2>/dev/null &
lasting=$!
wait_until 10 grep -q '`lasting` began over HTTP$' "$dir/serve.log"
kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"
serve "${address#https://}"
wait "$lasting" || fail "$(<"$dir/result")"
cmp "$dir/lasting.raw" "$dir/web.raw"
wait_until 10 grep -q '`lasting` finished: ' "$dir/serve.log"
grep -q '`lasting` goes on at ' "$dir/serve.log" || fail "the restart shows: $(<"$dir/serve.log")"
grep -q '"limit": "disk"' "$dir/result" || fail "the limit is another one: $(<"$dir/result")"

# A name takes no line of the log, and controls no terminal.
refused 2 'control characters' onefold image install --as $'a\nb' "$address" lab/web "$dir/none.raw"
install "$dir/named.raw" --as $'x\xe2\x80\xae`y' >/dev/null || fail "a name is refused"
if grep -q $'\xe2\x80\xae' "$dir/serve.log"; then fail "the log has the name as it is"; fi

# Digests are computed at the first request, and kept over a restart. Their thread gives way to all others, so that the
# disk is a small one.
head -c 1M /dev/urandom >"$dir/raw"
onefold image capture --quiet "$archive" "$dir/raw" lab/small
wait_until 30 bash -c "curl --silent --fail --cacert '$dir/state/certificate.pem' -H '@$dir/lab.header' \
    '$address/v1/images/lab%2Fsmall/raw.sha256' >'$dir/raw.sha256'"
fetch lab images/lab%2Fsmall/raw.sha512 --fail >"$dir/raw.sha512"
(cd "$dir" && sha256sum --quiet -c raw.sha256 && sha512sum --quiet -c raw.sha512) || fail "the digests are wrong"
kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"
serve "${address#https://}"
fetch lab images/lab%2Fsmall/raw.sha256 --fail | cmp - "$dir/raw.sha256" || fail "the digests are gone"
kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"
