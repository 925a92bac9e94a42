# Each call moves the times that POSIX says, and no others
new_pool 512M
python3 "$tools/times.py" "$mnt"
unmount_and_check
