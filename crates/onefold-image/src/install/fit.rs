//! Moves the backup of a GPT to the end of a target that is larger than the disk.
//!
//! Source: UEFI specification, "GUID Partition Table (GPT) Disk Layout". Numbers are little-endian.
//!
//! | byte | field of the header | byte | field of the header |
//! |------|---------------------|------|---------------------|
//! | 0    | signature           | 40   | first usable block  |
//! | 12   | length of the header | 48  | last usable block   |
//! | 16   | CRC-32 of the header, with zeros here | 72 | first block of the entries |
//! | 24   | its own block       | 80   | number of entries   |
//! | 32   | block of the other header | 84 | length of an entry |
//! |      |                     | 88   | CRC-32 of the entries |

const SIGNATURE: &[u8; 8] = b"EFI PART";
const HEADER_BYTES_MIN: usize = 92;
/// Minimum length of an entry: its kind, its number, its first and its last block.
const ENTRY_BYTES_MIN: usize = 48;
/// Lengths of blocks that disks have.
const BLOCK_BYTES: [usize; 2] = [512, 4096];
/// The first partition of a protective boot record, and the distance to the next one.
const PROTECTIVE_AT: usize = 446;
const PROTECTIVE_BYTES: usize = 16;
const PROTECTIVE_KIND: u8 = 0xee;

/// Why the backup of a partition table cannot be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// There is no GPT.
    #[error("the image has no GPT")]
    NoTable,
    /// The GPT is damaged, or not where it usually is.
    #[error("the GPT of the image cannot be moved: {0}")]
    Table(&'static str),
}

/// A backup that belongs to the end of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backup {
    /// First byte on the target.
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// Checks whether the backup of a disk that begins with `head` can be moved to the end of a target. `head` has
/// [`super::HEAD_BYTES`], or the whole disk.
///
/// # Errors
/// When there is no GPT, or it is damaged.
pub fn check_fit(head: &[u8], target_bytes: u64) -> Result<(), FitError> {
    // What lies at the end of the disk makes no difference.
    fit(&mut head.to_vec(), &mut [], 0, target_bytes).map(|_| ())
}

/// Changes the first bytes of a disk so that the backup of its GPT lies at the end of the target, and removes the old
/// backup from its last bytes, `tail`, which begin at `tail_start`. Returns the new backup; `None` if the old one is
/// there already.
///
/// # Errors
/// When there is no GPT, or it is damaged. Nothing is changed then.
pub(super) fn fit(
    head: &mut [u8],
    tail: &mut [u8],
    tail_start: u64,
    target_bytes: u64,
) -> Result<Option<Backup>, FitError> {
    let table = BLOCK_BYTES.iter().find_map(|block| Table::decode(head, *block));
    let table = table.ok_or(FitError::NoTable)??;
    let block = table.block_bytes as u64;
    let last = (target_bytes / block).saturating_sub(1);
    if last < table.other {
        return Err(FitError::Table("its backup belongs behind the end of the target"));
    }
    if last == table.other {
        return Ok(None);
    }
    let entry_blocks = table.entries.len().div_ceil(table.block_bytes) as u64;
    let first = last.saturating_sub(entry_blocks);
    if first <= table.last_usable {
        return Err(FitError::Table("it says that the rest of the target is in use"));
    }
    clear_old(tail, tail_start, &table);
    let mut primary = table.header.clone();
    put(&mut primary, 32, last);
    put(&mut primary, 48, first - 1);
    seal(&mut primary);
    let mut backup = primary.clone();
    put(&mut backup, 24, last);
    put(&mut backup, 32, 1);
    put(&mut backup, 72, first);
    seal(&mut backup);
    head[table.block_bytes..][..primary.len()].copy_from_slice(&primary);
    protect(head, last);
    let mut bytes = table.entries;
    bytes.resize(bytes.len().next_multiple_of(table.block_bytes), 0);
    bytes.extend_from_slice(&backup);
    bytes.resize(bytes.len().next_multiple_of(table.block_bytes), 0);
    Ok(Some(Backup { offset: first * block, bytes }))
}

/// The primary table.
struct Table {
    block_bytes: usize,
    /// The header, in its own length.
    header: Vec<u8>,
    entries: Vec<u8>,
    /// The block of the other header.
    other: u64,
    last_usable: u64,
}

impl Table {
    /// Decodes the table of a disk with blocks of this length; `None` if there is no header.
    fn decode(head: &[u8], block_bytes: usize) -> Option<Result<Table, FitError>> {
        let block = head.get(block_bytes..2 * block_bytes)?;
        block.starts_with(SIGNATURE).then(|| Table::of(head, block).map_err(FitError::Table))
    }

    fn of(head: &[u8], block: &[u8]) -> Result<Table, &'static str> {
        let (short, block_bytes) = ("its header is too short", block.len());
        let header_bytes = le32(block, 12).ok_or(short)? as usize;
        if !(HEADER_BYTES_MIN..=block_bytes).contains(&header_bytes) {
            return Err("its header has an impossible length");
        }
        let header = block[..header_bytes].to_vec();
        let mut sealed = header.clone();
        seal(&mut sealed);
        if sealed != header {
            return Err("the checksum of its header is wrong");
        }
        let field = |at| le64(&header, at).ok_or(short);
        let (own, other, last_usable, first) = (field(24)?, field(32)?, field(48)?, field(72)?);
        let (count, length) = (le32(&header, 80).ok_or(short)?, le32(&header, 84).ok_or(short)?);
        let entries_bytes = u64::from(count) * u64::from(length);
        let start = first.checked_mul(block_bytes as u64);
        let range = start.and_then(|start| Some(start..start.checked_add(entries_bytes)?));
        let range = range.and_then(|range| Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?));
        let entries = range.and_then(|range| head.get(range)).ok_or("its entries are not near the beginning")?;
        if own != 1 || other <= last_usable {
            return Err("its header makes no sense");
        }
        if le32(&header, 88) != Some(crc32fast::hash(entries)) {
            return Err("the checksum of its entries is wrong");
        }
        // A partition behind the last usable block is somebody's data all the same.
        let length = usize::try_from(length).unwrap_or(usize::MAX).max(ENTRY_BYTES_MIN);
        let used = entries.chunks_exact(length).filter(|entry| entry[..16] != [0; 16]);
        let last_usable = used.filter_map(|entry| le64(entry, 40)).fold(last_usable, u64::max);
        if other <= last_usable {
            return Err("a partition lies where its backup belongs");
        }
        let entries = entries.to_vec();
        Ok(Table { block_bytes, header, entries, other, last_usable })
    }
}

/// Makes the old backup zero, as far as it lies in the last bytes of the disk. Without its header no firmware takes the
/// rest for one.
fn clear_old(tail: &mut [u8], tail_start: u64, table: &Table) {
    let block = table.block_bytes as u64;
    let place = |number: u64| {
        let byte = number.saturating_mul(block).saturating_sub(tail_start);
        usize::try_from(byte).unwrap_or(usize::MAX).min(tail.len())
    };
    let (start, header, end) = (place(table.last_usable + 1), place(table.other), place(table.other.saturating_add(1)));
    if tail.get(header..end).is_some_and(|header| header.starts_with(SIGNATURE)) {
        tail[start..end].fill(0);
    }
}

/// Lets the protective boot record cover a disk that ends with block `last`.
fn protect(head: &mut [u8], last: u64) {
    for number in 0..4 {
        let at = PROTECTIVE_AT + number * PROTECTIVE_BYTES;
        let Some(entry) = head.get_mut(at..at + PROTECTIVE_BYTES) else { return };
        if entry[4] == PROTECTIVE_KIND && le32(entry, 8) == Some(1) {
            // The old form of its end says "too far", as for nearly all disks.
            entry[5..8].fill(0xff);
            entry[12..16].copy_from_slice(&u32::try_from(last).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Puts a number into a header, which has at least [`HEADER_BYTES_MIN`].
fn put(header: &mut [u8], at: usize, value: u64) {
    header[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Puts the checksum of a header right.
fn seal(header: &mut [u8]) {
    header[16..20].fill(0);
    let checksum = crc32fast::hash(header);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
pub(in crate::install) mod tests {
    use super::*;

    const ENTRY_BYTES: usize = 128;

    /// Returns a disk of `blocks` with a GPT of `count` entries, one of them used up to the last usable block.
    pub(in crate::install) fn disk(blocks: usize, block: usize, count: usize) -> Vec<u8> {
        let entry_blocks = (count * ENTRY_BYTES).div_ceil(block);
        let (last, last_usable) = (blocks - 1, blocks - 2 - entry_blocks);
        let mut disk = vec![0x77; blocks * block];
        disk[..(2 + entry_blocks) * block].fill(0);
        disk[(last_usable + 1) * block..].fill(0);
        disk[446..462].copy_from_slice(&[0, 0, 2, 0, 0xee, 1, 2, 3, 1, 0, 0, 0, 9, 9, 0, 0]);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let mut entries = vec![0; count * ENTRY_BYTES];
        entries[..16].fill(3);
        entries[40..48].copy_from_slice(&(last_usable as u64).to_le_bytes());
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(SIGNATURE);
        for (at, value) in [(12, 92), (80, count), (84, ENTRY_BYTES)] {
            header[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap().to_le_bytes());
        }
        header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
        for (own, other, at) in [(1, last, 2), (last, 1, last - entry_blocks)] {
            for (field, value) in [(24, own), (32, other), (40, 2 + entry_blocks), (48, last_usable), (72, at)] {
                put(&mut header, field, value as u64);
            }
            seal(&mut header);
            disk[own * block..][..92].copy_from_slice(&header);
            disk[at * block..][..entries.len()].copy_from_slice(&entries);
        }
        disk
    }

    /// Fits a disk to a target, whose bytes are returned.
    fn fitted(disk: &[u8], tail_bytes: usize, target: usize) -> Result<Vec<u8>, FitError> {
        let mut bytes = disk.to_vec();
        let (head, tail) = bytes.split_at_mut(disk.len() - tail_bytes);
        let tail_start = head.len() as u64;
        let backup = fit(head, tail, tail_start, target as u64)?;
        bytes.resize(target, 0);
        if let Some(backup) = backup {
            let offset = usize::try_from(backup.offset).unwrap();
            bytes[offset..offset + backup.bytes.len()].copy_from_slice(&backup.bytes);
        }
        Ok(bytes)
    }

    #[test]
    fn a_fitted_disk_is_one_that_was_made_for_the_target() {
        for (block, count) in [(512, 128), (512, 4), (4096, 128)] {
            let disk_of = |blocks| disk(blocks, block, count);
            let (small, large) = (disk_of(300), disk_of(1000));
            let fitted = fitted(&small, 40 * block, large.len()).unwrap();
            let entry_blocks = (count * ENTRY_BYTES).div_ceil(block);
            // Of a partition of the smaller disk, nothing changes: neither its entry nor its content.
            let content = (2 + entry_blocks) * block..(300 - 1 - entry_blocks) * block;
            assert!(fitted[content.clone()] == small[content.clone()], "{block}");
            assert!(fitted[content.end..(1000 - 1 - entry_blocks) * block].iter().all(|byte| *byte == 0), "{block}");
            let table = |disk: &[u8]| Table::decode(disk, block).unwrap().unwrap();
            assert_eq!((table(&fitted).other, table(&fitted).last_usable), (999, 1000 - 2 - entry_blocks as u64));
            assert_eq!(table(&fitted).entries, table(&small).entries);
            // The other header names the places of a disk of that length, and has the same entries.
            let other = &fitted[999 * block..][..92];
            let mut expected = large[999 * block..][..92].to_vec();
            expected[88..92].copy_from_slice(&other[88..92]);
            seal(&mut expected);
            assert_eq!(other, expected, "{block}");
            let copy = (999 - entry_blocks) * block;
            assert_eq!(fitted[copy..][..count * ENTRY_BYTES], table(&small).entries);
            assert_eq!(fitted[446 + 5..462], [255, 255, 255, 1, 0, 0, 0, 0xe7, 3, 0, 0]);
        }
    }

    #[test]
    fn a_target_that_is_hardly_larger_takes_the_place_of_the_old_backup() {
        let small = disk(300, 512, 128);
        for more in [512, 1024, 20 * 512, 1030] {
            let fitted = fitted(&small, 33 * 512, small.len() + more).unwrap();
            let last = fitted.len() / 512 - 1;
            assert_eq!(Table::decode(&fitted, 512).unwrap().unwrap().other, last as u64);
            let table = Table::decode(&fitted, 512).unwrap().unwrap();
            assert_eq!(fitted[(last - 32) * 512..last * 512], table.entries);
            assert!(fitted[last * 512..].starts_with(SIGNATURE));
        }
    }

    #[test]
    fn a_disk_of_the_same_length_stays_as_it_is() {
        let disk = disk(300, 512, 128);
        assert!(fitted(&disk, 33 * 512, disk.len()).unwrap() == disk);
        assert!(fitted(&disk, 33 * 512, disk.len() + 511).unwrap()[..disk.len()] == disk);
    }

    #[test]
    fn a_disk_that_was_cut_short_is_an_error() {
        let disk = disk(300, 512, 128);
        assert!(matches!(fitted(&disk[..250 * 512], 33 * 512, 280 * 512), Err(FitError::Table(_))));
        assert!(matches!(check_fit(&disk[..250 * 512], 250 * 512), Err(FitError::Table(_))));
    }

    #[test]
    fn a_partition_behind_the_last_usable_block_is_kept() {
        for (end, more) in [(270, true), (299, false)] {
            let mut disk = disk(300, 512, 128);
            put(&mut disk[1024..], 40, end);
            let sum = crc32fast::hash(&disk[1024..1024 + 128 * ENTRY_BYTES]);
            disk[512 + 88..512 + 92].copy_from_slice(&sum.to_le_bytes());
            seal(&mut disk[512..604]);
            let end = usize::try_from(end).unwrap();
            disk[260 * 512..271 * 512].fill(0x55);
            match fitted(&disk, 33 * 512, 1000 * 512) {
                Ok(fitted) => assert!(more && fitted[260 * 512..(end + 1) * 512].iter().all(|byte| *byte == 0x55)),
                Err(error) => assert!(!more, "{error}"),
            }
        }
    }

    #[test]
    fn a_damaged_table_is_left_alone() {
        let sound = disk(300, 512, 128);
        assert_eq!(fitted(&vec![0; 300 * 512], 33 * 512, 1 << 20), Err(FitError::NoTable));
        for at in [512 + 12, 512 + 20, 512 + 24, 512 + 32, 512 + 72, 512 + 80, 512 + 85, 1024 + 5] {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            let outcome = fitted(&damaged, 33 * 512, 1 << 20);
            assert!(matches!(outcome, Err(FitError::Table(_))), "byte {at}: {outcome:?}");
        }
        for (field, value) in [(24, 2), (32, 5), (72, u64::MAX), (72, 1 << 60), (48, u64::MAX - 1)] {
            let mut hostile = sound.clone();
            put(&mut hostile[512..], field, value);
            seal(&mut hostile[512..604]);
            assert!(fitted(&hostile, 33 * 512, 1 << 20).is_err(), "{field} {value}");
        }
        assert!(fit(&mut [], &mut [], 0, 1 << 20).is_err());
    }
}
