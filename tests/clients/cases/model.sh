# Thousands of random operations do on a pool what they do on the host's file system, and `check` finds it sound meanwhile
# limit: 240 s
new_pool 512M
mkdir "$mnt/tested" "$dir/reference"
first=${POSIX_SEED:-1}
for seed in "$first" $((first + 1)); do
    python3 "$tools/model.py" "$mnt/tested" "$dir/reference" --seed "$seed" --operations 2500 \
        --examine 100 "$tools/check_running.sh" "$daemon" "$pool" "$dir/copy"
    # The next round goes on with what is there.
    remount_pool
done
python3 "$tools/model.py" "$mnt/tested" "$dir/reference" --seed 0 --operations 0
unmount_and_check --data
