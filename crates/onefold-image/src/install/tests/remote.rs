//! Installations from a server, honest or lying, without a network.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::capture::SeedOptions;
use crate::format::descriptor::UnitKind;
use crate::format::pack::UNIT_HEADER_BYTES;
use crate::image_source::{Arrivals, LackingPart};
use crate::install::requests::capture_disk;
use crate::remote::{Chunks, RemoteImages, Transport};
use crate::served::ServedArchive;
use crate::store::MemoryStore;
use crate::testing::{MemoryDisk, headers};
use crate::{ImageVersion, SeededImages, UnitName};

/// Long enough that the disk has a middle between its ends.
const SIZE: u64 = 3 << 20;

/// Change that a server makes to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    /// A bit of the first unit of each chunk is flipped.
    FlippedInChunks,
    /// Each message ends in the middle.
    Truncated,
    /// Each chunk is the first one of the image.
    OtherChunks,
    /// Messages are empty.
    Empty,
    /// A bit of the answers to requests of units is flipped.
    FlippedUnits,
    /// So it is, but not in the first answer, which has the headers; and a bit of the first unit of each chunk is.
    FlippedLater,
    /// Answers have one unit only, though more fit.
    OneByOne,
    /// None, and chunks arrive in an order that this seed decides. If they are compared, the first ones arrive once
    /// half of them have been.
    Shuffled(u64),
}

#[derive(Debug)]
pub(super) struct Server {
    served: ServedArchive,
    first: UnitName,
    lie: Lie,
    answers: AtomicUsize,
    /// Chunks that arrive, and were compared before.
    compared: Mutex<HashMap<usize, LackingPart>>,
    /// Chunks that were requested as a whole, or had come.
    whole: AtomicUsize,
    /// Requests for single units of a chunk.
    single: AtomicUsize,
}

impl Server {
    fn chunk(&self, name: &UnitName) -> Result<Vec<u8>, ArchiveError> {
        let name = if self.lie == Lie::OtherChunks { &self.first } else { name };
        let mut pieces = self.served.chunk(name)?.pieces;
        if matches!(self.lie, Lie::FlippedInChunks | Lie::FlippedLater) && pieces.len() > 1 {
            let mut unit = pieces[1].to_vec();
            unit[UNIT_HEADER_BYTES as usize] ^= 4;
            pieces[1] = unit.into();
        }
        Ok(self.cut(pieces.concat()))
    }

    fn cut(&self, mut message: Vec<u8>) -> Vec<u8> {
        match self.lie {
            Lie::Truncated => message.truncate(message.len() / 2),
            Lie::Empty => message.clear(),
            _ => {}
        }
        message
    }
}

impl Transport for Server {
    fn server(&self) -> &str {
        "the server of the test"
    }

    fn units(&self, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let names = if self.lie == Lie::OneByOne { &names[..1] } else { names };
        let mut message = self.served.units(names)?.concat();
        if self.lie == Lie::FlippedUnits || self.lie == Lie::FlippedLater && number > 0 {
            let last = message.len() - 1;
            message[last] ^= 1;
        }
        Ok(self.cut(message))
    }

    fn units_of(&self, chunk: &UnitName, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        assert!(self.served.has_units(chunk, names)?, "the chunk has other units");
        self.single.fetch_add(1, Ordering::Relaxed);
        self.units(names)
    }

    fn chunks(&self, names: &[UnitName]) -> Chunks<'_> {
        self.whole.fetch_add(names.len(), Ordering::Relaxed);
        let names = names.to_vec();
        Box::new(names.into_iter().map(|name| self.chunk(&name)))
    }

    fn has_image(&self, image: &ImageVersion) -> Result<bool, ArchiveError> {
        Ok(self.served.archive().find(&image.name, Some(image.version)).is_some())
    }

    fn has_come(&self, _: &UnitName) -> bool {
        matches!(self.lie, Lie::Shuffled(_))
    }

    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        let Lie::Shuffled(seed) = self.lie else { return None };
        let random = SeededRandom::new(seed);
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
        }
        let first_compared = if is_compared { chunks.len() / 2 } else { 0 };
        let order = Mutex::new((order, random));
        Some(Box::new(ShuffledArrivals { order, first_compared, compared: &self.compared }))
    }
}

/// Chunks in a random order, up to three at once, and now and then none.
struct ShuffledArrivals<'s> {
    order: Mutex<(Vec<usize>, SeededRandom)>,
    first_compared: usize,
    compared: &'s Mutex<HashMap<usize, LackingPart>>,
}

impl Arrivals for ShuffledArrivals<'_> {
    fn next(&self, _: Duration) -> Option<Vec<usize>> {
        if self.compared.lock().len() < self.first_compared {
            std::thread::yield_now();
            return Some(Vec::new());
        }
        let (order, random) = &mut *self.order.lock();
        let left = order.len().saturating_sub(usize::try_from(random.below(4)).unwrap());
        let is_over = order.is_empty();
        let mut next = order.split_off(left);
        next.sort_unstable();
        (!is_over).then_some(next)
    }

    fn compared(&self, index: usize, part: LackingPart) {
        assert!(self.compared.lock().insert(index, part).is_none(), "chunk {index} was compared twice");
    }

    fn finish(&self, _: &[usize]) {}
}

pub(super) fn remote(image: &TestImage, lie: Lie) -> RemoteImages<Server> {
    let archive = Arc::new(Archive::open(image.store.clone()).unwrap());
    let descriptor = archive.descriptor().clone();
    let served = ServedArchive::new(archive, 100 << 10);
    let server = Server {
        served,
        first: image.manifest.chunks[0],
        lie,
        answers: AtomicUsize::new(0),
        compared: Mutex::default(),
        whole: AtomicUsize::new(0),
        single: AtomicUsize::new(0),
    };
    RemoteImages::new(server, descriptor)
}

/// Installs over noise. Returns the outcome, what is on the target then, and the noise.
fn install_over_noise(image: &TestImage, lie: Lie) -> (Result<InstallReport, InstallError>, Vec<u8>, Vec<u8>) {
    let target = MemoryTarget::noise(1, SIZE);
    let noise = target.bytes.lock().clone();
    let options = options(FreeSectorPolicy::Leave, true);
    let done = install(&remote(image, lie), &image.manifest, &target, &options, &go_on);
    (done, target.bytes.into_inner(), noise)
}

#[test]
fn an_image_of_a_server_is_installed_as_one_of_an_archive() {
    for seed in 0..8 {
        let image = image(seed, SIZE);
        let (done, installed, noise) = install_over_noise(&image, Lie::None);
        assert_eq!(done.unwrap().written_bytes, image.manifest.totals.data_bytes);
        assert_holds(&image, &installed, &|at| noise.get(at).copied());
    }
}

#[test]
fn chunks_are_installed_in_the_order_in_which_they_arrive() {
    for seed in 0..8 {
        let image = image(seed, SIZE);
        let (done, installed, noise) = install_over_noise(&image, Lie::Shuffled(seed));
        assert_eq!(done.unwrap().written_bytes, image.manifest.totals.data_bytes);
        assert_holds(&image, &installed, &|at| noise.get(at).copied());
    }
}

/// Chunks are not verified by the server, and a proxy may keep old ones. Units that are requested alone mend them.
#[test]
fn wrong_chunks_cost_requests_and_no_byte() {
    for lie in [Lie::FlippedInChunks, Lie::OtherChunks, Lie::OneByOne] {
        let image = image(9, SIZE);
        let (done, installed, noise) = install_over_noise(&image, lie);
        assert!(done.is_ok(), "{lie:?}: {done:?}");
        assert_holds(&image, &installed, &|at| noise.get(at).copied());
    }
}

#[test]
fn a_lying_server_gives_an_error_before_anything_is_written() {
    for lie in [Lie::Truncated, Lie::Empty, Lie::FlippedUnits] {
        let image = image(4, SIZE);
        let (done, installed, noise) = install_over_noise(&image, lie);
        let InstallError::Untouched(error) = done.unwrap_err() else { panic!("{lie:?}: the target was touched") };
        assert!(matches!(*error, InstallError::Archive(ArchiveError::WrongUnit { .. })), "{lie:?}: {error:?}");
        assert!(installed == noise, "{lie:?}");
    }
}

#[test]
fn a_server_that_begins_to_lie_leaves_no_wrong_byte_and_no_beginning() {
    let image = image(11, SIZE);
    let (done, installed, noise) = install_over_noise(&image, Lie::FlippedLater);
    let error = done.unwrap_err();
    assert!(matches!(error, InstallError::Archive(ArchiveError::WrongUnit { .. })), "{error:?}");
    let head = usize::try_from(HEAD_BYTES).unwrap();
    assert!(installed[..head].iter().all(|byte| *byte == 0));
    for (number, sector) in image.sectors.iter().enumerate().skip(head / 512) {
        let range = number * 512..(number + 1) * 512;
        let (found, before) = (&installed[range.clone()], &noise[range]);
        let is_right = sector.as_deref().is_some_and(|sector| sector == found);
        // The backup of a partition table, at the end of the disk, is wiped, too.
        let is_wiped = found.iter().all(|byte| *byte == 0);
        assert!(is_right || is_wiped || found == before, "sector {number} has a third content");
    }
}

/// A target that has an earlier version of the image costs the changed units, and little more.
#[test]
fn only_changed_units_are_received() {
    for seed in 0..6 {
        let image = image(seed + 20, SIZE);
        let remote = remote(&image, Lie::None);
        let target = MemoryTarget::noise(1, SIZE);
        let options = options(FreeSectorPolicy::Leave, true);
        let first = install(&remote, &image.manifest, &target, &options, &go_on).unwrap();
        let again = install(&remote, &image.manifest, &target, &options, &go_on).unwrap();
        assert_eq!((again.found_bytes, again.written_bytes), (image.manifest.totals.data_bytes, 0));
        let headers_bytes = again.received_bytes;
        assert!(headers_bytes < first.received_bytes / 3, "{headers_bytes} of {first:?}");

        let random = SeededRandom::new(seed);
        let mut changed_bytes = 0;
        let share = 2 + random.below(30);
        for unit in headers(&image.archive, &image.manifest).iter().flat_map(|header| &header.units) {
            if random.below(share) == 0 {
                let at = usize::try_from(unit.runs[0].start_bytes()).unwrap();
                target.bytes.lock()[at] ^= 1;
                let stored = image.archive.stored(&unit.name).unwrap().unwrap();
                changed_bytes += u64::from(stored.stored_bytes + UNIT_HEADER_BYTES);
            }
        }
        let done = install(&remote, &image.manifest, &target, &options, &go_on).unwrap();
        let received_bytes = done.received_bytes - headers_bytes;
        assert!(received_bytes >= changed_bytes, "{received_bytes} of {changed_bytes}");
        assert!(received_bytes * 10 <= changed_bytes * 13, "{received_bytes} of {changed_bytes}");
        assert_holds(&image, &target.bytes.lock(), &|_| None);
    }
}

/// The comparison goes ahead of chunks that arrive, and changes nothing about what is found, fetched and written.
#[test]
fn chunks_that_arrive_are_written_only_where_the_target_lacks_them() {
    for seed in 0..12 {
        let image = image(seed, SIZE);
        let random = SeededRandom::new(seed + 50);
        let target = MemoryTarget::noise(seed, SIZE);
        install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on).unwrap();
        let mut before = target.bytes.into_inner();
        // From a few sectors to half of the target.
        for _ in 0..1 << (seed % 8) {
            let at = usize::try_from(random.below(SIZE)).unwrap();
            let end = before.len().min(at + usize::try_from(random.below(SIZE / 128)).unwrap());
            before[at..end].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        let install_by = |lie| {
            let target = MemoryTarget { bytes: Mutex::new(before.clone()), ..MemoryTarget::noise(0, 0) };
            let images = remote(&image, lie);
            let done = install(&images, &image.manifest, &target, &options(FreeSectorPolicy::Leave, true), &go_on);
            assert_holds(&image, &target.bytes.lock(), &|at| before.get(at).copied());
            (done.unwrap(), images)
        };
        let (in_order, _) = install_by(Lie::None);
        let (done, images) = install_by(Lie::Shuffled(seed));
        assert_eq!(
            (done.found_bytes, done.written_bytes, done.zero_bytes),
            (in_order.found_bytes, in_order.written_bytes, in_order.zero_bytes),
            "seed {seed}"
        );
        let compared = images.transport().compared.lock();
        assert!(compared.len() >= image.manifest.chunks.len() / 2);
        let mut lacking_chunks = 0;
        for (index, name) in image.manifest.chunks.iter().enumerate() {
            let units = image.archive.header(name).unwrap().units;
            let units_bytes: u64 = units.iter().map(|unit| u64::from(unit.plain_bytes)).sum();
            if let Some(part) = compared.get(&index) {
                assert!(part.bytes == units_bytes && part.lacking_bytes <= units_bytes, "{part:?}");
                lacking_chunks += usize::from(part.lacking_bytes > 0);
            } else {
                lacking_chunks += 1;
            }
        }
        let transport = images.transport();
        assert!(transport.whole.load(Ordering::Relaxed) <= lacking_chunks, "a whole chunk came for nothing");
        assert_eq!(transport.single.load(Ordering::Relaxed), 0, "a unit that had come was requested again");
    }
}

#[test]
fn chunks_that_arrive_are_compared_with_seeds() {
    let random = SeededRandom::new(5);
    let disk = MemoryDisk::noise(usize::try_from(SIZE).unwrap(), &random);
    let store = Arc::new(MemoryStore::default());
    let units = UnitKind::Fixed { unit_bytes: 32 << 10 };
    let archive = Arc::new(Archive::create(store.clone(), units, &random).unwrap());
    capture_disk(&archive, &disk, &random);
    let manifest = archive.manifest(&archive.images()[0]).unwrap();
    let sectors = disk.bytes.chunks(512).map(|sector| Some(sector.to_vec())).collect();
    let image = TestImage { archive, store, manifest, sectors };
    let half = MemoryDisk::new(disk.bytes[..disk.bytes.len() / 2].to_vec());
    let folder = tempfile::tempdir().unwrap();
    let seed_options = SeedOptions { threads: 1, memory_bytes: 0, folder: folder.path() };
    for lie in [Lie::None, Lie::Shuffled(7)] {
        let source = Arc::new(remote(&image, lie));
        let mut images = SeededImages::new(source.clone(), &image.manifest, 1 << 20).unwrap();
        images.add(Box::new(half.clone()), &image.manifest, &seed_options, &go_on).unwrap();
        let target = MemoryTarget::noise(1, SIZE);
        let fresh = InstallOptions { fresh: true, ..options(FreeSectorPolicy::Leave, true) };
        let done = install(&images, &image.manifest, &target, &fresh, &go_on).unwrap();
        assert!(*target.bytes.lock() == disk.bytes);
        assert_eq!(done.seed_bytes, SIZE / 2, "{lie:?}");
        assert!(source.transport().whole.load(Ordering::Relaxed) < image.manifest.chunks.len());
    }
}
