//! The verdict: the one reason that is given for a block.

use onefold_substrate::Refusal;

use super::{Explained, Held, IndexSays};
use crate::status::Standing;

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

impl Explained {
    /// Returns why the block is shared, or is not. `has_state` says whether there is a state folder.
    #[must_use]
    pub fn verdict(&self, has_state: bool) -> Verdict {
        match self.held {
            Held::Hole | Held::SetAside => return Verdict::Nothing,
            Held::Part(_) => return Verdict::PartOfBlock,
            Held::Zeros | Held::Data => {}
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
            Some(Standing::Unread) if !self.is_logged => return Verdict::Unread,
            Some(Standing::Changed) => return Verdict::Changed,
            Some(Standing::Current | Standing::Unread) => {}
        }
        if self.is_logged {
            return Verdict::Waits;
        }
        if self.held == Held::Zeros && self.is_reserved {
            return Verdict::Reserved;
        }
        if self.held == Held::Zeros {
            return self.refusal.map_or(Verdict::Zeros, Verdict::Refused);
        }
        let verdict = match &self.index {
            IndexSays::OtherBlock { is_equal: true, .. } => self.equal_elsewhere(),
            IndexSays::Slot { slot, is_equal: true } if !self.sharers.slots.contains(slot) => self.equal_elsewhere(),
            IndexSays::Slot { is_equal: true, .. } => Verdict::OnlyInArena,
            IndexSays::ThisBlock => Verdict::OnlyCopy,
            IndexSays::OtherBlock { .. } | IndexSays::Slot { .. } => Verdict::OnlyStale,
            IndexSays::Nothing => Verdict::Forgotten,
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

    fn data() -> Explained {
        Explained {
            block: FileBlock(1),
            held: Held::Data,
            is_reserved: false,
            place: Some(4096),
            is_unsettled: false,
            is_told_shared: false,
            is_told_by_extent: false,
            sharers: Sharers::default(),
            digest: Some(FingerprintPrefix::default()),
            standing: Some(Standing::Current),
            domain: None,
            is_logged: false,
            index: IndexSays::ThisBlock,
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
        let equal = IndexSays::Slot { slot, is_equal: true };
        let in_arena = Sharers { slots: vec![slot], ..Sharers::default() };
        let run = Some(EqualRun { blocks: 1, is_cut: false });
        let cases = [
            (data(), Verdict::OnlyCopy),
            (Explained { held: Held::Hole, place: None, ..data() }, Verdict::Nothing),
            (Explained { held: Held::SetAside, ..data() }, Verdict::Nothing),
            (Explained { held: Held::Part(5), ..data() }, Verdict::PartOfBlock),
            (Explained { sharers: shared(), is_told_shared: true, ..data() }, Verdict::Shared),
            (Explained { sharers: shared(), opted_out: Some(PathBuf::new()), ..data() }, Verdict::Shared),
            (Explained { opted_out: Some(PathBuf::new()), ..data() }, Verdict::OptedOut),
            (Explained { is_told_shared: true, ..data() }, Verdict::SharedWithOthers),
            (
                Explained { sharers: in_arena, is_told_shared: true, index: equal.clone(), ..data() },
                Verdict::OnlyInArena,
            ),
            (Explained { is_told_shared: true, is_told_by_extent: true, ..data() }, Verdict::OnlyCopy),
            (Explained { standing: None, ..data() }, Verdict::NeverSeen),
            (Explained { standing: Some(Standing::Unread), ..data() }, Verdict::Unread),
            (Explained { standing: Some(Standing::Unread), is_logged: true, ..data() }, Verdict::Waits),
            (Explained { standing: Some(Standing::Changed), is_logged: true, ..data() }, Verdict::Changed),
            (Explained { is_logged: true, ..data() }, Verdict::Waits),
            (
                Explained { held: Held::Zeros, is_reserved: true, index: IndexSays::Nothing, ..data() },
                Verdict::Reserved,
            ),
            (Explained { held: Held::Zeros, index: IndexSays::Nothing, ..data() }, Verdict::Zeros),
            (Explained { index: IndexSays::Nothing, ..data() }, Verdict::Forgotten),
            (
                Explained {
                    index: IndexSays::OtherBlock { path: None, block: FileBlock(0), is_equal: false },
                    ..data()
                },
                Verdict::OnlyStale,
            ),
            (Explained { index: equal.clone(), run, ..data() }, Verdict::LeftAlone),
            (Explained { index: equal.clone(), run, place: None, ..data() }, Verdict::NoPlace),
            (Explained { index: equal, run, refusal: Some(Refusal::Swap), ..data() }, Verdict::Refused(Refusal::Swap)),
            (Explained { refusal: Some(Refusal::Immutable), ..data() }, Verdict::OnlyCopy),
        ];
        for (explained, verdict) in cases {
            assert_eq!(explained.verdict(true), verdict, "{explained:?}");
        }
        assert_eq!(data().verdict(false), Verdict::NoState);
        assert_eq!(Explained { is_told_shared: true, ..data() }.verdict(false), Verdict::SharedWithOthers);
    }
}
