# Status counts each image's blocks by state, and explain shows the state, the guest's file and the package of a block
# limit: 120 s
needs mkfs.xfs mkfs.btrfs losetup mke2fs debugfs e2fsck getfattr python3

# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# state IMAGE STATE [OPTION...]: prints how many bytes of an image are in a state.
state() {
    local image=$1 state=$2
    shift 2
    onefold share status "$images" "$@" --json --quiet | python3 -c 'import json, sys
images = {image["path"]: image for image in json.load(sys.stdin)["state"]["images"]}
print(images["images/" + sys.argv[1]][sys.argv[2] + "_bytes"])' "$image" "$state"
}

# unknown [OPTION...]: prints how many images have a recorded template that is not found.
unknown() {
    onefold share status "$images" "$@" --json --quiet | member state.unknown_template_images
}

# explained IMAGE BYTE MEMBER EXPECTED [OPTION...]: explain says so of a block.
explained() {
    local image=$1 byte=$2 path=$3 expected=$4 found
    shift 4
    found=$(onefold share explain "$images/$image" "$byte" "$@" --json --quiet | member "$path")
    [[ $found == "$expected" ]] || fail "$path of $image at $byte: $found, not $expected"
}

# place IMAGE PATH: prints where the first block of a guest's file lies in the image.
place() {
    onefold guest map "$1" "$2" --json | member extents.0.in_file
}

# overwrite IMAGE BYTE BLOCKS: writes new content, as a guest does.
overwrite() {
    dd if=/dev/urandom of="$1" bs=4096 seek=$(($2 / 4096)) count="$3" conv=notrunc status=none
    sync -f "$1"
}

guest "$dir/template" 1
guest "$dir/other" 2

for kind in xfs btrfs; do
    new_host "$kind"
    cp --sparse=always "$dir/template" "$images/template.raw"
    sync -f "$images"

    # A clone is recorded, a copy of another tool is not; no run has read anything yet.
    onefold share clone "$images/template.raw" "$images/clone.raw" --json >"$dir/cloned"
    [[ $(member template_recorded <"$dir/cloned") == true ]] || fail "$(cat "$dir/cloned")"
    getfattr --absolute-names -n user.onefold.template "$images/clone.raw" >"$dir/attribute" || fail "no attribute"
    cp --reflink=always "$images/template.raw" "$images/copy.raw"
    sync -f "$images"
    big=$(place "$images/clone.raw" /usr/lib/big)
    explained copy.raw "$big" block.state '"template"' --since "$images/template.raw"
    explained copy.raw "$big" guest.files.0.package '"big 3 all"'
    explained copy.raw "$big" guest.files.0.names.0.path '"/usr/lib/big"'

    onefold share files --quiet "$images" >/dev/null
    all=$(state clone.raw template)
    ((all > 1 << 20)) || fail "$all bytes of the template"
    [[ $(state clone.raw own) == 0 && $(state copy.raw template) == 0 ]] || fail "$(onefold share status "$images")"
    [[ $(state copy.raw shared) == "$all" ]] || fail "$(onefold share status "$images")"
    [[ $(state copy.raw template --since "$images/template.raw") == "$all" ]] || fail "--since does not name the template"
    # An image that a record names is not asked for another template, and no image is its own.
    [[ $(state clone.raw template --since "$images/copy.raw") == "$all" ]] || fail "the record does not count"
    [[ $(state template.raw template --since "$images/template.raw") == 0 ]] || fail "an image is its own template"
    explained clone.raw "$big" block.state '"template"'
    explained clone.raw "$big" block.template '"images/template.raw"'
    explained copy.raw "$big" block.state '"shared"'

    # A guest's write makes a block the image's own, and only that.
    overwrite "$images/clone.raw" "$big" 10
    [[ $(state clone.raw own) == 40960 && $(state clone.raw template) == $((all - 40960)) ]] ||
        fail "$(onefold share status "$images")"
    explained clone.raw "$big" block.state '"own"'
    explained copy.raw "$big" block.state '"shared"'
    onefold share explain "$images/clone.raw" "$big" >"$dir/out"
    grep -q 'its state is own' "$dir/out" || fail "$(cat "$dir/out")"
    # shellcheck disable=SC2016
    grep -qF 'in the guest, it is byte 0 of `/usr/lib/big`, of the package big 3 all' "$dir/out" || fail "$(cat "$dir/out")"

    # Equal files of another image are shared by a pass, and common where a common volume takes them.
    cp --sparse=always "$dir/other" "$images/other.raw"
    sync -f "$images"
    tool=$(place "$images/other.raw" /usr/lib/big)
    explained other.raw "$tool" block.state '"own"'
    onefold share files --quiet "$images" >/dev/null
    explained other.raw "$tool" block.state '"shared"'
    onefold share common create "$images/common" >/dev/null
    onefold share files --common --quiet "$images" >/dev/null
    (($(state other.raw common) > 1 << 20)) || fail "$(onefold share status "$images")"
    onefold share status "$images" --json | member state.common_volumes.0.path >"$dir/out"
    [[ $(cat "$dir/out") == '"images/common"' ]] || fail "$(cat "$dir/out")"
    doc=$(place "$images/other.raw" /usr/bin/tool-1-1)
    explained other.raw "$doc" block.state '"common"'
    overwrite "$images/other.raw" "$doc" 1
    explained other.raw "$doc" block.state '"own"'

    # A template that no scan has seen is found once it is named.
    cp --sparse=always "$dir/template" "$dir/$kind/outside.raw"
    onefold share clone "$dir/$kind/outside.raw" "$images/late.raw" --quiet >/dev/null
    sync -f "$images"
    onefold share run --dry-run --quiet "$images" >/dev/null
    [[ $(state late.raw template) == 0 ]] || fail "$(onefold share status "$images")"
    [[ $(unknown) == 1 ]] || fail "$(onefold share status "$images")"
    (($(state late.raw template --since "$dir/$kind/outside.raw") > 1 << 20)) || fail "the record is not the named image"
    [[ $(unknown --since "$dir/$kind/outside.raw") == 0 ]] || fail "a named template is not known"

    # A template that is gone is none, and counts as a file that is not where it was.
    absent=$(onefold share status "$images" --json --quiet | member state.absent_files)
    rm "$images/template.raw"
    [[ $(state clone.raw template) == 0 ]] || fail "$(onefold share status "$images")"
    onefold share status "$images" >"$dir/out"
    grep -q '^the recorded templates of 2 images are not known here' "$dir/out" || fail "$(cat "$dir/out")"
    grep -Eq "^$((absent + 1)) known files? (is|are) not where the last scan found" "$dir/out" || fail "$(cat "$dir/out")"
    grep -q '^image  *template  *own  *common  *shared$' "$dir/out" || fail "$(cat "$dir/out")"
    # shellcheck disable=SC2016
    grep -qF "common volume \`$images/common\`" "$dir/out" || fail "$(cat "$dir/out")"
    # Whatever an attribute says, nothing but the answer depends on it.
    setfattr -n user.onefold.template -v "$(printf '\xff../../etc/passwd')" "$images/clone.raw"
    [[ $(state clone.raw template --since "$images/copy.raw") == 0 ]] || fail "an attribute that is no handle names a template"
    umount "$dir/$kind"
done
