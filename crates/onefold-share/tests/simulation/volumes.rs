//! Common volumes that hosts publish, use and lose at every step, beside finders that lie and are late: no image
//! changes, and a volume that has its name always has the content that its record says.
//!
//! The volume is a stand-in for one that `debugfs` makes: a block with the record, then blocks with content. Its
//! generations are made by the steps of `files/common/generation.rs`, by the same calls of the file system.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Clock};
use onefold_share::format::FileBlock;
use onefold_share::pass::{ContentKey, FilePlace, FinderRun};
use onefold_share::scan::ListedFile;
use onefold_share::selection::Selection;
use onefold_substrate::{Access, At, Files, Locks, Names, ShareError, Sharing};
use onefold_testing::simulated::{Host, HostNo, Outcome, SimulatedSubstrate, Simulation, SimulationOptions, seeds};

use super::engine::{benign, hosts, scan_and_pass};
use super::finders::{Batches, lie, share_what, truths};
use super::{go_on, simulate_all_with};

const FOLDER: &str = "common";
const VOLUME: &str = "common/volume";
const DRAFTS: &str = ".volume.onefold-";
const ATTRIBUTE: &str = "user.onefold.common";
/// Contents that a volume has room for.
const SLOTS: usize = 12;
const VOLUME_BLOCKS: u64 = SLOTS as u64 + 1;

type Sim<'run> = SimulatedSubstrate<'run>;
type File<'run> = <Sim<'run> as Files>::File;

/// What each slot of a volume has: the digest of its content, or 0 of none.
type Record = [u64; SLOTS];

thread_local! {
    /// How often a generation was published, a volume was removed, and one was read and found to be as it should.
    static PUBLISHED: Cell<u64> = const { Cell::new(0) };
    static LOST: Cell<u64> = const { Cell::new(0) };
    static SOUND: Cell<u64> = const { Cell::new(0) };
}

fn count(counter: &'static std::thread::LocalKey<Cell<u64>>) {
    counter.set(counter.get() + 1);
}

/// What a publication may leave out, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omission {
    /// Content is not read back once it is in the draft, where no guest writes to it.
    ReadingBack,
    /// The draft is not made durable before it gets the volume's name.
    Sync,
    /// The volume is changed in place.
    Clone,
}

/// Returns a number for a content, never 0.
fn digest(bytes: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash) | 1
}

/// Returns a block of a file; none where the file ends before.
fn block_of(substrate: &Sim<'_>, file: &File<'_>, block: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let count = substrate.read_at(file, block * BLOCK_BYTES_U64, &mut bytes)?;
    Ok((count == BLOCK_BYTES).then_some(bytes))
}

fn slot_block(slot: usize) -> u64 {
    slot as u64 + 1
}

fn encode(record: &Record) -> Vec<u8> {
    let mut bytes: Vec<u8> = record.iter().flat_map(|digest| digest.to_le_bytes()).collect();
    bytes.resize(BLOCK_BYTES, b'\n');
    bytes
}

/// Reads a volume that has its name, and holds all of its content against the record.
fn record_of(substrate: &Sim<'_>, file: &File<'_>) -> io::Result<Record> {
    let head = block_of(substrate, file, 0)?.expect("a published volume is whole");
    let mut record = [0; SLOTS];
    for (digest, bytes) in record.iter_mut().zip(head.as_chunks().0) {
        *digest = u64::from_le_bytes(*bytes);
    }
    for (slot, expected) in record.iter().enumerate().filter(|(_, digest)| **digest != 0) {
        let content = block_of(substrate, file, slot_block(slot))?.expect("a published volume is whole");
        assert_eq!(digest(&content), *expected, "slot {slot} of a published volume is not what its record says");
    }
    count(&SOUND);
    Ok(record)
}

/// Tells whether a name leads to a file.
fn leads_to(substrate: &Sim<'_>, name: &Path, file: &File<'_>) -> io::Result<bool> {
    let found = substrate.open(name, Access::Read)?;
    Ok(substrate.stat(&found)?.handle == substrate.stat(file)?.handle)
}

fn draft_path(host: &Host<'_>) -> PathBuf {
    Path::new(FOLDER).join(format!("{DRAFTS}{:x}", host.random.below(1 << 60)))
}

/// Makes an empty volume, if there is none.
fn create(host: &Host<'_>) -> io::Result<()> {
    let substrate = &host.substrate;
    match substrate.create_dir(Path::new(FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let draft = draft_path(host);
    let file = substrate.create(&draft)?;
    let make = || {
        substrate.set_len(&file, VOLUME_BLOCKS * BLOCK_BYTES_U64)?;
        substrate.write_at(&file, 0, &encode(&[0; SLOTS]))?;
        substrate.set_attribute(&draft, ATTRIBUTE, Some(b"1"))?;
        substrate.sync(&file)?;
        substrate.link(&draft, Path::new(VOLUME))
    };
    let made = make();
    // One that cannot be removed is removed with the next generation.
    let _ = substrate.remove(&draft);
    made
}

/// Publishes the next generation: some content goes, some comes from images.
fn publish(host: &Host<'_>, listed: &[ListedFile], omits: Option<Omission>) -> io::Result<()> {
    let (substrate, name) = (&host.substrate, Path::new(VOLUME));
    let volume = match substrate.open(name, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return create(host),
        volume => volume?,
    };
    if !substrate.try_lock(&volume)? || !leads_to(substrate, name, &volume)? {
        return Ok(());
    }
    for left in substrate.list(Path::new(FOLDER))? {
        if left.name.as_os_str().as_encoded_bytes().starts_with(DRAFTS.as_bytes()) {
            substrate.remove(&Path::new(FOLDER).join(left.name))?;
        }
    }
    let record = record_of(substrate, &volume)?;
    if omits == Some(Omission::Clone) {
        return change(host, &substrate.open(name, Access::Write)?, record, listed, omits);
    }
    let path = draft_path(host);
    let draft = substrate.create_clone(&volume, &path).map_err(io::Error::other)?;
    let made = change(host, &draft, record, listed, omits).and_then(|()| {
        substrate.set_attribute(&path, ATTRIBUTE, Some(b"1"))?;
        if omits != Some(Omission::Sync) {
            substrate.sync(&draft)?;
        }
        if leads_to(substrate, &path, &draft)? && leads_to(substrate, name, &volume)? {
            substrate.rename(&path, name)?;
            count(&PUBLISHED);
        }
        Ok(())
    });
    let _ = substrate.remove(&path);
    made
}

/// Changes what is in a draft.
fn change(
    host: &Host<'_>,
    draft: &File<'_>,
    mut record: Record,
    listed: &[ListedFile],
    omits: Option<Omission>,
) -> io::Result<()> {
    let substrate = &host.substrate;
    for (slot, known) in record.iter_mut().enumerate() {
        let offset = slot_block(slot) * BLOCK_BYTES_U64;
        if host.random.below(3) > 0 {
            continue;
        }
        substrate.punch(draft, offset, BLOCK_BYTES_U64)?;
        *known = 0;
        let Some(image) = draw(host, listed).filter(|image| host.random.below(4) > 0 && !is_volume(&image.path)) else {
            continue;
        };
        let Ok(file) = substrate.open(&image.path, Access::Read) else { continue };
        let block = host.random.below(image.stat.length / BLOCK_BYTES_U64 + 1);
        let Some(wanted) = block_of(substrate, &file, block)? else { continue };
        // A guest may write between the two.
        let source = At { file: &file, offset: block * BLOCK_BYTES_U64 };
        match substrate.clone_range(source, At { file: draft, offset }, BLOCK_BYTES_U64) {
            Ok(()) => {}
            Err(ShareError::Io(error)) => return Err(error),
            Err(_) => continue,
        }
        let omitted = omits == Some(Omission::ReadingBack);
        if omitted || block_of(substrate, draft, slot_block(slot))?.as_ref() == Some(&wanted) {
            *known = digest(&wanted);
        } else {
            substrate.punch(draft, offset, BLOCK_BYTES_U64)?;
        }
    }
    substrate.write_at(draft, 0, &encode(&record))
}

fn draw<'f>(host: &Host<'_>, listed: &'f [ListedFile]) -> Option<&'f ListedFile> {
    listed.get(usize::try_from(host.random.below(listed.len().max(1) as u64)).expect("below a usize"))
}

fn is_volume(path: &Path) -> bool {
    path.starts_with(FOLDER)
}

/// Returns runs out of the volume into all images that have its content, and some that are wrong. A late host sleeps
/// before it returns them: images, volume and locks are others by then.
fn of_volume(host: &Host<'_>, listed: &[ListedFile], is_late: bool) -> io::Result<Batches> {
    let substrate = &host.substrate;
    let mut runs = Vec::new();
    if let Some(volume) = listed.iter().find(|file| file.path == Path::new(VOLUME)) {
        let file = substrate.open(&volume.path, Access::Read)?;
        let record = record_of(substrate, &file)?;
        let slots: BTreeMap<u64, usize> = record.iter().enumerate().map(|(slot, digest)| (*digest, slot)).collect();
        for image in listed.iter().filter(|image| !is_volume(&image.path)) {
            let file = substrate.open(&image.path, Access::Read)?;
            for block in 0..image.stat.length / BLOCK_BYTES_U64 {
                let Some(content) = block_of(substrate, &file, block)? else { break };
                let slot = match slots.get(&digest(&content)) {
                    None if host.random.below(8) == 0 => usize::try_from(host.random.below(SLOTS as u64)).expect("few"),
                    Some(slot) => *slot,
                    None => continue,
                };
                let source = FilePlace { file: volume.number, block: FileBlock(slot_block(slot)) };
                let target = FilePlace { file: image.number, block: FileBlock(block) };
                runs.extend(FinderRun::between(source, target, 1, ContentKey::default()));
            }
        }
    }
    if is_late {
        host.clock.sleep(Duration::from_secs(host.random.below(120)));
    }
    Batches::of(&runs)
}

/// Removes the volume, as its user may at any time.
fn lose(substrate: &Sim<'_>) {
    if substrate.remove(Path::new(VOLUME)).is_ok() {
        count(&LOST);
    }
}

/// Publishes, uses and loses volumes; lies, tells the truth late, and does passes by content.
fn work(host: &Host<'_>) {
    let no_runs = || Batches::of(&[]);
    match host.random.below(12) {
        0..4 => drop(share_what(host, Selection::all(), &|files| publish(host, files, None).and_then(|()| no_runs()))),
        4..7 => drop(share_what(host, Selection::all(), &|files| of_volume(host, files, files.len() % 2 == 0))),
        7 => lose(&host.substrate),
        8 => lie(host),
        9 => drop(share_what(host, Selection::all(), &|files| {
            let found = truths(host, files);
            host.clock.sleep(Duration::from_secs(host.random.below(120)));
            found
        })),
        _ => drop(scan_and_pass(host)),
    }
}

#[test]
fn images_and_volumes_read_as_they_should_while_volumes_come_and_go() {
    let hosts = |seed: u64| if seed.is_multiple_of(10) { 40 } else { hosts(seed) };
    let options = |seed| SimulationOptions::drawn(seed, hosts(seed), 15_000);
    let outcomes = simulate_all_with(seeds(9400, 30), options, work);
    let counts = [&PUBLISHED, &LOST, &SOUND].map(|counter| counter.get());
    println!("{counts:?} published, lost, sound");
    assert!(outcomes.len() < 30 || counts.iter().all(|count| *count > 30), "{counts:?}");
}

/// Publishes and uses a volume, and nothing else.
fn publish_and_use(host: &Host<'_>) {
    let no_runs = || Batches::of(&[]);
    drop(share_what(host, Selection::all(), &|files| publish(host, files, None).and_then(|()| no_runs())));
    drop(share_what(host, Selection::all(), &|files| of_volume(host, files, false)));
}

#[test]
fn what_a_publication_must_not_leave_out_is_found() {
    for omission in [None, Some(Omission::ReadingBack), Some(Omission::Sync), Some(Omission::Clone)] {
        let found = (1..=12).filter(|seed| {
            let options = SimulationOptions {
                images: 3,
                image_blocks_max: 6,
                writer_percent: 60,
                crashes_per_million: 3000,
                rest_time_max: Duration::from_millis(10),
                down_time_max: Duration::from_millis(100),
                ..still(*seed)
            };
            let mut simulation = Simulation::new(&options, move |host: &Host<'_>| {
                let publish = |files: &[ListedFile]| publish(host, files, omission);
                drop(share_what(host, Selection::all(), &|files| publish(files).and_then(|()| Batches::of(&[]))));
            });
            let failure = simulation.run(60_000).err();
            failure.is_some_and(|failure| {
                assert!(failure.problem.contains("published volume"), "{failure}");
                true
            })
        });
        let found = found.count();
        let is_right = if omission.is_none() { found == 0 } else { found >= 3 };
        assert!(is_right, "{omission:?} was found {found} times");
    }
}

fn still(seed: u64) -> SimulationOptions {
    let options =
        SimulationOptions { seed, hosts: 2, images: 3, image_blocks_max: 10, contents: 6, ..Default::default() };
    SimulationOptions { writer_percent: 0, step_time_max: Duration::from_millis(100), ..options }
}

/// Disturbs hosts after each of their calls until a volume has been published twice, and used in between. Returns what
/// became of each run.
fn disturb_at_every_call(seed: u64, steps: u64, disturb: impl Fn(&mut Simulation)) -> Vec<Outcome> {
    let published = PUBLISHED.get();
    let mut simulation = Simulation::new(&still(seed), publish_and_use);
    while PUBLISHED.get() < published + 2 {
        go_on(&mut simulation, 1, "undisturbed");
    }
    let all = simulation.file_system().counters().calls;
    let disturbed = (0..all).map(|calls| {
        let what = format!("seed {seed}, disturbed after {calls} calls");
        let mut simulation = Simulation::new(&still(seed), publish_and_use);
        while simulation.file_system().counters().calls < calls {
            go_on(&mut simulation, 1, &what);
        }
        disturb(&mut simulation);
        go_on(&mut simulation, steps, &what);
        simulation.finish().unwrap_or_else(|failure| panic!("{what}: {failure}"))
    });
    disturbed.collect()
}

#[test]
fn a_host_that_publishes_or_uses_a_volume_may_crash_at_every_call() {
    for seed in seeds(9440, 1) {
        let outcomes = disturb_at_every_call(seed, 1000, |simulation| simulation.crash(HostNo(0)));
        assert!(outcomes.iter().all(|outcome| outcome.counters.crashes == 1));
    }
}

#[test]
fn a_volume_may_be_lost_at_every_call() {
    for seed in seeds(9460, 1) {
        let lost = LOST.get();
        disturb_at_every_call(seed, 1000, |simulation| lose(&simulation.file_system().observe().substrate));
        assert!(LOST.get() > lost + 100, "{} losses", LOST.get() - lost);
    }
}

/// A host that is suspended loses its lock, and goes on where it was: two hosts publish at the same time.
#[test]
fn a_host_may_lose_its_lock_at_every_call_of_a_publication() {
    for seed in seeds(9480, 1) {
        let stall = |simulation: &mut Simulation| simulation.stall(HostNo(0), Duration::from_secs(45));
        let outcomes = disturb_at_every_call(seed, 1500, stall);
        let expired = super::total(&outcomes, |counters| counters.locks_expired);
        assert!(expired > 50, "{expired} locks expired in {} runs", outcomes.len());
    }
}

/// After lies, losses and crashes, hosts that tell the truth have all images share.
#[test]
fn once_all_is_calm_everything_is_shared_whatever_became_of_volumes() {
    use std::rc::Rc;
    for seed in seeds(9500, 4) {
        let is_calm = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_calm);
        let options = SimulationOptions { images: 8, ..benign(seed, hosts(seed)) };
        let mut simulation = Simulation::new(&options, move |host: &Host<'_>| {
            if seen.get() {
                drop(share_what(host, Selection::all(), &|files| truths(host, files)));
            } else {
                work(host);
            }
        });
        simulation.run(options.steps).unwrap_or_else(|failure| panic!("{failure}"));
        simulation.calm();
        is_calm.set(true);
        simulation.run(200_000).unwrap_or_else(|failure| panic!("{failure}"));
        let census = simulation.file_system().census();
        simulation.finish().unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(census.physical, census.distinct, "seed {seed}");
    }
}
