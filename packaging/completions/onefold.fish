# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_onefold_global_optspecs
    string join \n json q/quiet h/help V/version
end

function __fish_onefold_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_onefold_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_onefold_using_subcommand
    set -l cmd (__fish_onefold_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c onefold -n "__fish_onefold_needs_command" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_needs_command" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_needs_command" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_needs_command" -s V -l version -d 'Print version'
complete -c onefold -n "__fish_onefold_needs_command" -f -a "pool" -d 'Work with pools: live file systems that store equal blocks once'
complete -c onefold -n "__fish_onefold_needs_command" -f -a "analyze" -d 'Show how much space sharing equal blocks would save, reading only'
complete -c onefold -n "__fish_onefold_needs_command" -f -a "share" -d 'Work with plain image files: have their file system share equal blocks'
complete -c onefold -n "__fish_onefold_needs_command" -f -a "completions" -d 'Print the completion script of a shell'
complete -c onefold -n "__fish_onefold_needs_command" -f -a "man-pages" -d 'Write the man pages into a folder'
complete -c onefold -n "__fish_onefold_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "create" -d 'Make a new, empty pool in a file or on a partition'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "mount" -d 'Mount a pool; returns when the mount is ready'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "umount" -d 'Unmount a pool; returns when everything is on disk'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "check" -d 'Look for damage, changing nothing unless --repair is given'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "stat" -d 'Show how much is stored and saved, in bytes that add up'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "grow" -d 'Take in what the pool\'s file or partition has gained'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "scrub" -d 'Read all data of a pool and compare it with its fingerprints'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "trim" -d 'Tell the disk below which blocks are free'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "dedup" -d 'Find equal blocks that writes did not find, and store each once'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "import" -d 'Copy disk images into a pool'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "export" -d 'Copy a file of a pool out as a disk image'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "clone" -d 'Make instant copies of a file inside a pool'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and not __fish_seen_subcommand_from create mount umount check stat grow scrub trim dedup import export clone help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l size -d 'Make the file this long first (sparse); without it the file or partition is taken as it is' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l label -d 'A name for people, at most 64 bytes' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l journal-size -d 'Size of the journal; without it picked by the size of the pool' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l stores -d 'Where fingerprint stores lie' -r -f -a "in-groups\t'At the front of each block group'
at-end\t'All together at the end; such a pool cannot grow'"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l dedup -d 'Whether new files share equal blocks unless told otherwise' -r -f -a "on\t''
off\t''"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l force -d 'Overwrite a pool or another file system that is there'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l verify -d 'How a block with an equal fingerprint is believed to be equal' -r -f -a "fingerprint\t'Equal keyed 128-bit fingerprints are equal blocks'
value\t'The bytes are compared too'"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l prefetch -d 'How much of a fingerprint store a look-up brings in' -r -f -a "adaptive\t'One page first, the whole store on a second hit near by'
always\t'The whole store at the first touch'
never\t'Only the page that is asked for'"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l journal -d 'Whether metadata goes through the journal; off is for experiments: a crash may leave the pool damaged' -r -f -a "on\t''
off\t''"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l dedup -d 'Whether equal blocks are shared while the pool is mounted this time' -r -f -a "on\t''
off\t''"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l commit-interval -d 'Longest time that a change waits for its commit (a number of seconds, or with ms, s, min)' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l filter-index-bits -d 'Bits of a fingerprint that pick its place in the filter (the paper\'s n); without it picked by size' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l filter-tag-bits -d 'Bits of a fingerprint kept in the filter (the paper\'s k); without it picked by size' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l st-blocks -d 'What the st_blocks of a file covers' -r -f -a "length\t'The whole length: cp then clones instead of copying'
mapped\t'What is mapped: du then shows holes'"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l threads -d 'Threads that serve requests; without it eight, or one for each 16 MiB of memory where that is less' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l polling -d 'Whether threads look for work for a moment before they sleep, as long as a processor is idle: small requests are answered sooner' -r -f -a "on\t''
off\t''"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l kernel-option -d 'Have the kernel do what it does for any file system: an option of mount(8)' -r -f -a "sync\t''
dirsync\t''
lazytime\t''
nosymfollow\t''"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -s f -l foreground -d 'Stay in the foreground and log to standard error'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l read-only -d 'Change nothing, not even by recovery'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l allow-other -d 'Let users other than the one who mounts use the mount (the default for root)'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l no-allow-other -d 'Keep other users out'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l noatime -d 'Do not record times of access'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l writeback-cache -d 'Let the kernel gather small buffered writes; a full pool then shows at fsync or close'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l thin -d 'The device is a thin volume, which can run out of room untold: answer writes only when they are stored'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l report-ready -d 'Report on standard output when the mount is ready, then leave the terminal'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from umount" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from umount" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from umount" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from check" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from check" -l data -d 'Also read all data and compare it with its fingerprints'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from check" -l repair -d 'Mend what can be mended'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from check" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from check" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from stat" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from stat" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from stat" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from grow" -l size -d 'Make the pool\'s file this long first (sparse)' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from grow" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from grow" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from grow" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from grow" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from scrub" -l rate -d 'Read at most this many bytes a second' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from scrub" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from scrub" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from scrub" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from scrub" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from trim" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from trim" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from trim" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from trim" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from dedup" -l temporary -d 'Where temporary files go; without it $TMPDIR, or /var/tmp' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from dedup" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from dedup" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from dedup" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from dedup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -l to -d 'Name in the pool (one image), or an existing directory of the pool (several); without it the image\'s own name with its ending changed to .raw' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -l format -d 'Format of the images; without it told from their first bytes' -r -f -a "raw\t'The bytes of the disk, one to one'
qcow2\t'QEMU\'s format, with its chain of backing files'
vmdk\t'VMware\'s format (through qemu-img)'
vdi\t'VirtualBox\'s format (through qemu-img)'
vhdx\t'Hyper-V\'s format (through qemu-img)'
vpc\t'Virtual PC\'s format (through qemu-img)'"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -l backing-from -d 'A folder that backing files may lie in, with all below it, besides the folder of the image' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from export" -l format -d 'Format of the image' -r -f -a "raw\t'The bytes of the disk, one to one, sparse'
qcow2\t'QEMU\'s format'"
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from export" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from export" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from export" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from clone" -l count -d 'Make this many copies, numbered from 1' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from clone" -l memory -d 'Upper limit of filter, caches and buffers together' -r
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from clone" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from clone" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from clone" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a new, empty pool in a file or on a partition'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "mount" -d 'Mount a pool; returns when the mount is ready'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "umount" -d 'Unmount a pool; returns when everything is on disk'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "check" -d 'Look for damage, changing nothing unless --repair is given'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show how much is stored and saved, in bytes that add up'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "grow" -d 'Take in what the pool\'s file or partition has gained'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "scrub" -d 'Read all data of a pool and compare it with its fingerprints'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "trim" -d 'Tell the disk below which blocks are free'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "dedup" -d 'Find equal blocks that writes did not find, and store each once'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "import" -d 'Copy disk images into a pool'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "export" -d 'Copy a file of a pool out as a disk image'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "clone" -d 'Make instant copies of a file inside a pool'
complete -c onefold -n "__fish_onefold_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l group -d 'Put images whose path or name matches a pattern such as `debian-*` into a group; the first match counts' -r
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l sample -d 'Read a share of each image only, such as 8% (4% where none is named), and tell ranges instead of exact numbers; for large sets' -r
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l report -d 'Also write the report as one page of HTML with figures; replaces a report that is there' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l format -d 'Format of all images; without it told from their first bytes' -r -f -a "raw\t'The bytes of the disk, one to one'
qcow2\t'QEMU\'s format, with its chain of backing files'
vmdk\t'VMware\'s format (through qemu-img)'
vdi\t'VirtualBox\'s format (through qemu-img)'
vhdx\t'Hyper-V\'s format (through qemu-img)'
vpc\t'Virtual PC\'s format (through qemu-img)'"
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l backing-from -d 'A folder that backing files may lie in, with all below it, besides the folder of the image' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l memory -d 'Upper limit of memory; what does not fit goes into temporary files' -r
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l temporary -d 'Where temporary files go; without it $TMPDIR, or /var/tmp' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l shifts -d 'Also look at all images with one to seven sectors of zeros before them; takes eight times as long'
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand analyze" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "run" -d 'Find equal blocks of image files and have the file system share them, once'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "watch" -d 'Do so again and again as files change, when the machine has time, until it is told to stop'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "mend" -d 'Fill the holes that a host has left in images where it died while it shared (OCFS2)'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "status" -d 'Show what is known of a file system\'s images, what is pending, and who works on it'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "index" -d 'Show what the index of a file system holds'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "explain" -d 'Say where a block of a file lies, who shares it, and why or why not'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "exclude" -d 'Keep files from being shared'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "include" -d 'Take back `exclude`'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "domain" -d 'Show or set the sharing domain of files: blocks are shared within a domain only'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "clone" -d 'Make a clone of an image that the next run need not read'
complete -c onefold -n "__fish_onefold_using_subcommand share; and not __fish_seen_subcommand_from run watch mend status index explain exclude include domain clone help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l include -d 'Only files whose path or name matches a pattern, such as `*.raw`; may be given several times' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l exclude -d 'No files, and no folders, whose path or name matches a pattern; may be given several times' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l min-run -d 'Leave shorter runs of equal blocks alone: they save less and cost a file more seeks when it is read in sequence' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l rewrite -d 'On Btrfs, copy what keeps an old extent of which blocks were shared, if it is at most so much of it; 0 never does' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l io-limit -d 'Read at most so many bytes of images in a second, and have at most so many shared; without it, as fast as it goes' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l cpu-limit -d 'Use at most so much processor time, in percent of one core' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l max-stall -d 'How long one call of the file system should take at most: whoever writes to a file that it shares waits meanwhile' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l memory -d 'Upper limit of memory for sorting; what does not fit goes into temporary files' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l temporary -d 'Where temporary files go; without it $TMPDIR, or /var/tmp' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l no-small-copies -d 'On XFS, leave it as it is that a small write into a shared block has 128 KiB set aside around it for minutes'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l dry-run -d 'Say what would be shared, and share nothing; what is read is kept for the next run'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l accept-mending -d 'Share on OCFS2, too: a host that dies while it shares leaves holes there, in images that nobody on it had open, until any host has mended them (`share mend`). Images that are open on the host are left alone'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l accept-writable-root -d 'Work on OCFS2 even if another user can replace the state folder, because that user owns the root folder of the file system or may write into it: an earlier state folder names holes that were filled long ago'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l include -d 'Only files whose path or name matches a pattern, such as `*.raw`; may be given several times' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l exclude -d 'No files, and no folders, whose path or name matches a pattern; may be given several times' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l interval -d 'Time between two looks at what has changed, and at which images are open' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l window -d 'Read and share only between these times of day, such as 22:00-06:00; may be given several times' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l max-load -d 'Begin nothing while the load of the machine, averaged over a minute, is above' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l stable-for -d 'Leave files alone whose content has changed less long ago' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l batch -d 'Share once the blocks that were read and wait are so much of the index, in percent: sharing goes through all of it' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l max-wait -d 'Or once they have waited for so long' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l max-hang -d 'End, and leave all locks to others, once no call of the file system has come to its end for so long; 0 never does' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l max-logs -d 'Let what was read and waits take so much room at most; then reading waits until it is shared. Without it, a half of what the index takes, and at least 256M' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l io-limit -d 'Read at most so many bytes of images in a second, and have at most so many shared; without it, as fast as it goes' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l cpu-limit -d 'Use at most so much processor time, in percent of one core' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l max-stall -d 'How long one call of the file system should take at most: whoever writes to a file that it shares waits meanwhile' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l min-run -d 'Leave shorter runs of equal blocks alone: they save less and cost a file more seeks when it is read in sequence' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l rewrite -d 'On Btrfs, copy what keeps an old extent of which blocks were shared, if it is at most so much of it; 0 never does' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l memory -d 'Upper limit of memory for sorting; what does not fit goes into temporary files' -r
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l temporary -d 'Where temporary files go; without it $TMPDIR, or /var/tmp' -r -F
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l accept-mending -d 'Share on OCFS2, too: a host that dies while it shares leaves holes there, in images that nobody on it had open, until any host has mended them (`share mend`). Images that are open on the host are left alone'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l accept-writable-root -d 'Work on OCFS2 even if another user can replace the state folder, because that user owns the root folder of the file system or may write into it: an earlier state folder names holes that were filled long ago'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l no-small-copies -d 'On XFS, leave it as it is that a small write into a shared block has 128 KiB set aside around it for minutes'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from mend" -l foreign -d 'What to do about images that wait under another identity of the state folder, where `.onefold/identity` was lost or replaced. Without it they are reported and left, and their last copies stay' -r -f -a "mend\t'Fill their holes as those of the other images'
give-up\t'Name them and give them up: holes stay, and what was in them is lost'"
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from mend" -l force -d 'Fill holes also in images to which somebody has written since: what was zeroed or discarded there meanwhile may come back. Images of which nothing can be put back any more are not told of again'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from mend" -l accept-writable-root -d 'Work on OCFS2 even if another user can replace the state folder, because that user owns the root folder of the file system or may write into it: an earlier state folder names holes that were filled long ago'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from mend" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from mend" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from mend" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from status" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from status" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from index" -l dump -d 'Print each entry as a line: its digest, and `unique FILE:BLOCK` or `shared ARENA:SLOT`, by their numbers'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from index" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from index" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from index" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from explain" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from explain" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from exclude" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from exclude" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from exclude" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from include" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from include" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from include" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -f -a "show" -d 'Show which domain files belong to, and why; of a folder, which one files that are made there get'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -f -a "set" -d 'Put a file, or all files of a folder, into a domain'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -f -a "clear" -d 'Take back `set`'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from domain" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from clone" -l force -d 'Replace a file that has the target\'s name, in one step'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from clone" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from clone" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from clone" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "run" -d 'Find equal blocks of image files and have the file system share them, once'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "watch" -d 'Do so again and again as files change, when the machine has time, until it is told to stop'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "mend" -d 'Fill the holes that a host has left in images where it died while it shared (OCFS2)'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show what is known of a file system\'s images, what is pending, and who works on it'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "index" -d 'Show what the index of a file system holds'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "explain" -d 'Say where a block of a file lies, who shares it, and why or why not'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "exclude" -d 'Keep files from being shared'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "include" -d 'Take back `exclude`'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "domain" -d 'Show or set the sharing domain of files: blocks are shared within a domain only'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "clone" -d 'Make a clone of an image that the next run need not read'
complete -c onefold -n "__fish_onefold_using_subcommand share; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand completions" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand completions" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand completions" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand man-pages" -l json -d 'Print the result as one JSON document'
complete -c onefold -n "__fish_onefold_using_subcommand man-pages" -s q -l quiet -d 'Show no progress'
complete -c onefold -n "__fish_onefold_using_subcommand man-pages" -s h -l help -d 'Print help'
complete -c onefold -n "__fish_onefold_using_subcommand help; and not __fish_seen_subcommand_from pool analyze share completions man-pages help" -f -a "pool" -d 'Work with pools: live file systems that store equal blocks once'
complete -c onefold -n "__fish_onefold_using_subcommand help; and not __fish_seen_subcommand_from pool analyze share completions man-pages help" -f -a "analyze" -d 'Show how much space sharing equal blocks would save, reading only'
complete -c onefold -n "__fish_onefold_using_subcommand help; and not __fish_seen_subcommand_from pool analyze share completions man-pages help" -f -a "share" -d 'Work with plain image files: have their file system share equal blocks'
complete -c onefold -n "__fish_onefold_using_subcommand help; and not __fish_seen_subcommand_from pool analyze share completions man-pages help" -f -a "completions" -d 'Print the completion script of a shell'
complete -c onefold -n "__fish_onefold_using_subcommand help; and not __fish_seen_subcommand_from pool analyze share completions man-pages help" -f -a "man-pages" -d 'Write the man pages into a folder'
complete -c onefold -n "__fish_onefold_using_subcommand help; and not __fish_seen_subcommand_from pool analyze share completions man-pages help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "create" -d 'Make a new, empty pool in a file or on a partition'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "mount" -d 'Mount a pool; returns when the mount is ready'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "umount" -d 'Unmount a pool; returns when everything is on disk'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "check" -d 'Look for damage, changing nothing unless --repair is given'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "stat" -d 'Show how much is stored and saved, in bytes that add up'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "grow" -d 'Take in what the pool\'s file or partition has gained'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "scrub" -d 'Read all data of a pool and compare it with its fingerprints'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "trim" -d 'Tell the disk below which blocks are free'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "dedup" -d 'Find equal blocks that writes did not find, and store each once'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "import" -d 'Copy disk images into a pool'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "export" -d 'Copy a file of a pool out as a disk image'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "clone" -d 'Make instant copies of a file inside a pool'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "run" -d 'Find equal blocks of image files and have the file system share them, once'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "watch" -d 'Do so again and again as files change, when the machine has time, until it is told to stop'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "mend" -d 'Fill the holes that a host has left in images where it died while it shared (OCFS2)'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "status" -d 'Show what is known of a file system\'s images, what is pending, and who works on it'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "index" -d 'Show what the index of a file system holds'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "explain" -d 'Say where a block of a file lies, who shares it, and why or why not'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "exclude" -d 'Keep files from being shared'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "include" -d 'Take back `exclude`'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "domain" -d 'Show or set the sharing domain of files: blocks are shared within a domain only'
complete -c onefold -n "__fish_onefold_using_subcommand help; and __fish_seen_subcommand_from share" -f -a "clone" -d 'Make a clone of an image that the next run need not read'
