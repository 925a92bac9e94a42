//! Fills the holes of a run from the slots that it was to share with.

use std::io;
use std::ops::Range;

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Timestamp};
use onefold_substrate::{Access, At, Substrate};

use crate::extents::Extents;
use crate::format::intent::IntentRun;
use crate::state::{State, StateError};

/// Number of blocks that are handled at once.
const PIECE_BLOCKS: u64 = 256;

/// An image in which an interrupted share may have left holes. The caller has exclusive use of it.
pub(crate) struct HoledImage<'a, S: Substrate> {
    pub(crate) file: &'a S::File,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// When its content last changed. Filling keeps this time.
    pub(crate) modified: Timestamp,
}

/// Result for a run, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FillCounts {
    /// Holes that were filled.
    pub(crate) filled: u64,
    /// Blocks that are no holes, and differ from the slots.
    pub(crate) differing: u64,
}

/// Why a run could not be filled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    /// The content of a hole no longer exists anywhere.
    #[error("the arena does not hold any more what was there")]
    Lost,
    /// The device failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl FillError {
    fn of(error: StateError) -> FillError {
        match error {
            StateError::Io { source, .. } => FillError::Io(source),
            other => FillError::Io(io::Error::other(other)),
        }
    }
}

/// Makes sure that no other process may have taken over an image that is held for exclusive use. A call can take longer
/// than another process waits for the image. So this is asked before a call, and again before any decision that rests
/// on its result.
///
/// # Errors
/// `ResourceBusy` if another process may have it.
pub(crate) fn check_exclusive<S: Substrate>(substrate: &S, image: &S::File) -> io::Result<()> {
    if substrate.is_exclusive_lost(image) {
        let why = "another process has waited for it so long that it may have it";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    Ok(())
}

/// Returns whether a part of a run is a hole, as the map shows.
pub(crate) fn has_hole<S: Substrate>(
    substrate: &S,
    file: &S::File,
    map: &mut Extents,
    run: &IntentRun,
) -> io::Result<bool> {
    let (mut at, end) = (run.first.0 * BLOCK_BYTES_U64, (run.first.0 + u64::from(run.count)) * BLOCK_BYTES_U64);
    while at < end {
        let placed = map.at(substrate, file, at)?;
        if placed.is_hole {
            return Ok(true);
        }
        at += placed.length;
    }
    Ok(false)
}

/// Fills the holes of a run. Unwritten space is not a hole: somebody allocated it on purpose.
pub(crate) fn fill<S: Substrate>(
    state: &State<'_, S>,
    image: &HoledImage<'_, S>,
    run: &IntentRun,
) -> Result<FillCounts, FillError> {
    // The owner has cut off the part behind the end of the file.
    let within = (image.length / BLOCK_BYTES_U64).saturating_sub(run.first.0).min(run.count.into());
    // A host that did not see the intent in time may have emptied the slots. Then the sharing host has not asked for
    // these shares, and no hole is its own.
    let lost = || {
        let kept = IntentRun { count: u32::try_from(within).expect("at most the run's"), ..*run };
        let is_holed = has_hole(state.substrate(), image.file, &mut Extents::new(), &kept)?;
        if is_holed { Err(FillError::Lost) } else { Ok(FillCounts::default()) }
    };
    let Some(arena) = state.open_arena(run.slot.arena(), Access::Read).map_err(FillError::of)? else { return lost() };
    let mut filler = Filler {
        state,
        substrate: state.substrate(),
        image,
        arena,
        run,
        map: Extents::new(),
        filled: FillCounts::default(),
        ours: Vec::new(),
        theirs: Vec::new(),
    };
    match filler.check_slots() {
        Err(FillError::Lost) => return lost(),
        checked => checked?,
    }
    let mut at = 0;
    while at < within {
        let piece = at..within.min(at + PIECE_BLOCKS);
        at = piece.end;
        filler.fill_piece(piece)?;
    }
    Ok(filler.filled)
}

struct Filler<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    substrate: &'a S,
    image: &'a HoledImage<'a, S>,
    arena: S::File,
    run: &'a IntentRun,
    map: Extents,
    filled: FillCounts,
    /// Content of the image, and of the slots.
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

/// Returns the range of a block of a piece in a buffer.
fn block(index: usize) -> Range<usize> {
    index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES
}

impl<S: Substrate> Filler<'_, '_, S> {
    /// Checks that the slots hold the previous content of the image.
    fn check_slots(&mut self) -> Result<(), FillError> {
        let (mut checksum, mut at) = (0, 0);
        while at < u64::from(self.run.count) {
            let piece = at..u64::from(self.run.count).min(at + PIECE_BLOCKS);
            at = piece.end;
            self.read_slots(piece)?;
            checksum = crc32c::crc32c_append(checksum, &self.theirs);
        }
        if checksum == self.run.checksum { Ok(()) } else { Err(FillError::Lost) }
    }

    fn read_slots(&mut self, piece: Range<u64>) -> io::Result<()> {
        self.theirs.resize(bytes(&piece), 0);
        let count = self.substrate.read_at(&self.arena, self.slot_offset(piece.start), &mut self.theirs)?;
        self.theirs.truncate(count);
        Ok(())
    }

    fn read_image(&mut self, piece: Range<u64>) -> io::Result<()> {
        self.ours.resize(bytes(&piece), 0);
        let count = self.substrate.read_at(self.image.file, self.image_offset(piece.start), &mut self.ours)?;
        if count < self.ours.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn slot_offset(&self, at: u64) -> u64 {
        (self.run.slot.index() + at) * BLOCK_BYTES_U64
    }

    fn image_offset(&self, at: u64) -> u64 {
        (self.run.first.0 + at) * BLOCK_BYTES_U64
    }

    fn fill_piece(&mut self, piece: Range<u64>) -> Result<(), FillError> {
        self.read_slots(piece.clone())?;
        self.read_image(piece.clone())?;
        if self.ours == self.theirs {
            return Ok(());
        }
        // Consecutive holes, filled at once.
        let mut holes: Option<Range<u64>> = None;
        for (index, at) in piece.enumerate() {
            let (ours, theirs) = (&self.ours[block(index)], &self.theirs[block(index)]);
            let is_hole = ours != theirs
                && is_zero(ours)
                && self.map.at(self.substrate, self.image.file, self.image_offset(at))?.is_hole;
            self.filled.differing += u64::from(ours != theirs && !is_hole);
            match (&mut holes, is_hole) {
                (Some(holes), true) => holes.end = at + 1,
                (None, true) => holes = Some(at..at + 1),
                (Some(_), false) => holes.take().map_or(Ok(()), |holes| self.fill_holes(holes))?,
                (None, false) => {}
            }
        }
        holes.map_or(Ok(()), |holes| self.fill_holes(holes))
    }

    /// Checks that this process still has the image. Otherwise a hole may be the wish of the process that has it now.
    fn make_sure_of_image(&self) -> io::Result<()> {
        check_exclusive(self.substrate, self.image.file)
    }

    /// Sets the time of the image back to its previous value. A process that got the image meanwhile may have written
    /// to it. Then the time stays that of this moment, so that nobody takes the image for unchanged.
    fn set_time_back(&self) -> io::Result<()> {
        // A host that dies before this leaves a time that shows a write: then mending goes on only after a person's
        // decision. A failure to set the time has no other effect.
        let _ = self.substrate.set_modified(self.image.file, self.image.modified);
        self.make_sure_of_image().inspect_err(|_| {
            if let Ok(now) = self.state.now() {
                let _ = self.substrate.set_modified(self.image.file, now);
            }
        })
    }

    fn fill_holes(&mut self, holes: Range<u64>) -> Result<(), FillError> {
        let most = (self.substrate.abilities().share_bytes_max / BLOCK_BYTES_U64).max(1);
        let mut at = holes.start;
        while at < holes.end {
            let part = at..holes.end.min(at + most);
            at = part.end;
            let (from, into) = (self.slot_offset(part.start), self.image_offset(part.start));
            let mut slots = vec![0; bytes(&part)];
            if self.substrate.read_at(&self.arena, from, &mut slots)? < slots.len() {
                return Err(FillError::Lost);
            }
            self.make_sure_of_image()?;
            let source = At { file: &self.arena, offset: from };
            let target = At { file: self.image.file, offset: into };
            if self.substrate.clone_range(source, target, slots.len() as u64).is_err() {
                // The call may have taken any time.
                self.make_sure_of_image()?;
                // Blocks of its own are good enough.
                self.substrate.write_at(self.image.file, into, &slots)?;
            }
            // The time of another process's write must be kept.
            self.make_sure_of_image()?;
            self.set_time_back()?;
            let mut found = vec![0; slots.len()];
            let count = self.substrate.read_at(self.image.file, into, &mut found)?;
            if count < found.len() || found != slots {
                return Err(FillError::Io(io::Error::other("it does not hold what was put back")));
            }
            self.filled.filled += part.end - part.start;
        }
        Ok(())
    }
}

fn bytes(blocks: &Range<u64>) -> usize {
    usize::try_from((blocks.end - blocks.start) * BLOCK_BYTES_U64).expect("at most a piece")
}
