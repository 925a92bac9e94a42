# Status, index, explain, exclude, include and clone say and do what they promise, on XFS and Btrfs
# limit: 60 s
needs mkfs.xfs mkfs.btrfs losetup getfattr

# is MEMBER VALUE COMMAND...: a member of what a verb says has a value.
is() {
    local path=$1 expected=$2 found
    shift 2
    found=$(onefold share "$@" --json --quiet | member "$path")
    [[ $found == "$expected" ]] || fail "$path of $*: $found, not $expected"
}

for kind in xfs btrfs; do
    truncate -s 512M "$dir/$kind.raw"
    attach_loop "$dir/$kind.raw"
    "mkfs.$kind" -q "$loop" 2>/dev/null
    mkdir "$dir/$kind"
    mount "$loop" "$dir/$kind"
    images=$dir/$kind/images
    mkdir -p "$images/private"
    head -c 8M /dev/urandom >"$images/one.raw"
    cp --reflink=never "$images/one.raw" "$images/two.raw"
    cp --reflink=never "$images/one.raw" "$images/private/three.raw"
    sync -f "$images"

    # Where nothing is known nothing is made.
    is state null status "$images"
    is block.verdict '"nothing_known"' explain "$images/one.raw" 0
    is whole.shared_bytes 0 explain "$images/one.raw"
    # So does what a host calls when it boots.
    read -ra at_boot < <(sed -n 's|^ExecStart=/usr/bin/onefold ||p' "$repo/packaging/systemd/onefold-share-mend@.service")
    onefold "${at_boot[@]/\%f/$images}" || fail "there is nothing to mend"
    [[ ! -e $dir/$kind/.onefold ]] || fail "status or mend made a state folder"

    onefold share exclude "$images/private" >/dev/null
    [[ $(getfattr --absolute-names --only-values -n user.onefold.share "$images/private") == off ]] || fail "no attribute"
    sleep 0.1
    onefold share run --quiet --json "$images" >"$dir/run"
    [[ $(member scanned.opted_out_files <"$dir/run") == 1 ]] || fail "it was not opted out"
    is block.verdict '"shared"' explain "$images/one.raw" 1M
    is block.shared_with.0.path '"images/two.raw"' explain "$images/one.raw" 1M
    is whole.shared_with.0.path '"images/two.raw"' explain "$images/one.raw"
    is whole.shared_with.0.bytes 8388608 explain "$images/one.raw"
    is whole.own_bytes 0 explain "$images/one.raw"
    is savings.saved_bytes 8388608 run "$images"
    is state.savings.saved_bytes 8388608 status "$images"
    is block.verdict '"opted_out"' explain "$images/private/three.raw" 1M
    onefold "${at_boot[@]/\%f/$images}" || fail "there is nothing to mend"
    is state.files.current 2 status "$images"
    is state.locks '[]' status "$dir/$kind"
    onefold share status "$images" >"$dir/out"
    grep -q 'image files known' "$dir/out" || fail "no table"
    entries=$(onefold share index "$images" --dump | wc -l)
    [[ $entries == $(onefold share index "$images" --json | python3 -c 'import json, sys
index = json.load(sys.stdin)["index"]
print(index["unique_entries"] + index["shared_entries"])') ]] || fail "$entries lines"
    onefold share index --dump "$images" | head -1 | grep -Eq '^[0-9a-f]{24} (unique|shared) [0-9]+:[0-9]+$' || fail "no entry"

    # A root that goes while it is read is told of, and that is all.
    vanishing=$dir/$kind/vanishing
    mkdir "$vanishing"
    cp --reflink=never "$images/one.raw" "$vanishing/one.raw"
    cp --reflink=never "$images/one.raw" "$vanishing/two.raw"
    "$ONEFOLD" share run --quiet --io-limit 4M "$vanishing" >"$dir/out" 2>&1 &
    run=$!
    sleep 0.5
    rm -r "$vanishing"
    status=0
    wait "$run" || status=$?
    ((status <= 1)) || fail "a root that has gone ends a run with $status: $(<"$dir/out")"
    fails_with 'No such file' "$ONEFOLD" share run --quiet "$vanishing"

    # A clone that nobody reads; the file of its name only goes where that is wanted.
    echo precious >"$images/clone.raw"
    fails_with 'exists' "$ONEFOLD" share clone "$images/one.raw" "$images/clone.raw"
    [[ $(<"$images/clone.raw") == precious ]] || fail "it was replaced"
    is left_to_scan null clone --force "$images/one.raw" "$images/clone.raw"
    cmp "$images/one.raw" "$images/clone.raw"
    onefold share run --quiet --json "$images" >"$dir/run"
    [[ $(member scanned.read_bytes <"$dir/run") == 0 ]] || fail "it was read"
    is block.shared_with.1.path '"images/clone.raw"' explain "$images/one.raw" 1M

    # Included again it is shared like the others.
    onefold share include "$images/private" >/dev/null
    onefold share run --quiet --json "$images" >"$dir/run"
    is block.verdict '"shared"' explain "$images/private/three.raw" 1M
    cmp "$images/one.raw" "$images/private/three.raw"

    # Damage is told, and left to the next run.
    for file in "$dir/$kind"/.onefold/shards/*; do
        echo nonsense >"$file"
    done
    onefold share status "$images" >"$dir/out"
    grep -q 'is of no use' "$dir/out" || fail "damage was not told"
    grep -q nonsense "$dir/$kind"/.onefold/shards/* || fail "it was dropped by looking"
    onefold share explain "$images/one.raw" >/dev/null
done
fails_with 'cannot explain' "$ONEFOLD" share explain "$images/one.raw" 1T
fails_with 'cannot open' "$ONEFOLD" share exclude "$images/none.raw"
fails_with 'cannot exclude files' "$ONEFOLD" share exclude /proc/self/status
