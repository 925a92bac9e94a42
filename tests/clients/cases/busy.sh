# An unmount while files are open is refused with a hint and changes nothing
new_pool 1G
exec 9>"$mnt/open"
printf 'before ' >&9
refused 1 'hint: ' onefold pool umount "$mnt"
refused 1 'busy|open|uses' onefold pool umount "$pool"
printf 'after' >&9
exec 9>&-
[[ $(<"$mnt/open") == 'before after' ]]
(
    cd "$mnt"
    refused 1 'hint: ' onefold pool umount "$mnt"
)
unmount_pool
refused 1 'not mounted' onefold pool umount "$pool"
refused 1 'not mounted|No such|cannot' onefold pool umount "$mnt"
check_pool
