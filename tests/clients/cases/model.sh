# Thousands of random operations do on a pool what they do on the host's file system
# limit: 120 s
new_pool 2G
mkdir "$mnt/tested" "$dir/reference"
for seed in 1 2 3; do
    python3 "$tools/model.py" "$mnt/tested" "$dir/reference" --seed "$seed" --operations 2500
    # The next round goes on with what is there.
    remount_pool
done
python3 "$tools/model.py" "$mnt/tested" "$dir/reference" --seed 0 --operations 0
unmount_and_check --data
