//! A part of a chunk that is processed at once, with its bytes in the order of the disk.

use crate::format::chunk_header::PlacedUnit;
use crate::placed::{Piece, pieces};

/// Units of a chunk, and one buffer for the bytes of all of them. Pieces that are neighbours on the disk are neighbours
/// in the buffer, regardless of the units' order, so each run of the disk is one request.
pub(super) struct Window<'a> {
    pub(super) units: &'a [PlacedUnit],
    /// All pieces in the order of the disk, with their places in the buffer.
    placed: Vec<PlacedPiece>,
    /// For each unit the indices of its pieces, in the order of the unit.
    of_unit: Vec<Vec<usize>>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
struct PlacedPiece {
    piece: Piece,
    unit: usize,
    in_buffer: usize,
}

/// A run of the disk and its bytes.
pub(super) struct DiskRun<'a> {
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
}

/// Splits units into parts of at most `bytes_max` plain bytes each, or of one unit.
pub(super) fn parts(units: &[PlacedUnit], bytes_max: u64) -> impl Iterator<Item = &[PlacedUnit]> {
    let mut rest = units;
    std::iter::from_fn(move || {
        let mut sum = 0_u64;
        let mut fits = |unit: &PlacedUnit| {
            sum += u64::from(unit.plain_bytes);
            sum <= bytes_max
        };
        let count = rest.iter().take_while(|unit| fits(unit)).count().max(1).min(rest.len());
        let (part, others) = rest.split_at(count);
        rest = others;
        (!part.is_empty()).then_some(part)
    })
}

impl<'a> Window<'a> {
    /// Returns the window of these units, whose header has been checked.
    pub(super) fn new(units: &'a [PlacedUnit], size_bytes: u64) -> Window<'a> {
        let mut placed: Vec<PlacedPiece> = Vec::new();
        for (unit, of) in units.iter().enumerate() {
            placed.extend(pieces(of, size_bytes).map(|piece| PlacedPiece { piece, unit, in_buffer: 0 }));
        }
        placed.sort_by_key(|placed| placed.piece.on_disk);
        let mut of_unit = vec![Vec::new(); units.len()];
        let mut in_buffer = 0;
        for (index, placed) in placed.iter_mut().enumerate() {
            placed.in_buffer = in_buffer;
            in_buffer += placed.piece.length;
            of_unit[placed.unit].push(index);
        }
        Window { units, placed, of_unit, buffer: vec![0; in_buffer] }
    }

    /// Copies the plain bytes of a unit to their places.
    pub(super) fn fill(&mut self, unit: usize, plain: &[u8]) {
        for index in &self.of_unit[unit] {
            let PlacedPiece { piece, in_buffer, .. } = self.placed[*index];
            let bytes = &plain[piece.in_unit..piece.in_unit + piece.length];
            self.buffer[in_buffer..in_buffer + piece.length].copy_from_slice(bytes);
        }
    }

    /// Copies the plain bytes of a unit from their places.
    pub(super) fn collect(&self, unit: usize, plain: &mut Vec<u8>) {
        plain.clear();
        let mut indices = self.of_unit[unit].clone();
        indices.sort_by_key(|index| self.placed[*index].piece.in_unit);
        for index in indices {
            let PlacedPiece { piece, in_buffer, .. } = self.placed[index];
            plain.extend_from_slice(&self.buffer[in_buffer..in_buffer + piece.length]);
        }
    }

    /// Returns the runs of a unit.
    pub(super) fn runs_of(&self, unit: usize) -> impl Iterator<Item = DiskRun<'_>> {
        self.of_unit[unit].iter().map(|index| {
            let PlacedPiece { piece, in_buffer, .. } = self.placed[*index];
            DiskRun { offset: piece.on_disk, bytes: &self.buffer[in_buffer..in_buffer + piece.length] }
        })
    }

    /// Returns the runs of the disk in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = DiskRun<'_>> {
        self.places().map(|(offset, range)| DiskRun { offset, bytes: &self.buffer[range] })
    }

    /// Fills the buffer by reading each run of the disk, in order.
    ///
    /// # Errors
    /// The first that `read` returns.
    pub(super) fn read<E>(&mut self, mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let places: Vec<_> = self.places().collect();
        places.into_iter().try_for_each(|(offset, range)| read(offset, &mut self.buffer[range]))
    }

    /// Returns the runs of the disk in order, with their places in the buffer.
    fn places(&self) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
        let follows =
            |one: &PlacedPiece, next: &PlacedPiece| one.piece.on_disk + one.piece.length as u64 == next.piece.on_disk;
        self.placed.chunk_by(follows).map(|run| {
            let end = run.last().map_or(0, |last| last.in_buffer + last.piece.length);
            (run[0].piece.on_disk, run[0].in_buffer..end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SectorRun, UnitName};

    fn unit(plain_bytes: u32, runs: &[(u64, u64)]) -> PlacedUnit {
        let runs = runs.iter().map(|&(start, count)| SectorRun { start, count }).collect();
        PlacedUnit { name: UnitName([0; 32]), plain_bytes, runs }
    }

    #[test]
    fn scattered_units_become_runs_of_the_disk() {
        // Two units with interleaved sectors, and one far away.
        let units = [unit(1536, &[(4, 1), (0, 1), (2, 1)]), unit(1024, &[(3, 1), (1, 1)]), unit(512, &[(9, 1)])];
        let plain: Vec<Vec<u8>> = [vec![4, 0, 2], vec![3, 1], vec![9]]
            .map(|marks| marks.into_iter().flat_map(|mark| [mark; 512]).collect())
            .into();
        let mut window = Window::new(&units, 10 * 512);
        for (index, plain) in plain.iter().enumerate() {
            window.fill(index, plain);
        }
        let runs: Vec<(u64, Vec<u8>)> = window.runs().map(|run| (run.offset, run.bytes.to_vec())).collect();
        let near: Vec<u8> = (0..5).flat_map(|mark| [mark; 512]).collect();
        assert!(runs == [(0, near), (9 * 512, vec![9; 512])]);
        let mut collected = Vec::new();
        for (index, plain) in plain.iter().enumerate() {
            window.collect(index, &mut collected);
            assert!(collected == *plain, "{index}");
        }
        let mut asked = Vec::new();
        let read = window.read(|offset, into| {
            asked.push((offset, into.len()));
            Ok::<(), ()>(())
        });
        assert_eq!((read, asked), (Ok(()), vec![(0, 2560), (9 * 512, 512)]));
    }

    #[test]
    fn windows_are_bounded_and_no_unit_is_lost() {
        let units: Vec<PlacedUnit> = [512, 512, 2048, 512, 512, 512].map(|bytes| unit(bytes, &[])).into();
        let counts: Vec<usize> = parts(&units, 1024).map(<[PlacedUnit]>::len).collect();
        assert_eq!(counts, [2, 1, 2, 1]);
        assert_eq!(parts(&[], 1024).count(), 0);
        assert_eq!(parts(&units, 0).count(), 6);
    }
}
