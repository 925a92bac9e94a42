# A user's guess is not shared with another user's file until a rule joins them; share domain shows, sets and clears
# limit: 60 s
needs mkfs.xfs losetup setpriv filefrag getfattr

member() {
    python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."):
    value = value[int(name)] if isinstance(value, list) else value[name]
print(json.dumps(value))' "$1"
}

# Tells whether a file's owner sees shared blocks in it.
looks_shared() {
    setpriv --reuid "$1" --regid "$1" --clear-groups filefrag -v "$2" | grep -q shared
}

truncate -s 512M "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/fs"
mount "$loop" "$dir/fs"
for user in 1000 1001; do
    mkdir "$dir/fs/$user"
    chown "$user:$user" "$dir/fs/$user"
done
path=$dir
while [[ $path != / ]]; do
    chmod o+x "$path"
    path=$(dirname "$path")
done

head -c 4M /dev/urandom >"$dir/fs/1000/secret"
chown 1000:1000 "$dir/fs/1000/secret"
chmod 600 "$dir/fs/1000/secret"
# The guess, as the user writes it.
setpriv --reuid 1001 --regid 1001 --clear-groups tee "$dir/fs/1001/guess" >/dev/null <"$dir/fs/1000/secret"
sync -f "$dir/fs"

onefold share run --quiet --json "$dir/fs" >"$dir/run"
[[ $(member shared.now_bytes <"$dir/run") == 0 ]] || fail "two users' files were shared"
[[ $(member scanned.domains <"$dir/run") == '[{"bytes": 4194304, "domain": "1000", "files": 1}, {"bytes": 4194304, "domain": "1001", "files": 1}]' ]] ||
    fail "the domains were not named: $(cat "$dir/run")"
looks_shared 1001 "$dir/fs/1001/guess" && fail "the guess is told to be right"
onefold share run --quiet "$dir/fs" >"$dir/out"
grep -q "write the line \`join 1000 1001 = NAME\` into \`$dir/fs/.onefold/domains\`" "$dir/out" || fail "no word of joining"

# Within a domain all is shared.
setpriv --reuid 1001 --regid 1001 --clear-groups cp --reflink=never "$dir/fs/1001/guess" "$dir/fs/1001/copy"
sync -f "$dir/fs"
onefold share run --quiet "$dir/fs" >/dev/null
looks_shared 1001 "$dir/fs/1001/guess" || fail "a user's own files are not shared"
looks_shared 1000 "$dir/fs/1000/secret" && fail "the secret is shared"

onefold share domain show "$dir/fs/1000/secret" "$dir/fs/1001" >"$dir/out"
grep -q "secret\` belongs to the domain of user 1000, that of its owner" "$dir/out" || fail "$(cat "$dir/out")"
grep -q "1001\` belong to their owners' domains" "$dir/out" || fail "$(cat "$dir/out")"
fails_with 'as root' setpriv --reuid 1001 --regid 1001 --clear-groups "$ONEFOLD" share domain set "$dir/fs/1001" 1000
fails_with 'names of domains' onefold share domain set "$dir/fs/1001" 'no domain'

# The settings have to be clear, and root's alone.
echo 'join 1000 1001 = staff' >"$dir/fs/.onefold/domains"
chmod 666 "$dir/fs/.onefold/domains"
fails_with 'others may write to it' onefold share run --quiet "$dir/fs"
chmod 600 "$dir/fs/.onefold/domains"
onefold share run --quiet --json "$dir/fs" >"$dir/run"
[[ $(member scanned.domains.0.domain <"$dir/run") == '"staff"' ]] || fail "the users were not joined"
looks_shared 1000 "$dir/fs/1000/secret" || fail "joined users do not share"
onefold share explain "$dir/fs/1000/secret" 0 | grep -q 'into which the settings join the files of user 1000' || fail "no reason"
# Backticks of the message.
# shellcheck disable=SC2016
onefold share status "$dir/fs" | grep -q 'in the domain `staff`' || fail "no domain in status"

# A folder's domain.
onefold share domain set "$dir/fs/1001" lab >/dev/null
[[ $(getfattr --absolute-names --only-values -n trusted.onefold.domain "$dir/fs/1001") == lab ]] || fail "no attribute"
onefold share domain show --json "$dir/fs/1001/copy" | member paths.0 >"$dir/out"
for part in '"domain": "lab"' '"cause": "attribute"' '"set_by": "1001"'; do
    grep -q "$part" "$dir/out" || fail "$(cat "$dir/out")"
done
onefold share domain clear "$dir/fs/1001" >/dev/null
getfattr --absolute-names -n trusted.onefold.domain "$dir/fs/1001" >/dev/null 2>&1 && fail "the attribute is still there"
umount "$dir/fs"
