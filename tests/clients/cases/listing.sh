# A directory that changes while it is listed shows what stays exactly once, also from remembered places on
new_pool 512M
python3 "$tools/listing.py" "$mnt" 1
mkdir "$mnt/again"
remount_pool
python3 "$tools/listing.py" "$mnt/again" 2
unmount_and_check
