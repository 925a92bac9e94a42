# Images that lead astray are refused: a loop of backing files, a file elsewhere, one that is missing, damage
needs qemu-img
new_pool 1G
cd "$dir"
truncate -s 16M base.raw

qemu-img create -q -f qcow2 -b base.raw -F raw one.qcow2
qemu-img create -q -f qcow2 -b one.qcow2 -F qcow2 two.qcow2
qemu-img rebase -u -b two.qcow2 -F qcow2 one.qcow2
refused 1 'loop' onefold pool import "$mnt" two.qcow2
refused 1 'hint: ' onefold pool import "$mnt" one.qcow2

qemu-img create -q -f qcow2 -b base.raw -F raw itself.qcow2
qemu-img rebase -u -b itself.qcow2 -F qcow2 itself.qcow2
refused 1 'loop' onefold pool import "$mnt" itself.qcow2

# An image from anybody must not bring in a file of this machine.
qemu-img create -q -u -f qcow2 -b /etc/shadow -F raw thief.qcow2 1M
refused 1 'outside' onefold pool import "$mnt" thief.qcow2
qemu-img create -q -u -f qcow2 -b nowhere.raw -F raw orphan.qcow2 1M
refused 1 'nowhere.raw' onefold pool import "$mnt" orphan.qcow2
mkfifo pipe
qemu-img create -q -u -f qcow2 -b pipe -F raw piped.qcow2 1M
refused 1 'neither a file nor a block device' onefold pool import "$mnt" piped.qcow2

qemu-img create -q -f qcow2 whole.qcow2 1G
head -c 100 whole.qcow2 >cut.qcow2
refused 1 'cut.qcow2' onefold pool import "$mnt" cut.qcow2
{ printf 'QFI\xfb'; head -c 1M /dev/urandom; } >noise.qcow2
refused 1 'noise.qcow2' onefold pool import "$mnt" noise.qcow2
# A table of sectors that says: eight exabytes.
cp whole.qcow2 huge.qcow2
printf '\x7f\xff\xff\xff\xff\xff\xf0\x00' | dd of=huge.qcow2 bs=1 seek=24 conv=notrunc status=none
refused 1 'huge.qcow2' onefold pool import "$mnt" huge.qcow2

[[ -z $(ls -A "$mnt") ]] || fail "a refused image left something: $(ls -A "$mnt")"
unmount_and_check
