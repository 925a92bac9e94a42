# kill -9 under writers, in an unmount, a mount and a recovery: nothing promised is lost, the next mount needs no help
# limit: 120 s
python3 "$repo/tests/soak/soak.py" --rounds 6 --round-seconds 1 --ends kill,kill-umount,kill-mount --pool-mib 96 --full 60 \
    --seed 1 --folder "$dir"
