//! Finds the owner of a byte of a disk: the reverse of a file's map.

use std::ops::ControlFlow;

use super::{Guest, GuestVolume};
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, ExtentKind, FileKind, FileNumber, FileSystem};

/// Maximum number of files that are returned for one byte. More than a few files share a block only in a hostile image
/// or among clones.
const FILES_MAX: usize = 100;

/// The owner of a byte of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The byte.
    pub place: u64,
    /// The index of its volume in [`Guest::volumes`], and the byte in that volume. If volumes overlap, the first one;
    /// `None` between volumes.
    pub volume: Option<(usize, u64)>,
    /// Its use, if the volume has a readable file system; doubtful if the volume counts as a whole.
    pub class: Option<AllocationClass>,
    /// The files that contain it: several if they share the block, and none for metadata and free bytes.
    pub files: Vec<OwnerFile>,
}

/// A file that contains a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerFile {
    /// The file.
    pub file: FileNumber,
    /// Its kind. The blocks of a directory are its entries.
    pub file_kind: FileKind,
    /// Offset of the byte in the file. It may lie past the end of the file, in the rest of the last block or in blocks
    /// behind it.
    pub offset: u64,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// How the part is stored.
    pub kind: ExtentKind,
}

impl Guest<'_> {
    /// Returns the owners of bytes of the disk, in the given order. For each volume that contains one of the bytes,
    /// reads the maps of all files once.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn owners(&self, places: &[u64]) -> Result<Vec<Owner>, GuestError> {
        let note_classes: &NoteClasses<'_> = &|volume, at, wanted| {
            if self.counts_whole(at) {
                wanted.iter_mut().for_each(|wanted| wanted.owner.class = Some(AllocationClass::Doubtful));
            } else {
                classify(&volume.allocation(self.budget())?, wanted);
            }
            Ok(())
        };
        self.owners_with(places, note_classes, &|_| false)
    }

    /// As [`Guest::owners`], but without classes, which take as long as the files.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn owning_files(&self, places: &[u64]) -> Result<Vec<Owner>, GuestError> {
        self.owners_with(places, &|_, _, _| Ok(()), &|_| false)
    }

    /// As [`Guest::owning_files`], but once each byte of a volume has a regular file, no further files are read.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn owning_regular_files(&self, places: &[u64]) -> Result<Vec<Owner>, GuestError> {
        let is_regular = |file: &OwnerFile| file.file_kind == FileKind::Regular;
        self.owners_with(places, &|_, _, _| Ok(()), &|owner| owner.files.iter().any(is_regular))
    }

    /// Returns the owners of bytes. `note_classes` receives the bytes of one volume in order, with the volume's index
    /// in the guest. No further files of a volume are read once `is_known` accepts all owners there.
    fn owners_with(
        &self,
        places: &[u64],
        note_classes: &NoteClasses<'_>,
        is_known: &dyn Fn(&Owner) -> bool,
    ) -> Result<Vec<Owner>, GuestError> {
        let mut owners: Vec<Owner> = places.iter().map(|place| self.unowned(*place)).collect();
        for (at, volume) in self.volumes().iter().enumerate() {
            let Some(system) = volume.file_system() else { continue };
            let mut wanted: Vec<OwnerQuery<'_>> =
                owners.iter_mut().filter_map(|owner| OwnerQuery::in_volume(owner, at)).collect();
            if !wanted.is_empty() {
                wanted.sort_by_key(|wanted| wanted.offset);
                note_classes(volume, at, &mut wanted)?;
                find_files(system, &mut wanted, is_known)?;
            }
        }
        Ok(owners)
    }

    fn unowned(&self, place: u64) -> Owner {
        let volumes = || self.volumes().iter().enumerate();
        // A logical volume is in a physical one, which contains the remaining bytes.
        let found = |is_physical: bool| {
            let volumes = volumes().filter(|(_, volume)| volume.is_physical() == is_physical);
            volumes.filter_map(|(at, volume)| Some((at, volume.offset_of(place)?))).next()
        };
        let volume = found(false).or_else(|| found(true));
        Owner { place, volume, class: None, files: Vec::new() }
    }
}

/// Records the classes of bytes of a volume.
type NoteClasses<'c> = dyn Fn(&GuestVolume<'_>, usize, &mut [OwnerQuery<'_>]) -> Result<(), GuestError> + 'c;

/// A byte of a volume whose owner is wanted.
struct OwnerQuery<'o> {
    offset: u64,
    owner: &'o mut Owner,
}

impl<'o> OwnerQuery<'o> {
    fn in_volume(owner: &'o mut Owner, volume: usize) -> Option<OwnerQuery<'o>> {
        let (at, offset) = owner.volume?;
        (at == volume).then_some(OwnerQuery { offset, owner })
    }
}

/// Records the use of each byte. Both lists are sorted.
fn classify(allocation: &[Allocation], wanted: &mut [OwnerQuery<'_>]) {
    for wanted in wanted {
        let after = allocation.partition_point(|run| run.start_bytes <= wanted.offset);
        let run = after.checked_sub(1).and_then(|at| allocation.get(at));
        wanted.owner.class = run.filter(|run| wanted.offset < run.end_bytes()).map(|run| run.class);
    }
}

/// Records the files of each byte, until `is_known` accepts all owners. `wanted` is sorted.
fn find_files(
    system: &dyn FileSystem,
    wanted: &mut [OwnerQuery<'_>],
    is_known: &dyn Fn(&Owner) -> bool,
) -> Result<(), GuestError> {
    let mut failed = None;
    system.each_file(&mut |file, stat| {
        let mut has_one = false;
        let outcome = system.each_extent(file, &mut |extent| {
            let first = wanted.partition_point(|wanted| wanted.offset < extent.place);
            for wanted in wanted.iter_mut().skip(first) {
                let within = wanted.offset - extent.place;
                if within >= extent.length_bytes {
                    break;
                }
                has_one = true;
                let files = &mut wanted.owner.files;
                if files.len() < FILES_MAX {
                    files.push(OwnerFile {
                        file,
                        file_kind: stat.kind,
                        offset: extent.offset.saturating_add(within),
                        size_bytes: stat.size_bytes,
                        kind: extent.kind,
                    });
                }
            }
            ControlFlow::Continue(())
        });
        match system.damage().skip(outcome) {
            Ok(_) if has_one && wanted.iter().all(|wanted| is_known(wanted.owner)) => ControlFlow::Break(()),
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}
