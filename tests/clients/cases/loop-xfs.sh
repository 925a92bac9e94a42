# XFS in a pool file, over a loop device with and without direct I/O: data stays, fstrim gives space back
needs mkfs.xfs xfs_repair losetup fstrim rsync
make_inner=(mkfs.xfs -q)
check_inner=(xfs_repair -n)
source "$tools/loop.sh"
