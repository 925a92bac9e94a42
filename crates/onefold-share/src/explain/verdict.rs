//! The verdict: the one reason that is given for a block.

use onefold_substrate::Refusal;

use super::{BlockContent, ExplainedBlock, IndexAnswer};
use crate::status::FileStanding;

/// Why a block is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is shared with known files.
    Shared,
    /// It is shared with something unknown: a snapshot, or a copy that was never looked at.
    SharedWithOthers,
    /// There is nothing to share: a hole, or unwritten space.
    Nothing,
    /// The file ends in it: only whole blocks are shared.
    PartOfBlock,
    /// The file is opted out.
    OptedOut,
    /// Nothing was ever read on this file system.
    NoState,
    /// The file was never looked at.
    NeverSeen,
    /// The file is to be read again by the next run.
    Unread,
    /// The file changed since it was read.
    Changed,
    /// It was read, and the next pass takes it in.
    Waits,
    /// The file system refuses its file.
    Refused(Refusal),
    /// Zeros that no pass could make a hole.
    Zeros,
    /// It holds zeros in a file that had no hole when it was first read: they stay.
    Reserved,
    /// It has no place that could be compared with others: compressed, or within metadata.
    NoPlace,
    /// No other block with its content is known.
    OnlyCopy,
    /// It is in an arena slot, but in no other known file: the other blocks with its content were overwritten, or
    /// skipped.
    OnlyInArena,
    /// The index names another block, which has other content by now.
    OnlyStale,
    /// The index does not know its content, though the file was read.
    Forgotten,
    /// An equal block is known, but a pass did not share them: the run is short, or one of the files was busy, or
    /// belongs to another host.
    LeftAlone,
}

impl ExplainedBlock {
    /// Returns why the block is shared, or is not. `has_state` says whether there is a state folder.
    #[must_use]
    pub fn verdict(&self, has_state: bool) -> Verdict {
        match self.held {
            BlockContent::Hole | BlockContent::SetAside => return Verdict::Nothing,
            BlockContent::Part(_) => return Verdict::PartOfBlock,
            BlockContent::Zeros | BlockContent::Data => {}
        }
        // The arena alone is not another file: it has the block of the file in question.
        if !self.sharers.blocks.is_empty() {
            return Verdict::Shared;
        }
        let is_told = self.is_told_shared && self.sharers.slots.is_empty();
        if self.opted_out.is_some() {
            return if is_told { Verdict::SharedWithOthers } else { Verdict::OptedOut };
        }
        if !has_state {
            return if is_told { Verdict::SharedWithOthers } else { Verdict::NoState };
        }
        match self.standing {
            None => return Verdict::NeverSeen,
            Some(FileStanding::Unread) if !self.is_logged => return Verdict::Unread,
            Some(FileStanding::Changed) => return Verdict::Changed,
            Some(FileStanding::Current | FileStanding::Unread) => {}
        }
        if self.is_logged {
            return Verdict::Waits;
        }
        if self.held == BlockContent::Zeros && self.is_reserved {
            return Verdict::Reserved;
        }
        if self.held == BlockContent::Zeros {
            return self.refusal.map_or(Verdict::Zeros, Verdict::Refused);
        }
        let verdict = match &self.index {
            IndexAnswer::OtherBlock { is_equal: true, .. } => self.equal_elsewhere(),
            IndexAnswer::Slot { slot, is_equal: true } if !self.sharers.slots.contains(slot) => self.equal_elsewhere(),
            IndexAnswer::Slot { is_equal: true, .. } => Verdict::OnlyInArena,
            IndexAnswer::ThisBlock => Verdict::OnlyCopy,
            IndexAnswer::OtherBlock { .. } | IndexAnswer::Slot { .. } => Verdict::OnlyStale,
            IndexAnswer::Nothing => Verdict::Forgotten,
        };
        match verdict {
            // Most likely another part of the extent is shared.
            Verdict::OnlyCopy if self.is_told_by_extent => verdict,
            Verdict::OnlyCopy | Verdict::OnlyStale | Verdict::Forgotten if is_told => Verdict::SharedWithOthers,
            verdict => verdict,
        }
    }

    fn equal_elsewhere(&self) -> Verdict {
        match self.refusal {
            Some(refusal) => Verdict::Refused(refusal),
            None if self.place.is_none() => Verdict::NoPlace,
            None => Verdict::LeftAlone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::explain::{EqualRun, Sharer, Sharers};
    use crate::format::{FileBlock, FingerprintPrefix, Slot};

    fn data() -> ExplainedBlock {
        ExplainedBlock {
            block: FileBlock(1),
            held: BlockContent::Data,
            is_reserved: false,
            place: Some(4096),
            is_unsettled: false,
            is_told_shared: false,
            is_told_by_extent: false,
            sharers: Sharers::default(),
            digest: Some(FingerprintPrefix::default()),
            standing: Some(FileStanding::Current),
            domain: None,
            is_logged: false,
            index: IndexAnswer::ThisBlock,
            opted_out: None,
            refusal: None,
            state: None,
            template: None,
            is_template_unknown: false,
            run: None,
        }
    }

    fn shared() -> Sharers {
        Sharers { blocks: vec![Sharer { path: PathBuf::from("b"), offset: 0, is_common: false }], ..Sharers::default() }
    }

    #[test]
    fn each_reason_is_told_where_it_is_the_one() {
        let slot = Slot::from_number(5).unwrap();
        let equal = IndexAnswer::Slot { slot, is_equal: true };
        let in_arena = Sharers { slots: vec![slot], ..Sharers::default() };
        let run = Some(EqualRun { blocks: 1, is_cut: false });
        let cases = [
            (data(), Verdict::OnlyCopy),
            (ExplainedBlock { held: BlockContent::Hole, place: None, ..data() }, Verdict::Nothing),
            (ExplainedBlock { held: BlockContent::SetAside, ..data() }, Verdict::Nothing),
            (ExplainedBlock { held: BlockContent::Part(5), ..data() }, Verdict::PartOfBlock),
            (ExplainedBlock { sharers: shared(), is_told_shared: true, ..data() }, Verdict::Shared),
            (ExplainedBlock { sharers: shared(), opted_out: Some(PathBuf::new()), ..data() }, Verdict::Shared),
            (ExplainedBlock { opted_out: Some(PathBuf::new()), ..data() }, Verdict::OptedOut),
            (ExplainedBlock { is_told_shared: true, ..data() }, Verdict::SharedWithOthers),
            (
                ExplainedBlock { sharers: in_arena, is_told_shared: true, index: equal.clone(), ..data() },
                Verdict::OnlyInArena,
            ),
            (ExplainedBlock { is_told_shared: true, is_told_by_extent: true, ..data() }, Verdict::OnlyCopy),
            (ExplainedBlock { standing: None, ..data() }, Verdict::NeverSeen),
            (ExplainedBlock { standing: Some(FileStanding::Unread), ..data() }, Verdict::Unread),
            (ExplainedBlock { standing: Some(FileStanding::Unread), is_logged: true, ..data() }, Verdict::Waits),
            (ExplainedBlock { standing: Some(FileStanding::Changed), is_logged: true, ..data() }, Verdict::Changed),
            (ExplainedBlock { is_logged: true, ..data() }, Verdict::Waits),
            (
                ExplainedBlock { held: BlockContent::Zeros, is_reserved: true, index: IndexAnswer::Nothing, ..data() },
                Verdict::Reserved,
            ),
            (ExplainedBlock { held: BlockContent::Zeros, index: IndexAnswer::Nothing, ..data() }, Verdict::Zeros),
            (ExplainedBlock { index: IndexAnswer::Nothing, ..data() }, Verdict::Forgotten),
            (
                ExplainedBlock {
                    index: IndexAnswer::OtherBlock { path: None, block: FileBlock(0), is_equal: false },
                    ..data()
                },
                Verdict::OnlyStale,
            ),
            (ExplainedBlock { index: equal.clone(), run, ..data() }, Verdict::LeftAlone),
            (ExplainedBlock { index: equal.clone(), run, place: None, ..data() }, Verdict::NoPlace),
            (
                ExplainedBlock { index: equal, run, refusal: Some(Refusal::Swap), ..data() },
                Verdict::Refused(Refusal::Swap),
            ),
            (ExplainedBlock { refusal: Some(Refusal::Immutable), ..data() }, Verdict::OnlyCopy),
        ];
        for (explained, verdict) in cases {
            assert_eq!(explained.verdict(true), verdict, "{explained:?}");
        }
        assert_eq!(data().verdict(false), Verdict::NoState);
        assert_eq!(ExplainedBlock { is_told_shared: true, ..data() }.verdict(false), Verdict::SharedWithOthers);
    }
}
