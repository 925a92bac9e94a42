//! Compares a range and its source, and asks the file system to share them.

use std::io;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{At, ComparisonResult, ShareError, Slice, Substrate};

use super::Sharer;
use super::mapped_file::MappedFile;
use super::target::TargetFile;
use crate::extents::Extents;
use crate::pace::CallKind;
use crate::pass::pinned::Loss;
use crate::pass::runs::{FinderRun, Outcome, Source};
use crate::policy::{FreedUnit, SharePolicy};
use crate::state::maps::MovedRange;

/// The space that sharing a range frees.
enum FreedSpace {
    /// Bytes to which only this range refers, and bytes of which the map does not show this.
    Blocks { unshared: u64, untold: u64 },
    /// Parts of whole extents.
    Extents(io::Result<Vec<Loss>>),
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Shares a part of a run that fits into one call, or gathers it until it is declared.
    pub(super) fn share_part(&mut self, file: &S::File, part: FinderRun, of: &FinderRun) -> Result<(), ShareError> {
        if self.trouble.is_short_of_records(&mut self.room, self.state.substrate()) {
            return Err(ShareError::Full);
        }
        // A range of zeros may become a hole, so it needs no declaration.
        let is_declared = self.declaring.is_some() && part.source != Source::Zeros;
        if !is_declared {
            self.bring_in(file, part)?;
            if self.ask(file, part)? == ComparisonResult::Shared {
                return Ok(());
            }
        }
        for (equal, is_equal) in self.compare(file, part)? {
            let (whole, part) = (part, equal);
            if is_equal && self.is_too_short(&part, &whole, of) {
                self.count(&part, Outcome::TooShort);
            } else if let Some(declaring) = self.declaring.as_mut().filter(|_| is_equal && is_declared) {
                declaring.gather(part);
            } else if !is_equal || self.ask(file, part)? == ComparisonResult::Differ {
                self.note_differing(&part);
            }
        }
        Ok(())
    }

    /// Returns whether a part between differing blocks is shorter than the wanted minimum. `whole` is the range of one
    /// call, of a run: a part at its edges may continue in the next call.
    fn is_too_short(&self, part: &FinderRun, whole: &FinderRun, of: &FinderRun) -> bool {
        let goes_on_before = part.first == whole.first && whole.first > of.first;
        let goes_on_behind = part.end() == whole.end() && whole.end() < of.end();
        let is_between_files = matches!(part.source, Source::File(_));
        is_between_files && part.bytes() < self.options.min_run_bytes && !goes_on_before && !goes_on_behind
    }

    /// Brings both sides into memory.
    fn bring_in(&self, file: &S::File, part: FinderRun) -> io::Result<()> {
        let (source, source_offset) = self.sources.place(part.source);
        for (file, offset) in [(source, source_offset), (file, part.offset())] {
            self.options.pace.read(part.bytes());
            self.state.substrate().bring_in(file, offset, part.bytes())?;
        }
        Ok(())
    }

    /// Reads both sides, and returns the parts, and whether each is equal.
    pub(super) fn compare(&mut self, file: &S::File, part: FinderRun) -> io::Result<Vec<(FinderRun, bool)>> {
        let [theirs, ours] = &mut self.buffers;
        let (source, source_offset) = self.sources.place(part.source);
        let bytes = usize::try_from(part.bytes()).expect("at most a call");
        for (buffer, file, offset) in [(&mut *theirs, source, source_offset), (&mut *ours, file, part.offset())] {
            buffer.resize(bytes, 0);
            self.options.pace.read(part.bytes());
            let count = self.state.substrate().read_at(file, offset, buffer)?;
            // A file may have become shorter; its missing bytes count as different.
            buffer.truncate(count / BLOCK_BYTES * BLOCK_BYTES);
        }
        let equal = |block: u64| {
            let from = usize::try_from(block).expect("within a call") * BLOCK_BYTES;
            let range = from..from + BLOCK_BYTES;
            theirs.get(range.clone()).is_some_and(|block| Some(block) == ours.get(range))
        };
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < part.count {
            let is_equal = equal(at);
            let count = (at..part.count).take_while(|block| equal(*block) == is_equal).count() as u64;
            parts.push((part.part(at, count), is_equal));
            at += count;
        }
        Ok(parts)
    }

    /// Asks the file system to compare and share.
    pub(super) fn ask(&mut self, file: &S::File, part: FinderRun) -> Result<ComparisonResult, ShareError> {
        let substrate = self.state.substrate();
        let freed = self.freed_by(part);
        let (source, source_offset) = self.sources.place(part.source);
        let (source, into) = (At { file: source, offset: source_offset }, At { file, offset: part.offset() });
        let length = part.bytes();
        let compared = self.options.pace.call(CallKind::Share, length, || substrate.share(source, into, length))?;
        if compared == ComparisonResult::Shared {
            self.note_shared(part, freed)?;
        }
        Ok(compared)
    }

    /// Returns the space that sharing a range will free. To be called before it is shared.
    fn freed_by(&mut self, part: FinderRun) -> FreedSpace {
        let substrate = self.state.substrate();
        let Some(TargetFile { opened: Some(MappedFile { file, map }), slices, .. }) = &mut self.target else {
            return FreedSpace::Blocks { unshared: 0, untold: part.bytes() };
        };
        let policy = self.state.policy();
        if policy.freed == FreedUnit::Block {
            return unshared_bytes(substrate, file, map, part, policy);
        }
        let (from, to) = (part.offset(), part.offset() + part.bytes());
        FreedSpace::Extents(slices.within(substrate, file, from, to).map(|slices| {
            let loss = |slice: &Slice| {
                self.noted.remnants.note(part.file, slice);
                Loss { extent: slice.extent, bytes: slice.end().min(to) - slice.offset.max(from) }
            };
            slices.iter().map(loss).collect()
        }))
    }

    fn note_shared(&mut self, part: FinderRun, freed: FreedSpace) -> io::Result<()> {
        self.count(&part, Outcome::Shared);
        self.note_moved(part);
        self.note_done(&part);
        self.noted.touched.insert(part.file);
        match freed {
            FreedSpace::Blocks { unshared, untold } => {
                self.shared.freed += unshared;
                self.shared.untold += untold;
            }
            FreedSpace::Extents(Ok(lost)) => lost.into_iter().try_for_each(|loss| self.losses.push(loss.row()))?,
            FreedSpace::Extents(Err(_)) => self.shared.untold += part.bytes(),
        }
        self.shared.zeros += if part.source == Source::Zeros { part.bytes() } else { 0 };
        Ok(())
    }

    /// Notes the new place of a range, so that the next scan does not take it for changed.
    fn note_moved(&mut self, part: FinderRun) {
        let Some(target) = &mut self.target else { return };
        let mut at = 0;
        while at < part.count {
            let offset = (part.first + at) * BLOCK_BYTES_U64;
            let rest = (part.count - at) * BLOCK_BYTES_U64;
            let (place, length) = match part.source {
                Source::Zeros => (None, rest),
                Source::Slot(slot) => match self.sources.arenas.get(&slot.arena()) {
                    Some(arena) => {
                        let placed = arena.map.look((slot.index() + at) * BLOCK_BYTES_U64);
                        (placed.place, placed.length.min(rest))
                    }
                    None => return,
                },
                // A range that a finder believed equal was not digested, so the next scan has to read it.
                Source::File(_) => return,
            };
            let length = (length / BLOCK_BYTES_U64).max(1) * BLOCK_BYTES_U64;
            // If the place of a slot is not known, it cannot be ruled out that the range moved.
            if place.is_some() || part.source == Source::Zeros {
                target.moved.push(MovedRange { offset, length, place });
            }
            at += length / BLOCK_BYTES_U64;
        }
    }
}

/// Returns how many bytes of a range only this file refers to, as the map shows; and of how many bytes the map does not
/// show it.
fn unshared_bytes<S: Substrate>(
    substrate: &S,
    file: &S::File,
    map: &mut Extents,
    part: FinderRun,
    policy: SharePolicy,
) -> FreedSpace {
    let (mut at, end) = (part.offset(), part.offset() + part.bytes());
    let (mut unshared, mut untold) = (0, 0);
    while at < end {
        let Ok(placed) = map.at(substrate, file, at) else {
            untold += end - at;
            break;
        };
        let stretch = placed.length.min(end - at);
        match (placed.is_data, placed.is_shared) {
            (true, false) => unshared += stretch,
            // It may have been shared once, and have only one reference now.
            (true, true) if !policy.tells_last_reference => untold += stretch,
            _ => {}
        }
        at += stretch;
    }
    FreedSpace::Blocks { unshared, untold }
}
