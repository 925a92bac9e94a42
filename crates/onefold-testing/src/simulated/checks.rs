//! The invariants.
//!
//! 1. Every file reads exactly as its reference copy, and every name of an image leads to it. Exception: where a share
//!    has left a hole, an intent names it, and the slot that the intent names holds the right content.
//! 2. Every block's count is the number of places that refer to it.
//! 3. Free blocks and used ones add up to all.
//! 4. A call that may change only sharing changed no content.
//! 5. A block that several places refer to never changes.
//! 6. No host makes images of two users share a block.
//!
//! After every step [`World::verify`] checks them where the step changed something. It goes by the checks' own notes of
//! which file refers to which block. Now and then [`World::check_all`] checks them everywhere, from nothing but the
//! maps.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::zero::is_zero;

use super::blocks::PhysicalNo;
use super::content::{Content, reads_same};
use super::files::FileNo;
use super::names::{FolderNo, Name, NameTarget};
use super::outcome::Census;
use super::world::World;

/// A change that a step made.
#[derive(Debug)]
pub(super) enum StepChange {
    /// A place in a file refers to another block.
    Mapped { file: FileNo, index: u64, before: Option<PhysicalNo>, content: Option<Content>, after: Option<PhysicalNo> },
    /// A block has another content.
    Filled { block: PhysicalNo, before: Content },
    /// A file has another length.
    Length(FileNo),
    /// A name leads elsewhere.
    Named(FolderNo, Name),
}

/// The changes that a step may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedChanges {
    /// Anything that its kind of call may change.
    Content,
    /// Only which blocks are shared.
    Sharing,
}

/// The references to a block. The sum of the places is enough to find a single one.
#[derive(Clone, Copy, Debug, Default)]
struct ReferenceSum {
    count: u32,
    sum: u64,
}

const INDEX_BITS: u32 = 40;

fn place(file: FileNo, index: u64) -> u64 {
    u64::from(file.0) << INDEX_BITS | index
}

/// The checks' own notes.
#[derive(Debug, Default)]
pub(super) struct StepChecker {
    places: Vec<ReferenceSum>,
    used: u32,
}

impl StepChecker {
    fn add(&mut self, block: PhysicalNo, place: u64) {
        if self.places.len() <= block.index() {
            self.places.resize(block.index() + 1, ReferenceSum::default());
        }
        let places = &mut self.places[block.index()];
        places.count += 1;
        places.sum = places.sum.wrapping_add(place);
        self.used += u32::from(places.count == 1);
    }

    fn remove(&mut self, block: PhysicalNo, place: u64) {
        let places = &mut self.places[block.index()];
        places.count -= 1;
        places.sum = places.sum.wrapping_sub(place);
        self.used -= u32::from(places.count == 0);
    }

    fn count(&self, block: PhysicalNo) -> u32 {
        self.places.get(block.index()).map_or(0, |places| places.count)
    }

    /// Returns the single place that refers to a block.
    fn only_place(&self, block: PhysicalNo) -> Option<(FileNo, u64)> {
        let ReferenceSum { count, sum } = self.places.get(block.index()).copied().unwrap_or_default();
        let file = u32::try_from(sum >> INDEX_BITS).ok().map(FileNo);
        file.filter(|_| count == 1).map(|file| (file, sum & ((1 << INDEX_BITS) - 1)))
    }
}

impl World {
    /// Checks the invariants wherever the step changed something.
    pub(super) fn verify(&mut self, allowed: AllowedChanges) {
        if self.changes.is_empty() {
            return;
        }
        let mut changes = std::mem::take(&mut self.changes);
        for change in &changes {
            if let StepChange::Mapped { file, index, before, after, .. } = change {
                if let Some(block) = before {
                    self.checker.remove(*block, place(*file, *index));
                }
                if let Some(block) = after {
                    self.checker.add(*block, place(*file, *index));
                }
            }
        }
        let problem = changes.iter().find_map(|change| self.problem(change, allowed));
        let is_state = |change: &StepChange| match change {
            StepChange::Mapped { file, .. } | StepChange::Length(file) => {
                self.files.find(*file).is_none_or(|file| !file.is_image)
            }
            StepChange::Filled { .. } | StepChange::Named(..) => true,
        };
        let problem = problem.or_else(|| if changes.iter().any(is_state) { self.lost_hole() } else { None });
        changes.clear();
        self.changes = changes;
        let problem = problem.or_else(|| {
            (self.checker.used != self.blocks.used())
                .then(|| format!("{} blocks are used, {} are referred to", self.blocks.used(), self.checker.used))
        });
        if let Some(problem) = problem {
            self.violated(problem);
        }
    }

    /// Returns the violation that a change caused, if any.
    fn problem(&self, change: &StepChange, allowed: AllowedChanges) -> Option<String> {
        match change {
            StepChange::Mapped { file, index, before, content, after } => {
                let blocks = [*before, *after];
                blocks.into_iter().flatten().find_map(|block| self.count_problem(block)).or_else(|| {
                    self.files.find(*file)?;
                    let is_changed = !reads_same(content.as_ref(), self.content_at(*file, *index));
                    if allowed == AllowedChanges::Sharing && is_changed && !self.left.contains(&(*file, *index)) {
                        return Some(format!("sharing changed {}, block {index}", self.names.path_of(*file)));
                    }
                    self.content_problem(*file, *index)
                })
            }
            StepChange::Filled { block, before } => {
                if allowed == AllowedChanges::Sharing && !reads_same(Some(before), Some(self.blocks.content(*block))) {
                    return Some(format!("sharing changed the device's block {}", block.0));
                }
                match self.checker.only_place(*block) {
                    Some((file, index)) => self.content_problem(file, index),
                    None if self.checker.count(*block) == 0 => None,
                    None => Some(format!("the device's block {} was changed, and several refer to it", block.0)),
                }
            }
            StepChange::Length(file) => {
                let length = self.files.find(*file)?.length;
                let expected = self.reference.length(*file);
                (length != expected)
                    .then(|| format!("{} has {length} bytes, not {expected}", self.names.path_of(*file)))
            }
            StepChange::Named(folder, name) => self.name_problem(*folder, name),
        }
    }

    fn count_problem(&self, block: PhysicalNo) -> Option<String> {
        let (count, places) = (self.blocks.count(block), self.checker.count(block));
        (count != places)
            .then(|| format!("the device's block {} has count {count}, {places} places refer to it", block.0))
    }

    fn content_problem(&self, file: FileNo, index: u64) -> Option<String> {
        let is_right = reads_same(self.content_at(file, index), self.reference.get(file, index));
        (!is_right && !self.can_be_filled(file, index))
            .then(|| format!("{}, block {index}, differs from its reference copy", self.names.path_of(file)))
    }

    fn name_problem(&self, folder: FolderNo, name: &Name) -> Option<String> {
        let expected = NameTarget::File(self.reference.name(folder, name)?);
        (self.names.get(folder, name) != Some(expected))
            .then(|| format!("the name {} of an image leads elsewhere", String::from_utf8_lossy(name)))
    }

    /// Checks all invariants everywhere.
    pub(super) fn check_all(&mut self) -> Result<(), String> {
        self.counters.full_checks += 1;
        if let Some(problem) = &self.violation {
            return Err(problem.clone());
        }
        let mut places = vec![0u32; self.blocks.len()];
        let mut files = 0;
        for (no, file) in self.files.all() {
            files += 1;
            for (index, &block) in file.map.iter_from(0) {
                places[block.index()] += 1;
                if index >= file.block_count() {
                    return Err(format!("{} has block {index} behind its end", self.names.path_of(no)));
                }
            }
            self.check_content(no, file.length)?;
        }
        self.blocks.check(&places)?;
        if self.reference.file_count() != files {
            return Err(format!("{files} files, {} reference copies", self.reference.file_count()));
        }
        if let Some((number, _)) = places
            .iter()
            .zip(0..)
            .map(|(count, number)| (number, *count))
            .find(|(number, count)| self.checker.count(PhysicalNo(*number)) != *count)
        {
            return Err(format!("a change of the references to the device's block {number} was not noted"));
        }
        self.check_names()
    }

    fn check_content(&self, no: FileNo, length: u64) -> Result<(), String> {
        if length != self.reference.length(no) {
            return Err(format!("{} has {length} bytes, not {}", self.names.path_of(no), self.reference.length(no)));
        }
        let here = self.files.get(no).map.iter_from(0).map(|(index, _)| index);
        let there = self.reference.blocks(no).map(|(index, _)| index);
        here.chain(there).find_map(|index| self.content_problem(no, index)).map_or(Ok(()), Err)?;
        let within = usize::try_from(length % BLOCK_BYTES_U64).expect("below a block's length");
        match self.content_at(no, length / BLOCK_BYTES_U64) {
            Some(tail) if !is_zero(&tail[within..]) => {
                Err(format!("{} has bytes behind its end", self.names.path_of(no)))
            }
            _ => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        let mut counts = BTreeMap::new();
        for (_, _, entry) in self.names.all() {
            if let NameTarget::File(no) = entry {
                *counts.entry(no).or_insert(0) += 1;
            }
        }
        for (no, file) in self.files.all() {
            let names = counts.remove(&no).unwrap_or(0);
            if file.names != names {
                return Err(format!("{names} names lead to {}, it counts {}", self.names.path_of(no), file.names));
            }
        }
        if let Some((no, _)) = counts.first_key_value() {
            return Err(format!("{} is a name of no file", self.names.path_of(*no)));
        }
        self.reference.names().find_map(|(folder, name, _)| self.name_problem(folder, name)).map_or(Ok(()), Err)
    }

    /// Counts the content of the images and the blocks that they take.
    pub(super) fn census(&self) -> Census {
        let images: BTreeSet<FileNo> = self.reference.names().map(|(_, _, no)| no).collect();
        let (used, total) = (u64::from(self.blocks.used()), u64::from(self.blocks.limit()));
        let mut census = Census { images: images.len() as u64, used, total, ..Census::default() };
        // Most blocks hold one of a few contents, by reference.
        let mut zeros = BTreeMap::new();
        // Blocks of the device, separately for each user: two users share none.
        let mut physical = BTreeSet::new();
        for no in images {
            let file = self.files.get(no);
            let whole = file.length / BLOCK_BYTES_U64;
            for (_, &block) in file.map.iter_from(0).take_while(|(index, _)| *index < whole) {
                let content = self.blocks.content(block);
                let is_zero = *zeros.entry(Rc::as_ptr(content)).or_insert_with(|| is_zero(&content[..]));
                census.image_blocks += u64::from(!is_zero);
                census.zero_blocks += u64::from(is_zero);
                if !is_zero {
                    physical.insert((file.owner, block));
                }
            }
        }
        census.physical = physical.len() as u64;
        let contents: HashSet<(u32, &[u8])> =
            physical.iter().map(|(owner, block)| (*owner, &self.blocks.content(*block)[..])).collect();
        census.distinct = contents.len() as u64;
        census
    }
}
