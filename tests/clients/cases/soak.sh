# Random work in a nearly full pool, ended and killed again and again: what was promised is there, every count is right
# limit: 180 s
python3 "$repo/tests/soak/soak.py" --seconds 10 --round-seconds 2.5 --pool-mib 96 --full 97 --seed 1 --folder "$dir"
