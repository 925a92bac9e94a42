//! Declarations before sharing, on a file system where a share may leave a hole.

use onefold_substrate::Sharing;

use super::*;
use crate::format::FileBlock;
use crate::state::Notice;
use crate::state::locks::Subject;

/// The times of images are set to their current values to make these durable. Setting them has a time of its own, which
/// is no reason to read the images again, unless they changed besides.
#[test]
fn times_that_were_set_are_no_reason_to_read_an_image_again() {
    let ground = Ground::with(&SimulationOptions::default().in_two_steps(declared::decode_declared));
    for path in ["a", "b"] {
        ground.write(path, 1, 5);
    }
    let stat = |name: &str| {
        let file = ground.host.substrate.open(Path::new(name), Access::Read).unwrap();
        ground.host.substrate.stat(&file).unwrap()
    };
    let before: Vec<_> = ["a", "b"].map(stat).into();
    let passed = ground.run();
    assert!(passed.shared.now > 0, "{passed:?}");
    let after: Vec<_> = ["a", "b"].map(stat).into();
    assert!(before.iter().zip(&after).all(|(before, after)| before.modified == after.modified));
    assert!(before.iter().zip(&after).any(|(before, after)| before.changed < after.changed), "one was set");
    ground.file_system.pass(Duration::from_secs(1));
    let scanned = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap())
    };
    let again = scanned();
    assert_eq!((again.files, again.unchanged, again.read_bytes), (2, 2, 0), "{again:?}");
    ground.write("b", 9, 1);
    let again = scanned();
    assert!(again.unchanged == 1 && again.read_bytes > 0, "{again:?}");
}

/// The processor time of a process that has used ten seconds before its work begins.
#[derive(Default)]
struct UsedCpu(Cell<bool>);

impl onefold_substrate::CpuTime for UsedCpu {
    fn used(&self) -> Duration {
        Duration::from_secs(if self.0.replace(true) { 10 } else { 0 })
    }
}

/// Runs while another host mends. The run waits for that host as long as it may, and neither the wait nor the scan pays
/// for the time that was used before.
fn run_with_a_limit_on_processor_time(ground: &Ground) -> crate::RunReport {
    let (clock, cpu) = (ManualClock::default(), UsedCpu::default());
    let limits = Limits { cpu_percent: std::num::NonZeroU32::new(1), ..Limits::default() };
    let pace = Pace::new(limits, &clock, &cpu, &|| Wish::GoOn);
    let scan_began = Cell::new(Duration::ZERO);
    let options = crate::RunOptions {
        files: None,
        scan: ScanOptions::new(&pace),
        pass: PassOptions::new(Path::new("/var/tmp"), &pace, &clock),
        mend_wait: Duration::from_secs(1),
        step: &|step| {
            if step == crate::RunStep::Scan {
                scan_began.set(clock.monotonic());
            }
        },
    };
    let host = &ground.host;
    let seams = crate::Seams { substrate: &host.substrate, clock: &clock, random: &*host.random, notices: &|_| {} };
    let report = crate::run(&seams, &options).unwrap();
    let (waited, soon) = (scan_began.get(), Duration::from_millis(1200));
    assert!(waited >= options.mend_wait && waited < soon, "mending lasted {waited:?}");
    assert!(report.scan_time < Duration::from_secs(1), "the scan took {:?}", report.scan_time);
    report
}

/// A host that asks whether images are whole gets no confirmation while another host is still about to fill a hole.
#[test]
fn an_image_that_another_host_mends_is_not_taken_for_one_that_its_own_host_shares_in() {
    use crate::mend::{DoubtfulImagePolicy, MendOutcome, Patience, mend, mend_patiently};
    use crate::state::intents::TakenIntent;
    let ground = on_two_steps(10, 10);
    let sharer = ground.state();
    sharer.be_present().unwrap();
    let mut intents = sharer.begin_intents().unwrap();
    let mark = Marks::load(&sharer).unwrap().iter().next().unwrap().clone();
    let slot = Slot::new(0, 0).unwrap();
    let run = crate::format::intent::IntentRun { first: FileBlock(0), slot, count: 1, checksum: 0 };
    let (number, handle, modified) = (mark.number, mark.handle, Default::default());
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: vec![run] };
    intents.declare(&intent).unwrap();
    let asker = ground.state();
    assert!(mend(&asker, DoubtfulImagePolicy::Keep).unwrap().images.is_empty(), "its host is at work on it");
    // It dies, and another one comes to mend.
    drop(intents);
    sharer.leave();
    let mender = ground.state();
    let path = asker.intent_paths().unwrap().pop().unwrap();
    let TakenIntent::Taken(left) = mender.take_intent(&path).unwrap() else { panic!("its host is dead") };
    let waiting = |images: &[crate::mend::MendedImage]| matches!(images, [image] if matches!(image.became, MendOutcome::Elsewhere));
    assert!(waiting(&mend(&asker, DoubtfulImagePolicy::Keep).unwrap().images));
    let clock = ManualClock::default();
    let patience = Patience { clock: &clock, most: Duration::from_secs(1), is_stopped: &|| false };
    let before = clock.monotonic();
    assert!(waiting(&mend_patiently(&asker, DoubtfulImagePolicy::Keep, &patience).unwrap().images));
    assert!(clock.monotonic() - before >= Duration::from_secs(1), "the pass waited for that host");
    let report = run_with_a_limit_on_processor_time(&ground);
    assert!(waiting(&report.mended.images), "{report:?}");
    mender.retire_intent(left).unwrap();
    assert!(mend(&asker, DoubtfulImagePolicy::Keep).unwrap().images.is_empty());
}

/// A host has declared, sees that the slots are being emptied, and dies before it retires the intent. It has shared
/// nothing.
#[test]
fn an_image_without_holes_is_whole_though_its_slots_are_gone() {
    use crate::mend::{DoubtfulImagePolicy, MendOutcome, mend};
    let ground = on_two_steps(10, 10);
    let sharer = ground.state();
    let mut intents = sharer.begin_intents().unwrap();
    let file = ground.host.substrate.open(Path::new("one"), Access::Read).unwrap();
    let stat = ground.host.substrate.stat(&file).unwrap();
    drop(file);
    let mark = Marks::load(&sharer).unwrap().iter().find(|mark| mark.handle == stat.handle).unwrap().clone();
    // Slots of an arena file that exists, with other contents, and of one that does not.
    let runs = [0, 9].map(|arena| crate::format::intent::IntentRun {
        first: FileBlock(2),
        slot: Slot::new(arena, 3).unwrap(),
        count: 2,
        checksum: 1,
    });
    let (number, handle, modified) = (mark.number, mark.handle, stat.modified);
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: runs.to_vec() };
    intents.declare(&intent).unwrap();
    drop((intents, sharer));
    let other = ground.state();
    let images = mend(&other, DoubtfulImagePolicy::Keep).unwrap().images;
    assert!(
        matches!(&images[..], [image] if matches!(image.became, MendOutcome::Whole) && image.filled == 0),
        "{images:?}"
    );
    assert!(mend(&other, DoubtfulImagePolicy::Keep).unwrap().images.is_empty());
}

/// Intents of a newer version, or of another state folder, may mean holes: no host gets the confirmation that all
/// images are whole.
#[test]
fn an_intent_that_cannot_be_read_is_told_of_until_it_is_gone() {
    use crate::format::record::{RecordHeader, RecordKind};
    use crate::mend::{DoubtfulImagePolicy, MendOutcome, mend};
    let ground = on_two_steps(10, 10);
    let state = ground.state();
    let empty = state.begin_intents().unwrap();
    assert_eq!(state.intents().unwrap(), [], "nothing was declared in a new file");
    drop(empty);
    let identity = state.identity().uuid;
    let told = |change: &dyn Fn(&mut [u8; 64]), subject: u64| {
        let mut header = RecordHeader { kind: RecordKind::Intent, identity, subject }.encode();
        change(&mut header);
        let checksum = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_le_bytes());
        let path = state.path("intents", format!("0000000000000001.{subject}"));
        let file = ground.host.substrate.create(&path).unwrap();
        ground.host.substrate.write_at(&file, 0, &header).unwrap();
        drop(file);
        let images = mend(&state, DoubtfulImagePolicy::Keep).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, MendOutcome::Failed(_)) && image.path == path));
        assert_eq!(mend(&state, DoubtfulImagePolicy::Keep).unwrap().left().count(), 1, "it is still there");
        ground.host.substrate.remove(&path).unwrap();
    };
    told(&|header| header[10] = 200, 1);
    told(&|header| header[16] ^= 1, 2);
    assert!(mend(&state, DoubtfulImagePolicy::Keep).unwrap().images.is_empty());
}

/// Declares a share of the second block of `one` with the first slot, and punches the block as a host does that dies
/// then. Returns the block's content and the name of the intent.
fn leave_a_hole(ground: &Ground) -> (Vec<u8>, PathBuf) {
    let sharer = ground.state();
    let substrate = &ground.host.substrate;
    let image = substrate.open(Path::new("one"), Access::Write).unwrap();
    let stat = substrate.stat(&image).unwrap();
    let mut bytes = vec![0; 4096];
    substrate.read_at(&image, K, &mut bytes).unwrap();
    let arena = sharer.open_arena(0, Access::Read).unwrap().unwrap();
    let is_it = |index: &u64| {
        let mut slot = vec![0; 4096];
        substrate.read_at(&arena, index * K, &mut slot).unwrap();
        slot == bytes
    };
    let slot = Slot::new(0, (0..20).find(is_it).unwrap()).unwrap();
    let checksum = crc32c::crc32c(&bytes);
    let run = crate::format::intent::IntentRun { first: FileBlock(1), slot, count: 1, checksum };
    let mark = Marks::load(&sharer).unwrap().of(&stat.handle).unwrap().clone();
    let (number, handle, modified) = (mark.number, mark.handle, stat.modified);
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: vec![run] };
    let mut intents = sharer.begin_intents().unwrap();
    intents.declare(&intent).unwrap();
    let path = sharer.intent_paths().unwrap().pop().unwrap();
    substrate.punch(&image, K, K).unwrap();
    substrate.set_modified(&image, modified).unwrap();
    (bytes, path)
}

fn second_block(ground: &Ground) -> Vec<u8> {
    let image = ground.host.substrate.open(Path::new("one"), Access::Read).unwrap();
    let mut bytes = vec![0; 4096];
    ground.host.substrate.read_at(&image, K, &mut bytes).unwrap();
    bytes
}

/// Replaces the identity of the state folder, as a version of the program did that ignored intents.
fn replace_identity(ground: &Ground, is_replaced: bool) {
    let path = Path::new(FOLDER).join(crate::state::IDENTITY);
    ground.host.substrate.remove(&path).unwrap();
    if is_replaced {
        let identity = crate::format::identity::Identity { uuid: [7; 16], key: [8; 32] };
        let file = ground.host.substrate.create(&path).unwrap();
        identity.write(&ground.host.substrate, file).unwrap();
    }
    ground.file_system.pass(Duration::from_secs(1));
}

/// The hole of a dead host is declared under an identity that was replaced since. Only its slot has the block.
#[test]
fn slots_declared_under_another_identity_stay_until_a_person_decides() {
    use crate::mend::{DoubtfulImagePolicy, ForeignIntentPolicy, MendOutcome, MendRules, mend};
    for foreign in [ForeignIntentPolicy::Mend, ForeignIntentPolicy::GiveUp] {
        let ground = on_two_steps(10, 10);
        let (bytes, path) = leave_a_hole(&ground);
        ground.remove(&["two", "three", "four"]);
        replace_identity(&ground, true);
        // All images are new to the state with its new identity, and slots that it does not know are emptied.
        ground.file_system.pass(Duration::from_secs(2 * 24 * 60 * 60));
        ground.run();
        ground.run();
        assert!(ground.slots() >= 1, "the last copy stays");
        let state = ground.state();
        let images = mend(&state, DoubtfulImagePolicy::Fill).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, MendOutcome::Foreign)), "{images:?}");
        assert!(second_block(&ground) != bytes && state.intent_paths().unwrap() == [path], "nothing was done");
        assert_eq!(crate::mend::declared(&state).unwrap().len(), 1, "status shows it");
        let images = mend(&state, MendRules { doubtful: DoubtfulImagePolicy::Keep, foreign }).unwrap().images;
        if foreign == ForeignIntentPolicy::Mend {
            assert!(matches!(&images[..], [image] if matches!(image.became, MendOutcome::Whole)), "{images:?}");
            assert!(second_block(&ground) == bytes);
        } else {
            assert!(matches!(&images[..], [image] if matches!(image.became, MendOutcome::GivenUp)), "{images:?}");
        }
        assert!(state.intent_paths().unwrap().is_empty());
    }
}

/// With a new identity, the next pass would take all slots for unnamed.
#[test]
fn no_identity_is_made_while_something_is_declared() {
    use crate::mend::{DoubtfulImagePolicy, ForeignIntentPolicy, MendOutcome, MendRules, mend};
    for is_damaged in [false, true] {
        let ground = on_two_steps(10, 10);
        let (bytes, path) = leave_a_hole(&ground);
        replace_identity(&ground, false);
        let identity = Path::new(FOLDER).join(crate::state::IDENTITY);
        if is_damaged {
            let file = ground.host.substrate.create(&identity).unwrap();
            ground.host.substrate.write_at(&file, 0, b"nonsense").unwrap();
        }
        let open = || State::open(&ground.host.substrate, &*ground.host.clock, &*ground.host.random, &|_| {});
        let refused = open().err().expect("it is refused");
        assert!(matches!(&refused, StateError::IdentityLost { intents, .. } if intents[0].path == path), "{refused}");
        let message = refused.to_string();
        let parts = [".onefold/identity", if is_damaged { "damaged" } else { "missing" }, "(image `one`)"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(ground.host.substrate.open(&identity, Access::Read).is_ok(), is_damaged, "it is as it was");
        let noticed = Cell::new(false);
        let notice = |notice: Notice| noticed.set(matches!(notice, Notice::IdentityLost(_)) || noticed.get());
        assert!(State::look(&ground.host.substrate, &*ground.host.clock, &notice).unwrap().is_none() && noticed.get());
        let (substrate, clock) = (&ground.host.substrate, &*ground.host.clock);
        let to_mend = || State::open_to_mend(substrate, clock, &*ground.host.random, &|_| {}).unwrap();
        let state = to_mend().unwrap();
        let images = mend(&state, DoubtfulImagePolicy::Fill).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, MendOutcome::Foreign)), "{images:?}");
        assert!(open().is_err(), "nothing was decided");
        let images =
            mend(&state, MendRules { doubtful: DoubtfulImagePolicy::Keep, foreign: ForeignIntentPolicy::Mend })
                .unwrap()
                .images;
        assert!(matches!(&images[..], [image] if matches!(image.became, MendOutcome::Whole)), "{images:?}");
        assert!(second_block(&ground) == bytes);
        if !is_damaged {
            assert!(to_mend().is_none(), "there is nothing left to be mended, and no identity");
        }
        drop(open().unwrap());
        assert!(to_mend().is_some());
    }
}

/// It is unknown what a damaged intent of another identity names.
#[test]
fn a_damaged_intent_of_another_identity_keeps_all_slots_until_it_is_given_up() {
    use crate::mend::{DoubtfulImagePolicy, ForeignIntentPolicy, MendRules, mend};
    let ground = on_two_steps(10, 10);
    let (_, path) = leave_a_hole(&ground);
    let file = ground.host.substrate.open(&path, Access::Write).unwrap();
    ground.host.substrate.write_at(&file, 100, b"damage").unwrap();
    drop(file);
    replace_identity(&ground, true);
    ground.remove(&["two", "three", "four"]);
    ground.file_system.pass(Duration::from_secs(2 * 24 * 60 * 60));
    ground.run();
    assert_eq!(ground.slots(), 20);
    let state = ground.state();
    assert_eq!(mend(&state, DoubtfulImagePolicy::Fill).unwrap().left().count(), 1, "it is still there");
    mend(&state, MendRules { doubtful: DoubtfulImagePolicy::Keep, foreign: ForeignIntentPolicy::GiveUp }).unwrap();
    assert!(state.intent_paths().unwrap().is_empty());
}

/// A process that has an arena file open may share with its slots as long as they can be found by its number.
#[test]
fn slots_of_an_arena_file_that_was_removed_are_not_shared_with() {
    let ground = on_two_steps(10, 10);
    let (sharer, other) = (ground.state(), ground.state());
    let arena = || sharer.open_arena(0, Access::Read).unwrap();
    let opened = arena().unwrap();
    assert!(sharer.keeps_slots(0, &opened).unwrap());
    let held = other.try_lock(&Subject::Sweep(0)).unwrap();
    assert!(!sharer.keeps_slots(0, &opened).unwrap(), "another host empties some");
    drop(held);
    ground.remove(&["one", "two", "three", "four"]);
    assert_eq!(ground.run().planned.collected, 20);
    assert!(arena().is_none());
    assert!(!sharer.keeps_slots(0, &opened).unwrap(), "it has no name");
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 10));
    ground.run();
    let renewed = arena().unwrap();
    assert!(!sharer.keeps_slots(0, &opened).unwrap(), "another file has its name");
    assert!(sharer.keeps_slots(0, &renewed).unwrap());
}
