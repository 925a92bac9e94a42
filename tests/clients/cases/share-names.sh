# Verbs of sharing that succeed print no name that would control a terminal
# limit: 180 s
needs mkfs.xfs losetup python3 chattr
truncate -s 512M "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
python3 "$tools/printed.py" "$ONEFOLD" "$dir/xfs"
