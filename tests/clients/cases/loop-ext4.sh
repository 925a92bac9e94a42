# ext4 in a pool file, over a loop device with and without direct I/O: data stays, fstrim gives space back
needs mkfs.ext4 e2fsck losetup fstrim rsync
make_inner=(mkfs.ext4 -q)
check_inner=(e2fsck -fn)
source "$tools/loop.sh"
