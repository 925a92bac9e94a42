//! Targets that vanish: a cable is pulled, and each call fails from then on.

use onefold_testing::simulated::seeds;
use rustix::io::Errno;

use super::compare::with_bytes;
use super::remote::{Lie, remote};
use super::*;

/// Long enough that the disk has a middle between its ends.
const SIZE: u64 = 3 << 20;
const SEEDS: u64 = 60;

/// A target that vanishes at a call.
struct VanishingTarget {
    inner: MemoryTarget,
    calls: AtomicU64,
    vanishes_at: u64,
    errno: Errno,
    /// Places of writes that failed.
    failed: Mutex<Vec<u64>>,
}

impl VanishingTarget {
    fn new(inner: MemoryTarget, vanishes_at: u64, errno: Errno) -> VanishingTarget {
        VanishingTarget { inner, calls: AtomicU64::new(0), vanishes_at, errno, failed: Mutex::default() }
    }

    fn call(&self) -> io::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if number >= self.vanishes_at { Err(self.errno.into()) } else { Ok(()) }
    }

    fn change(&self, offset: u64) -> io::Result<()> {
        self.call().inspect_err(|_| self.failed.lock().push(offset))
    }
}

impl Target for VanishingTarget {
    fn length_bytes(&self) -> u64 {
        self.inner.length_bytes()
    }

    fn is_blank(&self) -> bool {
        false
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.change(offset)?;
        self.inner.write(offset, from)
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.change(offset)?;
        self.inner.zero(offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.change(offset)?;
        self.inner.discard(offset, length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.call()?;
        self.inner.sync()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.call()?;
        self.inner.read(offset, into)
    }
}

fn cause_of(error: &InstallError) -> &InstallError {
    if let InstallError::Unwiped { cause, .. } = error { cause } else { error }
}

#[test]
fn a_target_that_vanishes_ends_the_installation_with_the_place_and_the_cause() {
    let (mut count, mut placed, mut unplaced) = (0, 0, 0);
    for seed in seeds(0, SEEDS) {
        println!("seed {seed}");
        let image = image(seed + 500, SIZE);
        let random = SeededRandom::new(seed);
        let errno = [Errno::NXIO, Errno::NODEV, Errno::IO][usize::try_from(seed % 3).unwrap()];
        let options = options(FreeSectorPolicy::Leave, random.below(2) == 0);
        let install = |target: &VanishingTarget| match seed % 2 {
            0 => install(&*image.archive, &image.manifest, target, &options, &go_on),
            _ => install(&remote(&image, Lie::Shuffled(seed)), &image.manifest, target, &options, &go_on),
        };
        let whole = VanishingTarget::new(MemoryTarget::noise(seed, SIZE), u64::MAX, errno);
        install(&whole).unwrap();
        let calls = whole.calls.load(Ordering::Relaxed);
        let target = VanishingTarget::new(MemoryTarget::noise(seed, SIZE), random.below(calls - 1), errno);
        let error = install(&target).unwrap_err();
        let source = match cause_of(&error) {
            InstallError::Target { source, .. } => source.raw_os_error(),
            error => panic!("{error}"),
        };
        assert_eq!(source, Some(errno.raw_os_error()), "{error}");
        // Nobody goes on against a wall: each thread notices, and few reads of a comparison fail before.
        let failed_calls = target.calls.load(Ordering::Relaxed) - target.vanishes_at;
        assert!(failed_calls <= 40, "{failed_calls} calls failed");
        match error.failed_byte() {
            Some(place) => {
                let flushed = target.inner.calls.lock().iter().filter(|call| **call == Call::Sync).count();
                assert!(target.failed.lock().contains(&place) || flushed >= 2, "{place}: {error}");
                placed += 1;
            }
            None => unplaced += 1,
        }
        // The same disk at another port: the next run finishes it.
        let bytes = target.inner.bytes.into_inner();
        let target = VanishingTarget::new(with_bytes(bytes), u64::MAX, errno);
        install(&target).unwrap();
        assert_holds(&image, &target.inner.bytes.lock(), &|_| None);
        count += 1;
    }
    println!("{placed} failures with a place, {unplaced} of flushes and ends");
    assert!(count < SEEDS || placed > 20, "{placed} {unplaced}");
}
