//! `$Bitmap`: a bit for each cluster of the volume.

use std::ops::Range;

use super::Ntfs;
use super::stream::{Clusters, Stream};
use crate::error::GuestError;

/// Name of the structure in messages about its place.
pub(super) const STRUCTURE: &str = "bitmap";
/// Record of the bitmap of clusters.
pub(super) const BITMAP_RECORD: u64 = 6;
/// Bytes of one read of the bitmap: few pages of fresh memory, for half a million clusters in four reads.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of one read of the bitmap for the look-up of a file's clusters.
const LOOK_BYTES: u64 = 4096;

/// `$Bitmap`: a bit for each cluster, set if the cluster is allocated.
pub(super) struct ClusterMap<'m> {
    stream: Stream,
    clusters: Clusters<'m>,
}

impl<'m> ClusterMap<'m> {
    /// Opens the bitmap; `None` if it is damaged, or too short for the volume.
    pub(super) fn open(ntfs: &'m Ntfs<'_>) -> Result<Option<ClusterMap<'m>>, GuestError> {
        let stream = ntfs.damage.skip(ntfs.system_stream(BITMAP_RECORD))?.flatten();
        let clusters = ntfs.mft.clusters();
        let is_whole = |stream: &Stream| {
            let is_mapped = stream.broken.is_none() && stream.runs().iter().all(|run| run.cluster.is_some());
            let is_plain = !stream.coding.is_compressed() && !stream.coding.is_encrypted();
            is_mapped && is_plain && stream.initialized_bytes >= clusters.count.div_ceil(8)
        };
        Ok(stream.filter(is_whole).map(|stream| ClusterMap { stream, clusters }))
    }

    /// Returns whether one of these clusters is free.
    pub(super) fn has_free(&self, clusters: Range<u64>) -> Result<bool, GuestError> {
        let mut at = clusters.start;
        while at < clusters.end {
            let end = clusters.end.min((at / 8 + LOOK_BYTES) * 8);
            let length = end.div_ceil(8) - at / 8;
            let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
            self.stream.read(self.clusters, at / 8, &mut piece)?;
            if let Some(first) = piece.first_mut() {
                *first |= u8::MAX.unbounded_shr(8 - u32::try_from(at % 8).unwrap_or(0));
            }
            if let Some(last) = piece.last_mut().filter(|_| !end.is_multiple_of(8)) {
                *last |= u8::MAX << (end % 8);
            }
            if piece.iter().any(|byte| *byte != u8::MAX) {
                return Ok(true);
            }
            at = end;
        }
        Ok(false)
    }

    /// Calls `visit` with pieces of the bitmap in order, each with its first cluster and the number of its clusters.
    fn each_piece(&self, visit: &mut dyn FnMut(u64, u64, &[u8])) -> Result<(), GuestError> {
        let mut first = 0;
        let mut piece = vec![0; PIECE_BYTES];
        while first < self.clusters.count {
            let count = (self.clusters.count - first).min(8 * PIECE_BYTES as u64);
            let bytes = piece.get_mut(..usize::try_from(count.div_ceil(8)).unwrap_or(0)).unwrap_or(&mut []);
            self.stream.read(self.clusters, first / 8, bytes)?;
            visit(first, count, bytes);
            first += count;
        }
        Ok(())
    }

    /// Calls `visit` with runs of clusters in order, and whether they are allocated. Neighbours may be alike.
    pub(super) fn each_run(&self, visit: &mut dyn FnMut(Range<u64>, bool)) -> Result<(), GuestError> {
        self.each_piece(&mut |first, count, bytes| {
            each_run_of_bits(bytes, count, &mut |is_used, from, to| visit(first + from..first + to, is_used));
        })
    }

    /// Returns the number of free clusters.
    pub(super) fn free_count(&self) -> Result<u64, GuestError> {
        let mut free = 0;
        self.each_piece(&mut |_, count, bytes| {
            let used: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
            let behind = bytes.last().filter(|_| count % 8 != 0).map_or(0, |last| (last >> (count % 8)).count_ones());
            free += count + u64::from(behind) - used;
        })?;
        Ok(free)
    }
}

/// Calls `visit` with the runs of equal bits in the first `count` bits of `bytes`: the bit, first, end.
fn each_run_of_bits(bytes: &[u8], count: u64, visit: &mut dyn FnMut(bool, u64, u64)) {
    let is_used = |bit: u64| {
        let byte = usize::try_from(bit / 8).ok().and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        byte >> (bit % 8) & 1 == 1
    };
    let mut from = 0;
    while from < count {
        let bit = is_used(from);
        let mut to = from + 1;
        while to < count {
            if to.is_multiple_of(8) {
                let rest = usize::try_from(to / 8).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
                to = (to + 8 * equal_bytes(rest, if bit { u8::MAX } else { 0 })).min(count);
                if to == count {
                    break;
                }
            }
            if is_used(to) != bit {
                break;
            }
            to += 1;
        }
        visit(bit, from, to);
        from = to;
    }
}

/// Returns the number of bytes at the start that have this value, eight at a time: most runs are long.
fn equal_bytes(bytes: &[u8], value: u8) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let whole = 8 * words.iter().take_while(|word| **word == [value; 8]).count();
    let rest = bytes.iter().skip(whole).take_while(|byte| **byte == value);
    (whole + rest.count()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_make_runs() {
        let runs = |bytes: &[u8], count| {
            let mut runs = Vec::new();
            each_run_of_bits(bytes, count, &mut |is_used, from, to| runs.push((is_used, from, to)));
            runs
        };
        assert_eq!(runs(&[0xff], 3), [(true, 0, 3)]);
        assert_eq!(runs(&[0], 8), [(false, 0, 8)]);
        assert_eq!(runs(&[0b0110_0001], 8), [(true, 0, 1), (false, 1, 5), (true, 5, 7), (false, 7, 8)]);
        assert_eq!(runs(&[0b0110_0001], 6), [(true, 0, 1), (false, 1, 5), (true, 5, 6)]);
        assert_eq!(runs(&[0x80, 0xff, 0xff, 0x01, 0, 0], 43), [(false, 0, 7), (true, 7, 25), (false, 25, 43)]);
        assert_eq!(runs(&[0xff, 0xff, 0x0f], 19), [(true, 0, 19)]);
        assert_eq!(runs(&[], 0), []);
        let mut long = vec![0xff; 30];
        long[21] = 0xfe;
        assert_eq!(runs(&long, 240), [(true, 0, 168), (false, 168, 169), (true, 169, 240)]);
        assert_eq!(runs(&long, 160), [(true, 0, 160)]);
    }
}
