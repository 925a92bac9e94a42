//! Positioned transfers that either complete or fail.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::Errno;

use crate::BLOCK_BYTES;

/// Fills all of `into` from `offset` on.
pub(super) fn read_at(file: &File, offset: u64, mut into: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let length = into.iter().map(|slice| slice.len()).sum();
    complete(length, io::ErrorKind::UnexpectedEof, |done, progress| {
        IoSliceMut::advance_slices(&mut into, progress);
        rustix::io::preadv(file, into, offset + done as u64)
    })
}

/// Writes all of `from` at `offset`.
pub(super) fn write_at(file: &File, offset: u64, mut from: &mut [IoSlice<'_>]) -> io::Result<()> {
    let length = from.iter().map(|slice| slice.len()).sum();
    complete(length, io::ErrorKind::WriteZero, |done, progress| {
        IoSlice::advance_slices(&mut from, progress);
        rustix::io::pwritev(file, from, offset + done as u64)
    })
}

/// Returns the error that a caller sees. A sparse file that cannot grow is always `StorageFull`, even if a quota is the
/// cause.
pub(super) fn io_error(errno: Errno) -> io::Error {
    match errno {
        Errno::DQUOT => io::Error::new(io::ErrorKind::StorageFull, io::Error::from(errno)),
        errno => errno.into(),
    }
}

/// Calls `step(done, progress)` until `length` bytes are done; `progress` counts the bytes of the previous call. If a
/// step ends inside a block, the next one starts at that block again, because it must be aligned. A step without
/// progress is the end.
fn complete(
    length: usize,
    at_end: io::ErrorKind,
    mut step: impl FnMut(usize, usize) -> Result<usize, Errno>,
) -> io::Result<()> {
    let (mut done, mut progress) = (0, 0);
    while done < length {
        match step(done, progress) {
            Ok(count) => {
                progress = count - count % BLOCK_BYTES;
                done += progress;
                if progress == 0 {
                    return Err(at_end.into());
                }
            }
            Err(Errno::INTR) => progress = 0,
            Err(errno) => return Err(io_error(errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `complete` over prepared answers and returns the requested offsets.
    fn run(length: usize, answers: &[Result<usize, Errno>]) -> (Vec<usize>, io::Result<()>) {
        let mut asked = Vec::new();
        let outcome = complete(length, io::ErrorKind::UnexpectedEof, |done, _| {
            asked.push(done);
            answers[asked.len() - 1]
        });
        (asked, outcome)
    }

    #[test]
    fn short_transfers_are_continued_at_a_block() {
        let (asked, outcome) = run(4 * BLOCK_BYTES, &[Ok(BLOCK_BYTES), Ok(BLOCK_BYTES + 512), Ok(2 * BLOCK_BYTES)]);
        assert_eq!(asked, [0, BLOCK_BYTES, 2 * BLOCK_BYTES]);
        outcome.unwrap();
    }

    #[test]
    fn interrupted_transfers_are_repeated() {
        let (asked, outcome) = run(2 * BLOCK_BYTES, &[Ok(BLOCK_BYTES), Err(Errno::INTR), Ok(BLOCK_BYTES)]);
        assert_eq!(asked, [0, BLOCK_BYTES, BLOCK_BYTES]);
        outcome.unwrap();
    }

    #[test]
    fn a_transfer_that_gets_nowhere_ends() {
        for answer in [0, 1, BLOCK_BYTES - 1] {
            let (asked, outcome) = run(2 * BLOCK_BYTES, &[Ok(BLOCK_BYTES), Ok(answer)]);
            assert_eq!(asked.len(), 2);
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_full_disk_and_a_used_up_quota_are_storage_full() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert_eq!(io_error(errno).kind(), io::ErrorKind::StorageFull);
        }
        assert_ne!(io_error(Errno::IO).kind(), io::ErrorKind::StorageFull);
    }
}
