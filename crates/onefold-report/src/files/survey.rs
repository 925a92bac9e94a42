//! The survey of all images: finds the owners of their blocks within a share of the memory. It runs while the blocks of
//! the same image are read, or before.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use onefold_disk::{CacheMemory, CachedDisk, Disk};
use onefold_guest::budget::Budget;
use onefold_guest::guest::{DiskUse, Guest};
use onefold_sort::{OrderedRows, SortWriter};

use super::allowance::ExtentAllowance;
use super::analysis::{GroupName, MisalignedCause};
use super::blocks::{BlockOwners, BlockWriter};
use super::doubts::Doubts;
use super::error::{MapError, SurveyError};
use super::map::DiskMap;
use super::named::{NameWriter, note_doubts};
use super::names::{LargestOwners, Names, OwnerName, keep_largest};
use super::rows::join;
use super::sweep::{RunOwner, sweep};
use super::uses::{data_area, misaligned_cause, nameless, owner_of};
use super::versions::Versions;

/// Memory of an owner of one image: its name by number, and its counts.
const OWNER_BYTES: usize = 56;
/// Pages of the cache of a disk. Directories and lists of packages are scattered, most of them in blocks of 4 KiB.
/// Larger pages copy unused data into memory that the pass over the blocks also needs. That costs more than the reads
/// that they save.
pub(super) const PAGE_BYTES: usize = 4 << 10;
/// Memory of a name without its text.
const USE_BYTES: usize = 160;

/// Owner of blocks in any image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerLabel {
    pub(super) group: GroupName,
    pub(super) part: String,
    pub(super) sub: String,
}

/// An owner of blocks of one image.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerRef {
    /// Its index in [`Survey::uses`].
    pub(super) use_: usize,
    pub(super) cause: Option<MisalignedCause>,
}

/// Facts about an image besides the contents of its blocks.
#[derive(Debug, Default)]
pub(crate) struct ImageSurvey {
    /// By the number in records.
    pub(super) owners: Vec<OwnerRef>,
    pub(super) doubts: Vec<String>,
    /// Whether damage was skipped.
    pub(super) has_damage: bool,
    pub(super) has_writer: bool,
    /// The start of each data area of FAT that crosses blocks, in bytes of the disk.
    data_areas: Vec<u64>,
}

impl ImageSurvey {
    /// Returns the number of owners. Records have smaller numbers.
    pub(crate) fn owners_count(&self) -> usize {
        self.owners.len()
    }

    /// Returns the start of each data area of FAT that crosses blocks, in bytes of the disk.
    pub(crate) fn data_areas(&self) -> &[u64] {
        &self.data_areas
    }
}

/// The survey of a set of images.
pub(crate) struct Survey<'a> {
    folder: &'a Path,
    memory: Memory,
    /// The cache of the previous image, for reuse by the next one.
    cache: CacheMemory,
    images_left: usize,
    pub(super) uses: Vec<Arc<OwnerLabel>>,
    numbers: HashMap<Arc<OwnerLabel>, usize>,
    pub(super) versions: Versions,
}

/// Bytes of memory for each purpose. While an image is surveyed, no memory is needed yet for counting it.
struct Memory {
    /// Cache of an image's disk, until all images are surveyed.
    cache: usize,
    sort: usize,
    /// Allocation maps of an image. They are freed before most of the rest begins.
    maps: usize,
    runs: usize,
    names: usize,
    /// Remaining memory for the owners of all further images.
    owners: usize,
}

impl<'a> Survey<'a> {
    /// Returns a survey of images whose names have lengths of `name_bytes`. It takes less than seven sixteenths of
    /// `memory_bytes` during the survey of an image, and a sixteenth until the end.
    pub(crate) fn new(folder: &'a Path, memory_bytes: u64, name_bytes: Vec<usize>) -> Survey<'a> {
        let images = name_bytes.len();
        let bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let memory = Memory {
            cache: bytes / 8,
            sort: bytes / 16,
            maps: bytes / 8,
            runs: bytes / 64,
            names: bytes / 32,
            owners: bytes / 32,
        };
        let versions = Versions::new(bytes / 32, name_bytes);
        Survey {
            folder,
            memory,
            cache: CacheMemory::of_pages(PAGE_BYTES),
            images_left: images,
            uses: Vec::new(),
            numbers: HashMap::new(),
            versions,
        }
    }

    /// Finds the owners of the blocks of a disk. If the guest cannot be read, all blocks have the unknown owner, and a
    /// doubt gives the reason.
    ///
    /// # Errors
    /// Those of the disk and of temporary files, and an interruption by the user.
    pub(crate) fn read(
        &mut self,
        disk: &dyn Disk,
        image: usize,
        has_writer: bool,
        go_on: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<(ImageSurvey, Option<BlockOwners>), SurveyError> {
        let mut doubts = Doubts::default();
        self.versions.begin(image);
        let found = match self.read_guest(disk, &mut doubts, go_on) {
            Ok(found) => Some(found),
            Err(MapError::Guest(error)) => {
                doubts.note_damage(format!("what its blocks belong to cannot be read: {error}"));
                None
            }
            Err(MapError::Ended(error)) => return Err(error),
        };
        let has_doubt = self.versions.is_full();
        if has_doubt {
            doubts.note("its packages are not all compared with others: there are too many".to_owned());
        }
        let (names, blocks, data_areas) = match found {
            Some((kept, runs, areas)) => (kept.names, Some(BlockOwners::new(runs, kept.numbers)), areas),
            None => (keep_largest(&[], &[], |_| true).names, None, Vec::new()),
        };
        let owners = names.into_iter().map(|name| self.owner(name)).collect();
        self.images_left = self.images_left.saturating_sub(1);
        let has_damage = doubts.has_damage();
        Ok((ImageSurvey { owners, doubts: doubts.into_sentences(), has_damage, has_writer, data_areas }, blocks))
    }

    /// Frees memory that only further images would need.
    pub(crate) fn end(&mut self) {
        self.cache = CacheMemory::of_pages(PAGE_BYTES);
    }

    /// Returns the group of a block of an image, by the number of its owner.
    pub(crate) fn group(&self, image: &ImageSurvey, owner: u16) -> Option<GroupName> {
        self.uses.get(image.owners.get(usize::from(owner))?.use_).map(|use_| use_.group)
    }

    fn read_guest(
        &mut self,
        disk: &dyn Disk,
        doubts: &mut Doubts,
        go_on: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<(LargestOwners, OrderedRows, Vec<u64>), MapError> {
        let memory = std::mem::replace(&mut self.cache, CacheMemory::of_pages(PAGE_BYTES));
        let cached = CachedDisk::with_memory(disk, self.memory.cache, memory);
        let guest = Guest::open(&cached)?.with_budget(Budget::new(self.memory.maps));
        let causes: Vec<Option<MisalignedCause>> = guest.volumes().iter().map(misaligned_cause).collect();
        let across =
            guest.volumes().iter().zip(&causes).filter(|(_, cause)| **cause == Some(MisalignedCause::DataArea));
        let data_areas: Vec<u64> = across.filter_map(|(volume, _)| data_area(volume)).collect();
        let mut names = Names::new(self.memory.names);
        let mut by_file = SortWriter::new(self.folder, self.memory.sort);
        let versions = &mut self.versions;
        let mut naming = NameWriter {
            names: &mut names,
            causes: &causes,
            rows: &mut by_file,
            doubts,
            package: &mut |package| versions.add(&package.name, &package.version),
            go_on,
            walked: BTreeSet::new(),
            files: 0,
            extents_left: ExtentAllowance::new(disk.size_bytes()),
        };
        naming.all(&guest)?;
        let map = DiskMap::read(&guest, self.folder, self.memory.runs)?;
        note_doubts(&guest, doubts);
        let (names, runs, blocks) = self.own_blocks(&guest, map, names, by_file, &causes)?;
        drop(guest);
        self.cache = cached.into_memory();
        // The memory is divided among the remaining images.
        let mut left = self.memory.owners / self.images_left.max(1);
        let before = left;
        let kept = keep_largest(&names, &blocks, |name| {
            let bytes = OWNER_BYTES + self.new_use_bytes(name);
            let fits = left >= bytes;
            left = left.saturating_sub(bytes);
            fits
        });
        self.memory.owners = self.memory.owners.saturating_sub(before - left);
        Ok((kept, runs, data_areas))
    }

    /// Returns the sorted owners, the runs of their blocks, and the number of blocks of each.
    fn own_blocks(
        &self,
        guest: &Guest<'_>,
        map: DiskMap,
        mut names: Names,
        by_file: SortWriter,
        causes: &[Option<MisalignedCause>],
    ) -> Result<(Vec<OwnerName>, OrderedRows, Vec<u64>), MapError> {
        let owner = |use_: &DiskUse| {
            let name = owner_of(guest, *use_, causes);
            (name.group, names.fixed(name))
        };
        let uses: Vec<(GroupName, u32)> = map.uses.iter().map(owner).collect();
        let nameless: Vec<u32> = causes.iter().map(|cause| names.fixed(nameless(*cause))).collect();
        let (names, ranks) = names.ranked();
        let rank_of = |number: u32| usize::try_from(number).ok().and_then(|at| ranks.get(at)).copied().unwrap_or(0);
        let mut by_place = SortWriter::new(self.folder, self.memory.sort);
        let nameless = |volume: usize| nameless.get(volume).map_or(0, |number| rank_of(*number));
        join(by_file.finish()?, &ranks, &nameless, &mut by_place)?;
        let owner = |at: usize| {
            let (group, number) = uses.get(at).copied().unwrap_or((GroupName::NotRead, 0));
            let takes_files = matches!(group, GroupName::Files | GroupName::Stale | GroupName::NotRead);
            RunOwner { rank: rank_of(number), is_free: group == GroupName::Stale, takes_files }
        };
        let runs = map.into_runs().map(|run| run.map(|(range, at)| (range, owner(at))));
        let mut writer = BlockWriter::new(self.folder, self.memory.runs, names.len());
        sweep(runs, by_place.finish()?, &mut writer)?;
        let (runs, blocks) = writer.finish()?;
        Ok((names, runs, blocks))
    }

    /// Returns the memory of a name if no earlier image has it.
    fn new_use_bytes(&self, name: &OwnerName) -> usize {
        let use_ = OwnerLabel { group: name.group, part: name.part.clone(), sub: name.sub.clone() };
        if self.numbers.contains_key(&use_) { 0 } else { USE_BYTES + name.text_bytes() }
    }

    fn owner(&mut self, name: OwnerName) -> OwnerRef {
        let use_ = OwnerLabel { group: name.group, part: name.part, sub: name.sub };
        let at = match self.numbers.get(&use_) {
            Some(at) => *at,
            None => {
                let use_ = Arc::new(use_);
                self.uses.push(Arc::clone(&use_));
                self.numbers.insert(use_, self.uses.len() - 1);
                self.uses.len() - 1
            }
        };
        OwnerRef { use_: at, cause: name.cause }
    }
}
