# `share watch --files` shares an update of several guests once their package databases have changed, and not before
# limit: 240 s
needs mkfs.xfs losetup mke2fs debugfs python3

# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# sum MEMBER: a number of all that the watch shared by files.
sum() {
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(sum(line[sys.argv[2]] for line in lines if line["event"] == "files_shared"))' "$dir/told" "$1"
}

passes() {
    grep -c '"files_shared"' "$dir/told" || true
}

has_shared() {
    (($(sum shared_bytes) >= $1))
}

make_tree "$dir/tree" 3
new_host xfs
for seed in 1 2 3; do
    guest "$images/$seed.raw" "$seed"
done
head -c 1M /dev/zero >"$images/none.raw"
sync -f "$images"

"$ONEFOLD" share watch --files --json --interval 300ms "$images" >"$dir/told" 2>"$dir/err" &
watch=$!
wait_until 60 has_shared $((5 << 20))
before=$(sum shared_bytes)

# A guest that writes to its files, and not to its packages, is left to the scan.
debugfs -w -R "write $dir/tree/srv/log /srv/another" "$images/3.raw" 2>/dev/null
wait_until 30 grep -q '"passed"' "$dir/told"
sleep 1
first=$(passes)
sleep 2
(($(passes) == first)) || fail "files were shared again and again: $(cat "$dir/told")"
debugfs -w -R "write $dir/tree/srv/log /srv/one_more" "$images/3.raw" 2>/dev/null
# The watch leaves files alone for ten times as long as sharing them took.
sleep "$(python3 -c 'print(2 + 11 * float(input()))' <<<"$(sum seconds)")"
(($(passes) == first)) || fail "a file of no package had files shared: $(cat "$dir/told")"

# An update of two guests: a package with one file. Its place differs from guest to guest.
head -c 3M /dev/urandom >"$dir/update"
(cd "$dir" && echo "$(md5sum <update | cut -d' ' -f1)  usr/lib/update") >"$dir/md5sums"
printf '/usr/lib/update\n' >"$dir/list"
cp "$dir/tree/var/lib/dpkg/status" "$dir/status"
printf 'Package: update\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n' >>"$dir/status"
# It sees both guests as they are afterwards.
kill -STOP "$watch"
stopped=$SECONDS
for seed in 1 2; do
    {
        printf 'write %s /usr/lib/update\n' "$dir/update"
        printf 'write %s /var/lib/dpkg/info/update.md5sums\n' "$dir/md5sums"
        printf 'write %s /var/lib/dpkg/info/update.list\n' "$dir/list"
        printf 'rm /var/lib/dpkg/status\nwrite %s /var/lib/dpkg/status\n' "$dir/status"
    } | debugfs -w -f - "$images/$seed.raw" >/dev/null 2>&1
done
remember
kill -CONT "$watch"
# If it was stopped while it looked at databases, that look took so long, and the watch pauses for ten times that.
wait_until $((60 + 11 * (SECONDS - stopped + 1))) has_shared $((before + (3 << 20)))
kill -TERM "$watch"
wait "$watch" || fail "the watch ended with code $?: $(cat "$dir/err")"
whole
note "$(grep '"files_shared"' "$dir/told" | tail -1)"
