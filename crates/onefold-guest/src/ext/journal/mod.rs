//! Replays the journal in memory.
//!
//! The log is read once, from its start to the first block that does not continue it. A transaction counts after its
//! commit was read. The newest copy of each block then overlays the volume ([`Overlay`]), unless a revocation of the
//! same or a later transaction forbids it. The disk is never written.
//!
//! If a checksum in the middle of the log is wrong, the kernel refuses to mount. Here the transactions before it are
//! applied for listing, and the volume is unsure.

mod head;
mod records;

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

use head::{ChecksumKind, HEAD_BYTES, Head};
use records::{Commit, Record, Tag};

use super::inode::Inode;
use super::map::MapRun;
use super::source::{JournaledBlock, Overlay};
use super::superblock::features;
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::Doubt;

const STRUCTURE: &str = "journal";
/// The first record of fast commits.
const FAST_HEAD: u16 = 9;
/// Maximum number of copies of blocks in a log. `mke2fs` makes journals of a quarter of that.
const COPIES_MAX: usize = 1 << 20;
/// Maximum number of parts of a journal's map.
const RUNS_MAX: usize = 1 << 20;
/// Maximum number of revocations in a log.
const REVOKED_MAX: usize = 1 << 22;

/// Result of a recovery.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    pub(super) overlay: Overlay,
    /// Why the journal cannot be replayed completely.
    pub(super) doubt: Option<Doubt>,
    /// Whether the journal records an error of the file system.
    pub(super) has_error: bool,
}

/// A journal whose blocks were found.
struct Journal<'t, 'a> {
    tables: &'t Tables<'a>,
    /// Its map, in order.
    runs: Vec<MapRun>,
    head: Head,
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug)]
struct Copy {
    tag: Tag,
    sequence: u32,
    /// First byte in the volume.
    offset: u64,
}

/// Content of the log.
#[derive(Default)]
struct Log {
    /// Copies of committed transactions, in order.
    copies: Vec<Copy>,
    /// For each revoked block, the last transaction that revoked it.
    revoked: HashMap<u64, u32>,
    /// The number of the next transaction.
    next: u32,
    is_damaged: bool,
}

/// The transaction that is being read.
#[derive(Default)]
struct OpenTransaction {
    copies: Vec<Copy>,
    revoked: Vec<u64>,
    sum: u32,
    /// Whether a block had a wrong checksum. It may be left over from an earlier round of the log.
    is_suspect: bool,
}

/// Replays the journal of a file system.
///
/// # Errors
/// Those of the disk. A damaged journal is recorded and is a doubt.
pub(super) fn recover(tables: &Tables<'_>) -> Result<Recovery, GuestError> {
    let superblock = &tables.superblock;
    if !superblock.features.has(features::HAS_JOURNAL) || superblock.journal_inode == 0 {
        return Ok(Recovery::default());
    }
    let damaged = Recovery { doubt: Some(Doubt::JournalDamaged), ..Recovery::default() };
    let Some(journal) = tables.damage.skip(Journal::open(tables))? else { return Ok(damaged) };
    let has_error = journal.head.has_error;
    if !superblock.features.has(features::NEEDS_RECOVERY) {
        // A mount would discard the content of the journal, and the file system's own checker asks.
        let doubt = (journal.head.start != 0).then_some(Doubt::JournalDamaged);
        return Ok(Recovery { doubt, has_error, ..Recovery::default() });
    }
    let log = journal.read_log()?;
    let doubt = match () {
        () if log.is_damaged => Some(Doubt::JournalDamaged),
        () if journal.has_fast_commits(log.next)? => Some(Doubt::FastCommits),
        () => None,
    };
    let (overlay, is_whole) = journal.overlay(log)?;
    Ok(Recovery { overlay, doubt: if is_whole { doubt } else { Some(Doubt::JournalDamaged) }, has_error })
}

/// The log of an empty journal, which nothing reads.
#[derive(Debug, Default)]
pub(super) struct UnreadLog {
    /// Its blocks of the journal: without the journal's superblock and the blocks of fast commits.
    pub(super) log: Range<u64>,
    /// The blocks of the volume in which they lie.
    pub(super) blocks: Vec<Range<u64>>,
}

/// Returns the log of an empty journal. It is empty in any other case.
///
/// # Errors
/// Those of the disk. A damaged journal has no such blocks.
pub(super) fn unread(tables: &Tables<'_>) -> Result<UnreadLog, GuestError> {
    let superblock = &tables.superblock;
    if !superblock.features.has(features::HAS_JOURNAL) || superblock.journal_inode == 0 {
        return Ok(UnreadLog::default());
    }
    let Some(Journal { runs, head, .. }) = tables.damage.skip(Journal::open(tables))? else {
        return Ok(UnreadLog::default());
    };
    if head.start != 0 || head.has_error {
        return Ok(UnreadLog::default());
    }
    let log = u64::from(head.first)..u64::from(head.last);
    let in_volume = |run: &MapRun| {
        let (start, end) = (run.first.max(log.start), run.end().min(log.end));
        (start < end).then(|| run.block + (start - run.first)..run.block + (end - run.first))
    };
    let blocks = runs.iter().filter_map(in_volume).collect();
    Ok(UnreadLog { log, blocks })
}

impl<'t, 'a> Journal<'t, 'a> {
    fn open(tables: &'t Tables<'a>) -> Result<Journal<'t, 'a>, GuestError> {
        let inode: Inode = tables.inode(tables.superblock.journal_inode)?;
        let journal_blocks = inode.size_bytes / tables.superblock.block_bytes;
        let mut runs = Vec::new();
        tables.each_run(&inode, 0, &mut |run| {
            if run.first >= journal_blocks || runs.len() > RUNS_MAX {
                return ControlFlow::Break(());
            }
            runs.push(run);
            ControlFlow::Continue(())
        })?;
        if runs.len() > RUNS_MAX {
            return Err(tables.source.damage(inode.offset, STRUCTURE, "its map has too many parts").into());
        }
        // The log may use blocks up to the first hole of the map.
        let end = runs.iter().try_fold(0, |end, run| if run.first == end { Ok(run.end()) } else { Err(end) });
        let blocks = end.unwrap_or_else(|end| end).min(journal_blocks);
        let offset = runs.first().map_or(0, |run| run.block * tables.superblock.block_bytes);
        let head = tables.source.bytes(offset, HEAD_BYTES, STRUCTURE)?;
        let head = Head::decode(&head, tables.superblock.block_bytes, blocks)
            .map_err(|problem| tables.source.damage(offset, STRUCTURE, problem))?;
        Ok(Journal { tables, runs, head })
    }

    /// Returns the place of a journal block in the volume.
    fn offset(&self, block: u64) -> Option<u64> {
        let run = self.runs.get(self.runs.partition_point(|run| run.end() <= block))?;
        Some((run.block + block.checked_sub(run.first)?) * self.tables.superblock.block_bytes)
    }

    fn block(&self, block: u64) -> Result<(u64, Vec<u8>), GuestError> {
        let Some(offset) = self.offset(block) else {
            return Err(self.tables.source.damage(0, STRUCTURE, "its map has a hole").into());
        };
        Ok((offset, self.tables.source.bytes(offset, self.tables.superblock.block_length, STRUCTURE)?))
    }

    /// Reads the log from its start to its end.
    fn read_log(&self) -> Result<Log, GuestError> {
        let mut log = Log { next: self.head.sequence, ..Log::default() };
        if self.head.start == 0 {
            return Ok(log);
        }
        let mut open = OpenTransaction { sum: u32::MAX, ..OpenTransaction::default() };
        let mut last_seconds = 0;
        let (mut at, mut left) = (u64::from(self.head.start), u64::from(self.head.last - self.head.first));
        loop {
            let Some((offset, bytes)) = self.tables.damage.skip(self.block(at))? else {
                log.is_damaged = true;
                break;
            };
            let Some(record) = records::record(&bytes, log.next) else { break };
            let mut taken = 1;
            open.is_suspect |= record != Record::Commit && !records::has_right_tail(&self.head, &bytes);
            match record {
                Record::Descriptor => taken += self.read_descriptor(&bytes, at, left, &log, &mut open)?,
                Record::Revocation => match records::revocations(&self.head, &bytes) {
                    Some(blocks) => open.revoked.extend(blocks),
                    None => open.is_suspect = true,
                },
                Record::Commit => {
                    let commit = records::commit(&self.head, &bytes, open.sum);
                    let outcome = judge(commit, &open, last_seconds);
                    log.is_damaged = outcome == Outcome::Damaged;
                    if log.is_damaged {
                        self.note(offset, "the checksum of a transaction is wrong");
                    }
                    if outcome != Outcome::Committed {
                        break;
                    }
                    last_seconds = commit.map_or(0, |commit| commit.seconds);
                    log.close(std::mem::replace(
                        &mut open,
                        OpenTransaction { sum: u32::MAX, ..OpenTransaction::default() },
                    ));
                }
            }
            let is_long = log.copies.len() + open.copies.len() > COPIES_MAX
                || log.revoked.len() + open.revoked.len() > REVOKED_MAX;
            if taken >= left || is_long {
                // No transaction is longer than the log, and no log wraps around to its own start.
                log.is_damaged = true;
                self.note(offset, "its log is too long");
                break;
            }
            left -= taken;
            at = self.head.wrapped(at + taken);
        }
        Ok(log)
    }

    /// Collects the copies that follow a descriptor. Returns their number.
    fn read_descriptor(
        &self,
        bytes: &[u8],
        at: u64,
        left: u64,
        log: &Log,
        open: &mut OpenTransaction,
    ) -> Result<u64, GuestError> {
        let tags = records::tags(&self.head, bytes);
        let has_commit_sums = self.head.sums == ChecksumKind::Commits;
        if has_commit_sums {
            open.sum = records::crc32_be(open.sum, bytes);
        }
        for (index, tag) in tags.iter().enumerate().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            let block = self.head.wrapped(at + 1 + index as u64);
            if has_commit_sums && let Some((_, copy)) = self.tables.damage.skip(self.block(block))? {
                open.sum = records::crc32_be(open.sum, &copy);
            }
            match self.offset(block) {
                Some(offset) => open.copies.push(Copy { tag: *tag, sequence: log.next, offset }),
                None => open.is_suspect = true,
            }
        }
        Ok(tags.len() as u64)
    }

    /// Returns the newest copy of each block that may be applied, and whether all required copies exist.
    fn overlay(&self, log: Log) -> Result<(Overlay, bool), GuestError> {
        let superblock = &self.tables.superblock;
        let mut newest = BTreeMap::new();
        let mut is_whole = true;
        let mut bytes = vec![0; superblock.block_length];
        for copy in log.copies {
            if log.revoked.get(&copy.tag.block).is_some_and(|last| !is_later(copy.sequence, *last)) {
                continue;
            }
            let is_readable = self.tables.damage.skip(self.tables.source.read(copy.offset, &mut bytes, STRUCTURE))?;
            let is_sound = is_readable.is_some()
                && copy.tag.block < superblock.block_count
                && records::has_right_sum(&self.head, copy.sequence, &bytes, copy.tag.sum);
            if !is_sound {
                self.note(copy.offset, "a copy of a block is damaged");
                is_whole = false;
                continue;
            }
            let Tag { block, is_escaped, .. } = copy.tag;
            newest.insert(block, JournaledBlock { block, copy: copy.offset, is_escaped });
        }
        Ok((Overlay::new(newest.into_values().collect(), superblock.block_bytes), is_whole))
    }

    /// Returns whether fast commits follow the last transaction.
    fn has_fast_commits(&self, next: u32) -> Result<bool, GuestError> {
        if !self.head.has_fast_commits {
            return Ok(false);
        }
        // The kernel leaves the first block behind the log unused.
        for block in [0, 1].map(|skipped| u64::from(self.head.last) + skipped) {
            let Some(offset) = self.offset(block) else { continue };
            let bytes = self.tables.source.bytes(offset, 16, STRUCTURE)?;
            let is_head = Bytes(&bytes).le16(0) == Some(FAST_HEAD);
            if is_head && Bytes(&bytes).le32(8).is_none_or(|sequence| !is_later(next, sequence)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn note(&self, offset: u64, problem: &'static str) {
        self.tables.damage.note(self.tables.source.damage(offset, STRUCTURE, problem));
    }
}

impl Log {
    /// Takes over a committed transaction.
    fn close(&mut self, open: OpenTransaction) {
        let sequence = self.next;
        self.copies.extend(open.copies);
        self.revoked.extend(open.revoked.into_iter().map(|block| (block, sequence)));
        self.next = sequence.wrapping_add(1);
    }
}

/// Meaning of a commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed,
    /// It is left over from an earlier round: the log ends before it.
    End,
    /// It was complete and is damaged.
    Damaged,
}

/// Returns the meaning of a commit block, decided like in the kernel. A leftover from an earlier round of the log is
/// recognised by its time, which is before that of the previous transaction. A commit that may be written before its
/// blocks is not an exception: the kernel drops such a transaction only if no other one follows.
fn judge(commit: Option<Commit>, open: &OpenTransaction, last_seconds: u64) -> Outcome {
    let Some(commit) = commit else { return Outcome::Damaged };
    match (open.is_suspect, commit.is_sound) {
        (false, true) => Outcome::Committed,
        _ if commit.seconds < last_seconds => Outcome::End,
        _ => Outcome::Damaged,
    }
}

/// Returns whether one transaction is later than another. Their numbers wrap around.
fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}
