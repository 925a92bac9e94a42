# shellcheck shell=bash
# Where partitions lie in the corpus's images, and how they get there. To be sourced.

# partition_offset IMAGE: prints the first byte of partition 1.
partition_offset() {
    local sector
    sector=$(partx --show --noheadings --output START --nr 1 "$1")
    printf '%d\n' $((sector * 512))
}

# put_part FILE IMAGE PLACE [SKIP [BYTES]]: writes a file to a place of an image, or so many bytes of it after those that
# are skipped. Its zeros stay holes.
put_part() {
    dd if="$1" of="$2" bs=1M seek="$3" ${4:+skip="$4"} ${5:+count="$5"} iflag=skip_bytes,count_bytes \
        oflag=seek_bytes conv=notrunc,sparse status=none
}
