//! Explains a whole file: how much of it is shared, with which files, and what keeps the rest from being shared.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, FileStat, MappedExtent, Refusal, Substrate};

use super::ExplainError;
use crate::block_state::{self, CountError, CountOptions, StateBytes};
use crate::domain::{DomainRules, FoundDomain};
use crate::extents::each_extent;
use crate::files::common;
use crate::format::mark::Mark;
use crate::format::stamp::Stamp;
use crate::opt_out::OptOuts;
use crate::places::Places;
use crate::state::State;
use crate::state::files::Marks;
use crate::status::FileStanding;

/// The file is compared with the others in pieces of at most this much data: eight mebibytes of flags.
const PIECE_BYTES: u64 = 32 << 30;
/// And of at most this many extents.
const PIECE_EXTENTS: usize = 1 << 16;

/// All facts about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedFile {
    /// Its length, in bytes.
    pub length: u64,
    /// Its data by state. Without notes about the file, this is what the map of the file system calls shared or not.
    pub bytes: StateBytes,
    /// Room that is set aside and was never written, in bytes.
    pub set_aside: u64,
    /// The longest stretches that the file system does not call shared, the longest first: at most three.
    pub unshared: Vec<FileStretch>,
    /// Its sharing domain; `None` without a state folder.
    pub domain: Option<FoundDomain>,
    /// Known files that have blocks of it, the one with most of them first.
    pub with: Vec<FileOverlap>,
    /// Known files that could not be mapped. They may have blocks of it, too.
    pub unmapped: u64,
    /// Known files that are not where the last scan found them. They may have blocks of it, too.
    pub absent: u64,
    /// Its standing; `None` if it was never seen.
    pub standing: Option<FileStanding>,
    /// Bytes in logs that wait for a pass. A log may hold what has changed since.
    pub waiting: u64,
    /// The path that opts the file out.
    pub opted_out: Option<PathBuf>,
    /// Why the file system would refuse it.
    pub refusal: Option<Refusal>,
}

/// Adjacent data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStretch {
    /// Its offset, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub length: u64,
}

/// Maximum number of stretches that are named.
const STRETCHES_MAX: usize = 3;

/// Finds the longest stretches of data that nothing shares.
#[derive(Default)]
struct LongestStretches {
    /// The longest first.
    longest: Vec<FileStretch>,
    last: Option<FileStretch>,
}

impl LongestStretches {
    /// Takes the next part of the file that is not shared.
    fn take(&mut self, offset: u64, length: u64) {
        match &mut self.last {
            Some(last) if last.offset.saturating_add(last.length) == offset => {
                last.length = last.length.saturating_add(length);
            }
            _ => {
                self.end_stretch();
                self.last = Some(FileStretch { offset, length });
            }
        }
    }

    fn end_stretch(&mut self) {
        let Some(last) = self.last.take() else { return };
        // Of equal ones, the first comes first.
        let at = self.longest.partition_point(|stretch| stretch.length >= last.length);
        self.longest.insert(at, last);
        self.longest.truncate(STRETCHES_MAX);
    }

    fn finish(mut self) -> Vec<FileStretch> {
        self.end_stretch();
        self.longest
    }
}

/// The data that a known file has in common with the file in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOverlap {
    /// The known file; the file in question itself for blocks that it holds several times.
    pub path: PathBuf,
    /// Bytes of the file in question that lie at a place of the known file.
    pub bytes: u64,
    /// Whether the known file is a common volume.
    pub is_common: bool,
}

/// Returns all facts about a file. Without a state folder, these are the facts from the file system.
///
/// # Errors
/// See [`ExplainError`].
pub fn explain_file<S: Substrate>(
    substrate: &S,
    state: Option<&State<'_, S>>,
    path: &Path,
    options: &CountOptions<'_>,
) -> Result<ExplainedFile, ExplainError> {
    let file = substrate.open(path, Access::Read)?;
    let stat = substrate.stat(&file)?;
    let mut found = ExplainedFile {
        length: stat.length,
        opted_out: OptOuts::new(substrate).of(path)?,
        refusal: substrate.refusal(&file)?,
        ..ExplainedFile::default()
    };
    let mut unshared = LongestStretches::default();
    each_extent(substrate, &file, |extent| -> io::Result<()> {
        if !extent.is_unwritten && !extent.is_shared && extent.place.is_some() {
            unshared.take(extent.offset, extent.length);
        }
        let StateBytes { own, shared, unplaced, .. } = &mut found.bytes;
        let counter = match extent {
            MappedExtent { is_unwritten: true, .. } => &mut found.set_aside,
            MappedExtent { place: None, .. } => unplaced,
            MappedExtent { is_shared: true, .. } => shared,
            _ => own,
        };
        *counter = counter.saturating_add(extent.length);
        Ok(())
    })?;
    found.unshared = unshared.finish();
    if let Some(state) = state {
        ask(state, path, &file, &stat, options, &mut found)?;
    }
    Ok(found)
}

/// Adds the facts from the state folder.
fn ask<S: Substrate>(
    state: &State<'_, S>,
    path: &Path,
    file: &S::File,
    stat: &FileStat,
    options: &CountOptions<'_>,
    found: &mut ExplainedFile,
) -> Result<(), ExplainError> {
    let files = Marks::load(state)?;
    let mark = files.of(&stat.handle);
    found.domain = Some(DomainRules::of(state)?.find(path, file, stat, mark.map(|mark| &mark.membership))?);
    found.standing = mark.map(|mark| FileStanding::of_file(mark, state.substrate(), file, Stamp::of(stat)));
    if let Some(mark) = mark {
        let states = block_state::count(state, options).map_err(|error| match error {
            CountError::State(error) => ExplainError::State(error),
            CountError::Template(error) | CountError::Temporary(error) => ExplainError::Io(error),
        })?;
        if let Some(image) = states.images.iter().find(|image| image.path == mark.path) {
            found.bytes = image.bytes;
        }
        state.each_logged(mark.number, |_, _| -> Result<(), ExplainError> {
            found.waiting = found.waiting.saturating_add(BLOCK_BYTES_U64);
            Ok(())
        })?;
    }
    let mut piece = Piece::default();
    each_extent(state.substrate(), file, |extent| -> io::Result<()> {
        let holds_data = !extent.is_unwritten && extent.place.is_some() && extent.length > 0;
        let mut rest = holds_data.then_some(*extent);
        while let Some(extent) = rest {
            rest = piece.take(extent);
            if piece.is_full() {
                piece.compare(state, &files, stat, found);
            }
        }
        Ok(())
    })?;
    piece.compare(state, &files, stat, found);
    found.with.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.path.cmp(&other.path)));
    Ok(())
}

/// A piece of the file, as much as fits into memory.
#[derive(Default)]
struct Piece {
    extents: Vec<MappedExtent>,
    bytes: u64,
    /// Whether `absent` and `unmapped` are counted: once for all pieces.
    has_counted: bool,
}

impl Piece {
    /// Takes an extent, or its beginning. Returns what does not fit any more.
    fn take(&mut self, extent: MappedExtent) -> Option<MappedExtent> {
        let length = extent.length.min(PIECE_BYTES - self.bytes);
        self.bytes += length;
        self.extents.push(MappedExtent { length, ..extent });
        let rest = MappedExtent {
            offset: extent.offset.saturating_add(length),
            length: extent.length - length,
            place: extent.place.map(|place| place.saturating_add(length)),
            ..extent
        };
        (rest.length > 0).then_some(rest)
    }

    fn is_full(&self) -> bool {
        self.bytes >= PIECE_BYTES || self.extents.len() >= PIECE_EXTENTS
    }

    /// Adds what each known file has in common with the piece, and empties it.
    fn compare<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        files: &Marks,
        own: &FileStat,
        found: &mut ExplainedFile,
    ) {
        let substrate = state.substrate();
        let is_first = !std::mem::replace(&mut self.has_counted, true);
        let extents = std::mem::take(&mut self.extents);
        self.bytes = 0;
        let overlap = Overlap::new(extents);
        for mark in files.of_files() {
            let bytes = match overlap.with(substrate, mark, mark.handle == own.handle) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    found.absent += u64::from(is_first);
                    continue;
                }
                Err(error) => {
                    let counter =
                        if onefold_substrate::is_gone(&error) { &mut found.absent } else { &mut found.unmapped };
                    *counter += u64::from(is_first);
                    continue;
                }
            };
            match found.with.iter_mut().find(|other| other.path == mark.path) {
                _ if bytes == 0 => {}
                Some(other) => other.bytes += bytes,
                None => {
                    let is_common = common::is_marked(substrate, &mark.path);
                    found.with.push(FileOverlap { path: mark.path.clone(), bytes, is_common });
                }
            }
        }
    }
}

/// Finds what other files have of a piece.
struct Overlap {
    places: Places,
    /// For each extent of the piece, in order: its offset in the file, and the number of its first block in the piece.
    starts: Vec<(u64, usize)>,
    blocks: usize,
}

impl Overlap {
    fn new(extents: Vec<MappedExtent>) -> Overlap {
        let (mut starts, mut blocks) = (Vec::with_capacity(extents.len()), 0);
        for extent in &extents {
            starts.push((extent.offset, blocks));
            blocks += usize::try_from(extent.length.div_ceil(BLOCK_BYTES_U64)).expect("at most PIECE_BYTES");
        }
        let placed = extents.into_iter().filter_map(|extent| Some((extent.place?, extent)));
        Overlap { places: Places::new(placed.collect()), starts, blocks }
    }

    /// Returns how many bytes of the piece a known file has. `None` if it is not where its mark says.
    fn with<S: Substrate>(&self, substrate: &S, mark: &Mark, is_itself: bool) -> io::Result<Option<u64>> {
        let file = substrate.open(&mark.path, Access::Read)?;
        if substrate.stat(&file)?.handle != mark.handle {
            return Ok(None);
        }
        let mut has: Vec<bool> = Vec::new();
        each_extent(substrate, &file, |extent| -> io::Result<()> {
            for (theirs, ours) in self.places.within(extent) {
                if is_itself && theirs == ours {
                    continue;
                }
                has.resize(self.blocks, false);
                let (offset, first) = match self.starts.partition_point(|(offset, _)| *offset <= ours) {
                    0 => continue,
                    behind => self.starts[behind - 1],
                };
                let block = usize::try_from((ours - offset) / BLOCK_BYTES_U64).unwrap_or(usize::MAX);
                if let Some(flag) = has.get_mut(first.saturating_add(block)) {
                    *flag = true;
                }
            }
            Ok(())
        })?;
        Ok(Some(has.iter().filter(|has| **has).count() as u64 * BLOCK_BYTES_U64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stretches_are_joined_and_come_first() {
        let longest = |parts: &[(u64, u64)]| {
            let mut stretches = LongestStretches::default();
            parts.iter().for_each(|(offset, length)| stretches.take(*offset, *length));
            stretches.finish().iter().map(|stretch| (stretch.offset, stretch.length)).collect::<Vec<_>>()
        };
        assert_eq!(longest(&[]), []);
        assert_eq!(longest(&[(0, 4), (4, 8), (16, 4)]), [(0, 12), (16, 4)]);
        assert_eq!(longest(&[(0, 4), (8, 4), (16, 8), (32, 4), (40, 4)]), [(16, 8), (0, 4), (8, 4)]);
        assert_eq!(longest(&[(u64::MAX, 4), (1, 1)]), [(u64::MAX, 4), (1, 1)]);
    }
}
