//! Installations from a server, honest or lying, without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::format::pack::UNIT_HEADER_BYTES;
use crate::image_source::Arrivals;
use crate::remote::{Chunks, RemoteImages, Transport};
use crate::served::ServedArchive;
use crate::testing::headers;
use crate::{ImageVersion, UnitName};

/// Long enough that the disk has a middle between its ends.
const SIZE: u64 = 3 << 20;

/// Change that a server makes to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
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
    /// None, and chunks arrive in an order that this seed decides.
    Shuffled(u64),
}

#[derive(Debug)]
struct Server {
    served: ServedArchive,
    first: UnitName,
    lie: Lie,
    answers: AtomicUsize,
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
        self.units(names)
    }

    fn chunks(&self, names: &[UnitName]) -> Chunks<'_> {
        let names = names.to_vec();
        Box::new(names.into_iter().map(|name| self.chunk(&name)))
    }

    fn has_image(&self, image: &ImageVersion) -> Result<bool, ArchiveError> {
        Ok(self.served.archive().find(&image.name, Some(image.version)).is_some())
    }

    fn arrivals(&self, chunks: &[UnitName]) -> Option<Box<dyn Arrivals + '_>> {
        let Lie::Shuffled(seed) = self.lie else { return None };
        let random = SeededRandom::new(seed);
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
        }
        Some(Box::new(ShuffledArrivals(Mutex::new((order, random)))))
    }
}

/// Chunks in a random order, up to three at once, and now and then none.
struct ShuffledArrivals(Mutex<(Vec<usize>, SeededRandom)>);

impl Arrivals for ShuffledArrivals {
    fn next(&self, _: Duration) -> Option<Vec<usize>> {
        let (order, random) = &mut *self.0.lock();
        let left = order.len().saturating_sub(usize::try_from(random.below(4)).unwrap());
        let is_over = order.is_empty();
        let mut next = order.split_off(left);
        next.sort_unstable();
        (!is_over).then_some(next)
    }

    fn finish(&self, _: &[usize]) {}
}

fn remote(image: &TestImage, lie: Lie) -> RemoteImages<Server> {
    let archive = Arc::new(Archive::open(image.store.clone()).unwrap());
    let descriptor = archive.descriptor().clone();
    let served = ServedArchive::new(archive, 100 << 10);
    let server = Server { served, first: image.manifest.chunks[0], lie, answers: AtomicUsize::new(0) };
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
