# Images are installed over encrypted connections: by a pin, by a file of authorities, and not otherwise
# limit: 60 s
needs curl openssl
archive=$dir/archive
export ONEFOLD_TRUSTED_KEYS=$dir/trusted
: >"$dir/trusted"
unset STATE_DIRECTORY

# serve [OPTION...]: starts a server at a free port of this machine. Sets $server, $address and $pin.
serve() {
    : >"$dir/serve.log"
    "$ONEFOLD" image serve --listen 127.0.0.1:0 "$@" "$archive" 2>"$dir/serve.log" &
    server=$!
    wait_until 20 grep -q 'serving' "$dir/serve.log"
    address=$(sed -n 's/^serving .* at //p' "$dir/serve.log")
    pin=$(sed -n 's/^fingerprint of the certificate, for --pin: //p' "$dir/serve.log")
}
end() {
    kill -TERM "$server"
    wait "$server" || fail "$(<"$dir/serve.log")"
}
installs() { onefold image install --quiet --unsigned --force "$@" "$address" web "$dir/disk.raw" && cmp "$dir/disk.raw" "$dir/web.raw"; }
not_installed() { refused 1 "$1" onefold image install --quiet --patience 2 "${@:2}" "$address" web "$dir/none.raw"; }

onefold archive create "$archive"
head -c 8M /dev/urandom >"$dir/web.raw"
onefold image capture --quiet "$archive" "$dir/web.raw" web

# A certificate that the server makes itself: pinned, or verified by its file.
serve --state "$dir/state"
[[ $address == https://* ]] || fail "the server is at $address"
[[ $(stat --format=%a "$dir/state/key.pem") == 600 ]] || fail "others may read the key"
shown=$(openssl x509 -in "$dir/state/certificate.pem" -noout -fingerprint -sha256 | sed 's/.*=//')
[[ $(tr -d : <<<"${shown,,}") == "$pin" ]] || fail "OpenSSL says $shown, and the server $pin"
installs --pin "$pin"
installs --pin "$shown"
installs --ca "$dir/state/certificate.pem"
not_installed 'does not trust its certificate'
said=$(not_installed 'another certificate than the pinned one' --pin "${pin//[0-7]/8}")
[[ $said != *"$pin"* ]] || fail "the message shows the fingerprint that came: $said"
curl --silent --show-error --fail --cacert "$dir/state/certificate.pem" "$address/v1/images/web/raw" |
    cmp - "$dir/web.raw"
if curl --silent "$address/v1/images" >/dev/null; then fail "curl trusts a certificate that nobody knows"; fi
# Each side says what it needs.
said=$(curl --silent "http://${address#https://}/v1/images")
[[ $said == *https://* ]] || fail "a plain request gets: $said"
address=${address/https:/http:}
not_installed 'use https://'
refused 2 'no certificate to pin' onefold image install --pin "$pin" "$address" web "$dir/none.raw"
end

# It has the same certificate when it starts again, and none without its key.
before=$pin
serve --state "$dir/state"
[[ $pin == "$before" ]] || fail "the certificate is another one"
end
chmod 644 "$dir/state/key.pem"
refused 1 'open to other users' onefold image serve --listen 127.0.0.1:0 --state "$dir/state" "$archive"
rm "$dir/state/key.pem"
refused 1 'without its key' onefold image serve --listen 127.0.0.1:0 --state "$dir/state" "$archive"

# The operator's certificate, by an authority of its own: valid, and expired.
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority \
        -keyout "$dir/authority.key" -out "$dir/authority.pem"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server \
        -keyout "$dir/server.key" -out "$dir/server.csr"
    for days in 2 0; do
        openssl x509 -req -in "$dir/server.csr" -CA "$dir/authority.pem" -CAkey "$dir/authority.key" -days $days \
            -CAcreateserial -extfile <(printf 'subjectAltName=IP:127.0.0.1\n') -out "$dir/server.$days.pem"
    done
} >"$dir/openssl.log" 2>&1 || fail "$(<"$dir/openssl.log")"
serve --certificate "$dir/server.2.pem" --key "$dir/server.key"
installs --ca "$dir/authority.pem"
installs --pin "$pin"
not_installed 'does not trust its certificate'
curl --silent --show-error --fail --cacert "$dir/authority.pem" "$address/v1/images" | grep -q '"web"' ||
    fail "curl gets no list"
end
sleep 1.1
serve --certificate "$dir/server.0.pem" --key "$dir/server.key"
not_installed 'expired' --ca "$dir/authority.pem"
installs --pin "$pin"
end
refused 1 'another key' onefold image serve --certificate "$dir/authority.pem" --key "$dir/server.key" "$archive"

# Without encryption.
serve --plain
[[ $address == http://* && -z $pin ]] || fail "$(<"$dir/serve.log")"
installs
address=${address/http:/https:}
not_installed 'does not encrypt its connections'
end
refused 2 'no server of images' onefold image install --pin "$before" "$archive" web "$dir/none.raw"
[[ ! -e $dir/none.raw ]] || fail "a failed installation leaves a file"
