//! Runs from file to file. Neither index nor arena vouches for them. They are a finder's belief, which may be wrong,
//! late or a lie.
//!
//! So these rules hold before anything is read:
//!
//! - This pass may read and change both files, and they belong to one domain. Another host may have the source: nothing
//!   of it changes.
//! - Both sides end where their files do.
//! - Of runs into the same blocks, the first one that is right counts, even if it shared before. The others find them
//!   done.
//! - Before each call, the finder says whether it still wants these files compared.
//! - Both sides of a run within one file are disjoint in each call.
//! - If the file system refuses to share between two files, it is asked only once.
//!
//! A difference between the sides says nothing about what a scan knows of the file: nothing is read again for it.

use std::collections::BTreeSet;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{FileHandle, Refusal, ShareError, Substrate};

use super::done::{DoneRanges, EarlierResult};
use super::mapped_file::MappedFile;
use super::{Sharer, Stretch};
use crate::extents::Extents;
use crate::format::FileNo;
use crate::pass::PassError;
use crate::pass::runs::{FilePlace, FinderRun, Outcome, Source};

/// Facts about the target that runs from other files need.
pub(super) struct Facts {
    pub(super) handle: FileHandle,
    /// How many whole blocks it has.
    blocks: u64,
    /// Ranges that share by now.
    pub(super) done: DoneRanges,
    /// Files with which the file system does not let the target share.
    apart: BTreeSet<FileNo>,
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Shares a run from a file into the current target.
    pub(super) fn share_between(&mut self, run: FinderRun, source: FilePlace) -> Result<(), PassError> {
        let loaded = self.load_file(source.file)?;
        if let Some(outcome) = self.bar(run.file, source.file, loaded) {
            self.count(&run, outcome);
            return Ok(());
        }
        if let Err(why) = self.learn_facts() {
            self.leave_out(std::iter::once(&run), why);
            return Ok(());
        }
        let source_blocks = self.sources.file(source.file).map_or(0, |file| file.blocks);
        let Some(facts) = self.target.as_ref().and_then(|target| target.facts.as_ref()) else {
            // The target could not be opened, which was noted then.
            self.count(&run, Outcome::Refused);
            return Ok(());
        };
        let left = |blocks: u64, first: u64| blocks.saturating_sub(first);
        let fitting = run.count.min(left(facts.blocks, run.first)).min(left(source_blocks, source.block.0));
        let parts = facts.done.parts(run.first, run.first + fitting);
        if fitting < run.count {
            // The target has become too short.
            self.count(&run.part(fitting, run.count - fitting), Outcome::Differed);
        }
        for (first, end, known) in parts {
            let part = run.part(first - run.first, end - first);
            match known {
                _ if self.distance(&run) == Some(0) => self.count(&part, Outcome::Done),
                EarlierResult::Done => self.count(&part, Outcome::Done),
                EarlierResult::Before => self.look_again(part)?,
                EarlierResult::Nothing => self.share_whole(part)?,
            }
        }
        Ok(())
    }

    /// Finds the blocks of a part that share with this source, too. All of them share with that of an earlier run, and
    /// were counted there.
    fn look_again(&mut self, part: FinderRun) -> Result<(), PassError> {
        let mut at = 0;
        while at < part.count {
            self.options.pace.boundary()?;
            let rest = part.part(at, part.count - at);
            match self.stretch(&rest) {
                Ok(Some((stretch, count))) => {
                    self.count_again(&rest.part(0, count), of_stretch(stretch));
                    at += count;
                }
                Ok(None) => {
                    self.count_again(&rest, Outcome::Done);
                    break;
                }
                Err(why) => {
                    self.leave_out(std::iter::once(&rest), ShareError::Io(why));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Notes a part that shared before.
    pub(super) fn note_before(&mut self, part: &FinderRun) {
        if !matches!(part.source, Source::File(_)) {
            return;
        }
        if let Some(facts) = self.target.as_mut().and_then(|target| target.facts.as_mut()) {
            facts.done.add_before(part.first, part.end());
        }
    }

    /// Returns the outcome of all runs between two files that cannot share.
    fn bar(&self, target: FileNo, source: FileNo, loaded: Result<(), Outcome>) -> Option<Outcome> {
        match loaded {
            Err(outcome) => Some(outcome),
            Ok(()) if !self.images.are_of_one_domain(target, source) => Some(Outcome::Barred),
            Ok(()) => None,
        }
    }

    /// Returns the longest beginning of a part for which the finder gives one answer, and that answer: whether to
    /// compare. Sources that are not files are always compared.
    pub(super) fn compared_beginning(&mut self, part: FinderRun) -> (FinderRun, bool) {
        if !matches!(part.source, Source::File(_)) {
            return (part, true);
        }
        let (mut count, mut is_first_compared) = (0, None);
        for content in self.joined.by_content(&part) {
            let is_compared = self.batch.compares(&content);
            if *is_first_compared.get_or_insert(is_compared) != is_compared {
                break;
            }
            count += content.count;
        }
        is_first_compared.map_or((part, true), |is_compared| (part.part(0, count), is_compared))
    }

    /// Loads the facts about the current target, if it is open and they are not loaded yet.
    fn learn_facts(&mut self) -> Result<(), ShareError> {
        let Some(file) = self.opened() else { return Ok(()) };
        let Some(target) = self.target.as_mut().filter(|target| target.facts.is_none()) else { return Ok(()) };
        let stat = self.state.substrate().stat(&file)?;
        let (done, apart) = (DoneRanges::default(), BTreeSet::new());
        target.facts = Some(Facts { handle: stat.handle, blocks: stat.length / BLOCK_BYTES_U64, done, apart });
        Ok(())
    }

    /// Returns the distance between the sides of a run, in blocks, if they are in one file.
    pub(super) fn distance(&self, run: &FinderRun) -> Option<u64> {
        let Source::File(source) = run.source else { return None };
        let facts = self.target.as_ref()?.facts.as_ref()?;
        let is_one_file = self.sources.file(source.file)?.handle == facts.handle;
        is_one_file.then(|| source.block.0.abs_diff(run.first))
    }

    /// Returns whether the file system has said that the files of a run cannot share.
    pub(super) fn is_apart(&self, run: &FinderRun) -> bool {
        let Source::File(source) = run.source else { return false };
        let facts = self.target.as_ref().and_then(|target| target.facts.as_ref());
        facts.is_some_and(|facts| facts.apart.contains(&source.file))
    }

    /// Notes that the file system refuses a run. Returns false if the target is the reason, so that all runs into it
    /// are refused.
    pub(super) fn note_apart(&mut self, run: &FinderRun) -> bool {
        let Source::File(source) = run.source else { return false };
        let Some(file) = self.opened() else { return false };
        // Files that are overwritten in place share with each other, so such a target refuses only the usual source.
        if !matches!(self.state.substrate().refusal(&file), Ok(None | Some(Refusal::NoCopyOnWrite))) {
            return false;
        }
        if let Some(facts) = self.target.as_mut().and_then(|target| target.facts.as_mut()) {
            facts.apart.insert(source.file);
        }
        true
    }

    /// Returns the file of a run that is named in messages if the file system refuses it.
    pub(super) fn blamed(&self, run: &FinderRun) -> FileNo {
        let Source::File(source) = run.source else { return run.file };
        let file = self.sources.file(source.file).map(|file| &file.file);
        let is_refused = file.is_some_and(|file| matches!(self.state.substrate().refusal(file), Ok(Some(_))));
        if is_refused { source.file } else { run.file }
    }

    /// Notes a part that shares by now.
    pub(super) fn note_done(&mut self, part: &FinderRun) {
        let is_one_file = self.distance(part).is_some();
        let Source::File(source) = part.source else { return };
        let Some(target) = &mut self.target else { return };
        let Some(facts) = &mut target.facts else { return };
        let are_all_known = facts.done.add(part.first, part.end());
        // Later writes into the source are copies, too.
        self.noted.touched.insert(source.file);
        if !are_all_known && let Some(opened) = &mut target.opened {
            // The map must show the ranges that are forgotten; otherwise the space that they freed would count twice.
            opened.map = Extents::narrow();
        }
        let Some(MappedFile { file, map }) = &mut target.opened else { return };
        // The place of the source of a later run, and the references to it, may have changed now. The target may be
        // one.
        for first in std::iter::once(part.first).chain(is_one_file.then_some(source.block.0)) {
            let [from, end] = [first, first + part.count].map(|block| block * BLOCK_BYTES_U64);
            if is_one_file {
                map.renew(self.state.substrate(), file, from, end);
            }
            self.sources.renew_map(self.state.substrate(), &facts.handle, from, end);
        }
    }
}

/// Returns the outcome of a stretch of a run into blocks that shared before.
fn of_stretch(stretch: Stretch) -> Outcome {
    if stretch == Stretch::Shared { Outcome::Before } else { Outcome::Done }
}
