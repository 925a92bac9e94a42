//! Explains why a block is shared, or is not: the facts from its file, the file system, logs and index, and a verdict.

mod run;
mod sharers;
mod verdict;
mod whole;

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{Access, FileStat, Refusal, Substrate};

use self::run::run_around;
use crate::block_state::BlockState;
use crate::block_state::template::{Template, TemplateImage, Templates};
use crate::domain::{DomainRules, FoundDomain};
use crate::extents::{Extents, MappedStretch};
use crate::files::common;
use crate::format::entry::ContentPlace;
use crate::format::mark::Mark;
use crate::format::stamp::Stamp;
use crate::format::{FileBlock, FileNo, FingerprintPrefix, Slot};
use crate::opt_out::OptOuts;
use crate::policy::{FreedUnit, SharePolicy};
use crate::state::files::Marks;
use crate::state::{State, StateError};
use crate::status::FileStanding;

pub use self::run::EqualRun;
pub use self::sharers::{Sharer, Sharers};
pub use self::verdict::Verdict;
pub use self::whole::{ExplainedFile, FileOverlap, FileStretch, explain_file};

/// All facts about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedBlock {
    /// The block.
    pub block: FileBlock,
    /// Its content.
    pub held: BlockContent,
    /// Whether the space of its file was reserved, so that its zeros stay blocks.
    pub is_reserved: bool,
    /// Its place on the device, in bytes; `None` if the file system does not report it.
    pub place: Option<u64>,
    /// Whether it was written and the map does not show it yet: it is only in memory, and has no place. Nothing is
    /// written back for an answer, because a guest that writes to the file would wait for that.
    pub is_unsettled: bool,
    /// Whether the file system reports other references to it.
    pub is_told_shared: bool,
    /// Whether the file system reports this for a whole extent if others refer to any part of it.
    pub is_told_by_extent: bool,
    /// Known blocks at the same place.
    pub sharers: Sharers,
    /// Its digest; `None` if it is all zeros, or there is no state folder.
    pub digest: Option<FingerprintPrefix>,
    /// The standing of its file; `None` if the file was never seen.
    pub standing: Option<FileStanding>,
    /// The domain of its file; `None` if there is no state folder.
    pub domain: Option<FoundDomain>,
    /// Whether a log that waits for a pass reports it with its present content.
    pub is_logged: bool,
    /// The index's entry for its content.
    pub index: IndexAnswer,
    /// The path that opts the file out.
    pub opted_out: Option<PathBuf>,
    /// Why the file system would refuse it.
    pub refusal: Option<Refusal>,
    /// Its state; `None` for a block without a place, for a block of a common volume, and on Btrfs without a state
    /// folder if the map calls its extent shared.
    pub state: Option<BlockState>,
    /// The template of its file, if it is known.
    pub template: Option<PathBuf>,
    /// Whether its file has a recorded template that is neither a known file nor the named one.
    pub is_template_unknown: bool,
    /// The run of blocks around it that equal those at the index's place, but are stored elsewhere; `None` if the
    /// index names no other equal block.
    pub run: Option<EqualRun>,
}

/// Content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// None: it is in a hole.
    Hole,
    /// None yet: it is unwritten, and reads as zeros.
    SetAside,
    /// Zeros that were written.
    Zeros,
    /// Data.
    Data,
    /// The file ends in it, after this many bytes.
    Part(u64),
}

/// The index's entry for a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexAnswer {
    /// There is no index, or it does not know the content.
    Nothing,
    /// It names this very block.
    ThisBlock,
    /// It names another block, which had the content when it was last read.
    OtherBlock {
        /// The file; `None` if it is gone.
        path: Option<PathBuf>,
        /// The block.
        block: FileBlock,
        /// Whether the block still holds it.
        is_equal: bool,
    },
    /// It names an arena slot.
    Slot {
        /// The slot.
        slot: Slot,
        /// Whether the slot still holds it.
        is_equal: bool,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The file cannot be opened, mapped or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The offset is behind the end of the file.
    #[error("the file ends at byte {length}")]
    BehindEnd {
        /// Its length.
        length: u64,
    },
    /// The state folder failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Returns all facts about the block of a file that has the byte at `offset`. Without a state folder, these are the
/// facts from the file system. `since` is the template of the file if no other one is recorded for it.
///
/// # Errors
/// See [`ExplainError`].
pub fn explain<S: Substrate>(
    substrate: &S,
    state: Option<&State<'_, S>>,
    path: &Path,
    offset: u64,
    since: Option<&Path>,
) -> Result<ExplainedBlock, ExplainError> {
    let file = substrate.open(path, Access::Read)?;
    let stat = substrate.stat(&file)?;
    if offset >= stat.length {
        return Err(ExplainError::BehindEnd { length: stat.length });
    }
    let files = state.map(Marks::load).transpose()?;
    let asked = QueriedBlock { path, file, stat, at: offset - offset % BLOCK_BYTES_U64 };
    let (mut explained, bytes) = look_at(substrate, &asked)?;
    if let Some((state, files)) = state.zip(files.as_ref()) {
        ask(state, files, &asked, &bytes, &mut explained)?;
    }
    let named = since.map(|path| TemplateImage::named(substrate, path)).transpose()?;
    let templates = files.as_ref().map_or_else(Templates::default, Templates::of_known);
    find_state(substrate, &templates.with_named(named), &asked, &mut explained)?;
    Ok(explained)
}

/// The block in question.
struct QueriedBlock<'a, F> {
    path: &'a Path,
    file: F,
    stat: FileStat,
    /// Its offset, in bytes.
    at: u64,
}

impl<F> QueriedBlock<'_, F> {
    fn block(&self) -> FileBlock {
        FileBlock(self.at / BLOCK_BYTES_U64)
    }
}

/// Returns the file system's facts about a block, and its content.
fn look_at<S: Substrate>(
    substrate: &S,
    asked: &QueriedBlock<'_, S::File>,
) -> Result<(ExplainedBlock, Vec<u8>), ExplainError> {
    let placed = place_of(substrate, &asked.file, asked.at)?;
    let mut bytes = vec![0; BLOCK_BYTES];
    let count = substrate.read_at(&asked.file, asked.at, &mut bytes)?;
    let is_unsettled = !placed.is_data && !is_zero(&bytes);
    let held = match count {
        BLOCK_BYTES if is_unsettled => BlockContent::Data,
        BLOCK_BYTES if !placed.is_data && placed.is_set_aside => BlockContent::SetAside,
        BLOCK_BYTES if !placed.is_data => BlockContent::Hole,
        BLOCK_BYTES if is_zero(&bytes) => BlockContent::Zeros,
        BLOCK_BYTES => BlockContent::Data,
        part => BlockContent::Part(part as u64),
    };
    let explained = ExplainedBlock {
        block: asked.block(),
        held,
        is_reserved: false,
        place: placed.place.filter(|_| placed.is_data),
        is_unsettled,
        is_told_shared: placed.is_shared && placed.is_data,
        is_told_by_extent: SharePolicy::of(substrate.abilities()).freed == FreedUnit::Extent,
        sharers: Sharers::default(),
        digest: None,
        standing: None,
        domain: None,
        is_logged: false,
        index: IndexAnswer::Nothing,
        opted_out: OptOuts::new(substrate).of(asked.path)?,
        refusal: substrate.refusal(&asked.file)?,
        state: None,
        template: None,
        is_template_unknown: false,
        run: None,
    };
    Ok((explained, bytes))
}

/// Adds the state folder's facts about a block.
fn ask<S: Substrate>(
    state: &State<'_, S>,
    files: &Marks,
    asked: &QueriedBlock<'_, S::File>,
    bytes: &[u8],
    explained: &mut ExplainedBlock,
) -> Result<(), ExplainError> {
    let (stat, block) = (&asked.stat, asked.block());
    let mark = files.of(&stat.handle);
    explained.is_reserved = mark.is_some_and(|mark| mark.flags.is_reserved);
    let domain = DomainRules::of(state)?.find(asked.path, &asked.file, stat, mark.map(|mark| &mark.membership))?;
    let is_of_domain = |mark: &&Mark| mark.membership.domain == domain.membership.domain;
    let standing = |mark| FileStanding::of_file(mark, state.substrate(), &asked.file, Stamp::of(stat));
    explained.standing = mark.map(|mark| match standing(mark) {
        // It is read anew in its domain.
        FileStanding::Current if !is_of_domain(&mark) => FileStanding::Changed,
        standing => standing,
    });
    if let Some(place) = explained.place {
        explained.sharers = sharers::find(state, files, place, &stat.handle, block)?;
    }
    let own = mark.filter(is_of_domain).map(|mark| mark.number);
    let key = state.key(&domain.membership.domain);
    explained.digest = (explained.held == BlockContent::Data).then(|| FingerprintPrefix::of(key.fingerprint(bytes)));
    explained.domain = Some(domain);
    if let Some(number) = own {
        explained.is_logged = is_logged(state, number, block, explained.digest)?;
    }
    if let Some(digest) = explained.digest {
        let index = Index { state, files };
        index.fill(explained, digest, own, &LoadedBlock { file: &asked.file, block, bytes })?;
    }
    Ok(())
}

/// Adds the state of a block, from its place and the other files there.
fn find_state<S: Substrate>(
    substrate: &S,
    templates: &Templates<'_, S::File>,
    asked: &QueriedBlock<'_, S::File>,
    explained: &mut ExplainedBlock,
) -> Result<(), ExplainError> {
    if common::is_marked(substrate, asked.path) {
        return Ok(());
    }
    let template = templates.of(substrate, &asked.file, &asked.stat.handle);
    explained.template = template.image().map(|image| image.path.clone());
    explained.is_template_unknown = matches!(template, Template::Unknown);
    let Some(place) = explained.place else { return Ok(()) };
    explained.sharers.add_volume_of(substrate, asked.path.parent().unwrap_or(Path::new("")), place)?;
    let sharers = &explained.sharers;
    let is_of_template = template.has(substrate, asked.at, place)?;
    let is_told = explained.is_told_shared && sharers.is_empty();
    let tells_last = SharePolicy::of(substrate.abilities()).tells_last_reference;
    let is_known = explained.domain.is_some();
    explained.state = if is_of_template {
        Some(BlockState::Template)
    } else if sharers.blocks.iter().any(|sharer| sharer.is_common) {
        Some(BlockState::Common)
    } else if !sharers.blocks.is_empty() || is_told && tells_last {
        Some(BlockState::Shared)
    } else {
        (is_known || !is_told).then_some(BlockState::Own)
    };
    Ok(())
}

/// Returns the block at an offset, as the map shows it at this moment.
fn place_of<S: Substrate>(substrate: &S, file: &S::File, at: u64) -> io::Result<PlacedBlock> {
    let MappedStretch { place, is_data, is_shared, .. } = match Extents::new().at(substrate, file, at) {
        // The file system has no maps.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            MappedStretch { place: None, length: BLOCK_BYTES_U64, is_data: true, is_hole: false, is_shared: false }
        }
        placed => placed?,
    };
    let is_set_aside = !is_data && place.is_some();
    Ok(PlacedBlock { place, is_data, is_shared, is_set_aside })
}

struct PlacedBlock {
    place: Option<u64>,
    is_data: bool,
    is_shared: bool,
    is_set_aside: bool,
}

/// Returns whether a log reports a block with this content; `None` means zeros.
fn is_logged<S: Substrate>(
    state: &State<'_, S>,
    file: FileNo,
    block: FileBlock,
    digest: Option<FingerprintPrefix>,
) -> Result<bool, StateError> {
    let mut is_logged = false;
    state.each_logged(file, |logged, found| -> Result<(), StateError> {
        is_logged |= logged == block && found == digest;
        Ok(())
    })?;
    Ok(is_logged)
}

/// The block to be explained.
struct LoadedBlock<'a, S: Substrate> {
    file: &'a S::File,
    block: FileBlock,
    bytes: &'a [u8],
}

/// The index, and the files that it names.
struct Index<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    files: &'a Marks,
}

impl<S: Substrate> Index<'_, '_, S> {
    /// Adds the index's entry, and the run of equal blocks if the entry names another place.
    fn fill(
        &self,
        explained: &mut ExplainedBlock,
        digest: FingerprintPrefix,
        own: Option<FileNo>,
        around: &LoadedBlock<'_, S>,
    ) -> Result<(), ExplainError> {
        let substrate = self.state.substrate();
        match self.state.find(digest)? {
            None => {}
            Some(ContentPlace::Unique(file, block)) if Some(file) == own && block == around.block => {
                explained.index = IndexAnswer::ThisBlock;
            }
            Some(ContentPlace::Unique(file, block)) => {
                let other = self.open(file);
                let is_equal = other.as_ref().is_some_and(|(file, _)| holds(substrate, file, block.0, around.bytes));
                if let Some((file, _)) = other.as_ref().filter(|_| is_equal) {
                    explained.run = Some(run_around(substrate, around.file, around.block.0, file, block.0)?);
                }
                let path = other.map(|(_, path)| path);
                explained.index = IndexAnswer::OtherBlock { path, block, is_equal };
            }
            Some(ContentPlace::Shared(slot)) => {
                let arena = self.state.open_arena(slot.arena(), Access::Read)?;
                let is_equal = arena.as_ref().is_some_and(|file| holds(substrate, file, slot.index(), around.bytes));
                if let Some(file) = arena.filter(|_| is_equal && !explained.sharers.slots.contains(&slot)) {
                    explained.run = Some(run_around(substrate, around.file, around.block.0, &file, slot.index())?);
                }
                explained.index = IndexAnswer::Slot { slot, is_equal };
            }
        }
        Ok(())
    }

    /// Opens a file by its number, if it is at its path.
    fn open(&self, number: FileNo) -> Option<(S::File, PathBuf)> {
        let mark = self.files.get(number)?;
        let file = self.state.substrate().open(&mark.path, Access::Read).ok()?;
        let is_it = self.state.substrate().stat(&file).is_ok_and(|stat| stat.handle == mark.handle);
        is_it.then(|| (file, mark.path.clone()))
    }
}

/// Returns whether a block of a file holds these bytes. An unreadable block does not.
fn holds<S: Substrate>(substrate: &S, file: &S::File, block: u64, bytes: &[u8]) -> bool {
    let mut found = vec![0; bytes.len()];
    let count = substrate.read_at(file, block.saturating_mul(BLOCK_BYTES_U64), &mut found);
    count.is_ok_and(|count| count == bytes.len()) && found == bytes
}
