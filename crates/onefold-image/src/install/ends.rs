//! Both ends of a disk. They are written last, because a disk without them does not boot.

use std::io;

use parking_lot::Mutex;

use super::fit::{Backup, FitError, fit};
use super::hidden::{self, BOOT_BYTES, HiddenSectors};
use super::target::Target;
use super::{InstallError, failed};

/// Bytes at the beginning of a disk that are held back. They contain partition tables, boot loaders and superblocks.
pub const HEAD_BYTES: u64 = 1 << 20;
/// Bytes at the end of a disk that are held back. They contain the backup of a GPT, to which firmware falls back.
const TAIL_BYTES: u64 = 33 * 512;
/// Bytes that are written after all others, because firmware reads them first.
const FIRST_BYTES: usize = 4096;
/// Possible places of the header of a backup GPT, as distances from the end of a target. Each comes with the distance
/// at which the whole backup begins.
const BACKUP_TABLES: [(u64, u64); 2] = [(512, TAIL_BYTES), (4096, 5 * 4096)];
/// First bytes of the header of a GPT.
const GPT_SIGNATURE: &[u8; 8] = b"EFI PART";
/// Bytes of zeros in one write.
const ZEROS: [u8; 4096] = [0; 4096];

/// The bytes of both ends, which stay in memory until all others are durable.
pub(super) struct Ends {
    head: Mutex<Vec<u8>>,
    tail: Mutex<Vec<u8>>,
    /// First byte of the tail; the end of the disk if the head covers all of it.
    tail_start: u64,
    /// The backup of a GPT at the end of a larger target.
    backup: Mutex<Option<Backup>>,
    /// Head and tail as the target had them before they were wiped; zeros unless they were read.
    former: [Vec<u8>; 2],
}

impl Ends {
    /// Returns the ends of a disk of `size_bytes`, filled with zeros.
    pub(super) fn of(size_bytes: u64) -> Ends {
        let head_bytes = size_bytes.min(HEAD_BYTES);
        let tail_start = size_bytes.saturating_sub(TAIL_BYTES).max(head_bytes);
        // Each is at most 1 MiB.
        let zeros = |length_bytes: u64| vec![0; usize::try_from(length_bytes).unwrap_or(0)];
        let former = [zeros(head_bytes), zeros(size_bytes - tail_start)];
        let [head, tail] = former.clone().map(Mutex::new);
        Ends { head, tail, tail_start, backup: Mutex::new(None), former }
    }

    /// Reads both ends of the target, for [`Ends::read_former`]. An end that cannot be read counts as zeros.
    pub(super) fn remember(&mut self, target: &dyn Target) {
        let [head, tail] = &mut self.former;
        for (offset, bytes) in [(0, head), (self.tail_start, tail)] {
            if target.read(offset, bytes).is_err() {
                bytes.fill(0);
            }
        }
    }

    /// Durably wipes both ends of the area that the disk will cover, and a GPT's backup at the end of a longer target.
    pub(super) fn wipe(&self, target: &dyn Target) -> io::Result<()> {
        if target.is_blank() {
            return Ok(());
        }
        wipe(target, 0, self.head.lock().len() as u64)?;
        wipe(target, self.tail_start, self.tail.lock().len() as u64)?;
        Ends::wipe_backup_tables(target)?;
        target.sync()
    }

    /// Wipes the backup of a GPT at the end of a target.
    pub(super) fn wipe_backup_tables(target: &dyn Target) -> io::Result<()> {
        let length_bytes = target.length_bytes();
        for (header, table) in BACKUP_TABLES {
            let mut signature = [0; GPT_SIGNATURE.len()];
            if length_bytes >= table {
                target.read(length_bytes - header, &mut signature)?;
            }
            if signature == *GPT_SIGNATURE {
                wipe(target, length_bytes - table, table)?;
            }
        }
        Ok(())
    }

    /// Keeps the bytes that belong to the ends, and writes the others to the target.
    pub(super) fn write(&self, target: &dyn Target, offset: u64, from: &[u8]) -> io::Result<()> {
        let (offset, middle) = self.keep(offset, from);
        if middle.is_empty() { Ok(()) } else { target.write(offset, middle) }
    }

    /// Keeps the bytes that belong to the ends. Returns the others and their offset.
    pub(super) fn keep<'b>(&self, offset: u64, from: &'b [u8]) -> (u64, &'b [u8]) {
        let (offset, from) = take(&self.head, 0, offset, from);
        let until_tail = usize::try_from(self.tail_start.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (middle, from) = from.split_at(until_tail.min(from.len()));
        take(&self.tail, self.tail_start, offset + middle.len() as u64, from);
        (offset, middle)
    }

    /// Returns the part of a range that lies between the ends, as start and length. Bytes of the ends are zero until
    /// they are written.
    pub(super) fn between(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let middle = self.middle();
        let (start, end) = (start.max(middle.start), end.min(middle.end));
        (start < end).then(|| (start, end - start))
    }

    /// Returns the range of the disk between the ends.
    pub(super) fn middle(&self) -> std::ops::Range<u64> {
        self.head.lock().len() as u64..self.tail_start
    }

    /// Fits the GPT in the ends to the length of the target. The ends must be complete. Returns whether anything
    /// changed.
    pub(super) fn fit(&self, target_bytes: u64) -> Result<bool, FitError> {
        let (mut head, mut tail) = (self.head.lock(), self.tail.lock());
        let backup = fit(&mut head, &mut tail, self.tail_start, target_bytes)?;
        if let Some(Backup { offset, bytes }) = &backup {
            // A target that is hardly larger has its backup where the disk has its end.
            let place = usize::try_from(offset.saturating_sub(self.tail_start)).unwrap_or(usize::MAX).min(tail.len());
            // A long table begins before the end that is held back.
            let before = self.tail_start.saturating_sub(*offset);
            let skipped = usize::try_from(before).unwrap_or(usize::MAX).min(bytes.len());
            let length = (tail.len() - place).min(bytes.len() - skipped);
            tail[place..place + length].copy_from_slice(&bytes[skipped..skipped + length]);
        }
        let has_changed = backup.is_some();
        *self.backup.lock() = backup;
        Ok(has_changed)
    }

    /// Puts a number of hidden sectors into the boot sector and its copy, which may lie between the ends. The ends must
    /// be complete. Returns the number if the disk has a boot sector. With `verify` a copy between the ends is read
    /// back.
    pub(super) fn hide(
        &self,
        target: &dyn Target,
        hidden: HiddenSectors,
        verify: bool,
    ) -> Result<Option<u32>, InstallError> {
        let mut boot = [0; BOOT_BYTES];
        let size_bytes = self.tail_start + self.tail.lock().len() as u64;
        if size_bytes < BOOT_BYTES as u64 {
            return Ok(None);
        }
        self.read(target, 0, &mut boot).map_err(failed("read"))?;
        let Some((number, copy)) = hidden.places(&boot) else { return Ok(None) };
        let mut written = None;
        for offset in std::iter::once(0).chain(copy) {
            if offset.checked_add(BOOT_BYTES as u64).is_some_and(|end| end <= size_bytes) {
                let mut sector = [0; BOOT_BYTES];
                self.read(target, offset, &mut sector).map_err(failed("read"))?;
                if hidden::put(&mut sector, &boot, number) {
                    self.write(target, offset, &sector).map_err(failed("write"))?;
                    written = Some((offset, sector));
                }
            }
        }
        // A copy between the ends is durable before them.
        target.sync().map_err(failed("flush"))?;
        if let Some((offset, sector)) = written.filter(|(offset, _)| verify && self.middle().contains(offset)) {
            let middle = self.middle().end - offset;
            compare(target, offset, &sector[..usize::try_from(middle).unwrap_or(BOOT_BYTES).min(BOOT_BYTES)])?;
        }
        Ok(Some(number))
    }

    /// Writes both ends durably, the first sectors last. All other bytes are already durable.
    pub(super) fn publish(&self, target: &dyn Target) -> io::Result<()> {
        target.write(self.tail_start, &self.tail.lock())?;
        if let Some(Backup { offset, bytes }) = &*self.backup.lock() {
            target.write(*offset, bytes)?;
        }
        let head = self.head.lock();
        let (first, rest) = head.split_at(FIRST_BYTES.min(head.len()));
        target.write(first.len() as u64, rest)?;
        target.sync()?;
        target.write(0, first)?;
        target.sync()
    }

    /// Fills `into` from `offset`: the bytes of the ends from memory, those between them from the target.
    pub(super) fn read(&self, target: &dyn Target, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_between(target, offset, into)?;
        copy(&self.head.lock(), 0, offset, into);
        copy(&self.tail.lock(), self.tail_start, offset, into);
        Ok(())
    }

    /// As [`Ends::read`], with the ends as the target had them before.
    pub(super) fn read_former(&self, target: &dyn Target, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_between(target, offset, into)?;
        let [head, tail] = &self.former;
        copy(head, 0, offset, into);
        copy(tail, self.tail_start, offset, into);
        Ok(())
    }

    /// Fills the part of `into` that lies between the ends.
    fn read_between(&self, target: &dyn Target, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.between(offset, offset + into.len() as u64) {
            Some((start, length_bytes)) => target.read(start, part(into, start - offset, length_bytes)),
            None => Ok(()),
        }
    }

    /// Reads both ends back after they were written, and compares them.
    pub(super) fn read_back(&self, target: &dyn Target) -> Result<(), InstallError> {
        compare(target, 0, &self.head.lock())?;
        compare(target, self.tail_start, &self.tail.lock())?;
        match &*self.backup.lock() {
            Some(Backup { offset, bytes }) => compare(target, *offset, bytes),
            None => Ok(()),
        }
    }

    /// Wipes both ends after they were written, durably. The first sectors go first.
    pub(super) fn wipe_again(&self, target: &dyn Target) -> io::Result<()> {
        wipe(target, 0, self.head.lock().len() as u64)?;
        wipe(target, self.tail_start, self.tail.lock().len() as u64)?;
        if let Some(Backup { offset, bytes }) = &*self.backup.lock() {
            wipe(target, *offset, bytes.len() as u64)?;
        }
        target.sync()
    }
}

/// Reads a range of the target back and compares it.
fn compare(target: &dyn Target, start: u64, bytes: &[u8]) -> Result<(), InstallError> {
    let mut found = vec![0; bytes.len()];
    target.read(start, &mut found).map_err(failed("read back"))?;
    match found.iter().zip(bytes).position(|(found, byte)| found != byte) {
        Some(place) => Err(InstallError::ReadBack { offset: start + place as u64 }),
        None => Ok(()),
    }
}

/// Copies the part of an end at `start` that `into` covers; `into` begins at `offset`.
fn copy(end: &[u8], start: u64, offset: u64, into: &mut [u8]) {
    let (from, to) = (offset.max(start), (offset + into.len() as u64).min(start + end.len() as u64));
    if from < to {
        let place = usize::try_from(from - start).unwrap_or(usize::MAX);
        let into = part(into, from - offset, to - from);
        into.copy_from_slice(&end[place..place + into.len()]);
    }
}

/// Returns the part of a buffer at a place within it.
fn part(buffer: &mut [u8], start: u64, length: u64) -> &mut [u8] {
    let place = |number| usize::try_from(number).unwrap_or(usize::MAX);
    &mut buffer[place(start)..place(start + length)]
}

/// Copies the part of `from` that an end at `start` covers; `from` belongs at `offset`. Returns the rest and its
/// offset.
fn take<'a>(end: &Mutex<Vec<u8>>, start: u64, offset: u64, from: &'a [u8]) -> (u64, &'a [u8]) {
    let mut end = end.lock();
    let Some(place) = offset.checked_sub(start).and_then(|place| usize::try_from(place).ok()) else {
        return (offset, from);
    };
    let Some(room) = end.get_mut(place..) else { return (offset, from) };
    let length = room.len().min(from.len());
    room[..length].copy_from_slice(&from[..length]);
    (offset + length as u64, &from[length..])
}

/// Writes zeros, because a hole or a discard might expose old bytes.
fn wipe(target: &dyn Target, offset: u64, length_bytes: u64) -> io::Result<()> {
    let mut done = 0;
    while done < length_bytes {
        let length = usize::try_from(length_bytes - done).unwrap_or(usize::MAX).min(ZEROS.len());
        target.write(offset + done, &ZEROS[..length])?;
        done += length as u64;
    }
    Ok(())
}
