//! Collections beside a session of multicast.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::{Random, SeededRandom, SystemRandom};
use onefold_image::ImageName;
use onefold_image::archive::{CollectOptions, CollectReport};
use onefold_net::{MulticastOptions, ServerOptions, StatusClient};

use crate::fixture::{Fixture, Noise, open, options, server_options};
use crate::multicast::{install_from, key, multicast};

const PATIENCE: Duration = Duration::from_secs(5);
const BYTES: usize = 12 << 20;

/// Returns a disk whose units take another form at each level of compression.
fn disk(seed: u64) -> Noise {
    let mut bytes = vec![0; BYTES];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte &= 0x1f);
    Noise(bytes)
}

/// Runs a collection that deletes after a delay, and compresses all packs anew of which anything is not needed.
fn collect(fixture: &Fixture, delay: Duration, level: i32) -> CollectReport {
    let folder = tempfile::tempdir().unwrap();
    let options = CollectOptions {
        delay,
        silence: Duration::ZERO,
        needed_percent: 100,
        level: Some(level),
        host: "collector",
        ..CollectOptions::new(folder.path())
    };
    fixture.archive().collect(&options, &SystemClock, &SystemRandom, &mut |_, _| ()).unwrap()
}

/// Has a machine install `lab/zones` by multicast, and changes the archive as soon as the session has begun.
fn check_session(group: u8, change: impl FnOnce(&Fixture)) {
    let (fixture, folder) = (Fixture::new(2 << 20), tempfile::tempdir().unwrap());
    // Each pack of the first image has units that the second one needs, and others.
    let (mut first, second) = (disk(1), disk(2));
    for start in (0..BYTES).step_by(1 << 20) {
        first.0[start..start + (1 << 19)].copy_from_slice(&second.0[start..start + (1 << 19)]);
    }
    fixture.capture_disk("lab/mail", &first);
    // The last one by its name, which `install_from` takes.
    fixture.capture_disk("lab/zones", &second);
    // A session of some seconds.
    let rate_bytes_per_second = NonZeroU64::new(3 << 20).unwrap();
    let multicast = MulticastOptions { rate_bytes_per_second, ..multicast(group, Some(key(folder.path(), 'a'))) };
    let (interface, multicast) = (Some("lo".to_owned()), Some(multicast));
    let server = fixture.serve_with(&ServerOptions { interface, multicast, ..server_options() });
    let status = StatusClient::new(&format!("http://{}", server.address), options(PATIENCE)).unwrap();
    let remote = open(server.address, PATIENCE).unwrap();
    thread::scope(|scope| {
        let (path, key) = (folder.path().join("disk"), key(folder.path(), 'a'));
        let machine = scope.spawn(move || install_from(&path, remote, Some(key)));
        let began = Instant::now();
        while status.read().unwrap().sessions.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "no session begins");
            thread::sleep(Duration::from_millis(20));
        }
        change(&fixture);
        // On a machine with much other work, it may be over.
        println!("the session goes on after the collection: {}", !machine.is_finished());
        let (installed, report, notes) = machine.join().unwrap();
        assert!(installed == second.0, "{report:?} {notes:?}");
        assert!(report.chunks > 5 && report.http_chunks == 0, "{report:?} {notes:?}");
    });
}

fn remove(fixture: &Fixture, name: &str) {
    let archive = fixture.archive();
    let record = archive.find(&ImageName::new(name).unwrap(), None).unwrap();
    archive.remove(&record.image, &SystemClock, &SystemRandom).unwrap();
}

/// Units move to other packs, the old ones go at once, and chunks have another form from then on.
#[test]
fn a_session_does_not_notice_a_collection() {
    check_session(114, |fixture| {
        remove(fixture, "lab/mail");
        let report = collect(fixture, Duration::ZERO, 9);
        assert!(report.rewritten.objects > 0 && report.deleted.objects > 0, "{report:?}");
    });
}

/// Its packs stay until the delay of the collection is over.
#[test]
fn a_session_finishes_though_its_image_was_removed_and_a_collection_ran() {
    check_session(115, |fixture| {
        remove(fixture, "lab/zones");
        let report = collect(fixture, Duration::from_secs(3600), 9);
        assert!(report.retired.objects > 0 && report.deleted.objects == 0, "{report:?}");
    });
}
