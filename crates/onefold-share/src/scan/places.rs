//! Digests of places on the host's disk that this scan has read, so that it reads each place once.
//!
//! Clones, and files that share already, have blocks at one place, as their maps show. The first file is read, and the
//! logs of the others get its digests. So the cost of a clone is reading its map.
//!
//! Only files whose times are older than the scan take part. As long as two of them refer to a place, nothing writes to
//! it. A file that is written while it is read may have another content than its place. So the scan checks its times
//! and its map again before it adds digests of it. The times alone do not suffice, since a direct write sets them
//! before its data have their place. A write through a shared mapping shows in neither until the page is written back.
//! If another host frees a place and fills it again in the meantime, the place has a wrong digest. That costs savings
//! until the next change: blocks are compared before they are shared.

use std::collections::BTreeMap;

use onefold_block::BLOCK_BYTES_U64;

use crate::domain::Domain;
use crate::format::FingerprintPrefix;

/// Approximate memory of a run besides its digests, in bytes.
const RUN_BYTES: usize = 96;

/// Digests of places that this scan has read and to which more than one file may refer, by sharing domain.
#[derive(Debug)]
pub(super) struct ReadPlaces {
    by_domain: BTreeMap<Domain, PlaceDigests>,
    /// Memory that may still be used, in bytes.
    bytes_left: usize,
}

/// Digests of one domain, by place.
#[derive(Debug, Default)]
struct PlaceDigests {
    /// For each run of blocks its first place, in bytes, and the digest of each block; `None` for zero blocks.
    runs: BTreeMap<u64, Vec<Option<FingerprintPrefix>>>,
}

impl ReadPlaces {
    /// Returns an empty list, which takes at most `memory_bytes`. Digests that no longer fit are not kept.
    pub(super) fn new(memory_bytes: usize) -> ReadPlaces {
        ReadPlaces { by_domain: BTreeMap::new(), bytes_left: memory_bytes }
    }

    /// Returns the digests of a domain.
    pub(super) fn of_domain<'p>(&'p mut self, domain: &'p Domain) -> DomainPlaces<'p> {
        DomainPlaces { places: self, domain }
    }
}

/// The digests of one domain.
pub(super) struct DomainPlaces<'p> {
    places: &'p mut ReadPlaces,
    domain: &'p Domain,
}

impl DomainPlaces<'_> {
    /// Returns the known digests of the blocks at a place, in bytes, and behind it.
    pub(super) fn at(&self, place: u64) -> &[Option<FingerprintPrefix>] {
        let run = self.places.by_domain.get(self.domain).and_then(|digests| digests.runs.range(..=place).next_back());
        run.and_then(|(first, digests)| {
            let distance = place - first;
            let blocks = usize::try_from(distance / BLOCK_BYTES_U64).ok()?;
            digests.get(blocks..).filter(|_| distance.is_multiple_of(BLOCK_BYTES_U64))
        })
        .unwrap_or_default()
    }

    /// Returns how many bytes from a place on lie before the first block with a known digest, in whole blocks.
    pub(super) fn unknown_from(&self, place: u64) -> u64 {
        let digests = self.places.by_domain.get(self.domain);
        let next = digests.and_then(|digests| digests.runs.range(place..).next());
        next.map_or(u64::MAX, |(next, _)| next - place) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64
    }

    /// Notes the digests of consecutive blocks that begin at a place, in bytes.
    pub(super) fn add(&mut self, mut place: u64, mut digests: &[Option<FingerprintPrefix>]) {
        while !digests.is_empty() {
            let known = self.at(place).len();
            let count = if known > 0 {
                known
            } else {
                let unknown = usize::try_from(self.unknown_from(place) / BLOCK_BYTES_U64).unwrap_or(usize::MAX).max(1);
                let new = digests.get(..unknown).unwrap_or(digests);
                if !self.add_new(place, new) {
                    return;
                }
                new.len()
            };
            let Some(rest) = digests.get(count..) else { return };
            digests = rest;
            place = place.saturating_add(count as u64 * BLOCK_BYTES_U64);
        }
    }

    /// Notes digests of places of which none is known. Returns false if they do not fit into memory.
    fn add_new(&mut self, place: u64, digests: &[Option<FingerprintPrefix>]) -> bool {
        let bytes = RUN_BYTES.saturating_add(size_of_val(digests));
        let Some(left) = self.places.bytes_left.checked_sub(bytes) else { return false };
        self.places.bytes_left = left;
        let runs = &mut self.places.by_domain.entry(self.domain.clone()).or_default().runs;
        if let Some((first, run)) = runs.range_mut(..=place).next_back()
            && first.checked_add(run.len() as u64 * BLOCK_BYTES_U64) == Some(place)
        {
            run.extend_from_slice(digests);
        } else {
            runs.insert(place, digests.to_vec());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> Option<FingerprintPrefix> {
        (number > 0).then_some(FingerprintPrefix([number; FingerprintPrefix::BYTES]))
    }

    #[test]
    fn places_of_a_domain_have_the_digests_that_were_added() {
        let (one, two) = (Domain::Owner(1), Domain::Owner(2));
        let mut places = ReadPlaces::new(1 << 20);
        let mut of_one = places.of_domain(&one);
        of_one.add(8192, &[digest(1), digest(0)]);
        of_one.add(16384, &[digest(3)]);
        of_one.add(1024, &[digest(9)]);
        of_one.add(40960, &[digest(5)]);
        assert_eq!(of_one.at(8192), [digest(1), digest(0), digest(3)]);
        assert_eq!(of_one.at(12288), [digest(0), digest(3)]);
        assert_eq!(of_one.at(1024), [digest(9)]);
        for unknown in [0, 4096, 8193, 8704, 20480, 36864, 45056, u64::MAX] {
            assert_eq!(of_one.at(unknown), [], "{unknown}");
        }
        assert_eq!((of_one.unknown_from(4096), of_one.unknown_from(20480)), (4096, 20480));
        assert_eq!(of_one.unknown_from(40961), u64::MAX / BLOCK_BYTES_U64 * BLOCK_BYTES_U64);
        assert_eq!(places.of_domain(&two).at(8192), []);
    }

    #[test]
    fn what_is_known_stays_as_it_is() {
        let domain = Domain::Owner(1);
        let mut places = ReadPlaces::new(1 << 20);
        let mut of_domain = places.of_domain(&domain);
        of_domain.add(4 * 4096, &[digest(4), digest(5), digest(6)]);
        of_domain.add(8 * 4096, &[digest(8)]);
        of_domain.add(5 * 4096, &[digest(15)]);
        of_domain.add(2 * 4096, &[12, 13, 14, 15, 16, 17, 18, 19].map(digest));
        assert_eq!(of_domain.at(2 * 4096), [12, 13].map(digest));
        assert_eq!(of_domain.at(4 * 4096), [4, 5, 6, 17].map(digest));
        assert_eq!(of_domain.at(8 * 4096), [8, 19].map(digest));
    }

    #[test]
    fn what_does_not_fit_into_memory_is_not_kept() {
        let domain = Domain::Owner(1);
        let mut places = ReadPlaces::new(2 * RUN_BYTES);
        let mut of_domain = places.of_domain(&domain);
        of_domain.add(0, &[digest(1)]);
        of_domain.add(1 << 20, &[digest(2); 100]);
        assert_eq!((of_domain.at(0), of_domain.at(1 << 20)), (&[digest(1)][..], &[][..]));
    }
}
