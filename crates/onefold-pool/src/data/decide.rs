//! The write decision (paper, Fig. 2): how each block of a write is stored.
//!
//! For each block, from the cheapest outcome to the most expensive:
//! 1. All zeros: a hole. No block, no fingerprint, no count.
//! 2. The file does not share: a block of its own.
//! 3. Equal to an earlier block of the same write: the same block.
//! 4. Equal to a block whose write is in progress: attach to that write and share its fate.
//! 5. The fingerprint filter names store pages, and a page has an entry with the whole fingerprint in the file's
//!    sharing domain: share that block. It stays pinned until the decision has taken effect.
//! 6. Otherwise: a new block, reserved here, written by [`super::write`].
//!
//! A decision promises nothing. [`Op::apply_fates`] examines every entry again under the metadata lock before it counts
//! a reference. A block whose count has reached zero is never revived; the write is decided again.

use onefold_block::{BlockNo, Fingerprint};

use crate::activity::{Activity, ActivityCounter};
use crate::attr::Ino;
use crate::filter::StorePageNo;
use crate::format::geometry::{GROUP_BLOCKS, Geometry};
use crate::format::header::BlockKind;
use crate::format::inode::Inode;
use crate::format::map_node::MapEntry;
use crate::format::store_page::{self, BlockUse, StoreEntry};
use crate::meta::hash::{BlockMap, BlockSet, FingerprintMap};
use crate::meta::in_flight::{DeviceWrite, InFlightBlock};
use crate::meta::op::damaged;
use crate::meta::shared_filter::FilterLookup;
use crate::meta::{Op, OpResult};
use crate::options::Verification;

/// One block of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteBlock<'a> {
    /// Its place in the file.
    pub(crate) index: u64,
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
    /// Its fingerprint under the file's domain key; not computed for zeros.
    pub(crate) fingerprint: Fingerprint,
    /// Whether it is all zeros.
    pub(crate) is_zero: bool,
    /// Blocks with an equal fingerprint that it cannot share: their bytes differ, or their counts are full.
    pub(crate) unfit: Vec<BlockNo>,
}

/// How the blocks of a write may be shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharingPolicy {
    /// The file's domain.
    pub(crate) domain: u16,
    /// Whether the file shares at all.
    pub(crate) enabled: bool,
    /// Whether candidates are compared by fingerprint alone or by value.
    pub(crate) verify: Verification,
}

/// How a block of a write is stored.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It is a hole.
    Hole,
    /// It is the same as block `.0` of the write.
    Same(usize),
    /// Another writer is writing it: wait for that write.
    Attach(InFlightBlock),
    /// It is stored there already; pinned.
    Share(BlockNo),
    /// It is new and will be stored there; reserved.
    Write(InFlightBlock),
}

/// A choice before any block is reserved or pinned.
enum BlockChoice {
    Hole,
    Same(usize),
    Attach,
    Share(BlockNo),
    New,
}

/// The result of applying a batch's fates.
pub(crate) enum ApplyResult {
    /// They took effect.
    Done,
    /// Nothing was changed: these blocks of the write can no longer share as decided.
    Lost(Vec<LostBlock>),
}

/// A block of a write whose fate cannot take effect.
pub(crate) struct LostBlock {
    /// Its place in the write.
    pub(crate) at: usize,
    /// The block that cannot take another reference, if that is the reason.
    pub(crate) full: Option<BlockNo>,
}

/// A request for decisions.
pub(crate) struct DecisionRequest<'a> {
    /// The file.
    pub(crate) ino: Ino,
    /// All blocks of the write.
    pub(crate) blocks: &'a [WriteBlock<'a>],
    /// The blocks to decide, as indices into `blocks`.
    pub(crate) undecided: &'a [usize],
    /// How they may be shared.
    pub(crate) sharing: SharingPolicy,
    /// Blocks that are set aside for this write ([`super::behind`]).
    pub(crate) set_aside: u64,
    /// The filter's answers for the blocks that are looked up ([`sought`]), from before the metadata was locked.
    pub(crate) looked_up: Option<&'a FilterLookup<'a>>,
}

/// Returns the fingerprints of the blocks that are looked up in the filter, in order.
pub(crate) fn sought(blocks: &[WriteBlock<'_>], undecided: &[usize], sharing: SharingPolicy) -> Vec<Fingerprint> {
    let sought = undecided.iter().filter(|&&at| sharing.enabled && !blocks[at].is_zero);
    sought.map(|&at| blocks[at].fingerprint).collect()
}

impl Op<'_> {
    /// Decides the fates of blocks of a write.
    pub(crate) fn decide(&mut self, deciding: &DecisionRequest<'_>, activity: &Activity) -> OpResult<Vec<Fate>> {
        let DecisionRequest { ino, blocks, undecided, sharing, set_aside, .. } = *deciding;
        let choices = self.choose(deciding, activity)?;
        let new_count = choices.iter().filter(|choice| matches!(choice, BlockChoice::New)).count() as u64;
        let mut reserved = Vec::new();
        if new_count > 0 {
            let promised = self.promised_places(ino, blocks)?;
            for run in self.reserve_data(new_count, promised.min(new_count), set_aside)? {
                reserved.extend((0..run.count).map(|offset| run.first.plus(offset)));
            }
        }
        // From here on nothing can fail, because the caller must give back all fates that it gets.
        let mut reserved = reserved.into_iter();
        let write = DeviceWrite::begin();
        let fates = undecided.iter().zip(choices).map(|(&at, choice)| {
            let content = (blocks[at].fingerprint, sharing.domain);
            match choice {
                BlockChoice::Hole => Fate::Hole,
                BlockChoice::Same(other) => Fate::Same(other),
                BlockChoice::Attach => match self.meta.in_flight.attach(content) {
                    Some(flight) => Fate::Attach(flight),
                    None => unreachable!("chosen under the same lock"),
                },
                BlockChoice::Share(block) => {
                    self.meta.in_flight.pin(block);
                    Fate::Share(block)
                }
                BlockChoice::New => {
                    let block = reserved.next().expect("as many were reserved as were chosen");
                    // If one of several blocks with equal fingerprints is unfit, their content key cannot tell them
                    // apart.
                    let shared = sharing.enabled && blocks[at].unfit.is_empty();
                    Fate::Write(self.meta.in_flight.enter(block, shared.then_some(content), &write))
                }
            }
        });
        Ok(fates.collect())
    }

    /// Counts the places of a write that `fallocate` has reserved, for which space was set aside.
    fn promised_places(&mut self, ino: Ino, blocks: &[WriteBlock<'_>]) -> OpResult<u64> {
        // Read here, because another writer may have copied the map's root since the write began.
        let inode = self.regular(ino)?;
        if inode.reserved_blocks == 0 {
            return Ok(0);
        }
        let mut promised = 0;
        for run in neighbours(blocks) {
            let mut entries = vec![MapEntry::Hole; run.len()];
            self.map_read(&inode, run[0].index, &mut entries)?;
            promised += entries.iter().filter(|entry| **entry == MapEntry::Reserved).count() as u64;
        }
        Ok(promised)
    }

    fn choose(&mut self, deciding: &DecisionRequest<'_>, activity: &Activity) -> OpResult<Vec<BlockChoice>> {
        let DecisionRequest { blocks, undecided, sharing, looked_up, .. } = *deciding;
        let mut choices = Vec::with_capacity(undecided.len());
        let mut seen: FingerprintMap<usize> = FingerprintMap::default();
        let mut missing = false;
        let mut for_nothing = 0;
        let before = looked_up.and_then(|before| Some((before, before.entered_meanwhile()?)));
        let (now, meanwhile);
        let candidates = match before {
            Some((before, entered)) => {
                meanwhile = entered;
                before.candidates()
            }
            // A repeated decision, or an outdated look-up. One call for all, so that the waits for memory overlap.
            None => {
                meanwhile = Vec::new();
                now = self.meta.filter.read().candidates_each(&sought(blocks, undecided, sharing));
                &now
            }
        };
        // In the order of the blocks.
        let mut candidates = candidates.iter().enumerate();
        for &at in undecided {
            let incoming = &blocks[at];
            if incoming.is_zero {
                choices.push(BlockChoice::Hole);
                continue;
            }
            if !sharing.enabled {
                choices.push(BlockChoice::New);
                continue;
            }
            let (place, candidates) = candidates.next().expect("one for each block that is looked up");
            if let Some(&other) = seen.get(&incoming.fingerprint) {
                let equal = sharing.verify == Verification::Fingerprint || blocks[other].bytes == incoming.bytes;
                choices.push(if equal { BlockChoice::Same(other) } else { BlockChoice::New });
                continue;
            }
            seen.insert(incoming.fingerprint, at);
            let content = (incoming.fingerprint, sharing.domain);
            if incoming.unfit.is_empty() && self.meta.in_flight.is_under_way(content) {
                choices.push(BlockChoice::Attach);
                continue;
            }
            let entered = meanwhile[meanwhile.partition_point(|(at, _)| *at < place)..].iter();
            let entered = entered.take_while(|(at, _)| *at == place).map(|(_, page)| *page);
            match self.find_stored(incoming, candidates.iter().chain(entered), sharing.domain)? {
                LookupResult::Stored(block) => choices.push(BlockChoice::Share(block)),
                LookupResult::Nothing { pages } => {
                    for_nothing += pages;
                    choices.push(BlockChoice::New);
                }
                LookupResult::Missing => missing = true,
            }
        }
        if missing {
            // All pages that the whole write needs have been requested, and are read together.
            self.settle()?;
        }
        activity.add(ActivityCounter::LookupsForNothing, for_nothing);
        Ok(choices)
    }

    /// Looks for a stored block with that fingerprint. The filter names pages, and the pages confirm or refute.
    fn find_stored(
        &mut self,
        incoming: &WriteBlock<'_>,
        candidates: impl Iterator<Item = StorePageNo>,
        domain: u16,
    ) -> OpResult<LookupResult> {
        let geometry: Geometry = self.meta.geometry;
        let mut missing = false;
        let mut pages = 0;
        for page_no in candidates {
            let (at, first) = geometry.store_page_by_no(page_no.0);
            if !self.want(at, BlockKind::StorePage)? {
                missing = true;
                continue;
            }
            pages += 1;
            let page = self.meta.cache.peek(at).expect("`want` found it");
            for index in store_page::find(page, incoming.fingerprint) {
                let entry = store_page::entry(page, index)
                    .ok_or_else(|| damaged(BlockKind::StorePage.name(), at, "an entry makes no sense"))?;
                let block = first.plus(index as u64);
                let fits = entry.usage == BlockUse::Data
                    && !entry.private
                    && entry.domain == domain
                    && entry.count < self.meta.limits.references_max
                    && !incoming.unfit.contains(&block);
                if fits {
                    return Ok(LookupResult::Stored(block));
                }
            }
        }
        Ok(if missing { LookupResult::Missing } else { LookupResult::Nothing { pages } })
    }

    /// Applies the fates of a write: entries, counts and map change together.
    pub(crate) fn apply_fates(
        &mut self,
        inode: &mut Inode,
        blocks: &[WriteBlock<'_>],
        fates: &[Fate],
        sharing: SharingPolicy,
    ) -> OpResult<ApplyResult> {
        let places: Vec<Option<BlockNo>> = fates.iter().map(|fate| place(fates, fate)).collect();
        self.want_entries(places.iter().flatten().copied())?;
        let lost = self.lost_shares(blocks, fates, &places, sharing)?;
        if !lost.is_empty() {
            return Ok(ApplyResult::Lost(lost));
        }
        let mut claimed = BlockSet::default();
        let mut new = NewRun::default();
        let mut entries = Vec::with_capacity(blocks.len());
        for (incoming, block) in blocks.iter().zip(&places) {
            let Some(block) = *block else {
                entries.push(MapEntry::Hole);
                continue;
            };
            if claimed.contains(&block) || !self.meta.in_flight.is_uninitialised(block) {
                // The block may belong to the run.
                self.claim_new(&mut new)?;
                entries.push(MapEntry::Block(self.add_data_reference(block)?));
                continue;
            }
            entries.push(MapEntry::Block(block));
            // The first of the writer and the attached writes makes the entry.
            claimed.insert(block);
            let entry = StoreEntry {
                fingerprint: incoming.fingerprint,
                count: 1,
                domain: sharing.domain,
                usage: BlockUse::Data,
                private: !sharing.enabled,
            };
            if !new.is_followed_by(block) {
                self.claim_new(&mut new)?;
                new.first = block;
            }
            new.entries.push(entry);
            self.initialised(block);
        }
        self.claim_new(&mut new)?;
        let mut rest = &entries[..];
        for run in neighbours(blocks) {
            let (entries, after) = rest.split_at(run.len());
            self.map_write(inode, run[0].index, entries)?;
            rest = after;
        }
        Ok(ApplyResult::Done)
    }

    /// Makes the entries of a run of new blocks.
    fn claim_new(&mut self, new: &mut NewRun) -> OpResult<()> {
        if !new.entries.is_empty() {
            self.claim_with_references(new.first, &new.entries)?;
            new.entries.clear();
        }
        Ok(())
    }

    /// Returns the blocks of a write that can no longer share as decided, because the shared block has changed or its
    /// count is full.
    fn lost_shares(
        &mut self,
        blocks: &[WriteBlock<'_>],
        fates: &[Fate],
        places: &[Option<BlockNo>],
        sharing: SharingPolicy,
    ) -> OpResult<Vec<LostBlock>> {
        let mut lost = Vec::new();
        let mut counts: BlockMap<u32> = BlockMap::default();
        for (at, place) in places.iter().enumerate() {
            let Some(block) = *place else { continue };
            let is_new = match lead(fates, &fates[at]) {
                Fate::Attach(_) | Fate::Write(_) => self.meta.in_flight.is_uninitialised(block),
                Fate::Share(_) | Fate::Hole | Fate::Same(_) => false,
            };
            // A block that is not new has an entry by another writer, which may have dropped it since.
            let entry = if is_new { None } else { Some(self.entry(block)?) };
            let same = entry.as_ref().is_none_or(|entry| {
                entry.usage == BlockUse::Data
                    && entry.private != sharing.enabled
                    && entry.fingerprint == blocks[at].fingerprint
                    && entry.domain == sharing.domain
            });
            let count = counts.entry(block).or_insert(entry.map_or(0, |entry| entry.count));
            if !same {
                lost.push(LostBlock { at, full: None });
            } else if *count >= self.meta.limits.references_max {
                lost.push(LostBlock { at, full: Some(block) });
            } else {
                *count += 1;
            }
        }
        Ok(lost)
    }
}

/// Consecutive new blocks within one group.
#[derive(Default)]
struct NewRun {
    first: BlockNo,
    entries: Vec<StoreEntry>,
}

impl NewRun {
    fn is_followed_by(&self, block: BlockNo) -> bool {
        !self.entries.is_empty()
            && block == self.first.plus(self.entries.len() as u64)
            && !block.0.is_multiple_of(GROUP_BLOCKS)
    }
}

/// The result of a look-up.
enum LookupResult {
    Stored(BlockNo),
    Nothing { pages: u64 },
    Missing,
}

/// Returns the fate that decides a block: its own, or that of the block which it equals.
fn lead<'a>(fates: &'a [Fate], fate: &'a Fate) -> &'a Fate {
    match fate {
        Fate::Same(other) => &fates[*other],
        Fate::Hole | Fate::Attach(_) | Fate::Share(_) | Fate::Write(_) => fate,
    }
}

/// Splits the blocks of a write into runs that are consecutive in the file.
fn neighbours<'b, 'a>(blocks: &'b [WriteBlock<'a>]) -> impl Iterator<Item = &'b [WriteBlock<'a>]> {
    blocks.chunk_by(|one, next| one.index + 1 == next.index)
}

/// Returns the block that a fate leads to.
fn place(fates: &[Fate], fate: &Fate) -> Option<BlockNo> {
    match lead(fates, fate) {
        Fate::Hole => None,
        Fate::Share(block) => Some(*block),
        Fate::Attach(flight) | Fate::Write(flight) => Some(flight.block),
        Fate::Same(_) => unreachable!("a block is the same as the first of its kind"),
    }
}
