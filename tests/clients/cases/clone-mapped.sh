# A clone holds what programs have only changed in shared mappings of its source before
# limit: 180 s
new_pool 2G
python3 "$tools/held_back.py" clone "$mnt" 32 12
unmount_and_check --data
