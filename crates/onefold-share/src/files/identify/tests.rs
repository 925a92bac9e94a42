//! Images that have changed since they were listed.

use std::path::{Path, PathBuf};

use onefold_substrate::{FileStat as HostStat, Files, Refusal};
use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

use super::claims::Circle;
use super::limits::{BYTES_MIN, claimed_bytes_max};
use super::*;
use crate::domain::Domain;
use crate::files::{ReadScope, Tier};
use crate::format::FileNo;
use crate::pace::Pace;

/// Between listing and opening, any rotation of images gives a name to another file.
#[test]
fn a_file_that_has_got_the_name_of_a_listed_one_is_not_read() {
    let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
    let host = file_system.observe();
    let substrate = &host.substrate;
    let [first, second] = ["first", "second"].map(|name| {
        let file = substrate.create(Path::new(name)).unwrap();
        substrate.stat(&file).unwrap()
    });
    let pace = Pace::unlimited();
    let mut identifying = Identification {
        candidates: Candidates::new(Path::new("/var/tmp"), 1 << 16),
        packages: PackageNames::new(1 << 16),
        examined: ExaminationReport::default(),
        search: Search {
            tiers: &Tier::ALL,
            reading: ReadScope::Probes,
            since: None,
            cache_bytes: 1 << 16,
            read_pace: pace.reading(),
        },
        key: [1; 16],
        strangers: BTreeSet::new(),
        kept_bytes_max: 1 << 16,
        go_on: &|| Ok(()),
        waited: &|| (),
    };
    let mut add = |stat| {
        let path = PathBuf::from("first");
        let listed = ListedFile { number: FileNo(1), path, stat, domain: Domain::Owner(0) };
        identifying.add_image(substrate, &listed, 0, None).unwrap_err()
    };
    assert!(matches!(add(second), IdentifyError::Replaced));
    // Simulated files have no reader, so this error shows that the file was accepted.
    assert!(matches!(add(first), IdentifyError::Unreadable));
}

/// If both had one content, an image that is overwritten in place would be the source of others that cannot share with
/// it.
#[test]
fn images_that_are_overwritten_in_place_share_among_themselves() {
    let (domain, other) = (Domain::Owner(1), Domain::Owner(2));
    let content =
        |domain, refusal| claims::content_of(&[1; 16], Circle::of(domain, refusal).unwrap(), Tier::Digest, &7);
    let in_place = Some(Refusal::NoCopyOnWrite);
    assert_eq!(content(&domain, in_place), content(&domain, in_place));
    assert_ne!(content(&domain, in_place), content(&domain, None));
    assert_ne!(content(&domain, in_place), content(&other, in_place));
    // Nobody can compute in advance a content that meets one of another domain.
    let circle = Circle::of(&domain, None).unwrap();
    assert_ne!(claims::content_of(&[2; 16], circle, Tier::Digest, &7), content(&domain, None));
    // It is a source; as a target, the file system refuses it.
    assert_eq!(content(&domain, Some(Refusal::Immutable)), content(&domain, None));
    assert!(matches!(Circle::of(&domain, Some(Refusal::Swap)), Err(IdentifyError::Refused(Refusal::Swap))));
}

/// An image of 16 TiB that takes up no space could fill the temporary folder with rows, and end the work for all.
#[test]
fn a_sparse_image_claims_no_more_than_it_takes_up() {
    let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
    let host = file_system.observe();
    let file = host.substrate.create(Path::new("image")).unwrap();
    let stat = host.substrate.stat(&file).unwrap();
    let most = |length, allocated| claimed_bytes_max(&HostStat { length, allocated, ..stat.clone() });
    assert_eq!(most(16 << 40, 100 << 20), (400 << 20) + BYTES_MIN);
    assert_eq!(most(100 << 20, 16 << 40), (400 << 20) + BYTES_MIN);
    assert_eq!(most(u64::MAX, u64::MAX), u64::MAX);
}
