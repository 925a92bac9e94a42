//! Sets of options of `mke2fs`.

/// What the kernel here mounts: a selection for each run.
pub(super) const MOUNTED: &[&str] = &[
    "-t ext2 -b 1024 -I 128",
    "-t ext3 -b 2048",
    "-t ext4",
    "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
    "-t ext4 -O metadata_csum_seed,orphan_file,large_dir",
    "-t ext4 -I 512 -O inline_data,ea_inode",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4 -b 1024 -O meta_bg,^resize_inode,sparse_super2,mmp",
    "-t ext4 -O ^64bit,^flex_bg,^metadata_csum,^uninit_bg,^huge_file",
];

/// What the kernel here refuses, so that `mke2fs` has to fill it: blocks that are longer than its pages, and names
/// without case. The first three are tried in each run.
pub(super) const REFUSED: &[&str] = &[
    "-t ext4 -b 65536",
    "-t ext4 -b 16384 -I 1024 -O quota,project",
    "-t ext2 -b 32768 -O ^filetype",
    "-t ext4 -b 8192",
    "-t ext4 -b 32768 -O bigalloc -C 131072",
    "-t ext4 -b 65536 -I 4096 -O inline_data,orphan_file",
    "-t ext4 -b 1024 -O casefold -E encoding=utf8",
    "-t ext4 -b 4096 -O casefold,inline_data -E encoding=utf8-12.1",
    "-t ext3 -b 16384 -O ^dir_index",
];

/// What the `mke2fs` of Debian 13 makes: with its defaults, and with more or less than these.
pub(super) const NEWER: &[&str] = &[
    "-t ext2",
    "-t ext3",
    "-t ext4",
    "-t ext4 -b 1024",
    "-t ext4 -b 2048 -I 512 -O inline_data",
    "-t ext4 -O ^orphan_file,^metadata_csum_seed",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4 -O meta_bg,^resize_inode,sparse_super2",
    "-t ext4 -O fast_commit,ea_inode,large_dir",
    "-t ext4 -O ^has_journal,^orphan_file",
    "-t ext4 -O encrypt,verity,stable_inodes",
    "-t ext4 -G 4 -E packed_meta_blocks=1",
];

/// Features of ext4 that are tried with blocks of each size.
const FEATURES: &[&str] = &[
    "uninit_bg,^metadata_csum",
    "^metadata_csum,^uninit_bg",
    "metadata_csum_seed",
    "meta_bg,^resize_inode",
    "meta_bg,^resize_inode,^flex_bg",
    "sparse_super2,^resize_inode",
    "^sparse_super,^resize_inode",
    "^64bit",
    "^64bit,^huge_file,^large_file",
    "^extent,^64bit",
    "^flex_bg",
    "^dir_index",
    "large_dir",
    "^has_journal",
    "inline_data",
    "inline_data,ea_inode,^dir_index",
    "ea_inode",
    "encrypt",
    "verity",
    "quota",
    "quota,project",
    "orphan_file",
    "orphan_file,quota,project,metadata_csum_seed",
    "fast_commit",
    "mmp",
    "stable_inodes",
];

/// Returns whether a kernel without quotas, as the one here, refuses to mount what these options make.
pub(super) fn has_quotas(options: &str) -> bool {
    options.contains("quota")
}

/// Returns whether blocks of these options are longer than the pages of the kernel.
pub(super) fn has_large_blocks(options: &str) -> bool {
    ["-b 8192", "-b 16384", "-b 32768", "-b 65536"].iter().any(|block| options.contains(block))
}

/// Returns all sets of options but for [`REFUSED`].
pub(super) fn whole_matrix() -> Vec<String> {
    let mut all = Vec::new();
    for block_bytes in [1024, 2048, 4096] {
        let mut add = |options: String| all.push(format!("{options} -b {block_bytes}"));
        for kind in ["ext2", "ext3", "ext4"] {
            for inode_bytes in [128, 256, 512, 1024] {
                add(format!("-t {kind} -I {inode_bytes}"));
            }
        }
        for features in FEATURES {
            add(format!("-t ext4 -O {features}"));
        }
        for clusters in [2, 4] {
            add(format!("-t ext4 -O bigalloc -C {}", block_bytes * clusters));
            add(format!("-t ext4 -I 512 -O bigalloc,inline_data,^metadata_csum -C {}", block_bytes * clusters));
        }
        add("-t ext4 -g 2048 -O ^flex_bg".to_owned());
        add("-t ext4 -G 4 -E packed_meta_blocks=1".to_owned());
        add("-t ext4 -J size=4 -i 16384".to_owned());
    }
    all
}
