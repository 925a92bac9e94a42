# An image brings in no file that it only names: keys below its folder, other owners' files, links, other protocols
# limit: 180 s
needs qemu-img setpriv
path=$dir
while [[ $path != / ]]; do
    setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$path" || chmod o+x "$path" || skip "no way to $dir"
    path=$(dirname "$path")
done
setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$ONEFOLD" || {
    cp "$ONEFOLD" "$dir/onefold"
    ONEFOLD=$dir/onefold
}
as_user() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env TMPDIR="$dir/user/tmp" "$ONEFOLD" "$@"
}
home=$dir/user
key=$home/.ssh/id_ed25519
mkdir -p "$home/.ssh" "$home/tmp" "$dir/templates"
cd "$home"

# 64 KiB that are easy to find again.
head -c 64K /dev/zero | tr '\0' S >"$key"
head -c 64K /dev/zero | tr '\0' T >base.raw
cp base.raw "$dir/templates/base.raw"
qemu-img create -q -u -f qcow2 -F raw -b .ssh/id_ed25519 evil.qcow2 64K
qemu-img create -q -u -f qcow2 -F raw -b "$key" absolute.qcow2 64K
mkdir aaaa
qemu-img create -q -f qcow2 -o data_file=aaaa/id_ed25519,data_file_raw=on data.qcow2 64K
sed -i 's|aaaa/id_ed25519|.ssh/id_ed25519|' data.qcow2
rm -r aaaa
vmdk() {
    printf '# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType="monolithicFlat"\n'
    printf 'RW 128 FLAT "%s" 0\n' "$1"
}
vmdk .ssh/id_ed25519 >evil.vmdk
ln -s .ssh/id_ed25519 link
qemu-img create -q -u -f qcow2 -F raw -b link linked.qcow2 64K
qemu-img create -q -u -f qcow2 -F raw -b nbd:unix:/nowhere nbd.qcow2 64K
qemu-img create -q -u -f qcow2 -F raw -b 'json:{"driver":"file","filename":".ssh/id_ed25519"}' json.qcow2 64K
vmdk "fat:$home/.ssh" >fat.vmdk
qemu-img create -q -f qcow2 -F raw -b base.raw good.qcow2
chown -R 65534:65534 "$home"
chmod 700 "$home/.ssh"
chmod 600 "$key"

onefold pool create --quiet --size 256M "$dir/roots.pool"
as_user pool create --quiet --size 256M "$home/users.pool"
for caller in onefold as_user; do
    pool=$dir/roots.pool
    [[ $caller == onefold ]] || pool=$home/users.pool
    for image in evil.qcow2 absolute.qcow2 data.qcow2 evil.vmdk; do
        refused 1 'outside the folders' "$caller" pool import "$pool" "$image"
        refused 1 'outside the folders' "$caller" analyze "$image"
    done
    refused 1 'symbolic link' "$caller" pool import "$pool" linked.qcow2
    refused 1 'symbolic link' "$caller" analyze linked.qcow2
    for image in nbd.qcow2 json.qcow2 fat.vmdk; do
        refused 1 'names a protocol' "$caller" pool import "$pool" "$image"
        refused 1 'names a protocol' "$caller" analyze "$image"
    done
    [[ $(onefold pool stat --json "$pool" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pool"]["apparent_bytes"])') == 0 ]] ||
        fail "a refused image left something"
    "$caller" pool import --quiet "$pool" good.qcow2 >/dev/null
    "$caller" pool import --quiet "$pool" evil.qcow2 --backing-from .ssh >/dev/null
    "$caller" pool export --quiet "$pool" good.raw "$home/tmp/$caller.raw" >/dev/null
    cmp base.raw "$home/tmp/$caller.raw"
done

# A file of root's beside a user's image is not the user's to name.
head -c 64K /dev/zero | tr '\0' S >beside.raw
qemu-img create -q -u -f qcow2 -F raw -b beside.raw beside.qcow2 64K
chown 65534:65534 beside.qcow2
chmod 600 beside.raw
refused 1 'belongs to user 0' onefold pool import "$dir/roots.pool" beside.qcow2
refused 1 'belongs to user 0' onefold analyze beside.qcow2
# Nor through the place of a file that may be named, whenever a link is put there.
# The file and the link each stay for a moment that no import can foresee: some imports find the one, some the other,
# and some the change.
cat >"$dir/swap.py" <<'PYTHON'
import os, random, time
while not os.path.exists("stop"):
    time.sleep(random.uniform(0, 0.03))
    os.rename("base.raw", "kept.raw")
    os.symlink(".ssh/id_ed25519", "base.raw")
    time.sleep(random.uniform(0, 0.01))
    os.unlink("base.raw")
    os.rename("kept.raw", "base.raw")
PYTHON
vmdk base.raw >good.vmdk
chown 65534:65534 good.vmdk
python3 "$dir/swap.py" &
swapping=$!
rounds=0
read_often=0
refused_often=0
ends=$((SECONDS + 50))
# At least two rounds of each kind: a race in which every import failed, or none, would show nothing.
while ((rounds < 24 || read_often < 2 || refused_often < 2)); do
    ((SECONDS < ends)) || fail "of $rounds imports $read_often succeeded while a link was swapped in"
    rounds=$((rounds + 1))
    image=good.qcow2
    ((rounds % 2)) || image=good.vmdk
    if onefold pool import --quiet "$dir/roots.pool" "$image" --to "raced-$rounds" >/dev/null 2>&1; then
        onefold pool export --quiet "$dir/roots.pool" "raced-$rounds" "$dir/raced-$rounds" >/dev/null
        cmp "$dir/templates/base.raw" "$dir/raced-$rounds"
        read_often=$((read_often + 1))
    else
        refused_often=$((refused_often + 1))
    fi
done
touch stop
wait "$swapping"
note "read $read_often of $rounds times while a link was swapped in"

# The copy that a conversion needs leaves room on its file system.
mkdir "$dir/small"
mount -t tmpfs -o size=100M onefold-test-small "$dir/small"
head -c 200M /dev/urandom >"$dir/large.raw"
qemu-img convert -f raw -O vmdk "$dir/large.raw" "$dir/large.vmdk"
export TMPDIR=$dir/small
refused 1 'stay free' onefold pool import "$dir/roots.pool" "$dir/large.vmdk"
chown 65534 "$dir/large.vmdk"
refused 1 'stay free' onefold pool import "$dir/roots.pool" "$dir/large.vmdk"
[[ -z $(ls -A "$dir/small") ]] || fail "a temporary file is left"
unset TMPDIR
umount "$dir/small"
onefold pool check --quiet "$dir/roots.pool"
