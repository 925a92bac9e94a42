# `share files --since` looks at what came after a template or a date, and says why something is no template
# limit: 120 s
needs mkfs.xfs losetup mke2fs
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
# disk IMAGE: an ext4 with the tree.
disk() {
    truncate -s 64M "$1"
    mke2fs -q -F -t ext4 -b 4096 -d "$dir/tree" "$1"
}

tree() {
    make_tree "$dir/tree" "$1"
}

# found PATH: a number of what the last run has found.
found() {
    number "$1" <"$dir/run"
}

files() {
    onefold share files --json --quiet "$@" "$images" >"$dir/run"
    whole
}

# The template lacks a package that its clones have.
tree 1
sed -i '/^Package: tool-7$/,/^$/d' "$dir/tree/var/lib/dpkg/status"
rm "$dir"/tree/var/lib/dpkg/info/tool-7.* "$dir"/tree/usr/*/tool-7-* "$dir"/tree/usr/share/doc/tool-7-*
disk "$dir/template.raw"
new_host xfs
for seed in 1 2; do
    tree "$seed"
    disk "$images/$seed.raw"
    # What both have written in one second would be equal by its time, too.
    sleep 1
done
remember

files --dry-run --tiers 1
all=$(found tiers.0.believed_bytes)
files --dry-run --tiers 1,3,5 --since 2001-01-01
(($(found tiers.0.believed_bytes) == all && $(found examined.older_packages) == 0)) || fail "all is later than 2001"
files --dry-run --tiers 1,3,5 --since 2037-01-01T12:00
(($(found tiers.0.believed_bytes) == 0 && $(found tiers.2.believed_bytes) == 0)) || fail "nothing is later than 2037"
(($(found examined.older_packages) == 2 * 9 && $(found examined.older_files) > 100)) || fail "what is older was not counted"

files --tiers 1 --since "$dir/template.raw"
later=$(found tiers.0.believed_bytes)
(($(found packages) == 1)) || fail "more than one package is new: $(found packages)"
grep -q '"tool-7 1.7 amd64"' "$dir/run" || fail "the new package is not named"
((later > 0 && later < all / 4 && $(found tiers.0.shared_bytes) == later)) || fail "$later of $all bytes were shared"
(($(found examined.older_packages) == 2 * 8 && $(found strangers) == 0)) || fail "the template's packages were looked at"
# All files of the clones are later than the template, and those of no package are still told from packaged ones.
files --dry-run --tiers 3,5 --since "$dir/template.raw"
(($(found tiers.2.believed_bytes) == 50 * 4096)) || fail "$(found tiers.2.believed_bytes) bytes of dated files"

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
says 'it is a folder' --since "$dir"
mkdir -p "$dir/tree/var/lib/dpkg"
printf 'Package: %s\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n' one two three >"$dir/tree/var/lib/dpkg/status"
disk "$dir/other.raw"
files --dry-run --tiers 1 --since "$dir/other.raw"
(($(found strangers) == 2 && $(found tiers.0.believed_bytes) == all)) || fail "images of another template were not named"
