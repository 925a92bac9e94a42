# What guest reads of a whole system is what debugfs, GNU find and tar read: names, content, maps, owners of blocks
needs mke2fs debugfs tar
# A system of real programs, on a partition, with a second name, holes, a device, and a file with capabilities where
# the machine can set them.
tree=$dir/tree
mkdir -p "$tree"/{bin,etc,srv}
find /usr/bin -maxdepth 1 -type f -size -2M -name '[a-m]*' -exec cp -pt "$tree/bin" {} +
cp -a /etc/passwd /etc/default "$tree/etc"
ln "$tree/etc/passwd" "$tree/etc/second"
ln -s ../etc/passwd "$tree/srv/link"
truncate -s 50M "$tree/srv/holes"
printf x | dd of="$tree/srv/holes" bs=1 seek=30M conv=notrunc status=none
mknod "$tree/srv/null" c 1 3
programs=("$tree"/bin/*)
setcap cap_net_raw+ep "${programs[0]}" 2>/dev/null || true
# Access lists, if the file system of this folder keeps them. What tar unpacks into a folder inherits its list, so that
# folder is empty.
setfacl -m u:5:r,g:7:rw "$tree/etc/passwd" 2>/dev/null || true
mkdir "$tree/srv/shared"
setfacl -d -m u:5:rx "$tree/srv/shared" 2>/dev/null || true
image=$dir/system.raw offset=$((1 << 20))
truncate -s 200M "$image"
mke2fs -q -F -t ext4 -b 4096 -E offset=$offset -d "$tree" "$image" 199M
python3 - "$image" <<'PYTHON'
import struct, sys

table = bytearray(512)
table[446:462] = struct.pack("<BBHBBHII", 0, 0, 0, 0x83, 0, 0, 2048, 199 * 2048)
table[510:] = b"\x55\xaa"
with open(sys.argv[1], "r+b") as image:
    image.write(table)
PYTHON

# All files, with everything that find tells of them.
onefold guest find --json "$image" >"$dir/found.json"
(cd "$tree" && find . -mindepth 1 ! -type l -printf '/%P %m %U %G %n %Ts\n' | sort) >"$dir/expected"
python3 - "$dir/found.json" "$dir/expected" <<'PYTHON'
import datetime, json, sys

def line(file):
    time = datetime.datetime.fromisoformat(file["modified"].replace("Z", "+00:00"))
    return f"{file['path']} {int(file['mode'], 8):o} {file['user']} {file['group']} {file['links']} {int(time.timestamp())}"

files = [file for file in json.load(open(sys.argv[1]))["files"] if file["kind"] != "link" and file["path"] != "/lost+found"]
expected = open(sys.argv[2]).read().splitlines()
assert sorted(map(line, files)) == sorted(expected), set(map(line, files)) ^ set(expected)
print(f"note: {len(files)} files as find tells them")
PYTHON

# Unpacked, the archive is the tree, holes and attributes too.
mkdir "$dir/unpacked"
onefold guest tar "$image" / | tar -C "$dir/unpacked" -xpf - --xattrs --xattrs-include='*'
rmdir "$dir/unpacked/lost+found"
diff -r --no-dereference --exclude null "$tree" "$dir/unpacked"
[[ $(stat -c '%t %T' "$dir/unpacked/srv/null") == '1 3' ]]
(($(stat -c %b "$dir/unpacked/srv/holes") < 200))
attributes() { (cd "$1" && getfattr -Rhd -m '^security|^user|^system[.]posix' . 2>/dev/null | sort); }
[[ $(attributes "$tree") == "$(attributes "$dir/unpacked")" ]]

# Each block of some files belongs to that file, by both ways.
count=0
for program in "${programs[@]:0:20}"; do
    file=${program##*/}
    blocks=$(debugfs -R "blocks /bin/$file" "$image?offset=$offset" 2>/dev/null)
    places=()
    for block in $blocks; do
        places+=($((offset + block * 4096)))
    done
    ((${#places[@]} > 0)) || continue
    onefold guest who --json "$image" "${places[@]}" >"$dir/who.json"
    onefold guest map --json "$image" "/bin/$file" >"$dir/map.json"
    python3 - "$dir" "/bin/$file" "${places[@]}" <<'PYTHON'
import json, sys

folder, path, places = sys.argv[1], sys.argv[2], list(map(int, sys.argv[3:]))
owners = json.load(open(f"{folder}/who.json"))["owners"]
assert [owner["place"] for owner in owners] == places
for number, owner in enumerate(owners):
    [file] = owner["files"]
    assert path in [name["path"] for name in file["names"]] and file["offset"] == number * 4096, owner
extents = json.load(open(f"{folder}/map.json"))["extents"]
mapped = [extent["place"] + at for extent in extents for at in range(0, extent["length_bytes"], 4096)]
assert mapped == places, (mapped, places)
PYTHON
    count=$((count + ${#places[@]}))
done
note "$count blocks have the owners that debugfs tells"
# Nothing was written.
debugfs -R 'stats -h' "$image?offset=$offset" 2>/dev/null | grep -q 'Filesystem state: *clean'
