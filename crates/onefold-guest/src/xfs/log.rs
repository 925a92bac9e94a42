//! The log: determines whether it contains changes that are not yet in place.
//!
//! From "XFS Filesystem Structure", chapter "Journaling Log". The log is a ring of sectors of 512 bytes. The first word
//! of each is the number of the round in which it was written, its *cycle*. A record's header has the cycle in the
//! second word instead. The *head* is the first sector of an older cycle, or the start of the last record if that
//! record was not written completely. An unmount writes a last record with one operation. If that record ends at the
//! head, there is nothing to recover. A header:
//!
//! | bytes    | field                    | notes                                              |
//! |----------|--------------------------|----------------------------------------------------|
//! | 0..4     | magic                    |                                                    |
//! | 4..8     | cycle                    |                                                    |
//! | 8..12    | version                  | bit 1: version 2                                   |
//! | 12..16   | length                   | of what follows the header, in bytes               |
//! | 16..24   | own sequence number      | cycle, sector                                      |
//! | 32..36   | checksum                 | of header and content; 0: none                     |
//! | 40..44   | operations               |                                                    |
//! | 304..320 | UUID                     |                                                    |
//! | 320..324 | size of the buffer       | version 2: a header has a sector for each 32 KiB   |
//!
//! An operation begins with 12 bytes; byte 9 has its flags.
//!
//! The answer "clean" is reliable for this reason: a new record begins exactly where the unmount record ends. As long
//! as that sector has an older cycle, no later record counts, and no change of a later record was written in place: the
//! kernel writes a change in place only after its record and all earlier ones.

use super::Xfs;
use super::seal::has_right_checksum;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::Doubt;

const SECTOR_BYTES: usize = 512;
const MAGIC: u32 = 0xfeed_babe;
const CHECKSUM_AT: usize = 32;
/// The part of a header that the checksum covers, with and without the padding of 64-bit machines.
const HEADER_BYTES: [usize; 2] = [328, 324];
/// The part of a buffer that one sector of a header describes.
const CYCLES_BYTES: u32 = 32 << 10;
/// The part of each further sector of a header that the checksum covers.
const MORE_HEADER_BYTES: usize = 260;
/// Maximum length of a record: a buffer, and eight sectors of header.
const RECORD_BYTES_MAX: usize = 256 << 10;
const RECORD_SECTORS_MAX: u64 = 520;
const OPERATION_BYTES: usize = 12;
const FLAG_UNMOUNT: u8 = 0x20;
const STRUCTURE: &str = "log";

/// The log as a ring of sectors.
struct Ring<'l, 'a> {
    xfs: &'l Xfs<'a>,
    place: u64,
    sectors: u64,
}

impl Xfs<'_> {
    /// Returns why the log makes the volume unsure; `None` if there is nothing to recover.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn doubt_of_log(&self) -> Result<Option<Doubt>, GuestError> {
        let superblock = &self.superblock;
        let Some(place) = superblock.place_of_run(superblock.log_start, superblock.log_blocks) else {
            return Ok(Some(Doubt::JournalDamaged));
        };
        let sectors = (u64::from(superblock.log_blocks) << superblock.block_log) / SECTOR_BYTES as u64;
        match (Ring { xfs: self, place, sectors }).doubt() {
            Err(GuestError::Damaged(damage)) => {
                self.damage.note(damage);
                Ok(Some(Doubt::JournalDamaged))
            }
            other => other,
        }
    }
}

/// A record: its first sector, the number of sectors of its header, and of its content.
#[derive(Clone, Copy, Debug)]
struct Record {
    start: u64,
    headers: u64,
    length_bytes: usize,
}

impl Record {
    /// Returns the sector after the last one, which may be behind the end of the ring.
    fn end(self) -> u64 {
        self.start + self.headers + self.length_bytes.div_ceil(SECTOR_BYTES) as u64
    }
}

impl Ring<'_, '_> {
    fn doubt(&self) -> Result<Option<Doubt>, GuestError> {
        let Some(mut head) = self.head()? else { return Ok(None) };
        let mut record = self.last_record(head)?;
        if let Some(torn) = record.filter(|record| !self.is_same(record.end(), head)) {
            head = torn.start;
            record = self.last_record(head)?;
        }
        let is_clean = match record {
            Some(record) => self.is_same(record.end(), head) && self.is_unmount(record)?,
            None => false,
        };
        Ok((!is_clean).then_some(Doubt::DirtyLog))
    }

    /// Returns whether two numbers refer to the same sector of the ring.
    fn is_same(&self, one: u64, other: u64) -> bool {
        one % self.sectors == other % self.sectors
    }

    fn sector(&self, number: u64) -> Result<Vec<u8>, GuestError> {
        self.xfs.reader.bytes(self.place + number % self.sectors * SECTOR_BYTES as u64, SECTOR_BYTES, STRUCTURE)
    }

    fn cycle(&self, number: u64) -> Result<u32, GuestError> {
        let sector = self.sector(number)?;
        let at = if Bytes(&sector).be32(0) == Some(MAGIC) { 4 } else { 0 };
        Ok(Bytes(&sector).be32(at).unwrap_or(0))
    }

    /// Returns the first sector of an older cycle, from 1 to the length of the ring; `None` if the log was never
    /// written.
    fn head(&self) -> Result<Option<u64>, GuestError> {
        let (first, last) = (self.cycle(0)?, self.cycle(self.sectors - 1)?);
        if first == 0 {
            return Ok(None);
        }
        if first == last {
            return Ok(Some(self.sectors));
        }
        if first.checked_sub(1) != Some(last) {
            return Err(self.xfs.reader.damage(self.place, STRUCTURE, "its cycles do not follow each other").into());
        }
        let (mut newer, mut older) = (0, self.sectors - 1);
        while older - newer > 1 {
            let middle = newer.midpoint(older);
            if self.cycle(middle)? == last { older = middle } else { newer = middle }
        }
        Ok(Some(older))
    }

    /// Returns the last record that begins before the head, if it is close enough for an unmount record.
    fn last_record(&self, head: u64) -> Result<Option<Record>, GuestError> {
        for back in 1..=RECORD_SECTORS_MAX.min(self.sectors) {
            let start = (head + self.sectors - back) % self.sectors;
            let sector = self.sector(start)?;
            let number = |at| Bytes(&sector).be32(at).unwrap_or(0);
            if number(0) == MAGIC {
                let has_more_headers = number(8) & 2 != 0 && number(320) > CYCLES_BYTES;
                let headers = if has_more_headers { u64::from(number(320).div_ceil(CYCLES_BYTES)) } else { 1 };
                return Ok(Some(Record { start, headers, length_bytes: number(12) as usize }));
            }
        }
        Ok(None)
    }

    /// Returns whether a record is an intact unmount record.
    fn is_unmount(&self, record: Record) -> Result<bool, GuestError> {
        let header = self.sector(record.start)?;
        let header = Bytes(&header);
        let number = |at| header.be32(at).unwrap_or(0);
        let sequence = u64::from(number(4)) << 32 | record.start;
        let superblock = &self.xfs.superblock;
        let is_ours = [superblock.uuid, superblock.metadata_uuid].map(Some).contains(&header.array(304));
        let has_right_length = (OPERATION_BYTES..=RECORD_BYTES_MAX).contains(&record.length_bytes);
        let is_sound = header.be64(16) == Some(sequence) && is_ours && has_right_length && number(40) == 1;
        if !is_sound || record.headers > RECORD_SECTORS_MAX {
            return Ok(false);
        }
        let content = self.sector(record.start + record.headers)?;
        let is_unmount = Bytes(&content).u8(9).is_some_and(|flags| flags & FLAG_UNMOUNT != 0);
        Ok(is_unmount && (number(CHECKSUM_AT) == 0 || self.has_right_checksum(record)?))
    }

    /// Returns whether the checksum of a record is right. The caller must have bounded its length.
    fn has_right_checksum(&self, record: Record) -> Result<bool, GuestError> {
        let mut bytes = Vec::new();
        for number in record.start..record.end() {
            bytes.extend(self.sector(number)?);
        }
        let content_at = usize::try_from(record.headers).unwrap_or(usize::MAX).saturating_mul(SECTOR_BYTES);
        let content_end = content_at.saturating_add(record.length_bytes);
        let (Some(content), Some(more)) = (bytes.get(content_at..content_end), bytes.get(SECTOR_BYTES..content_at))
        else {
            return Ok(false);
        };
        let more = more.chunks_exact(SECTOR_BYTES).flat_map(|sector| sector.iter().take(MORE_HEADER_BYTES));
        let more: Vec<u8> = more.copied().collect();
        let is_right = |header: usize| {
            let covered = [bytes.get(..header).unwrap_or_default(), &more, content].concat();
            has_right_checksum(Bytes(&covered), CHECKSUM_AT)
        };
        Ok(HEADER_BYTES.into_iter().any(is_right))
    }
}
