# Installations take only what is missing: over an older version, after a kill -9 at any moment, and beside seeds
# limit: 120 s
needs mke2fs debugfs
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
archive=$dir/archive
onefold archive create "$archive"

# A disk with files of 1 MiB that do not compress, and the same disk after 5 % of them have changed.
mkdir "$dir/files"
for number in $(seq 1 60); do
    head -c 1M /dev/urandom >"$dir/files/$number"
done
truncate -s 96M "$dir/web.raw"
mke2fs -q -t ext4 -d "$dir/files" "$dir/web.raw"
onefold image capture --quiet "$archive" "$dir/web.raw" web
cp --sparse=always "$dir/web.raw" "$dir/next.raw"
for number in 11 32 53; do
    head -c 1M /dev/urandom >"$dir/changed"
    debugfs -w -R "rm $number" "$dir/next.raw" 2>/dev/null
    debugfs -w -R "write $dir/changed $number" "$dir/next.raw" 2>/dev/null
done
onefold image capture --json --quiet "$archive" "$dir/next.raw" web >"$dir/captured"
changed=$(number images.0.stored_bytes <"$dir/captured")
((changed > 3 << 20 && changed < 4 << 20)) || fail "$changed bytes are new: $(<"$dir/captured")"
for version in 1 2; do
    onefold image export --quiet "$archive" "web@$version" "$dir/$version.export"
done
size=$(stat --format=%s "$dir/web.raw")

# Plain HTTP on this machine; the server ends with the case.
"$ONEFOLD" image serve --plain --listen 127.0.0.1:0 "$archive" 2>"$dir/serve.log" &
server=$!
wait_until 20 grep -q 'serving' "$dir/serve.log"
address=$(grep -o 'http://[0-9.:]*' "$dir/serve.log" | head -1)

# install VERSION TARGET [FLAG...]: over what is there. Leaves the result in $dir/installed.
install() {
    local version=$1 target=$2
    shift 2
    onefold image install --json --quiet --unsigned --force --verify "$@" "$address" "web@$version" "$target" >"$dir/installed"
}
got() {
    number "$1" <"$dir/installed"
}
# The new version over the old one.
head -c "$size" /dev/urandom >"$dir/target.raw"
install 1 "$dir/target.raw" --free zero
cmp "$dir/target.raw" "$dir/1.export"
all=$(got received_bytes)
(($(got found_bytes) == 0 && all > 60 << 20)) || fail "$(<"$dir/installed")"
install 2 "$dir/target.raw" --free zero
cmp "$dir/target.raw" "$dir/2.export"
received=$(got received_bytes)
note "over the previous version: $received bytes came for $changed changed ones"
((received * 10 <= changed * 13)) || fail "$received bytes came for $changed: $(<"$dir/installed")"
install 2 "$dir/target.raw" --free zero
(($(got written_bytes) == 0 && $(got received_bytes) < 1 << 20)) || fail "$(<"$dir/installed")"
install 1 "$dir/target.raw" --fresh
(($(got found_bytes) == 0)) || fail "--fresh looked: $(<"$dir/installed")"

# A dry run tells by file what has changed since the installation, and touches nothing.
onefold image install --unsigned --dry-run "$address" web@1 "$dir/target.raw" >"$dir/said"
grep -q 'is as web@1 was installed' "$dir/said" || fail "$(<"$dir/said")"
cp "$dir/2.export" "$dir/target.raw"
onefold image install --unsigned --dry-run "$address" web@1 "$dir/target.raw" >"$dir/said"
for number in 11 32 53; do
    grep -q "MiB  *the whole disk  */$number\$" "$dir/said" || fail "file $number is not named: $(<"$dir/said")"
done
(($(grep -c 'the whole disk  */' "$dir/said") <= 5)) || fail "files are named that did not change: $(<"$dir/said")"
cmp "$dir/target.raw" "$dir/2.export"

# Killed at 90 % of the bytes, and at other moments: the next run takes the rest, the first MiB, and what was under way.
data=$(got needed_bytes)
for percent in 90 40 70; do
    head -c "$size" /dev/urandom >"$dir/target.raw"
    "$ONEFOLD" image install --quiet --unsigned --force --rate 31M "$address" web@1 "$dir/target.raw" 2>"$dir/install.log" &
    client=$!
    until (($(sed -n 's/^wchar: //p' "/proc/$client/io") * 100 >= data * percent)); do
        sleep 0.005
    done
    kill -KILL "$client"
    wait "$client" && fail "it had ended before the kill"
    cmp -s -n 512 "$dir/target.raw" /dev/zero || fail "a killed installation leaves a first sector"
    install 1 "$dir/target.raw"
    e2fsck -fn "$dir/target.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
    note "after a kill at $percent %: $(($(got received_bytes) * 100 / all)) % came again"
    (($(got received_bytes) * 100 <= all * (100 - percent + 3))) || fail "$(<"$dir/installed")"
done

# Seeds: an image of another format and of another version, a disk at another place, and one that is none of these.
for seed in "$dir/next.raw" "$archive#web@2"; do
    rm -f "$dir/target.raw"
    install 1 "$dir/target.raw" --seed "$seed"
    cmp "$dir/target.raw" "$dir/1.export"
    (($(got seed_bytes) > 55 << 20 && $(got received_bytes) < 5 << 20)) || fail "$(<"$dir/installed")"
done
rm "$dir/target.raw"
head -c 3M /dev/urandom >"$dir/noise.raw"
install 1 "$dir/target.raw" --seed "$dir/noise.raw"
(($(got seed_bytes) == 0)) || fail "$(<"$dir/installed")"
cmp "$dir/target.raw" "$dir/1.export"
for flag in --verify --dry-run; do
    refused 1 'cannot open the seed' onefold image install --unsigned "$flag" "$address" web "$dir/none.raw" --seed "$dir/none"
done
# A plain file that is a file of the image.
rm "$dir/target.raw"
install 1 "$dir/target.raw" --seed "$dir/files/7"
(($(got seed_bytes) == 1 << 20)) || fail "$(<"$dir/installed")"

kill -TERM "$server"
wait "$server"
