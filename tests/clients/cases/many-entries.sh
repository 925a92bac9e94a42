# A directory of a hundred thousand entries stays fast and exact
# limit: 180 s
new_pool 1G
mkdir "$mnt/many"
# make, list, look-up are timed apart; what is listed must be what was made.
python3 "$tools/many_entries.py" make "$mnt/many" 100000
remount_pool
python3 "$tools/many_entries.py" read "$mnt/many" 100000
python3 "$tools/many_entries.py" delete "$mnt/many" 100000
rmdir "$mnt/many"
unmount_and_check
