# shellcheck shell=bash
# Where partitions lie in the corpus's images. To be sourced.

# partition_offset IMAGE: prints the first byte of partition 1.
partition_offset() {
    local sector
    sector=$(partx --show --noheadings --output START --nr 1 "$1")
    printf '%d\n' $((sector * 512))
}
