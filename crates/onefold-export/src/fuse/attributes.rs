//! Attributes in the form of `stat(2)`.

use onefold_block::BLOCK_BYTES;
use onefold_pool::{Attr, FileKind, SpaceShown};
use rustix::io::Errno;

use crate::options::StBlocks;

/// Units of `st_blocks` in a block.
const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / 512) as u64;

/// The value of `st_blksize`. `cp` looks for holes in pieces of this size, and stdio allocates a buffer of this size
/// for each open file.
pub(super) const PREFERRED_IO_BYTES: u32 = 4096;
const _: () = assert!(PREFERRED_IO_BYTES as usize == BLOCK_BYTES, "a smaller write reads the rest of its block first");

/// Number of data blocks from which on a file reports its length as `st_blocks` ([`StBlocks::Auto`]): 64 MiB, which
/// `cp` copies within a second.
const SHOWN_BY_LENGTH: u64 = (64 << 20) / BLOCK_BYTES as u64;

/// Returns the value of `st_blocks` (`docs/decisions/0007-st-blocks.md`).
pub(super) fn sectors(attr: &Attr, st_blocks: StBlocks) -> u64 {
    let mapped = attr.mapped_blocks.saturating_mul(SECTORS_PER_BLOCK);
    if attr.kind != FileKind::Regular {
        return mapped;
    }
    let shows_length = match (attr.space_shown, st_blocks) {
        (SpaceShown::Length, _) | (SpaceShown::ByDoor, StBlocks::Length) => true,
        (SpaceShown::Mapped, _) | (SpaceShown::ByDoor, StBlocks::Mapped) => false,
        (SpaceShown::ByDoor, StBlocks::Auto) => attr.mapped_blocks >= SHOWN_BY_LENGTH,
    };
    if shows_length {
        return mapped.max(attr.size_bytes.div_ceil(BLOCK_BYTES as u64).saturating_mul(SECTORS_PER_BLOCK));
    }
    // Without any blocks, tar stores nothing and does not read the file. But the kernel may still hold data that a
    // process wrote to a mapping.
    mapped.max(attr.size_bytes.min(1))
}

/// Returns the value of `st_mode`: type and permissions.
pub(super) fn mode_of(attr: &Attr) -> u32 {
    type_bits(attr.kind) | u32::from(attr.mode & 0o7777)
}

/// Returns the file type bits of `st_mode`.
pub(super) fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

/// Returns the kind of file that `mknod(2)` makes for `mode`.
///
/// # Errors
/// `EINVAL` for a type that `mknod` cannot make.
pub(super) fn kind_of_node(mode: u32) -> Result<FileKind, Errno> {
    match mode & libc::S_IFMT {
        // POSIX: no type means a regular file.
        0 | libc::S_IFREG => Ok(FileKind::Regular),
        libc::S_IFIFO => Ok(FileKind::Fifo),
        libc::S_IFSOCK => Ok(FileKind::Socket),
        libc::S_IFCHR => Ok(FileKind::CharDevice),
        libc::S_IFBLK => Ok(FileKind::BlockDevice),
        _ => Err(Errno::INVAL),
    }
}

/// Returns the permission bits of `mode`.
pub(super) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

#[cfg(test)]
mod tests {
    use onefold_block::Timestamp;
    use onefold_pool::{Dedup, Ino};

    use super::*;

    fn regular() -> Attr {
        Attr {
            ino: Ino(77),
            kind: FileKind::Regular,
            mode: 0o6755,
            link_count: 3,
            uid: 1,
            gid: 2,
            rdev: 0,
            size_bytes: 1 << 40,
            mapped_blocks: 5,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: Timestamp::default(),
            domain: 0,
            dedup: Dedup::On,
            space_shown: SpaceShown::ByDoor,
        }
    }

    #[test]
    fn blocks_are_counted_in_sectors_of_what_is_mapped_or_of_the_length() {
        let attr = regular();
        assert_eq!(mode_of(&attr), libc::S_IFREG | 0o6755);
        assert_eq!(sectors(&attr, StBlocks::Mapped), 40);
        let blocks_of = |attr: &Attr| sectors(attr, StBlocks::Length);
        assert_eq!(blocks_of(&attr), (1 << 40) / 512, "holes count as well");
        assert_eq!(blocks_of(&Attr { size_bytes: 1, ..attr.clone() }), 40, "reserved beyond the end");
        assert_eq!(blocks_of(&Attr { size_bytes: 20_481, ..attr.clone() }), 48, "a part of a block is a block");
        assert_eq!(blocks_of(&Attr { kind: FileKind::Directory, ..attr.clone() }), 40);
        let own = |space_shown| Attr { space_shown, ..attr.clone() };
        for of_mount in [StBlocks::Auto, StBlocks::Length, StBlocks::Mapped] {
            assert_eq!(sectors(&own(SpaceShown::Mapped), of_mount), 40);
            assert_eq!(sectors(&own(SpaceShown::Length), of_mount), (1 << 40) / 512);
        }
    }

    #[test]
    fn much_data_makes_a_file_show_its_length() {
        let sectors_of = |mapped_blocks| {
            let attr = Attr { mapped_blocks, size_bytes: 1 << 40, ..regular() };
            sectors(&attr, StBlocks::Auto)
        };
        assert_eq!(sectors_of(SHOWN_BY_LENGTH - 1), (64 << 20) / 512 - 8);
        assert_eq!(sectors_of(SHOWN_BY_LENGTH), (1 << 40) / 512);
        // Seen: tar takes a file without blocks for one hole, and does not read it.
        assert_eq!(sectors_of(0), 1);
        assert_eq!(sectors(&Attr { mapped_blocks: 0, size_bytes: 0, ..regular() }, StBlocks::Auto), 0);
    }

    #[test]
    fn mknod_makes_everything_but_directories_and_links() {
        assert_eq!(kind_of_node(0o644), Ok(FileKind::Regular));
        assert_eq!(kind_of_node(libc::S_IFREG | 0o644), Ok(FileKind::Regular));
        assert_eq!(kind_of_node(libc::S_IFIFO), Ok(FileKind::Fifo));
        assert_eq!(kind_of_node(libc::S_IFSOCK), Ok(FileKind::Socket));
        assert_eq!(kind_of_node(libc::S_IFCHR), Ok(FileKind::CharDevice));
        assert_eq!(kind_of_node(libc::S_IFBLK), Ok(FileKind::BlockDevice));
        assert_eq!(kind_of_node(libc::S_IFDIR), Err(Errno::INVAL));
        assert_eq!(kind_of_node(libc::S_IFLNK), Err(Errno::INVAL));
    }
}
