# Guests whose maps of files lie cost comparisons, and change nothing: extents that cross, lead to metadata, or are one block
# limit: 120 s
needs mkfs.xfs losetup mke2fs debugfs python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# ext_image IMAGE FOLDER [OPTION...]: an image of a tree, without checksums of what is to lie.
ext_image() {
    truncate -s 48M "$1"
    mke2fs -q -F -t ext4 -O ^metadata_csum -b 4096 "${@:3}" -d "$2" "$1"
}

# lie KIND IMAGE FOLDER...: has the maps of the files in these folders of a guest lie; prints of how many.
lie() {
    local folder
    for folder in "${@:3}"; do
        debugfs -R "ls -p $folder" "$2" 2>/dev/null
    done | awk -F/ '$3 ~ /^100/ { print $2 }' | python3 -IS "$tools/lying_maps.py" "$2" "$1"
}

new_host xfs
made=$dir/made
mkdir "$made"
for seed in 1 2 3; do
    make_tree "$dir/tree" "$seed"
    ext_image "$made/$seed.raw" "$dir/tree"
done

# What honest guests share beside each other.
cp --sparse=always "$made"/[12].raw "$images"
onefold share files --json --quiet "$images" >"$dir/run"
honest=$(number shared.now_bytes <"$dir/run")
((honest > 3 << 20)) || fail "honest guests share $honest bytes"

# The liar comes before the others, whose source it may be then (0.raw), and behind them (9.raw).
for kind in crossed metadata one-block; do
    for name in 0 9; do
        rm -rf "$images"/*.raw "$mount/.onefold"
        cp --sparse=always "$made/3.raw" "$images/$name.raw"
        lies=$(lie "$kind" "$images/$name.raw" /usr/bin /usr/share/doc)
        ((lies > 400)) || fail "only $lies maps lie"
        cp --sparse=always "$made"/[12].raw "$images"
        remember
        onefold share files --json --quiet "$images" >"$dir/run"
        whole
        shared=$(number shared.now_bytes <"$dir/run") differed=$(number tiers.0.differed_bytes <"$dir/run")
        crowded=$(number tiers.0.crowded_bytes <"$dir/run")
        note "$kind, $name.raw: $lies maps lie, $((differed >> 10)) KiB differed, $((crowded >> 10)) KiB crowded," \
            "$((shared >> 10)) KiB share"
        ((shared >= honest)) || fail "a liar took away $((honest - shared)) of $honest bytes"
        ((differed + crowded + $(number tiers.0.second_bytes <"$dir/run") > 100000)) || fail "no lie was met"
        (($(number examined.images_with_packages <"$dir/run") == 3)) || fail "not all guests were examined"
        # Another run finds no more, and does not undo what the first one did.
        onefold share files --full --json --quiet "$images" >"$dir/again"
        whole
        (($(number shared.now_bytes <"$dir/again") == 0)) || fail "shared again: $(number shared.now_bytes <"$dir/again")"
    done
done

# Many files that claim one block, each equal to a file of an honest guest.
rm -rf "$images"/*.raw "$mount/.onefold" "$dir/tree"
python3 - "$dir/tree" <<'PYTHON'
import hashlib, os, sys

info, files = (os.path.join(sys.argv[1], path) for path in ("var/lib/dpkg/info", "usr/lib/many"))
os.makedirs(info)
os.makedirs(files)
os.makedirs(os.path.join(sys.argv[1], "etc"))
with open(os.path.join(sys.argv[1], "etc/os-release"), "w") as file:
    file.write("ID=debian\nVERSION_ID=12\n")
with open(os.path.join(info, "many.md5sums"), "w") as sums, open(os.path.join(info, "many.list"), "w") as names:
    for number in range(5000):
        content = b"file %d\n" % number
        with open(os.path.join(files, str(number)), "wb") as file:
            file.write(content)
        sums.write(f"{hashlib.md5(content).hexdigest()}  usr/lib/many/{number}\n")
        names.write(f"/usr/lib/many/{number}\n")
with open(os.path.join(sys.argv[1], "var/lib/dpkg/status"), "w") as file:
    file.write("Package: many\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n")
PYTHON
ext_image "$images/1.raw" "$dir/tree" -N 6000
cp --sparse=always "$images/1.raw" "$images/9.raw"
lies=$(lie one-block "$images/9.raw" /usr/lib/many)
((lies == 5000)) || fail "$lies maps lie"
remember
onefold share files --tiers 1 --json --quiet "$images" >"$dir/run"
whole
crowded=$(number tiers.0.crowded_bytes <"$dir/run")
note "$lies files claim one block: $((crowded / 4096)) were not tried, $(number calls.shares <"$dir/run") calls"
((crowded >= 4900 * 4096)) || fail "only $crowded bytes were left out"
(($(number calls.shares <"$dir/run") < 100)) || fail "$(number calls.shares <"$dir/run") calls for one block"
