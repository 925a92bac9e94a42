//! An archived image as a disk that can be read at any place without installation.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use onefold_disk::{Disk, DiskError};
use parking_lot::Mutex;

use crate::archive::{ArchiveError, Headers, WantedUnit};
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;
use crate::gaps::Gaps;
use crate::image_source::ImageSource;
use crate::placed::{HeaderError, check, pieces};
use crate::recent::RecentCache;
use crate::{SECTOR_BYTES, UnitName};

/// Divisor for the share of the memory that maps of regions get. The rest is for units.
const MAPS_SHARE: usize = 4;
/// Number of headers that are read together. A hostile one has up to 1 MiB.
const HEADERS_AT_ONCE: usize = 16;

/// A captured image that is read directly from the archive. Free sectors read as zeros.
///
/// A read looks up its region of the disk in the manifest, reads the headers of the chunks there, and then the units
/// that it needs. Maps of regions and plain units are cached in memory of a given size.
pub struct ArchivedDisk {
    source: Arc<dyn ImageSource>,
    manifest: Manifest,
    /// Never 0, even if the manifest says so.
    region_bytes: u64,
    maps: Mutex<RecentCache<u64, Arc<RegionMap>>>,
    units: Mutex<RecentCache<UnitName, Arc<[u8]>>>,
    /// If given, damage reads as zeros, and these are its places.
    gaps: Option<Gaps>,
    /// For each chunk whose header was read, the first and the last region in which it counts. A crowded region does
    /// not list its chunks, so without this each such region would read all headers of the image.
    reaches: Mutex<HashMap<usize, (u64, u64)>>,
}

/// Places of the data in a region of the disk.
#[derive(Debug, Default)]
struct RegionMap {
    /// Places with data, in order and without overlap.
    places: Vec<UnitPlace>,
    units: Vec<WantedUnit>,
    /// The chunk of each unit.
    chunks: Vec<UnitName>,
}

/// Consecutive bytes of a unit on the disk.
#[derive(Clone, Copy, Debug)]
struct UnitPlace {
    start: u64,
    end: u64,
    /// Index of the unit in the map.
    unit: usize,
    /// Offset within the unit of the byte at `start`.
    in_unit: usize,
}

impl std::fmt::Debug for ArchivedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchivedDisk").field("image", &self.manifest.image).finish_non_exhaustive()
    }
}

impl ArchivedDisk {
    /// Returns the disk of an image. Its caches take `memory_bytes` in total.
    #[must_use]
    pub fn new(source: Arc<dyn ImageSource>, manifest: Manifest, memory_bytes: usize) -> ArchivedDisk {
        ArchivedDisk::with(source, manifest, memory_bytes, None)
    }

    /// Returns the disk of an image that may be damaged. What cannot be read of it reads as zeros, and
    /// [`ArchivedDisk::gaps`] returns where that was.
    #[must_use]
    pub fn damaged(source: Arc<dyn ImageSource>, manifest: Manifest, memory_bytes: usize) -> ArchivedDisk {
        ArchivedDisk::with(source, manifest, memory_bytes, Some(Gaps::default()))
    }

    fn with(source: Arc<dyn ImageSource>, manifest: Manifest, memory_bytes: usize, gaps: Option<Gaps>) -> ArchivedDisk {
        let maps_bytes = memory_bytes / MAPS_SHARE;
        let maps = Mutex::new(RecentCache::new(maps_bytes));
        let units = Mutex::new(RecentCache::new(memory_bytes - maps_bytes));
        let region_bytes = manifest.region_bytes.max(SECTOR_BYTES);
        ArchivedDisk { source, manifest, region_bytes, maps, units, gaps, reaches: Mutex::default() }
    }

    /// Returns the ranges of the disk that were read as zeros because they are damaged, in order and without overlap.
    /// Where the header of a chunk is lost, nobody knows its places: all of its region that no other chunk has is a
    /// gap.
    #[must_use]
    pub fn gaps(&self) -> Vec<Range<u64>> {
        self.gaps.as_ref().map(Gaps::ranges).unwrap_or_default()
    }

    /// Returns the places of lost units, which a check has found, without reading any unit.
    ///
    /// # Errors
    /// When headers of chunks contradict each other, or the disk was not opened as a damaged one and some are lost.
    pub fn find_gaps(&self, lost: &BTreeSet<UnitName>) -> Result<Vec<Range<u64>>, DiskError> {
        let found = Gaps::default();
        for region in 0..self.manifest.size_bytes.div_ceil(self.region_bytes) {
            let map = self.map(region)?;
            let is_lost = |place: &&UnitPlace| lost.contains(&map.units[place.unit].name);
            found.add(map.places.iter().filter(is_lost).map(|place| place.start..place.end));
        }
        found.add(self.gaps().into_iter());
        Ok(found.ranges())
    }

    /// Returns the gaps if an error is damage that they take. Fails with any other error.
    fn gaps_for(&self, error: ArchiveError) -> Result<&Gaps, DiskError> {
        let is_damage = match &error {
            ArchiveError::Lost { .. } | ArchiveError::DamagedUnit { .. } | ArchiveError::Damaged { .. } => true,
            // A store that refuses its user, or that did not answer for long, fails as a whole: nothing is known to be
            // damaged then.
            ArchiveError::Store(error) => !error.is_final(),
            _ => false,
        };
        let error = self.source.of_image(&self.manifest.image, error);
        match &self.gaps {
            Some(gaps) if is_damage && !matches!(error, ArchiveError::Removed { .. }) => Ok(gaps),
            _ => Err(other(error)),
        }
    }

    /// Returns the range of the disk that a region covers.
    fn range_of(&self, region: u64) -> Range<u64> {
        let start = region.saturating_mul(self.region_bytes);
        start..start.saturating_add(self.region_bytes).min(self.manifest.size_bytes)
    }

    fn region_of(&self, offset: u64) -> u64 {
        offset / self.region_bytes
    }

    /// Returns the indices of all chunks that may have bytes in a region.
    fn chunks_of(&self, region: u64) -> Vec<usize> {
        let all = self.manifest.chunks.len();
        let first_of = |region: usize| self.manifest.regions.get(region).map(|chunks| chunks.first as usize);
        let Some(region) = usize::try_from(region).ok() else { return Vec::new() };
        let Some(chunks) = self.manifest.regions.get(region) else { return Vec::new() };
        // The list of a crowded region is incomplete, so every chunk may be there.
        let Some(others) = &chunks.others else { return (0..all).collect() };
        let own = chunks.first as usize..first_of(region + 1).unwrap_or(all).min(all);
        others.iter().map(|index| *index as usize).chain(own).collect()
    }

    fn map(&self, region: u64) -> Result<Arc<RegionMap>, DiskError> {
        if let Some(map) = self.maps.lock().get(&region) {
            return Ok(map);
        }
        let map = Arc::new(self.read_map(region)?);
        let bytes = map.places.len() * size_of::<UnitPlace>() + map.units.len() * size_of::<WantedUnit>();
        self.maps.lock().insert(region, Arc::clone(&map), bytes.max(1));
        Ok(map)
    }

    /// Builds the map of a region from the headers of its chunks.
    fn read_map(&self, region: u64) -> Result<RegionMap, DiskError> {
        let range = self.range_of(region);
        let places_max = (range.end.saturating_sub(range.start)).div_ceil(SECTOR_BYTES);
        let mut map = RegionMap::default();
        let mut zeros = Vec::new();
        let mut lacks_header = false;
        for chunks in self.reaching_chunks(region).chunks(HEADERS_AT_ONCE) {
            let names: Vec<UnitName> = chunks.iter().map(|index| self.manifest.chunks[*index]).collect();
            let headers = self.headers(&names)?;
            for (at, (index, name)) in chunks.iter().zip(&names).enumerate() {
                let header = match headers
                    .as_ref()
                    .map_or_else(|| self.source.headers(&[*name]).and_then(|read| read.get(0)), |read| read.get(at))
                {
                    Ok(header) => header,
                    Err(error) => {
                        self.gaps_for(error)?;
                        lacks_header = true;
                        continue;
                    }
                };
                check(name, &header, self.manifest.size_bytes).map_err(other)?;
                self.reaches.lock().entry(*index).or_insert_with(|| self.reach_of(&header));
                map.add(*name, &header, &range, self.manifest.size_bytes);
                if self.gaps.is_some() {
                    zeros.extend(
                        header.zeros.iter().map(|run| run.start_bytes()..run.start_bytes() + run.length_bytes()),
                    );
                }
                if map.places.len() as u64 > places_max {
                    return Err(other(HeaderError { header: *name, what: "its region has more places than sectors" }));
                }
            }
        }
        map.places.sort_unstable_by_key(|place| place.start);
        if lacks_header && let Some(gaps) = &self.gaps {
            let known = map.places.iter().map(|place| place.start..place.end).chain(zeros);
            gaps.add_rest(range, known.collect());
        }
        match map.places.array_windows().find(|[one, next]| one.end > next.start) {
            None => Ok(map),
            Some([one, _]) => {
                let header = map.units[one.unit].name;
                Err(other(HeaderError { header, what: "this unit and another have the same sectors" }))
            }
        }
    }

    /// Returns the indices of all chunks that may have bytes in a region, without those whose headers say otherwise.
    fn reaching_chunks(&self, region: u64) -> Vec<usize> {
        let reaches = self.reaches.lock();
        let reaches = |index: &usize| reaches.get(index).is_none_or(|(first, last)| (*first..=*last).contains(&region));
        let known = self.chunks_of(region).into_iter().filter(|index| *index < self.manifest.chunks.len());
        known.filter(reaches).collect()
    }

    /// Returns the headers of chunks; `None` if one of them is damaged and the gaps take that.
    fn headers(&self, names: &[UnitName]) -> Result<Option<Headers>, DiskError> {
        match self.source.headers(names) {
            Ok(headers) => Ok(Some(headers)),
            Err(error) => self.gaps_for(error).map(|_| None),
        }
    }

    /// Returns the first and the last region in which a chunk has data, or where damage reads as zeros, data or zeros;
    /// an empty range if it has none.
    fn reach_of(&self, header: &ChunkHeader) -> (u64, u64) {
        let zeros = self.gaps.iter().flat_map(|_| &header.zeros);
        let runs = header.units.iter().flat_map(|unit| &unit.runs).chain(zeros);
        runs.fold((u64::MAX, 0), |(first, last), run| {
            let end = run.start_bytes() + run.length_bytes() - 1;
            (first.min(self.region_of(run.start_bytes())), last.max(self.region_of(end)))
        })
    }

    /// Fills `into` from `offset` within one region.
    fn read_in(&self, map: &RegionMap, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset + into.len() as u64;
        let first = map.places.partition_point(|place| place.end <= offset);
        let places: Vec<UnitPlace> =
            map.places[first..].iter().copied().take_while(|place| place.start < end).collect();
        let mut missing: Vec<usize> = Vec::new();
        for place in &places {
            let wanted = map.units[place.unit];
            let cached = self.units.lock().get(&wanted.name);
            match cached {
                // Another header may claim another length for the same unit.
                Some(plain) if wanted.plain_bytes.map(|bytes| bytes as usize) == Some(plain.len()) => {
                    place.copy(&plain, offset, into);
                }
                _ => missing.push(place.unit),
            }
        }
        missing.sort_unstable();
        missing.dedup();
        let wanted: Vec<WantedUnit> = missing.iter().map(|unit| map.units[*unit]).collect();
        let chunks: Vec<UnitName> = missing.iter().map(|unit| map.chunks[*unit]).collect();
        let mut is_filled = vec![false; wanted.len()];
        let mut fill = |index: usize, plain: &[u8]| {
            is_filled[index] = true;
            places
                .iter()
                .filter(|place| place.unit == missing[index])
                .for_each(|place| place.copy(plain, offset, into));
            self.units.lock().insert(wanted[index].name, Arc::from(plain), plain.len());
        };
        let Err(error) = self.source.read_of_chunks(&chunks, &wanted, &mut fill) else {
            return Ok(());
        };
        self.gaps_for(error)?;
        // One by one, so that a damaged unit costs no other.
        for index in 0..wanted.len() {
            if is_filled[index] {
                continue;
            }
            let mut fill_one = |_: usize, plain: &[u8]| {
                let of_unit = places.iter().filter(|place| place.unit == missing[index]);
                of_unit.for_each(|place| place.copy(plain, offset, into));
            };
            if let Err(error) =
                self.source.read_of_chunks(&chunks[index..=index], &wanted[index..=index], &mut fill_one)
            {
                let gaps = self.gaps_for(error)?;
                let of_unit = map.places.iter().filter(|place| place.unit == missing[index]);
                gaps.add(of_unit.map(|place| place.start..place.end));
            }
        }
        Ok(())
    }
}

impl RegionMap {
    /// Adds the places of a chunk's units within `range`.
    fn add(&mut self, chunk: UnitName, header: &ChunkHeader, range: &Range<u64>, size_bytes: u64) {
        for unit in &header.units {
            let index = self.units.len();
            for piece in pieces(unit, size_bytes) {
                let (start, end) = (piece.on_disk, piece.on_disk + piece.length as u64);
                let (within, until) = (start.max(range.start), end.min(range.end));
                if within < until {
                    // A piece has at most 1 MiB.
                    let in_unit = piece.in_unit + usize::try_from(within - start).unwrap_or(0);
                    self.places.push(UnitPlace { start: within, end: until, unit: index, in_unit });
                }
            }
            if self.places.last().is_some_and(|place| place.unit == index) {
                self.units.push(WantedUnit { name: unit.name, plain_bytes: Some(unit.plain_bytes) });
                self.chunks.push(chunk);
            }
        }
    }
}

impl UnitPlace {
    /// Copies the bytes of this place into `into`, which begins at `offset` of the disk.
    fn copy(&self, plain: &[u8], offset: u64, into: &mut [u8]) {
        let (start, end) = (self.start.max(offset), self.end.min(offset + into.len() as u64));
        if start >= end {
            return;
        }
        // All differences lie within a unit or within `into`.
        let distance = |from: u64, to: u64| usize::try_from(to - from).unwrap_or(usize::MAX);
        let from = self.in_unit + distance(self.start, start);
        let length = distance(start, end);
        let at = distance(offset, start);
        into[at..at + length].copy_from_slice(&plain[from..from + length]);
    }
}

impl Disk for ArchivedDisk {
    fn size_bytes(&self) -> u64 {
        self.manifest.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let mut offset = offset;
        while offset < self.manifest.size_bytes {
            let region = self.region_of(offset);
            let map = self.map(region)?;
            let places = &map.places[map.places.partition_point(|place| place.end <= offset)..];
            if let Some(first) = places.first() {
                let joined = places.array_windows().take_while(|[one, next]| one.end == next.start).count();
                return Ok(Some(first.start.max(offset)..places[joined].end));
            }
            offset = self.range_of(region).end;
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        let mut done = 0;
        while done < into.len() && offset + (done as u64) < self.manifest.size_bytes {
            let at = offset + done as u64;
            let region = self.region_of(at);
            let within = usize::try_from(self.range_of(region).end - at).unwrap_or(usize::MAX);
            let length = within.min(into.len() - done);
            self.read_in(&*self.map(region)?, at, &mut into[done..done + length])?;
            done += length;
        }
        Ok(())
    }
}

/// Wraps an error of this crate in an error of a disk.
fn other(error: impl Error + Send + Sync + 'static) -> DiskError {
    DiskError::Other(Box::new(error))
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::archive::{Archive, CheckOptions};
    use crate::store::{Store, StoreError};
    use crate::test_images::{TestImage, image};

    fn expected(image: &TestImage) -> Vec<u8> {
        let mut bytes = Vec::new();
        for sector in &image.sectors {
            bytes.extend(sector.as_ref().map_or(&[0; 512][..], |bytes| bytes));
        }
        bytes.resize(usize::try_from(image.manifest.size_bytes).unwrap(), 0);
        bytes
    }

    #[test]
    fn any_range_reads_as_it_was_captured_whatever_the_caches_hold() {
        for (seed, size_bytes) in [(1, 1 << 20), (2, 300_000), (3, 512), (4, 100), (5, 2 << 20)] {
            let image = image(seed, size_bytes);
            let expected = expected(&image);
            for memory_bytes in [0, 100_000, 64 << 20] {
                let disk = ArchivedDisk::new(image.archive.clone(), image.manifest.clone(), memory_bytes);
                assert_eq!(disk.size_bytes(), size_bytes);
                let random = SeededRandom::new(seed);
                for _ in 0..40 {
                    let start = usize::try_from(random.below(size_bytes)).unwrap();
                    let mut into = vec![7; usize::try_from(random.below(200_000)).unwrap()];
                    disk.read(start as u64, &mut into).unwrap();
                    let within = into.len().min(expected.len() - start);
                    assert!(into[..within] == expected[start..start + within], "{seed} {start}");
                    assert!(into[within..].iter().all(|byte| *byte == 0), "past the end");
                }
            }
        }
    }

    #[test]
    fn data_is_where_units_are_and_nowhere_else() {
        for (seed, size_bytes) in [(6, 1 << 20), (7, 300_001), (8, 512)] {
            let image = image(seed, size_bytes);
            let disk = ArchivedDisk::new(image.archive.clone(), image.manifest.clone(), 1 << 20);
            let mut found = vec![false; image.sectors.len()];
            let mut offset = 0;
            while let Some(range) = disk.next_data(offset).unwrap() {
                assert!(range.start >= offset && range.start < range.end && range.end <= size_bytes, "{range:?}");
                for sector in range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES) {
                    found[usize::try_from(sector).unwrap()] = true;
                }
                offset = range.end;
            }
            let is_data =
                |sector: &Option<Vec<u8>>| sector.as_ref().is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
            assert!(found.iter().copied().eq(image.sectors.iter().map(is_data)), "{seed}");
        }
    }

    /// Regression: each crowded region read the headers of the whole image.
    #[test]
    fn crowded_regions_read_each_header_that_does_not_reach_them_once() {
        use crate::store::faulty::FaultyStore;
        let image = image(10, 2 << 20);
        let store = Arc::new(FaultyStore::new(image.store.clone(), Arc::default(), 1, 0));
        let archive = Arc::new(Archive::open(store.clone()).unwrap());
        let mut manifest = image.manifest.clone();
        manifest.regions.iter_mut().for_each(|region| region.others = None);
        let disk = ArchivedDisk::new(archive, manifest, 0);
        let regions = disk.manifest.regions.len() as u64;
        disk.map(0).unwrap();
        let chunks = disk.manifest.chunks.len();
        assert_eq!(disk.reaches.lock().len(), chunks);
        let reaching =
            |region| disk.reaches.lock().values().filter(|(first, last)| (*first..=*last).contains(&region)).count();
        let before = store.calls();
        let expected: usize = (1..regions).map(reaching).sum();
        for region in 1..regions {
            assert_eq!(disk.reaching_chunks(region).len(), reaching(region), "region {region}");
            disk.map(region).unwrap();
        }
        // The headers lie together, and so a call reads several.
        let calls = usize::try_from(store.calls() - before).unwrap();
        assert!(calls <= expected / 4, "{calls} calls for {expected} headers");
        assert!(expected < chunks * usize::try_from(regions).unwrap() / 4, "{expected} of {chunks}");
    }

    #[test]
    fn headers_of_units_that_overlap_are_damage() {
        let image = image(9, 1 << 20);
        let disk = ArchivedDisk::new(image.archive.clone(), image.manifest.clone(), 1 << 20);
        let mut twice = image.manifest.clone();
        twice.chunks.push(twice.chunks[0]);
        twice.regions.iter_mut().for_each(|region| region.others = None);
        let hostile = ArchivedDisk::new(image.archive.clone(), twice, 1 << 20);
        let mut into = vec![0; 1 << 20];
        disk.read(0, &mut into).unwrap();
        let error = hostile.read(0, &mut into).unwrap_err();
        assert!(matches!(&error, DiskError::Other(source) if source.is::<HeaderError>()), "{error}");
    }

    /// Regression: a store that refused its user in the middle of an export made the rest of the disk a gap.
    #[test]
    fn a_store_that_fails_as_a_whole_is_no_damage() {
        let image = image(21, 1 << 20);
        let gaps = |error| {
            let disk = ArchivedDisk::damaged(image.archive.clone(), image.manifest.clone(), 0);
            disk.gaps_for(ArchiveError::Store(error)).is_ok()
        };
        let (action, name) = ("read", "object".to_owned());
        assert!(gaps(StoreError::Io { action, name: name.clone(), source: std::io::Error::other("a bad sector") }));
        assert!(!gaps(StoreError::GaveUp { action, name, source: std::io::Error::other("no answer") }));
    }

    /// Each pack loses its first unit, or all. What is left reads as before, the gaps read as zeros, and nothing else
    /// does.
    #[test]
    fn a_damaged_image_reads_with_its_gaps_listed() {
        for seed in 10..16 {
            let image = image(seed, 3 << 20);
            let expected = expected(&image);
            let mut objects = image.store.objects();
            for (name, pack) in objects.iter_mut().filter(|(name, _)| name.as_str().starts_with("packs/")) {
                pack[90] ^= 1;
                match seed % 2 {
                    0 => image.store.put(name, &[pack]).unwrap(),
                    _ => image.store.delete(name).unwrap(),
                }
            }
            let open = || Arc::new(Archive::open(Arc::clone(&image.store) as Arc<dyn Store>).unwrap());
            let strict = ArchivedDisk::new(open(), image.manifest.clone(), 1 << 20);
            let mut into = vec![0; expected.len()];
            assert!(strict.read(0, &mut into).is_err());
            let archive = open();
            let lost = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap().lost;
            let disk = ArchivedDisk::damaged(archive.clone(), image.manifest.clone(), 1 << 20);
            let found = disk.find_gaps(&lost).unwrap();
            disk.read(0, &mut into).unwrap();
            let gaps = disk.gaps();
            assert_eq!(found, gaps, "a check knows them without reading");
            assert!(!gaps.is_empty());
            for (at, (byte, whole)) in into.iter().zip(&expected).enumerate() {
                let is_gap = gaps.iter().any(|gap| gap.contains(&(at as u64)));
                assert_eq!(*byte, if is_gap { 0 } else { *whole }, "{seed}: byte {at}");
            }
            let lost: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
            assert_eq!(lost < expected.len() as u64 / 2, seed % 2 == 0, "{seed}: {lost}");
        }
    }
}
