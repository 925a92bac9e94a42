# Users of one server read the images of their tokens and no others, and a withdrawn token is soon worth nothing
# limit: 60 s
needs curl
archive=$dir/archive
export ONEFOLD_TRUSTED_KEYS=$dir/trusted
: >"$dir/trusted"

onefold archive create "$archive"
for name in lab/web db/main; do
    head -c 4M /dev/urandom >"$dir/${name#*/}.raw"
    onefold image capture --quiet "$archive" "$dir/${name#*/}.raw" "$name"
done
umask 077
: >"$dir/tokens"
for user in lab db; do
    head -c 32 /dev/urandom | base64 | tr -d '\n' >"$dir/$user.token"
    printf 'Authorization: Bearer %s' "$(<"$dir/$user.token")" >"$dir/$user.header"
    printf '%s/* %s for %s\n' "$user" "$(<"$dir/$user.token")" "$user" >>"$dir/tokens"
done

# No token goes over a network in the open, and none that others may read is used.
refused 2 'over a plain connection' onefold image serve --plain --listen 0.0.0.0:0 --tokens "$dir/tokens" "$archive"
refused 2 'over a plain connection' onefold image install --allow-http --token-file "$dir/lab.token" \
    http://192.0.2.1:7443 lab/web "$dir/none.raw"
cp "$dir/tokens" "$dir/open"
chmod 644 "$dir/open"
refused 1 'open to other users' onefold image serve --listen 127.0.0.1:0 --state "$dir/state" --tokens "$dir/open" "$archive"

"$ONEFOLD" image serve --listen 127.0.0.1:0 --state "$dir/state" --tokens "$dir/tokens" "$archive" 2>"$dir/serve.log" &
server=$!
wait_until 20 grep -q 'fingerprint' "$dir/serve.log"
address=$(sed -n 's/^serving .* at //p' "$dir/serve.log")
pin=$(sed -n 's/^fingerprint .*: //p' "$dir/serve.log")
fetch() { curl --silent --show-error --cacert "$dir/state/certificate.pem" -H "@$dir/$1.header" "${@:3}" "$address/v1/$2"; }
status() { fetch "$1" "$2" --output /dev/null --write-out '%{http_code}'; }

onefold image install --quiet --unsigned --pin "$pin" --token-file "$dir/lab.token" "$address" lab/web "$dir/disk.raw"
cmp "$dir/disk.raw" "$dir/web.raw"
refused 1 'it has no image of that name' onefold image install --pin "$pin" --token-file "$dir/lab.token" "$address" db/main "$dir/none.raw"
refused 1 'wants a token' onefold image install --pin "$pin" "$address" lab/web "$dir/none.raw"
chmod 644 "$dir/lab.token"
refused 1 'open to other users' onefold image install --pin "$pin" --token-file "$dir/lab.token" "$address" lab/web "$dir/none.raw"
chmod 600 "$dir/lab.token"

# Each user sees one image, and reads it with any HTTP client.
fetch lab images | grep -q 'lab/web'
if fetch lab images | grep -q 'db/main'; then fail "the list has the image of another user"; fi
fetch db images/db%2Fmain/raw | cmp - "$dir/main.raw"
[[ $(status lab images/db%2Fmain/raw) == 404 && $(status lab images/none/raw) == 404 ]] || fail "an image shows"
digest=$(fetch db images | sed -n 's/.*"digest": "\(.*\)".*/\1/p')
[[ $(status db "manifests/$digest") == 200 && $(status lab "manifests/$digest") == 404 ]] || fail "a manifest shows"

# A withdrawn token, and a file that is wrong for a while: a client waits for the latter.
grep '^db' "$dir/tokens" >"$dir/new"
mv "$dir/new" "$dir/tokens"
wait_until 10 bash -c "[[ \$(curl --silent --cacert '$dir/state/certificate.pem' -H '@$dir/lab.header' --output /dev/null \
    --write-out '%{http_code}' '$address/v1/images') == 401 ]]"
[[ $(status db images) == 200 ]] || fail "the other token is gone"
cp "$dir/tokens" "$dir/good"
printf 'db/* short\n' >"$dir/tokens"
wait_until 10 grep -q 'no token is valid now' "$dir/serve.log"
[[ $(status db images) == 503 ]] || fail "a wrong file counts"
(
    sleep 1.5
    mv "$dir/good" "$dir/tokens"
) &
onefold image install --quiet --unsigned --pin "$pin" --token-file "$dir/db.token" "$address" db/main "$dir/other.raw" 2>"$dir/log" ||
    fail "$(<"$dir/log")"
cmp "$dir/other.raw" "$dir/main.raw"
if grep -qF -f "$dir/lab.token" "$dir/serve.log" "$dir/log"; then fail "a log has a token"; fi
kill -TERM "$server"
wait "$server" || fail "$(<"$dir/serve.log")"
[[ ! -e $dir/none.raw ]] || fail "a failed installation leaves a file"
