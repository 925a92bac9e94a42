//! Sharing that may leave a hole: the shares are declared first.
//!
//! The runs of one file are gathered, up to a bound. Then, in this order:
//!
//! 1. Take exclusive use of the file. A hole that another process punches while the intent is declared would be filled.
//! 2. Make earlier writes to the file durable, together with their time, which is set for that purpose. After a death,
//!    the time shows whether anybody has written since.
//! 3. Compare the runs once more: a hole that another process made before this is not to be filled.
//! 4. Make the intent durable. A death before this has changed nothing.
//! 5. Leave out arena files that were removed, or whose slots are being emptied at the moment. A host that empties
//!    slots later sees the intent.
//! 6. Ask the file system, run by run, until another process wants the file.
//! 7. Fill the holes that exist now: a failed share has left them, or one that reported not to have shared.
//! 8. Make all of it durable, and retire the intent after that: until then a death may leave holes.
//! 9. Give up exclusive use.
//!
//! If 7 or 8 fails, the intent stays, and the pass ends: `mend` does the rest.

use std::collections::BTreeMap;
use std::io;

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{ComparisonResult, FileStat, ShareError, Substrate};

use super::Sharer;
use crate::extents::Extents;
use crate::format::intent::{Intent, IntentRun, RUNS_MAX};
use crate::format::stamp::Stamp;
use crate::format::{FileBlock, FileNo};
use crate::mend::{FillCounts, FillError, HoledImage, check_exclusive, fill, has_hole};
use crate::pass::PassError;
use crate::pass::runs::{FinderRun, Source};
use crate::state::StateError;
use crate::state::files::StampChange;
use crate::state::intents::IntentFile;

/// Amount that is declared at once, in bytes. A process that opens the file waits for a part of it at worst.
const BYTES_MAX: u64 = 32 << 20;

/// The gathered runs of a file.
pub(super) struct DeclaredRuns<'a, S: Substrate> {
    gathered: Vec<FinderRun>,
    bytes: u64,
    /// Created at first use.
    intents: Option<IntentFile<'a, S>>,
}

impl<S: Substrate> Default for DeclaredRuns<'_, S> {
    fn default() -> Self {
        DeclaredRuns { gathered: Vec::new(), bytes: 0, intents: None }
    }
}

impl<S: Substrate> DeclaredRuns<'_, S> {
    pub(super) fn gather(&mut self, run: FinderRun) {
        self.bytes += run.count * BLOCK_BYTES_U64;
        self.gathered.push(run);
    }

    /// Returns whether it is time to share. Each run may turn out to be two or three.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.gathered.len() >= RUNS_MAX / 2
    }
}

/// Result of asking for the declared shares.
struct ShareAnswer {
    /// Number of runs of which some part may have been shared.
    runs: usize,
    /// Whether the file system refuses the file: a refusal of one run holds for the others.
    is_refused: bool,
    /// The error of the state folder that stopped it.
    ended: Result<(), StateError>,
}

impl ShareAnswer {
    fn up_to(runs: usize) -> ShareAnswer {
        ShareAnswer { runs, is_refused: false, ended: Ok(()) }
    }
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Returns whether a host may have left an image with holes that are not mended yet. Sharing would make further
    /// holes, of zeros, without another time. They would be filled with the previous content.
    pub(super) fn is_left(&self, file: &S::File) -> io::Result<bool> {
        if self.declaring.is_none() {
            return Ok(false);
        }
        // Without the owner's lock, which this host has by now, no host declares shares of the image, nor mends it.
        // Declarations of this pass for a file are retired before the next file is opened.
        let left = self.state.declared_images().map_err(io::Error::other)?;
        Ok(!left.is_empty() && left.contains(&self.state.substrate().stat(file)?.handle))
    }

    /// Shares the gathered runs of the current file.
    pub(super) fn share_gathered(&mut self) -> Result<(), PassError> {
        let Some(declaring) = &mut self.declaring else { return Ok(()) };
        let gathered = std::mem::take(&mut declaring.gathered);
        declaring.bytes = 0;
        let Some(file) = self.opened().filter(|_| !gathered.is_empty()) else { return Ok(()) };
        let substrate = self.state.substrate();
        match substrate.try_exclusive(&file) {
            Ok(true) => {
                let done = self.share_exclusively(&file, &gathered);
                substrate.leave_exclusive(&file);
                return done;
            }
            Ok(false) => self.leave_out(gathered.iter(), ShareError::Busy),
            Err(why) => self.leave_out(gathered.iter(), ShareError::Io(why)),
        }
        Ok(())
    }

    fn share_exclusively(&mut self, file: &S::File, gathered: &[FinderRun]) -> Result<(), PassError> {
        let substrate = self.state.substrate();
        let number = gathered[0].file;
        let stat = match self.settle_time(number, file) {
            Ok(stat) => stat,
            Err(why) => {
                let is_lost = why.kind() == io::ErrorKind::ResourceBusy;
                self.leave_out(gathered.iter(), if is_lost { ShareError::Busy } else { ShareError::Io(why) });
                return Ok(());
            }
        };
        let runs = self.equal_runs(file, gathered);
        if runs.is_empty() {
            return Ok(());
        }
        let path = self.images.path(number);
        let (handle, modified) = (stat.handle, stat.modified);
        let declared = runs.iter().map(|(_, declared)| *declared).collect();
        let intent = Intent { number, handle, path: Intent::kept_path(&path), modified, runs: declared };
        let declaring = self.declaring.as_mut().expect("something was gathered in it");
        let intents = match &mut declaring.intents {
            Some(intents) => intents,
            none => none.insert(self.state.begin_intents()?),
        };
        if let Err(error) = intents.declare(&intent) {
            declaring.intents = None;
            return Err(error.into());
        }
        let asked = self.ask_declared(file, &runs);
        // Whatever ended it, the requested ranges may be holes, and are not durable.
        let holed = HoledImage { file, length: stat.length, modified };
        let settled = self.fill_holes(&holed, &intent.runs[..asked.runs]).and_then(|()| substrate.sync_shares(file));
        let intents = self.declaring.as_mut().and_then(|declaring| declaring.intents.as_mut());
        settled.map_err(|why| PassError::Unmended { path, why })?;
        intents.map_or(Ok(()), IntentFile::retire)?;
        if asked.is_refused {
            self.close();
        }
        Ok(asked.ended?)
    }

    /// Makes an image durable with the time of its last write, and returns its state then.
    ///
    /// OCFS2 has that time only in memory, and passes it to other hosts from there, if the write bypassed the page
    /// cache, or was a clone. When the hosts that know it have died, the time is that of an earlier write. A mending
    /// host would take it for a later one. Once the time is set, it is kept.
    fn settle_time(&mut self, number: FileNo, file: &S::File) -> io::Result<FileStat> {
        let substrate = self.state.substrate();
        let before = substrate.stat(file)?;
        check_exclusive(substrate, file)?;
        substrate.set_modified(file, before.modified)?;
        substrate.sync(file)?;
        let after = substrate.stat(file)?;
        // The calls may have taken so long that another process has written. Then the time is not that of the content,
        // and the image counts as changed.
        check_exclusive(substrate, file)?;
        // Setting the time is a change that has a time, too. A change by another process since the last setting must
        // not be hidden by that.
        let (before, last) = (Stamp::of(&before), self.noted.retimed.get(&number));
        let first = last.filter(|last| last.after == before).map_or(before, |last| last.before);
        let change = StampChange { before: first, after: Stamp::of(&after) };
        self.noted.retimed.insert(number, change);
        Ok(after)
    }

    /// Compares the gathered runs once more, now that no other process can change the file, and returns the equal ones.
    fn equal_runs(&mut self, file: &S::File, gathered: &[FinderRun]) -> Vec<(FinderRun, IntentRun)> {
        let mut runs = Vec::new();
        for (index, part) in gathered.iter().enumerate() {
            if self.state.substrate().is_exclusive_wanted(file) || runs.len() >= RUNS_MAX {
                self.leave_out(gathered[index..].iter(), ShareError::Busy);
                break;
            }
            let compared = match self.compare(file, *part) {
                Ok(compared) => compared,
                Err(why) => {
                    self.leave_out(std::iter::once(part), ShareError::Io(why));
                    continue;
                }
            };
            for (run, is_equal) in compared {
                let declared = if is_equal { self.declared(part, run) } else { None };
                match declared {
                    Some(_) if runs.len() == RUNS_MAX => self.leave_out(std::iter::once(&run), ShareError::Busy),
                    Some(declared) => runs.push((run, declared)),
                    None => self.note_differing(&run),
                }
            }
        }
        runs
    }

    /// Returns how a part of a compared run is declared. `None` if a block of it is zero: no slot should hold a zero
    /// block, and a hole could not be told from it.
    fn declared(&self, compared: &FinderRun, run: FinderRun) -> Option<IntentRun> {
        let Source::Slot(slot) = run.source else { return None };
        let from = usize::try_from(run.first - compared.first).expect("within a call") * BLOCK_BYTES;
        let bytes = self.buffers[0].get(from..from + usize::try_from(run.count).ok()? * BLOCK_BYTES)?;
        if bytes.chunks(BLOCK_BYTES).any(is_zero) {
            return None;
        }
        let count = u32::try_from(run.count).ok()?;
        Some(IntentRun { first: FileBlock(run.first), slot, count, checksum: crc32c::crc32c(bytes) })
    }

    /// Asks the file system to share the declared runs.
    fn ask_declared(&mut self, file: &S::File, runs: &[(FinderRun, IntentRun)]) -> ShareAnswer {
        let mut looked_at = BTreeMap::new();
        for (index, (run, declared)) in runs.iter().enumerate() {
            let rest = || runs[index..].iter().map(|(run, _)| run);
            if self.state.substrate().is_exclusive_wanted(file) {
                self.leave_out(rest(), ShareError::Busy);
                return ShareAnswer::up_to(index);
            }
            let arena = declared.slot.arena();
            let keeps_slots = match looked_at.get(&arena) {
                Some(keeps_slots) => *keeps_slots,
                None => match self.state.keeps_slots(arena, &self.sources.arenas[&arena].file) {
                    Ok(keeps_slots) => *looked_at.entry(arena).or_insert(keeps_slots),
                    Err(error) => return ShareAnswer { ended: Err(error), ..ShareAnswer::up_to(index) },
                },
            };
            if !keeps_slots {
                self.leave_out(std::iter::once(run), ShareError::Busy);
                continue;
            }
            // Finding that out took calls, each of which may have taken any time.
            if self.state.substrate().is_exclusive_wanted(file) {
                self.leave_out(rest(), ShareError::Busy);
                return ShareAnswer::up_to(index);
            }
            match self.ask(file, *run) {
                Ok(ComparisonResult::Shared) => {}
                Ok(ComparisonResult::Differ) => self.note_differing(run),
                Err(why) => {
                    let is_refused = matches!(why, ShareError::Refused(_));
                    if is_refused || matches!(why, ShareError::Full) {
                        self.leave_out(rest(), why);
                        return ShareAnswer { is_refused, ..ShareAnswer::up_to(index + 1) };
                    }
                    self.leave_out(std::iter::once(run), why);
                }
            }
        }
        ShareAnswer::up_to(runs.len())
    }

    /// Fills the holes that shares have left, whatever they reported.
    fn fill_holes(&mut self, holed: &HoledImage<'_, S>, runs: &[IntentRun]) -> io::Result<()> {
        let mut map = Extents::new();
        for run in runs {
            if !has_hole(self.state.substrate(), holed.file, &mut map, run)? {
                continue;
            }
            match fill(self.state, holed, run) {
                // A block that differs was written on another host, and is no hole.
                Ok(FillCounts { .. }) => {}
                Err(FillError::Io(why)) => return Err(why),
                Err(why @ FillError::Lost) => return Err(io::Error::other(why)),
            }
        }
        Ok(())
    }
}
