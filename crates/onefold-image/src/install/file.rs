//! Targets provided by the operating system: files and block devices.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onefold_block::zero::is_zero;
use onefold_block::{AlignedBuffer, BLOCK_BYTES};
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, SeekFrom, fadvise, fallocate, open, seek};
use rustix::io::Errno;

use super::early_flush::EarlyFlush;
use super::target::Target;
use crate::in_use::{self, FileUser};

/// Maximum length of zeros that are written. For longer ones, a hole or a call to the device is cheaper.
const ZEROS_WRITTEN_MAX: u64 = 32 << 10;
/// Zeros in one write.
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];
/// Bytes at the beginning of a target in which partition tables and file systems have their signatures.
const MARKED_HEAD_BYTES: u64 = 1 << 20;
/// Bytes at the end of a target with such signatures.
const MARKED_TAIL_BYTES: u64 = 64 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// How often a device is tried that is locked, and the pause between two attempts.
const DEVICE_LOCKS: u32 = 10;
const BETWEEN_LOCKS: Duration = Duration::from_millis(100);

/// A file or a block device that receives a disk.
#[derive(Debug)]
pub struct FileTarget {
    file: File,
    length_bytes: u64,
    is_blank: bool,
    /// A descriptor that bypasses the page cache, if the file system supports that.
    direct: Option<File>,
    /// Whether the target has refused to make holes, or to zero a range without a write.
    refuses: Refusals,
    early_flush: EarlyFlush,
}

#[derive(Debug, Default)]
struct Refusals {
    holes: AtomicBool,
    zeros: AtomicBool,
}

/// Why a file or device cannot be a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It cannot be opened or measured.
    #[error("it cannot be opened for writing")]
    Open(#[source] io::Error),
    /// It cannot be locked, so others might write to it at the same time.
    #[error("it cannot be locked")]
    Lock(#[source] io::Error),
    /// It is neither a file nor a block device.
    #[error("it is neither a file nor a block device")]
    Kind,
    /// It is in use.
    #[error("{0}")]
    InUse(FileUser),
    /// Its first or last bytes cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// It is not blank.
    #[error("it is not blank: it may hold a partition table, a file system or other data")]
    NotBlank,
}

/// How to treat existing data on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Refuse a target that is not blank.
    Refuse,
    /// Overwrite it.
    Overwrite,
}

impl FileTarget {
    /// Wraps a new empty file that is open for reading and writing, and makes it `length_bytes` long.
    ///
    /// # Errors
    /// When the file cannot have that length.
    pub fn blank(file: File, length_bytes: u64) -> io::Result<FileTarget> {
        file.set_len(length_bytes)?;
        Ok(FileTarget::new(file, length_bytes, true))
    }

    /// Opens a file or a block device that exists. Until the target is dropped, it is locked against other
    /// installations, pools and virtual machines, and a device is held exclusively.
    ///
    /// # Errors
    /// When it cannot be opened, is in use, or is not blank and `content` refuses that.
    pub fn open(path: &Path, content: Content) -> Result<FileTarget, TargetError> {
        FileTarget::open_at(path, content, 0..u64::MAX)
    }

    /// As [`FileTarget::open`], for an image that only takes the bytes `place` of the target: only these must be blank.
    ///
    /// # Errors
    /// As [`FileTarget::open`].
    pub fn open_at(path: &Path, content: Content, place: Range<u64>) -> Result<FileTarget, TargetError> {
        // The type of the file must be known before it is opened, because opening a pipe can wait forever.
        let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let handle = File::from(handle.map_err(|errno| TargetError::Open(errno.into()))?);
        let metadata = handle.metadata().map_err(TargetError::Open)?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(TargetError::Kind);
        }
        if let Some(holder) = in_use::holder(&metadata) {
            return Err(TargetError::InUse(holder));
        }
        let file = open_exclusively(&handle, &metadata)?;
        let length_bytes = seek(&file, SeekFrom::End(0)).map_err(|errno| TargetError::Open(errno.into()))?;
        let target = FileTarget::new(file, length_bytes, false);
        if content == Content::Refuse && !target.has_blank_ends(place).map_err(TargetError::Read)? {
            return Err(TargetError::NotBlank);
        }
        Ok(target)
    }

    fn new(file: File, length_bytes: u64, is_blank: bool) -> FileTarget {
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = open(again.as_str(), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty());
        FileTarget {
            early_flush: EarlyFlush::of(&file),
            file,
            length_bytes,
            is_blank,
            direct: direct.ok().map(File::from),
            refuses: Refusals::default(),
        }
    }

    /// Returns whether the places are zero in which partition tables and file systems have their signatures, for a disk
    /// that takes the bytes `place`.
    fn has_blank_ends(&self, place: Range<u64>) -> io::Result<bool> {
        let end = place.end.min(self.length_bytes);
        let start = place.start.min(end);
        let head_end = start.saturating_add(MARKED_HEAD_BYTES).min(end);
        let tail_start = end.saturating_sub(MARKED_TAIL_BYTES).max(head_end);
        let mut bytes = vec![0; usize::try_from(MARKED_HEAD_BYTES).unwrap_or(0)];
        for (start, end) in [(start, head_end), (tail_start, end)] {
            let length = usize::try_from(end - start).unwrap_or(usize::MAX).min(bytes.len());
            self.file.read_exact_at(&mut bytes[..length], start)?;
            if !is_zero(&bytes[..length]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks for a range of zeros. Returns `false` if the target does not support this operation.
    fn allocate(
        &self,
        flags: FallocateFlags,
        refused: &AtomicBool,
        offset: u64,
        length_bytes: u64,
    ) -> io::Result<bool> {
        if refused.load(Ordering::Relaxed) {
            return Ok(false);
        }
        loop {
            match fallocate(&self.file, flags | FallocateFlags::KEEP_SIZE, offset, length_bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                // A device accepts only whole blocks of its own.
                Err(Errno::INVAL) => return Ok(false),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    refused.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns the number of bytes written.
    fn write_zeros(&self, start: u64, end: u64) -> io::Result<u64> {
        let mut offset = start;
        while offset < end {
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(ZEROS.len());
            self.file.write_all_at(&ZEROS[..length], offset)?;
            offset += length as u64;
        }
        Ok(end - start)
    }

    /// Reads by `direct`. Where the file system opens files for direct reads and refuses these, or the device has
    /// larger blocks, reads through the cache.
    fn read_or_cached(
        &self,
        offset: u64,
        into: &mut [u8],
        direct: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match direct(into) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => self.read_cached(offset, into),
            read => read,
        }
    }

    /// Reads through the page cache, which forgets the range first if the kernel follows that advice.
    fn read_cached(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let length = std::num::NonZeroU64::new(into.len() as u64);
        fadvise(&self.file, offset, length, Advice::DontNeed)?;
        self.file.read_exact_at(into, offset)
    }

    fn punch(&self, offset: u64, length_bytes: u64) -> io::Result<bool> {
        self.allocate(FallocateFlags::PUNCH_HOLE, &self.refuses.holes, offset, length_bytes)
    }
}

/// Returns the whole blocks within a range; an empty range at its start if it has none. A device makes no hole in a
/// part of its blocks. And the kernel makes a hole past its cache of whole blocks: a thread that writes to the same
/// block at that moment might bring old bytes back.
fn whole_blocks(start: u64, end: u64) -> Range<u64> {
    let (first, last) = (start.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
    if first < last { first..last } else { start..start }
}

/// Opens the file behind an `O_PATH` descriptor for reading and writing, a device exclusively.
fn open_exclusively(handle: &File, metadata: &Metadata) -> Result<File, TargetError> {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
    if metadata.file_type().is_block_device() {
        flags |= OFlags::EXCL;
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    match open(path.as_str(), flags, Mode::empty()) {
        // `O_EXCL` keeps neither QEMU out, which opens devices without it, nor another host's container.
        Ok(file) => match lock(&file, metadata.file_type().is_block_device()) {
            Ok(true) => Ok(file.into()),
            Ok(false) => Err(TargetError::InUse(FileUser::Locked)),
            Err(error) => Err(TargetError::Lock(error)),
        },
        Err(Errno::BUSY) => Err(TargetError::InUse(FileUser::Unknown)),
        Err(errno) => Err(TargetError::Open(errno.into())),
    }
}

/// Locks a target against every other opening of it. Returns false if somebody else holds a lock. The device manager
/// locks a device for moments while it looks at it.
fn lock(file: &OwnedFd, is_device: bool) -> io::Result<bool> {
    let attempts = if is_device { DEVICE_LOCKS } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            thread::sleep(BETWEEN_LOCKS);
        }
        if onefold_linux::lock_whole(file)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl AsFd for FileTarget {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Target for FileTarget {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_blank(&self) -> bool {
        self.is_blank
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, offset)?;
        self.early_flush.note(offset, from.len() as u64);
        Ok(())
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        let end = offset + length_bytes;
        let whole = whole_blocks(offset, end);
        let inside = whole.end - whole.start;
        if inside > ZEROS_WRITTEN_MAX
            && (self.punch(whole.start, inside)?
                || self.allocate(FallocateFlags::ZERO_RANGE, &self.refuses.zeros, whole.start, inside)?)
        {
            return Ok(self.write_zeros(offset, whole.start)? + self.write_zeros(whole.end, end)?);
        }
        self.write_zeros(offset, end)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        let whole = whole_blocks(offset, offset + length_bytes);
        let inside = whole.end - whole.start;
        Ok(if inside > 0 && self.punch(whole.start, inside)? { inside } else { 0 })
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.direct {
            Some(direct) => self.read_or_cached(offset, into, |into| read_directly(direct, offset, into)),
            None => self.read_cached(offset, into),
        }
    }
}

/// Fills `into` from `offset` past the page cache.
fn read_directly(direct: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    // Whole blocks around the range. The target may end within the last one.
    let start = offset / BLOCK * BLOCK;
    let before = usize::try_from(offset - start).unwrap_or(0);
    let mut buffer = AlignedBuffer::zeroed((before + into.len()).div_ceil(BLOCK_BYTES));
    let mut done = 0;
    while done < before + into.len() {
        match direct.read_at(&mut buffer[done..], start + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    into.copy_from_slice(&buffer[before..before + into.len()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn what_is_written_and_zeroed_is_read_back() {
        let file = file_of(&[9; 300_000]);
        let target = FileTarget::open(file.path(), Content::Overwrite).unwrap();
        assert_eq!(target.length_bytes(), 300_000);
        assert!(!target.is_blank());
        target.write(1000, &[7; 5000]).unwrap();
        assert_eq!(target.zero(2000, 100).unwrap(), 100, "few zeros are written");
        target.zero(100_000, 150_001).unwrap();
        target.sync().unwrap();
        let mut expected = vec![9; 300_000];
        expected[1000..6000].fill(7);
        expected[2000..2100].fill(0);
        expected[100_000..250_001].fill(0);
        for (offset, length) in [(0, 300_000), (1, 1), (4095, 2), (299_999, 1), (200_000, 100_000)] {
            let mut into = vec![1; length];
            target.read(offset, &mut into).unwrap();
            let start = usize::try_from(offset).unwrap();
            assert!(into == expected[start..start + length], "{offset} {length}");
        }
        assert!(target.read(299_999, &mut [0; 2]).is_err(), "past the end");
    }

    #[test]
    fn written_ranges_are_flushed_early() {
        let (flush, flushed) = std::sync::mpsc::channel();
        let mut target = FileTarget::blank(tempfile::tempfile().unwrap(), 16 << 20).unwrap();
        target.early_flush = EarlyFlush::by(move |range| flush.send(range).unwrap());
        let bytes = vec![3; 1 << 20];
        (4..12).for_each(|at| target.write(at << 20, &bytes).unwrap());
        assert_eq!(flushed.recv_timeout(Duration::from_secs(20)), Ok(4 << 20..12 << 20));
    }

    #[test]
    fn a_file_becomes_one_target_at_a_time() {
        let file = file_of(&[1; 4096]);
        let first = FileTarget::open(file.path(), Content::Overwrite).unwrap();
        let second = FileTarget::open(file.path(), Content::Overwrite);
        assert!(matches!(second, Err(TargetError::InUse(FileUser::Locked))), "{second:?}");
        drop(first);
        FileTarget::open(file.path(), Content::Overwrite).unwrap();
    }

    /// Seen: holes with edges of 512 bytes, beside threads that wrote to the same blocks.
    #[test]
    fn holes_have_whole_blocks_only() {
        assert_eq!(whole_blocks(512, 4096 * 20 + 512), 4096..4096 * 20);
        assert_eq!(whole_blocks(4096, 8192), 4096..8192);
        for (start, end) in [(512, 4096), (4097, 12_287), (100, 101), (8192, 8192)] {
            assert!(whole_blocks(start, end).is_empty(), "{start} {end}");
        }
        let file = file_of(&[9; 1 << 20]);
        let target = FileTarget::open(file.path(), Content::Overwrite).unwrap();
        let discarded = target.discard(512, (1 << 20) - 512).unwrap();
        assert!([0, (1 << 20) - 4096].contains(&discarded), "{discarded}");
        assert_eq!(target.discard(512, 3584).unwrap(), 0);
        let mut head = [0; 4096];
        target.read(0, &mut head).unwrap();
        assert!(head == [9; 4096]);
    }

    #[test]
    fn a_target_with_content_is_refused_unless_it_is_to_be_overwritten() {
        let long = 3 << 20;
        for (at, is_blank) in [(0, false), ((1 << 20) - 1, false), (long - 1, false), (2 << 20, true)] {
            let mut bytes = vec![0; long];
            bytes[at] = 1;
            let file = file_of(&bytes);
            let opened = FileTarget::open(file.path(), Content::Refuse);
            assert_eq!(opened.is_ok(), is_blank, "{at}");
            assert!(is_blank || matches!(opened, Err(TargetError::NotBlank)));
            drop(opened);
            assert!(FileTarget::open(file.path(), Content::Overwrite).is_ok());
        }
        assert!(FileTarget::open(file_of(&[]).path(), Content::Refuse).is_ok());
    }

    #[test]
    fn a_thing_that_is_no_disk_is_refused() {
        for path in ["/", "/dev/null"] {
            assert!(matches!(FileTarget::open(Path::new(path), Content::Overwrite), Err(TargetError::Kind)), "{path}");
        }
        let error = FileTarget::open(Path::new("/none"), Content::Overwrite).unwrap_err();
        assert!(matches!(error, TargetError::Open(source) if source.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn a_file_that_refuses_direct_reads_is_read_through_the_cache() {
        let file = file_of(&[5; 10_000]);
        let target = FileTarget::open(file.path(), Content::Overwrite).unwrap();
        let read = |errno: Errno| {
            let mut into = [0; 700];
            target.read_or_cached(9000, &mut into, |_| Err(errno.into())).map(|()| into)
        };
        assert!(read(Errno::INVAL).unwrap() == [5; 700]);
        assert_eq!(read(Errno::IO).unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    }

    #[test]
    fn a_new_file_is_blank_and_sparse() {
        let file = tempfile::tempfile().unwrap();
        let target = FileTarget::blank(file.try_clone().unwrap(), 1 << 40).unwrap();
        assert!(target.is_blank());
        assert_eq!((target.length_bytes(), file.metadata().unwrap().len()), (1 << 40, 1 << 40));
    }
}
