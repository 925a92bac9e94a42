//! Names for bytes outside of files: metadata, free blocks, swap, and bytes that are not read.

use onefold_block::BLOCK_BYTES_U64;
use onefold_guest::content::VolumeContent;
use onefold_guest::filesystem::{AllocationClass, TableKind};
use onefold_guest::guest::{DiskUse, Guest, GuestVolume};
use onefold_guest::volume::{DiskRange, VolumeOrigin};

use super::analysis::{GroupName, MisalignedCause};
use super::names::{OwnerName, UNKNOWN};

/// The name of allocated blocks that belong to no file.
const OF_NO_FILE: &str = "allocated, of no file";
/// The name of files that no directory lists: deleted files that were still open, and files of damaged directories.
const WITHOUT_NAME: &str = "without a name";

/// Returns the owner of a volume's files that have no name.
pub(super) fn nameless(cause: Option<MisalignedCause>) -> OwnerName {
    OwnerName::new(GroupName::Files, WITHOUT_NAME, "", cause)
}

/// Returns the owner for a use in the disk's map; `causes` are those of the volumes.
pub(super) fn owner_of(guest: &Guest<'_>, use_: DiskUse, causes: &[Option<MisalignedCause>]) -> OwnerName {
    let DiskUse::Volume(at, class) = use_ else {
        return OwnerName::new(GroupName::Gaps, "between volumes", "", None);
    };
    let Some(volume) = guest.volumes().get(at) else {
        return OwnerName::new(GroupName::NotRead, UNKNOWN, "", None);
    };
    let cause = causes.get(at).copied().flatten();
    let name = |group, part: &str, sub: &str| OwnerName::new(group, part, sub, cause);
    let held = held(&volume.content);
    match (class, &volume.content) {
        (AllocationClass::Free, _) => name(GroupName::Stale, held, ""),
        (AllocationClass::Outside, _) => OwnerName::new(GroupName::Gaps, "behind file systems", "", None),
        (AllocationClass::Table(_) | AllocationClass::Data, VolumeContent::Swap(_)) => name(GroupName::Swap, held, ""),
        (AllocationClass::Table(kind), _) => name(GroupName::Metadata, table_name(kind), held),
        (AllocationClass::Data, _) => name(GroupName::Files, OF_NO_FILE, ""),
        (AllocationClass::Doubtful, VolumeContent::FileSystem(_)) => name(GroupName::NotRead, "in doubt", held),
        (AllocationClass::Doubtful, _) => name(GroupName::NotRead, held, ""),
    }
}

/// Returns the kind of a volume's content, in a word or two.
fn held(content: &VolumeContent<'_>) -> &'static str {
    match content {
        VolumeContent::FileSystem(system) => system.facts().kind.name(),
        VolumeContent::Swap(_) => "swap areas",
        VolumeContent::PhysicalVolume(_) => "LVM2",
        VolumeContent::NotRead(found) => found.name,
        VolumeContent::Unknown => UNKNOWN,
        VolumeContent::Failed(_) => "damaged or unreadable",
    }
}

fn table_name(kind: TableKind) -> &'static str {
    match kind {
        TableKind::Superblock => "superblocks and headers",
        TableKind::Bitmap => "bitmaps",
        TableKind::Inodes => "inodes and file records",
        TableKind::Tree => "trees and maps",
        TableKind::Directory => "directories",
        TableKind::Journal => "journals",
    }
}

/// Returns the name of a volume for users.
pub(super) fn volume_name(origin: &VolumeOrigin) -> String {
    match origin {
        VolumeOrigin::WholeDisk => "the whole disk".to_owned(),
        VolumeOrigin::Partition { number } => format!("partition {number}"),
        VolumeOrigin::Logical { group, name } => format!("volume {group}/{name}"),
    }
}

/// Returns why the bytes of a volume cross blocks; `None` if they do not or nothing is known about them.
pub(super) fn misaligned_cause(volume: &GuestVolume<'_>) -> Option<MisalignedCause> {
    let begins_within = |range: &DiskRange| !range.start_bytes.is_multiple_of(BLOCK_BYTES_U64);
    if volume.volume.ranges.iter().any(begins_within) {
        return Some(MisalignedCause::VolumeStart);
    }
    let system = volume.file_system()?;
    let facts = system.facts();
    if facts.block_bytes < BLOCK_BYTES_U64 {
        return Some(MisalignedCause::SmallBlocks);
    }
    (!system.blocks_start().is_multiple_of(BLOCK_BYTES_U64)).then_some(MisalignedCause::DataArea)
}

/// Returns the byte of the disk at which the data area of a FAT begins, if the volume is contiguous there. If a volume
/// has several pieces, moving the data area would push the end of each piece into the next one, which is elsewhere. The
/// view of a moved disk cannot represent that.
pub(super) fn data_area(volume: &GuestVolume<'_>) -> Option<u64> {
    let [range] = volume.volume.ranges[..] else { return None };
    let start = volume.file_system()?.blocks_start();
    (start < range.length_bytes).then_some(range.start_bytes + start)
}
