//! Power cuts: of the changes that no flush covers, each is there, lost or torn, and none has its order.

use std::ops::Range;

use onefold_testing::simulated::seeds;

use super::remote::{Lie, remote};
use super::*;
use crate::testing::headers;

/// Long enough that the disk has a middle between its ends.
const SIZE: u64 = 3 << 20;
const SECTOR: usize = 512;
/// Disks whose power fails.
const SEEDS: u64 = 60;
/// Sectors that are written last.
const FIRST: Range<usize> = 0..8;

/// A disk whose power fails at a call: that one and all later ones fail.
struct PoweredTarget(Mutex<Power>);

struct Power {
    /// The bytes that a read returns.
    bytes: Vec<u8>,
    /// The bytes that the last flush left.
    durable: Vec<u8>,
    /// Changes since then.
    pending: Vec<(u64, Vec<u8>)>,
    calls: u64,
    fails_at: u64,
}

impl PoweredTarget {
    fn new(bytes: Vec<u8>, fails_at: u64) -> PoweredTarget {
        let durable = bytes.clone();
        PoweredTarget(Mutex::new(Power { bytes, durable, pending: Vec::new(), calls: 0, fails_at }))
    }

    /// Returns what the disk has when power is back.
    fn after_power_cut(self, random: &SeededRandom) -> Vec<u8> {
        let Power { durable: mut bytes, mut pending, .. } = self.0.into_inner();
        while !pending.is_empty() {
            let next = usize::try_from(random.below(pending.len() as u64)).unwrap();
            let (offset, change) = pending.swap_remove(next);
            let kept_percent = [0, 50, 100, 100][usize::try_from(random.below(4)).unwrap()];
            let start = usize::try_from(offset).unwrap();
            for (place, sector) in (start..).step_by(SECTOR).zip(change.chunks(SECTOR)) {
                if random.below(100) < kept_percent {
                    bytes[place..place + sector.len()].copy_from_slice(sector);
                }
            }
        }
        bytes
    }

    fn change(&self, offset: u64, change: Vec<u8>) -> io::Result<()> {
        let mut power = self.0.lock();
        let range = MemoryTarget::range(offset, change.len() as u64);
        // The change during which power fails may arrive in part.
        if power.calls <= power.fails_at {
            power.bytes[range].copy_from_slice(&change);
            power.pending.push((offset, change));
        }
        power.call()
    }
}

impl Power {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.calls > self.fails_at { Err(io::Error::other("no power")) } else { Ok(()) }
    }
}

impl Target for PoweredTarget {
    fn length_bytes(&self) -> u64 {
        self.0.lock().bytes.len() as u64
    }

    fn is_blank(&self) -> bool {
        false
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.change(offset, from.to_vec())
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.change(offset, vec![0; usize::try_from(length_bytes).unwrap()]).map(|()| 0)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.change(offset, vec![0xdd; usize::try_from(length_bytes).unwrap()]).map(|()| length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let mut power = self.0.lock();
        power.call()?;
        power.durable = power.bytes.clone();
        power.pending.clear();
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.0.lock().bytes[MemoryTarget::range(offset, into.len() as u64)]);
        Ok(())
    }
}

/// Installs from an archive, from a server, or from a server whose chunks arrive in another order.
fn install_by(
    image: &TestImage,
    seed: u64,
    target: &dyn Target,
    options: &InstallOptions,
) -> Result<InstallReport, InstallError> {
    match seed % 3 {
        0 => install(&*image.archive, &image.manifest, target, options, &go_on),
        1 => install(&remote(image, Lie::None), &image.manifest, target, options, &go_on),
        _ => install(&remote(image, Lie::Shuffled(seed)), &image.manifest, target, options, &go_on),
    }
}

fn sector(bytes: &[u8], number: usize) -> &[u8] {
    &bytes[number * SECTOR..(number + 1) * SECTOR]
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Asserts that a disk has nothing of the image's ends before all between them is there, no beginning before all else
/// is, and has lost its former beginning before anything behind it.
fn assert_order(image: &TestImage, before: &[u8], after: &[u8], seed: u64) {
    let is_new = |number: &usize| {
        let found = sector(after, *number);
        !is_zero(found) && sector(before, *number) != found && image.sectors[*number].as_deref() == Some(found)
    };
    let middle = MemoryTarget::range(HEAD_BYTES, SIZE - HEAD_BYTES - 33 * 512);
    let ends = (0..middle.start / SECTOR).chain(middle.end / SECTOR..after.len() / SECTOR).collect();
    for last in [FIRST.collect::<Vec<usize>>(), ends] {
        if last.iter().any(is_new) {
            // These are being written, and may be torn.
            let mut rest = after.to_vec();
            for number in last {
                let expected = image.sectors[number].as_deref().unwrap_or(&[0; SECTOR]);
                rest[number * SECTOR..(number + 1) * SECTOR].copy_from_slice(expected);
            }
            return assert_holds(image, &rest, &|_| None);
        }
    }
    let is_former =
        |number: &usize| !is_zero(sector(before, *number)) && sector(before, *number) == sector(after, *number);
    if FIRST.into_iter().any(|number| is_former(&number)) {
        assert!(before[middle.clone()] == after[middle], "seed {seed}: the disk may boot, and has changed");
    }
}

/// Returns the bytes of units between the ends that are in their places.
fn present_bytes(image: &TestImage, bytes: &[u8]) -> u64 {
    let middle = Ends::of(SIZE).middle();
    let is_there = |number: u64| {
        let number = usize::try_from(number).unwrap();
        let is_between = middle.contains(&(number as u64 * 512)) && middle.contains(&(number as u64 * 512 + 511));
        is_between && image.sectors[number].as_deref() == Some(sector(bytes, number))
    };
    let headers = headers(&image.archive, &image.manifest);
    let units = headers.iter().flat_map(|header| &header.units);
    let present = units.filter(|unit| unit.runs.iter().all(|run| (run.start..run.end()).all(is_there)));
    present.map(|unit| u64::from(unit.plain_bytes)).sum()
}

/// Power fails up to three times, at any call; each further installation fetches what is not there.
#[test]
fn power_cuts_at_any_call_leave_a_disk_that_does_not_boot_and_cost_only_what_they_took() {
    let (mut count, mut begun, mut present_sum, mut found_sum) = (0, 0, 0, 0);
    for seed in seeds(0, SEEDS) {
        println!("seed {seed}");
        count += 1;
        let image = image(seed + 300, SIZE);
        let random = SeededRandom::new(seed);
        let free = [FreeSectorPolicy::Leave, FreeSectorPolicy::Zero, FreeSectorPolicy::Discard]
            [usize::try_from(random.below(3)).unwrap()];
        let options = options(free, random.below(2) == 0);
        let noise = MemoryTarget::noise(seed, SIZE).bytes.into_inner();
        let mut bytes = noise.clone();
        let whole = PoweredTarget::new(noise.clone(), u64::MAX);
        install_by(&image, seed, &whole, &options).unwrap();
        let calls = whole.0.into_inner().calls;
        for _ in 0..1 + random.below(3) {
            // Half of the cuts come at the end, where the ends are written.
            let from = if random.below(2) == 0 { 0 } else { calls - 6 };
            let target = PoweredTarget::new(bytes.clone(), from + random.below(calls - from + 1));
            let installed = install_by(&image, seed, &target, &options);
            let before = std::mem::replace(&mut bytes, target.after_power_cut(&random));
            match installed {
                Ok(_) => assert_holds(&image, &bytes, &|_| None),
                Err(_) => assert_order(&image, &before, &bytes, seed),
            }
            begun += u64::from(bytes[..4096] != before[..4096] && !is_zero(&bytes[..4096]));
        }
        let present = present_bytes(&image, &bytes);
        let target = PoweredTarget::new(bytes, u64::MAX);
        let done = install_by(&image, seed, &target, &options).unwrap();
        assert_eq!(done.found_bytes + done.written_bytes, image.manifest.totals.data_bytes);
        // A disk that has hardly anything need not be compared.
        let least = if present * 10 < image.manifest.totals.data_bytes { 0 } else { present };
        assert!(done.found_bytes >= least, "seed {seed}: {present} bytes were there, {done:?}");
        (present_sum, found_sum) = (present_sum + present, found_sum + done.found_bytes);
        let left = |at: usize| match free {
            FreeSectorPolicy::Leave => noise.get(at).copied(),
            FreeSectorPolicy::Zero => Some(0),
            FreeSectorPolicy::Discard => Some(0xdd),
        };
        assert_holds(&image, &target.after_power_cut(&random), &left);
    }
    println!("{begun} cuts within the first sectors; {present_sum} bytes were there, {found_sum} were found");
    assert!(count < SEEDS || begun > 5 && found_sum > 20 << 20, "{begun} {found_sum}");
}
