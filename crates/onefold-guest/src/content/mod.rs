//! The content of a volume. This is the only place that knows all readers, and the names of all content without a
//! reader.

mod bitlocker;
mod firmware_raid;
mod labels;
mod luks;
mod named;
mod over_disk;
mod raid;
mod windows_dynamic;
mod zfs;

pub use over_disk::{DiskRole, over_disk};

use crate::budget::Budget;
use crate::error::{GuestError, UNREADABLE};
use crate::ext;
use crate::fat::Fat;
use crate::filesystem::{Allocation, AllocationClass, Doubt, FileSystem, FileSystemKind, State};
use crate::lvm::PhysicalVolume;
use crate::ntfs;
use crate::partition::PartitionKind;
use crate::swap::Swap;
use crate::volume::VolumeReader;
use crate::xfs;

/// The content of a volume.
pub enum VolumeContent<'a> {
    /// A file system that is open for reading.
    FileSystem(Box<dyn FileSystem + 'a>),
    /// A swap area.
    Swap(Swap),
    /// A part of a volume group of LVM2, whose logical volumes are volumes themselves
    /// ([`volume_groups`](crate::lvm::volume_groups)).
    PhysicalVolume(Box<PhysicalVolume>),
    /// Known content that is not read: no reader exists, or it refuses this variant.
    NotRead(NotRead),
    /// Unknown content. It may hold data.
    Unknown,
    /// Content that cannot be opened: its root cannot be found, or the disk fails. Never [`GuestError::Unsupported`].
    Failed(GuestError),
}

/// Content that is recognised but not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead {
    /// Its name, such as `LUKS` or `Btrfs`, or that of a refused variant, such as `XFS with an external log`.
    pub name: &'static str,
    /// Further details: version, cipher, label. Text of the guest, which may hold anything; empty if nothing is known.
    pub detail: String,
    /// Whether it is encrypted, so that its blocks do not equal those of any other disk.
    pub is_encrypted: bool,
    /// Whether a reader exists, and refuses this variant or this place.
    pub is_refused: bool,
}

impl NotRead {
    fn new(name: &'static str, detail: String) -> NotRead {
        NotRead { name, detail, is_encrypted: false, is_refused: false }
    }

    fn encrypted(name: &'static str, detail: String) -> NotRead {
        NotRead { is_encrypted: true, ..NotRead::new(name, detail) }
    }

    /// Returns content whose reader refuses this variant.
    pub(crate) fn refused(name: &'static str) -> NotRead {
        NotRead { is_refused: true, ..NotRead::new(name, String::new()) }
    }
}

/// Recognises one kind of content; `None` if the volume holds something else.
type Recogniser = fn(&VolumeReader<'_>) -> Result<Option<NotRead>, GuestError>;

/// Wrappers of volumes that may look like something else at their beginning: members of arrays and encrypted volumes.
/// They are recognised before all readers are tried.
const WRAPPERS: [Recogniser; 5] =
    [luks::recognise, bitlocker::recognise, raid::recognise, firmware_raid::recognise, windows_dynamic::recognise];

/// Content without a reader. It is recognised before swap: if a former swap area now holds something else, none of its
/// pages may count as free.
const NAMED: [Recogniser; 3] = [named::recognise, zfs::recognise, labels::recognise];

/// The bytes at offset 3 of an NTFS boot sector.
const NTFS_MAGIC: &[u8] = b"NTFS    ";

/// Recognises and opens the content of a volume. `kind` is the type in the partition table, if the volume is a
/// partition.
#[must_use]
pub fn open<'a>(reader: &VolumeReader<'a>, kind: Option<PartitionKind>) -> VolumeContent<'a> {
    let mut probes = Probes::default();
    let found = recognised(reader, kind, &mut probes).unwrap_or_else(|error| match error {
        GuestError::Unsupported(what) => VolumeContent::NotRead(NotRead::refused(what)),
        error => VolumeContent::Failed(error),
    });
    let found = probes.judge(reader, found);
    if kind.is_some_and(PartitionKind::may_have_slices) { in_slices(reader, found) } else { found }
}

/// Returns content of a partition that may have a table of its own as it counts: partitions within it may have any of
/// its bytes.
fn in_slices<'a>(reader: &VolumeReader<'_>, found: VolumeContent<'a>) -> VolumeContent<'a> {
    match found {
        VolumeContent::FileSystem(mut system) => {
            system.add_doubt(Doubt::MayHaveSlices);
            VolumeContent::FileSystem(system)
        }
        VolumeContent::PhysicalVolume(mut physical) => {
            physical.damage.push(reader.damage(0, "partition", "its type is one of partitions with slices"));
            VolumeContent::PhysicalVolume(physical)
        }
        VolumeContent::Swap(_) => VolumeContent::Unknown,
        found => found,
    }
}

/// Looks for several kinds of content in one volume. A look that the disk fails does not end the search.
#[derive(Default)]
struct Probes {
    /// The first failure of the disk.
    failure: Option<GuestError>,
}

impl Probes {
    /// Returns what a look found: nothing if the disk failed, which is noted.
    fn found<T>(&mut self, outcome: Result<Option<T>, GuestError>) -> Result<Option<T>, GuestError> {
        match outcome {
            Err(error) if error.is_of_disk() => {
                self.failure.get_or_insert(error);
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// Returns `found` as it counts after all looks. If one failed, another kind of content may have its header there,
    /// so no block may count as free.
    fn judge<'a>(self, reader: &VolumeReader<'_>, found: VolumeContent<'a>) -> VolumeContent<'a> {
        match (self.failure, found) {
            (Some(_), VolumeContent::FileSystem(mut system)) => {
                system.add_doubt(Doubt::HeadersUnreadable);
                VolumeContent::FileSystem(system)
            }
            (Some(_), VolumeContent::PhysicalVolume(mut physical)) => {
                physical.damage.push(reader.damage(0, "headers of other kinds of volumes", UNREADABLE));
                VolumeContent::PhysicalVolume(physical)
            }
            (Some(error), VolumeContent::Unknown | VolumeContent::Swap(_)) => VolumeContent::Failed(error),
            (_, found) => found,
        }
    }
}

fn recognised<'a>(
    reader: &VolumeReader<'a>,
    kind: Option<PartitionKind>,
    probes: &mut Probes,
) -> Result<VolumeContent<'a>, GuestError> {
    if let Some(found) = by_partition(reader, kind)? {
        return Ok(VolumeContent::NotRead(found));
    }
    for recognise in WRAPPERS {
        if let Some(found) = probes.found(recognise(reader))? {
            return Ok(VolumeContent::NotRead(found));
        }
    }
    if let Some(physical) = probes.found(PhysicalVolume::open(reader))? {
        return Ok(VolumeContent::PhysicalVolume(Box::new(physical)));
    }
    if let Some(file_system) = file_system(reader, probes)? {
        return Ok(match beside(reader, file_system.facts().kind, probes)? {
            Some(found) => VolumeContent::NotRead(found),
            None => VolumeContent::FileSystem(file_system),
        });
    }
    for recognise in NAMED {
        if let Some(found) = probes.found(recognise(reader))? {
            return Ok(VolumeContent::NotRead(found));
        }
    }
    // A swap header with large pages survives the creation of an NTFS. No page of such a volume may count as free.
    let is_ntfs = probes.found(head(reader, 3, NTFS_MAGIC.len()).map(Some))?.is_some_and(|bytes| bytes == NTFS_MAGIC);
    if !is_ntfs && let Some(swap) = probes.found(Swap::open(reader))? {
        return Ok(VolumeContent::Swap(swap));
    }
    // Copies of boot sectors and superblocks survive when another format is made over them, so all other kinds are
    // tried first.
    if let Some(ntfs) = probes.found(ntfs::open(reader))? {
        return Ok(VolumeContent::FileSystem(boxed(ntfs)));
    }
    if let Some(xfs) = probes.found(xfs::open_by_copy(reader.clone()))? {
        return Ok(VolumeContent::FileSystem(boxed(xfs)));
    }
    let fat = probes.found(Fat::open_by_copy(reader.clone()))?;
    Ok(fat.map_or(VolumeContent::Unknown, |fat| VolumeContent::FileSystem(boxed(fat))))
}

/// Recognises content by its type in the partition table alone.
fn by_partition(reader: &VolumeReader<'_>, kind: Option<PartitionKind>) -> Result<Option<NotRead>, GuestError> {
    if kind.is_some_and(PartitionKind::is_windows_dynamic) {
        return windows_dynamic::named(reader).map(Some);
    }
    // These two may leave the header of a former file system in place.
    if kind.is_some_and(PartitionKind::is_storage_spaces) {
        return Ok(Some(NotRead::new("Windows Storage Spaces", String::new())));
    }
    let is_encrypted = kind.is_some_and(PartitionKind::is_plain_crypt);
    Ok(is_encrypted.then(|| NotRead::encrypted("plain dm-crypt", String::new())))
}

/// Opens the file system of a volume with the reader that recognises it; `None` if no reader does. New readers are
/// added here.
fn file_system<'a>(
    reader: &VolumeReader<'a>,
    probes: &mut Probes,
) -> Result<Option<Box<dyn FileSystem + 'a>>, GuestError> {
    if let Some(ext) = probes.found(ext::open(reader.clone()))? {
        return Ok(Some(boxed(ext)));
    }
    if let Some(xfs) = probes.found(xfs::open(reader.clone()))? {
        return Ok(Some(boxed(xfs)));
    }
    // FAT has no magic number, so its reader comes last.
    Ok(probes.found(Fat::open(reader.clone()))?.map(boxed))
}

/// Recognises content without a reader in a volume in which a reader opens a file system of `kind`. ZFS and others
/// leave the superblock of a former file system in place. It is unknown which of the two is the former one, so no block
/// may count as free.
fn beside(reader: &VolumeReader<'_>, kind: FileSystemKind, probes: &mut Probes) -> Result<Option<NotRead>, GuestError> {
    for found in [named::beside(reader, kind), zfs::recognise(reader), labels::recognise(reader)] {
        if let Some(found) = probes.found(found)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn boxed<'a>(file_system: impl FileSystem + 'a) -> Box<dyn FileSystem + 'a> {
    Box::new(file_system)
}

impl VolumeContent<'_> {
    /// Returns why capture must take the whole volume; `None` if its allocation map is exact.
    #[must_use]
    pub fn whole_because(&self) -> Option<String> {
        match self {
            VolumeContent::FileSystem(file_system) => match file_system.state() {
                State::Certain => None,
                State::Unsure(doubts) => Some(doubts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
            },
            VolumeContent::Swap(swap) => swap.is_hibernated.then(|| "a system is hibernated in it".to_owned()),
            VolumeContent::PhysicalVolume(_) => Some("its volume group has the map".to_owned()),
            VolumeContent::NotRead(found) => Some(format!("{} is not read", found.name)),
            VolumeContent::Unknown => Some("its content is unknown".to_owned()),
            VolumeContent::Failed(error) => Some(error.to_string()),
        }
    }

    /// Returns the allocation map for capture: exact runs in order that cover a volume of `volume_bytes`, or one
    /// doubtful run if capture must take the whole volume. A physical volume is also taken as a whole. Callers overlay
    /// it with the free extents of its group and the maps of its logical volumes.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn allocation(&self, volume_bytes: u64) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_within(volume_bytes, &Budget::default())
    }

    /// As [`VolumeContent::allocation`], with memory from a budget, like [`FileSystem::allocation_within`].
    ///
    /// # Errors
    /// Those of the disk.
    pub fn allocation_within(&self, volume_bytes: u64, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        match self {
            VolumeContent::FileSystem(system) if self.whole_because().is_none() => system.allocation_within(budget),
            VolumeContent::Swap(swap) => Ok(swap.allocation(volume_bytes)),
            _ => Ok(vec![Allocation { start_bytes: 0, length_bytes: volume_bytes, class: AllocationClass::Doubtful }]),
        }
    }
}

impl std::fmt::Debug for VolumeContent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VolumeContent::FileSystem(file_system) => f.debug_tuple("FileSystem").field(file_system.facts()).finish(),
            VolumeContent::Swap(swap) => f.debug_tuple("Swap").field(swap).finish(),
            VolumeContent::PhysicalVolume(physical) => f.debug_tuple("PhysicalVolume").field(physical).finish(),
            VolumeContent::NotRead(found) => f.debug_tuple("NotRead").field(found).finish(),
            VolumeContent::Unknown => f.write_str("Unknown"),
            VolumeContent::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

/// Returns `length` bytes from byte `at` of a volume, or fewer if the volume ends earlier.
fn head(reader: &VolumeReader<'_>, at: u64, length: usize) -> Result<Vec<u8>, GuestError> {
    let room = usize::try_from(reader.size_bytes().saturating_sub(at)).unwrap_or(usize::MAX);
    reader.bytes(at.min(reader.size_bytes()), length.min(room), "header")
}

/// As [`head`], for a place where only one kind of content has its header.
fn head_once(reader: &VolumeReader<'_>, at: u64, length: usize) -> Result<Vec<u8>, GuestError> {
    let at = at.min(reader.size_bytes());
    let room = usize::try_from(reader.size_bytes() - at).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(room)];
    reader.read_once(at, &mut bytes, "header")?;
    Ok(bytes)
}

/// Returns the text before the first zero, with replacements for bytes that are not UTF-8.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).trim_end().to_owned()
}

/// Joins the parts that are not empty.
fn joined(parts: &[String]) -> String {
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
