# An archive in a bucket: all verbs, faults of the server, refusals that name their cause; nothing is sent in the open
# limit: 60 s
needs mke2fs e2fsck python3 openssl
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=secret HOME=$dir
unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_PROFILE AWS_CA_BUNDLE

# serve NAME [FLAG...]: starts a server in memory, which ends with this script: it reads the pipe `NAME`. Sets $address.
serve() {
    local name=$1
    shift
    mkfifo "$dir/$name"
    python3 "$repo/tests/s3/server.py" "$@" <"$dir/$name" >"$dir/$name.address" &
    exec {hold}>"$dir/$name"
    wait_until 10 test -s "$dir/$name.address"
    address=$(<"$dir/$name.address")
}

# faults JSON: sets the faults of the next requests.
faults() {
    python3 -c 'import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/_faults", sys.argv[2].encode(), method="PUT"))' \
        "$address" "$1"
}

serve good
export AWS_ENDPOINT_URL=$address
archive=s3://images/site/web
guest "$dir/web.raw" 1
guest "$dir/db.raw" 2

onefold archive probe --json --size 1M "$archive" >"$dir/probe"
(($(number fit <"$dir/probe") == 1)) || fail "$(<"$dir/probe")"
onefold archive create "$archive"
refused 1 'objects here already' onefold archive create "$archive"
onefold image capture --quiet "$archive" "$dir/web.raw" web

# Answers that ask to wait, lost answers and cut connections are repeated, wherever they meet a capture.
faults '[{"status": 503, "code": "SlowDown", "count": 3}, {"method": "PUT", "part": "packs/"},
    {"method": "PUT", "part": "packs/", "effect": true}, {"method": "PUT", "part": "ledger/", "effect": true, "count": 2},
    {"method": "PUT", "part": "ledger/", "status": 409, "code": "ConditionalRequestConflict"},
    {"method": "GET", "status": 500, "count": 2}, {"method": "PUT", "part": "manifests/", "status": 429}]'
onefold image capture --quiet "$archive" "$dir/db.raw" db
[[ $(onefold image list "$archive" | grep -c '@1') == 2 ]] || fail "$(onefold image list "$archive")"
faults '[{"method": "GET", "part": "packs/", "status": 503, "count": 2}, {"method": "GET", "part": "packs/"}]'
onefold image install --quiet --verify "$archive" db "$dir/db.installed"
onefold image export --quiet "$archive" web - >"$dir/web.export"
for image in db.installed web.export; do
    e2fsck -fn "$dir/$image" >"$dir/e2fsck" 2>&1 || fail "$image: $(<"$dir/e2fsck")"
done
onefold archive check --data "$archive"
onefold archive stat "$archive" | grep -q '2 images'
onefold image rm "$archive" web@1
onefold image show "$archive" db >/dev/null

# Refusals name the cause and the next step. An archive that cannot be reached is not called damaged.
faults '[{"status": 403, "code": "RequestTimeTooSkewed", "count": 9}]'
refused 1 'clock of this machine' onefold image list "$archive"
faults '[{"part": "list-type", "status": 403, "code": "AccessDenied", "count": 9}]'
refused 1 's3:ListBucket' onefold archive stat "$archive"
faults '[]'
refused 1 'no such bucket' onefold image list s3://nothing/web
refused 1 'does not accept the access key' env AWS_ACCESS_KEY_ID=stranger "$ONEFOLD" image list "$archive"
refused 1 'no credentials' env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY "$ONEFOLD" image list "$archive"
refused 1 'no archive' onefold image list s3://images/other
refused 2 'not the place' onefold image list s3://x
refused 2 'plain connection' onefold image list "$archive" --endpoint http://192.0.2.1:9000
refused 2 'are for buckets' onefold image list "$dir" --region x
faults '[{"status": 500, "count": 1000}]'
refused 1 'gave up waiting' onefold archive check "$archive" --patience 1
faults '[]'

# Credentials also come from files, and the address from options.
mkdir "$dir/.aws"
printf '[lab]\naws_access_key_id = testkey\naws_secret_access_key = secret\n' >"$dir/.aws/credentials"
env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_ENDPOINT_URL AWS_PROFILE=lab \
    "$ONEFOLD" image list "$archive" --endpoint "$address" | grep -q '^db@1'

# A certificate of an authority of one's own is trusted if it is named, and not otherwise.
(
    cd "$dir"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority \
        -keyout authority.key -out authority.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server -keyout server.key -out server.csr
    openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
        -extfile <(printf 'subjectAltName=IP:127.0.0.1\n') -out server.crt
    cat server.crt server.key >server.pem
) >"$dir/openssl" 2>&1 || fail "$(<"$dir/openssl")"
serve encrypted --tls "$dir/server.pem"
export AWS_ENDPOINT_URL=$address
refused 1 'does not trust its certificate' onefold archive create "$archive"
refused 1 'authority with --ca' onefold archive create "$archive"
onefold archive create --ca "$dir/authority.pem" "$archive"
AWS_CA_BUNDLE=$dir/authority.pem onefold image capture --quiet "$archive" "$dir/web.raw" web

# A server that makes an object twice is refused, unless there is one writer.
serve careless --ignore-conditions
export AWS_ENDPOINT_URL=$address
refused 1 'one-writer' onefold archive create "$archive"
refused 1 'creation only if absent: no' onefold archive probe --size 64K "$archive"
onefold archive create --one-writer "$archive"
onefold image capture --quiet --one-writer "$archive" "$dir/web.raw" web
onefold archive check "$archive"
