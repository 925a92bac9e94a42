# `share files --since` looks at what came after a template or a date, and says why something is no template
# limit: 120 s
needs mkfs.xfs losetup mke2fs
# disk IMAGE: an ext4 with the tree.
disk() {
    truncate -s 64M "$1"
    mke2fs -q -F -t ext4 -b 4096 -d "$dir/tree" "$1"
}

tree() {
    rm -rf "$dir/tree"
    python3 "$tools/make_debian.py" "$dir/tree" "guest-$1" "$1"
}

number() {
    python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."):
    value = value[int(name) if isinstance(value, list) else name]
print(len(value) if isinstance(value, list) else int(value))' "$1" <"$dir/run"
}

files() {
    onefold share files --json --quiet "$@" "$images" >"$dir/run"
    (cd "$images" && sha256sum --quiet --check "$dir/sums")
}

# The template lacks a package that its clones have.
tree 1
sed -i '/^Package: tool-7$/,/^$/d' "$dir/tree/var/lib/dpkg/status"
rm "$dir"/tree/var/lib/dpkg/info/tool-7.* "$dir"/tree/usr/*/tool-7-* "$dir"/tree/usr/share/doc/tool-7-*
disk "$dir/template.raw"
truncate -s 1G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
images=$dir/xfs/images
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
mkdir "$images"
for seed in 1 2; do
    tree "$seed"
    disk "$images/$seed.raw"
    # What both have written in one second would be equal by its time, too.
    sleep 1
done
sync -f "$images"
(cd "$images" && sha256sum ./*.raw) >"$dir/sums"

files --dry-run --tiers 1
all=$(number tiers.0.believed_bytes)
files --dry-run --tiers 1,3,5 --since 2001-01-01
(($(number tiers.0.believed_bytes) == all && $(number examined.older_packages) == 0)) || fail "all is later than 2001"
files --dry-run --tiers 1,3,5 --since 2037-01-01T12:00
(($(number tiers.0.believed_bytes) == 0 && $(number tiers.2.believed_bytes) == 0)) || fail "nothing is later than 2037"
(($(number examined.older_packages) == 2 * 9 && $(number examined.older_files) > 100)) || fail "what is older was not counted"

files --tiers 1 --since "$dir/template.raw"
later=$(number tiers.0.believed_bytes)
(($(number packages) == 1)) || fail "more than one package is new: $(number packages)"
grep -q '"tool-7 1.7 amd64"' "$dir/run" || fail "the new package is not named"
((later > 0 && later < all / 4 && $(number tiers.0.shared_bytes) == later)) || fail "$later of $all bytes were shared"
(($(number examined.older_packages) == 2 * 8 && $(number strangers) == 0)) || fail "the template's packages were looked at"
# All files of the clones are later than the template, and those of no package are still told from packaged ones.
files --dry-run --tiers 3,5 --since "$dir/template.raw"
(($(number tiers.2.believed_bytes) == 50 * 4096)) || fail "$(number tiers.2.believed_bytes) bytes of dated files"

# What is no template, or of others.
says() {
    local expected=$1
    shift
    ! onefold share files --quiet "$@" "$images" >"$dir/out" 2>&1 || fail "it went on with $*"
    grep -q "$expected" "$dir/out" || fail "$* says $(cat "$dir/out")"
}
says 'No such file' --since "$dir/none.raw"
head -c 1M /dev/zero >"$dir/zeros.raw"
says 'no file system in it' --since "$dir/zeros.raw"
rm -rf "$dir/tree"
mkdir -p "$dir/tree/srv"
disk "$dir/data.raw"
says 'no package database in it' --since "$dir/data.raw"
says 'neither a file' --since "$dir"
mkdir -p "$dir/tree/var/lib/dpkg"
printf 'Package: %s\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n' one two three >"$dir/tree/var/lib/dpkg/status"
disk "$dir/other.raw"
files --dry-run --tiers 1 --since "$dir/other.raw"
(($(number strangers) == 2 && $(number tiers.0.believed_bytes) == all)) || fail "images of another template were not named"
