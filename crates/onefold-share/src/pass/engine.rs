//! The engine: asks finders for runs, batch by batch, and shares them.
//!
//! A finder only believes. It may be late, lossy or wrong: that costs savings, never data, because the file system
//! compares before it shares. The scan with its logs is the first finder (`batch`); it keeps an index, so its runs are
//! between files and arena slots. Other finders need neither: [`share_found`] shares their runs from file to file.
//! docs/decisions/0015-finders.md has the reasons.

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{Merge, SortWriter};
use onefold_substrate::Substrate;

use super::dry_run::PlannedPlaces;
use super::images::Images;
use super::lists::part_bytes;
use super::outcome::{PassError, PassReport};
use super::pinned::Remnants;
use super::publish::LOCK_PAUSE;
use super::runs::RunBatch;
use super::share::{ShareNotes, Sinks, share};
use super::stop_watch::StopWatch;
use super::{PassOptions, PassProgress, Source, copies, pinned};
use crate::policy::FreedUnit;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// Shares the runs of a finder, from file to file. It reads nothing else, and publishes nothing. As in all passes,
/// files of other hosts are no targets, though they may be sources. Selection, opt-outs and sharing domains apply to
/// both sides.
///
/// # Errors
/// See [`PassError`]; `Undeclared` if shares have to be declared.
pub fn share_found<'b, S: Substrate>(
    state: &State<'b, S>,
    files: &mut Marks,
    finder: &mut dyn Finder<'b, S>,
    options: &PassOptions<'_>,
) -> Result<PassReport, PassError> {
    if state.policy().is_declared() {
        return Err(PassError::Undeclared);
    }
    let mut engine = Engine::new(state, files, options)?;
    if options.is_dry_run {
        engine.count_found(finder)?;
    } else {
        engine.share_found(finder)?;
        engine.note_again_or_fill()?;
    }
    let mut passed = engine.passed;
    passed.restamped = engine.images.into_restamped();
    if state.take_loss() {
        files.forget_scans(state)?;
    }
    Ok(passed)
}

/// Finds ranges of files that hold, or may hold, the same content.
pub trait Finder<'b, S: Substrate> {
    /// Prepares the next batch of places, and returns its runs. Their sources exist by then. `None` if no batch is
    /// left.
    ///
    /// # Errors
    /// Errors of the state folder and of temporary files. They end the pass.
    fn next_batch(&mut self, engine: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError>;

    /// Ends the batch that [`Finder::next_batch`] returned last, now that its runs are shared.
    ///
    /// # Errors
    /// As those of [`Finder::next_batch`].
    fn end_batch(&mut self, engine: &mut Engine<'_, 'b, S>) -> Result<(), PassError> {
        let _ = engine;
        Ok(())
    }

    /// Keeps the useful part of the current batch, now that the work is told to end. Its runs are shared in part, or it
    /// is prepared in part. There may be no batch. Has to be quick.
    ///
    /// # Errors
    /// As those of [`Finder::next_batch`].
    fn cut_batch(&mut self, engine: &mut Engine<'_, 'b, S>) -> Result<(), PassError> {
        let _ = engine;
        Ok(())
    }
}

/// Number of times that an interrupted pass tries to note the images of other hosts.
const CUT_LOCK_TRIES: u32 = 5;

/// Shares the runs of every finder.
pub struct Engine<'a, 'b, S: Substrate> {
    pub(super) state: &'a State<'b, S>,
    pub(super) options: &'a PassOptions<'a>,
    pub(super) images: Images<'a, 'b, S>,
    pub(super) noted: ShareNotes,
    pub(super) passed: PassReport,
}

impl<'a, 'b, S: Substrate> Engine<'a, 'b, S> {
    pub(super) fn new(
        state: &'a State<'b, S>,
        files: &'a mut Marks,
        options: &'a PassOptions<'a>,
    ) -> Result<Self, StateError> {
        let images = Images::new(state, files, options)?;
        Ok(Engine { state, options, images, noted: ShareNotes::default(), passed: PassReport::default() })
    }

    /// Shares the runs of a finder, until it has no more. Returns false if the file system is full.
    pub(super) fn share_found(&mut self, finder: &mut dyn Finder<'b, S>) -> Result<bool, PassError> {
        let shared = self.share_batches(finder);
        if shared.as_ref().is_err_and(PassError::is_interruption) {
            // The next pass sees these files as shared before, and does not set the attribute for them.
            self.keep_copies_small()?;
            finder.cut_batch(self)?;
            self.note_again_soon()?;
        }
        shared
    }

    fn share_batches(&mut self, finder: &mut dyn Finder<'b, S>) -> Result<bool, PassError> {
        loop {
            self.options.pace.boundary()?;
            let Some(batch) = finder.next_batch(self)? else { return Ok(true) };
            if !self.passed.trouble.is_full {
                self.share_batch(batch)?;
            }
            finder.end_batch(self)?;
            if self.passed.trouble.is_full {
                return Ok(false);
            }
        }
    }

    /// Counts the runs of a finder in files that this pass may read and change, and what comes free once they share.
    /// Shares nothing.
    fn count_found(&mut self, finder: &mut dyn Finder<'b, S>) -> Result<(), PassError> {
        let mut places = PlannedPlaces::new(self.options);
        while let Some(batch) = finder.next_batch(self)? {
            while let Some(run) = batch.next_run()? {
                self.options.pace.boundary()?;
                let files = match run.source() {
                    Source::File(source) => [run.target().file, source.file],
                    Source::Slot(_) | Source::Zeros => [run.target().file; 2],
                };
                let mut is_admitted = self.images.are_of_one_domain(files[0], files[1]);
                for file in files {
                    is_admitted = is_admitted && self.images.is_admitted(file)?;
                }
                let planned = &mut self.passed.planned;
                let sum = if is_admitted { &mut planned.targets } else { &mut planned.outside };
                *sum = sum.saturating_add(run.count());
                if is_admitted {
                    places.add(run.target().file, run.target().block, run.count())?;
                }
            }
            finder.end_batch(self)?;
        }
        let targets = self.passed.planned.targets.saturating_mul(BLOCK_BYTES_U64);
        if (self.options.progress)(PassProgress::Planned { targets }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        self.passed.to_free = places.bytes_to_free(self.state, &self.images)?;
        Ok(())
    }

    /// Shares the runs of one batch, and frees space by it.
    fn share_batch(&mut self, batch: &mut dyn RunBatch) -> Result<(), PassError> {
        let (state, options) = (self.state, self.options);
        let mut watch = StopWatch::start(options.clock);
        let mut losses = SortWriter::new(options.temporary_folder, part_bytes(options) / 8);
        let sinks = Sinks {
            losses: &mut losses,
            noted: &mut self.noted,
            trouble: &mut self.passed.trouble,
            shared: &mut self.passed.shared,
        };
        share(state, &mut self.images, batch, options, sinks)?;
        if state.policy().freed == FreedUnit::Extent {
            let remnants = std::mem::take(&mut self.noted.remnants);
            self.release(losses.finish()?, remnants)?;
        }
        self.keep_copies_small()?;
        self.passed.times.share += watch.lap();
        Ok(())
    }

    /// Frees extents that lost blocks. Then the images that this has left in part are noted, whatever ended it: nothing
    /// else names them, because a log need not exist. Those that another host has at the moment are noted later.
    fn release(&mut self, losses: Merge, remnants: Remnants) -> Result<(), PassError> {
        let PassReport { shared, trouble, .. } = &mut self.passed;
        let earlier = std::mem::take(&mut trouble.again);
        let released = pinned::release(self.state, &mut self.images, losses, remnants, self.options, shared, trouble);
        let noted = self.note_again_or_fill();
        self.passed.trouble.again.append(earlier);
        released.and(noted)
    }

    /// Makes copies of the files small that share since the last call, if the options say so.
    fn keep_copies_small(&mut self) -> Result<(), PassError> {
        let touched = std::mem::take(&mut self.noted.touched);
        if self.options.space.keeps_copies_small {
            copies::keep_small(self.state, &mut self.images, &touched)?;
        }
        Ok(())
    }

    /// Notes the ranges that have to be read again, and waits a moment for files that other hosts have.
    fn note_again_soon(&mut self) -> Result<(), PassError> {
        for _ in 0..CUT_LOCK_TRIES {
            self.note_again_or_fill()?;
            if self.passed.trouble.again.is_empty() {
                break;
            }
            self.options.clock.sleep(LOCK_PAUSE);
        }
        Ok(())
    }

    /// Does the same as [`Engine::note_again`], but a file system without room for it ends the pass in order, as one
    /// without room for sharing does. The ranges are kept.
    pub(super) fn note_again_or_fill(&mut self) -> Result<(), PassError> {
        match self.note_again() {
            Err(PassError::State(why)) if why.is_lack_of_room() => {
                self.passed.trouble.is_full = true;
                Ok(())
            }
            noted => noted,
        }
    }

    /// Notes the ranges that have to be read again, except in files that other hosts have at the moment.
    pub(super) fn note_again(&mut self) -> Result<(), PassError> {
        let again = &mut self.passed.trouble.again;
        if !again.is_empty() {
            let now = self.state.now()?;
            again.note(&mut self.images, now)?;
        }
        Ok(())
    }
}
