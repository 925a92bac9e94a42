//! Copies the rests of extents, and makes all files that refer to them share with the copies.

use std::collections::BTreeSet;
use std::io;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{At, ComparisonResult, FileHandle, Reference, ShareError, Substrate};

use super::remainder::{Holder, Part, Remainder, copy_of};
use super::{ROOM_LEFT_PART, Releaser};
use crate::format::{FileBlock, FileNo};
use crate::pace::CallKind;
use crate::pass::PassError;
use crate::pass::again::RereadCause;
use crate::state::StateError;

impl<S: Substrate> Releaser<'_, '_, '_, '_, S> {
    /// Copies the rests of the extents of the batch, and makes all files share with the copies. Then other hosts may
    /// move slots.
    pub(super) fn rewrite(&mut self) -> Result<(), PassError> {
        let held = self.held.take();
        self.looked_at = 0;
        let rewritten = self.rewrite_batch();
        self.holds.clear();
        drop(held);
        rewritten
    }

    fn rewrite_batch(&mut self) -> Result<(), PassError> {
        let mut batch = std::mem::take(&mut self.batch);
        let bytes = std::mem::take(&mut self.batch_bytes);
        if batch.is_empty() {
            return Ok(());
        }
        let substrate = self.state.substrate();
        self.may_move &= substrate.room().is_ok_and(|room| room.free >= 2 * bytes + room.total / ROOM_LEFT_PART);
        let copies = if self.may_move { self.copy(&mut batch)? } else { None };
        let Some(copies) = copies else {
            self.shared.pinned += batch.iter().map(|remainder| remainder.loss.bytes).sum::<u64>();
            return Ok(());
        };
        let (begun, moved) = self.move_remainders(&copies, &batch);
        drop(copies);
        batch[..begun].iter().try_for_each(|remainder| self.count_rest(remainder))?;
        moved
    }

    /// Makes all files that refer to the rests of extents share with the copies. Also returns the number of remainders
    /// of which some part was moved, or was to be moved, if the work was told to end.
    fn move_remainders(&mut self, copies: &S::File, batch: &[Remainder]) -> (usize, Result<(), PassError>) {
        for (begun, remainder) in batch.iter().enumerate() {
            for (at, part) in remainder.parts.iter().enumerate() {
                if let Err(stop) = self.options.pace.go_on() {
                    if at > 0 {
                        self.read_images_again(remainder);
                    }
                    return (begun + usize::from(at > 0), Err(stop.into()));
                }
                let moved = match part.holder {
                    // A host that was suspended for so long that others could take the lock may find that the slot has
                    // moved.
                    Holder::Arena(_) if !self.is_still_there(remainder, *part) => Err(ShareError::Busy),
                    _ => self.move_part(copies, remainder, *part),
                };
                if let Err(why) = moved {
                    match part.holder {
                        Holder::Arena(_) => {
                            self.read_images_again(remainder);
                            break;
                        }
                        Holder::Image(number) => {
                            let (first, count) = (part.first_block(), part.length.div_ceil(BLOCK_BYTES_U64));
                            self.trouble.note_blocks(number, first, count, self.images.path(number), why);
                        }
                    }
                }
            }
            self.shared.rewritten += remainder.bytes();
        }
        (batch.len(), Ok(()))
    }

    /// Schedules another reading of the images of a remainder that is not moved as a whole. Some of its slots may have
    /// been moved: images that share with them look for them again.
    fn read_images_again(&mut self, remainder: &Remainder) {
        for (file, first, count) in remainder.image_parts() {
            self.trouble.again.add(file, first, count, RereadCause::Changed);
        }
    }

    /// Counts what came free of an extent whose rest was moved. Images that still refer to it are read again.
    fn count_rest(&mut self, remainder: &Remainder) -> Result<(), PassError> {
        match self.state.substrate().references(remainder.loss.extent) {
            Ok(references) if references.is_empty() => {
                self.shared.freed += remainder.loss.extent.length.saturating_sub(remainder.bytes());
                return Ok(());
            }
            Ok(references) => {
                let blocks = remainder.loss.extent.length.div_ceil(BLOCK_BYTES_U64);
                let at = |one: Reference| Some((one.handle?, FileBlock(one.offset / BLOCK_BYTES_U64)));
                let places: BTreeSet<(FileHandle, FileBlock)> = references.into_iter().filter_map(at).collect();
                let is_image = |handle: &FileHandle| !self.arenas.as_ref().is_some_and(|all| all.contains_key(handle));
                for (handle, first) in places.into_iter().filter(|(handle, _)| is_image(handle)) {
                    if let Some(number) = self.images.latest_number_of(&handle)? {
                        self.trouble.again.add(number, first, blocks, RereadCause::Changed);
                    }
                }
            }
            // The remaining references are unknown; the known ones have been moved, or are read again.
            Err(_) => {}
        }
        self.shared.pinned += remainder.loss.bytes;
        Ok(())
    }

    /// Returns whether a part of a file still refers to the extent.
    fn is_still_there(&mut self, remainder: &Remainder, part: Part) -> bool {
        let substrate = self.state.substrate();
        let Some((file, _)) = self.file(part.holder) else { return false };
        let Ok(slices) = substrate.slices(file, part.offset) else { return false };
        slices.first().is_some_and(|slice| slice.offset == part.offset && slice.extent == remainder.loss.extent)
    }

    /// Copies the rests of extents into a file without a name, and makes it durable. `None` if there is no space.
    fn copy(&mut self, batch: &mut [Remainder]) -> Result<Option<S::File>, PassError> {
        let substrate = self.state.substrate();
        let copies = match self.state.nameless() {
            Ok(copies) => copies,
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                return Ok(self.out_of_room());
            }
            Err(error) => return Err(error.into()),
        };
        let (mut end, mut buffer) = (0, Vec::new());
        for remainder in batch {
            for run in &mut remainder.runs {
                run.offset = end;
                end += run.length;
            }
            // In order of the extent, each byte from the first file that has it.
            let mut parts = remainder.parts.clone();
            parts.sort_by_key(|part| part.within);
            let mut done = 0;
            for part in parts {
                let skipped = done.max(part.within) - part.within;
                if skipped >= part.length {
                    continue;
                }
                let offset = copy_of(&remainder.runs, part.within).expect("a run covers each part") + skipped;
                let mut at = 0;
                while at < part.length - skipped {
                    self.options.pace.boundary()?;
                    let count = (part.length - skipped - at).min(self.options.call_bytes.max(BLOCK_BYTES_U64));
                    buffer.resize(usize::try_from(count).expect("at most a call"), 0);
                    self.options.pace.read(count);
                    let Some((file, _)) = self.file(part.holder) else { break };
                    // An unreadable part is left as zeros, and differs.
                    if substrate.read_at(file, part.offset + skipped + at, &mut buffer).is_err() {
                        break;
                    }
                    match substrate.write_at(&copies, offset + at, &buffer) {
                        Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(self.out_of_room()),
                        written => written?,
                    }
                    at += count;
                }
                done = part.within + part.length;
            }
        }
        match substrate.sync(&copies) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(self.out_of_room()),
            synced => Ok(synced.map(|()| Some(copies))?),
        }
    }

    /// Ends all copying.
    fn out_of_room<T>(&mut self) -> Option<T> {
        self.may_move = false;
        None
    }

    /// Makes a part of a file share with its copy, if it is still equal.
    fn move_part(&mut self, copies: &S::File, remainder: &Remainder, part: Part) -> Result<(), ShareError> {
        let substrate = self.state.substrate();
        let (pace, most) = (self.options.pace, self.options.call_bytes.min(substrate.abilities().share_bytes_max));
        let Some(first) = copy_of(&remainder.runs, part.within) else { return Ok(()) };
        let Some((file, _)) = self.file(part.holder) else { return Ok(()) };
        let [mut theirs, mut ours] = [Vec::new(), Vec::new()];
        let mut at = 0;
        while at < part.length {
            let length = pace.call_bytes(CallKind::Share, (part.length - at).min(most.max(BLOCK_BYTES_U64)));
            let bytes = usize::try_from(length).expect("at most a call");
            for (buffer, file, offset) in [(&mut theirs, copies, first), (&mut ours, file, part.offset)] {
                buffer.resize(bytes, 0);
                pace.read(length);
                let count = substrate.read_at(file, offset + at, buffer)?;
                buffer.truncate(count / BLOCK_BYTES * BLOCK_BYTES);
            }
            let equal: Vec<bool> =
                theirs.chunks(BLOCK_BYTES).zip(ours.chunks(BLOCK_BYTES)).map(|(one, other)| one == other).collect();
            let mut block = 0;
            for run in equal.chunk_by(|one, other| one == other) {
                let (from, bytes) = (at + block * BLOCK_BYTES_U64, run.len() as u64 * BLOCK_BYTES_U64);
                block += run.len() as u64;
                if !run[0] {
                    continue;
                }
                let (source, into) =
                    (At { file: copies, offset: first + from }, At { file, offset: part.offset + from });
                match pace.call(CallKind::Share, bytes, || substrate.share(source, into, bytes))? {
                    // If it differs, it was written to since, and so it no longer refers to the extent.
                    ComparisonResult::Shared | ComparisonResult::Differ => {}
                }
            }
            at += length;
        }
        self.moved.insert(part.holder);
        Ok(())
    }

    /// Makes the references to copies durable. If they were lost, shared blocks would be there twice.
    pub(super) fn leave(&mut self) {
        let substrate = self.state.substrate();
        let mut images: Vec<FileNo> = Vec::new();
        for holder in std::mem::take(&mut self.moved) {
            match holder {
                Holder::Image(number) => images.push(number),
                // No process waits to write to it.
                Holder::Arena(_) => drop(self.file(holder).map(|(file, _)| substrate.sync(file))),
            }
        }
        // One is enough if that makes all durable.
        let together = if substrate.syncs_all_shares() { images.len().max(1) } else { 1 };
        for numbers in images.chunks(together) {
            let synced = numbers.iter().find_map(|number| {
                let (file, _) = self.file(Holder::Image(*number))?;
                Some(substrate.sync_shares(file))
            });
            self.trouble.note_unsynced(numbers, self.images, synced.unwrap_or(Ok(())));
        }
    }
}
