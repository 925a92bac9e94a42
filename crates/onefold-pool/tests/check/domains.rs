//! Sharing domains mixed up by damage: the check reports them, and the repair separates them without loss.

use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::check::repair;
use onefold_pool::format::header::BlockKind;
use onefold_pool::format::map_node::entries_range;
use onefold_pool::{Durability, FileKind, Ino, NoProgress, XattrMode};
use onefold_testing::device::MemoryDevice;

use super::common::*;
use super::names::change;
use super::structures::Structures;

const BYTES: usize = 700 * 4096;

struct Tenants {
    device: Arc<MemoryDevice>,
    /// One file in each of two sharing domains, with different contents.
    files: [Ino; 2],
    directories: [Ino; 2],
}

fn tenants() -> Tenants {
    let device = new_pool(8192);
    let pool = open(&device);
    let mut files = [Ino::ROOT; 2];
    let mut directories = [Ino::ROOT; 2];
    for (at, name) in [&b"red"[..], b"blue"].into_iter().enumerate() {
        directories[at] = make(&pool, Ino::ROOT, name, FileKind::Directory);
        let domain = (at + 1).to_string();
        pool.set_xattr(directories[at], b"user.onefold.domain", domain.as_bytes(), XattrMode::Either).unwrap();
        files[at] = make(&pool, directories[at], b"image.raw", FileKind::Regular);
        pool.write(files[at], 0, &noise(at as u64, BYTES), Durability::Later).unwrap();
        let clone = make(&pool, directories[at], b"clone.raw", FileKind::Regular);
        pool.clone_file(files[at], clone).unwrap();
    }
    pool.close().unwrap();
    forget_log(&device);
    assert_clean(&device);
    Tenants { device, files, directories }
}

fn content(device: &Arc<MemoryDevice>, ino: Ino) -> Vec<u8> {
    let pool = open(device);
    let mut bytes = vec![0; BYTES];
    assert_eq!(pool.read(ino, 0, &mut bytes).unwrap(), BYTES);
    bytes
}

fn mend(device: &Arc<MemoryDevice>) {
    let seam: Arc<dyn BlockDevice> = device.clone();
    repair(&seam, &options(), &environment(), &NoProgress).unwrap();
    assert_clean(device);
}

#[test]
fn a_block_that_files_of_two_domains_name_is_copied_for_one_of_them() {
    let Tenants { device, files: [red, blue], .. } = tenants();
    let structures = Structures::of(&device.image());
    let taken = structures.data_of(red)[5];
    let leaves = blocks_of_kind(&device.image(), BlockKind::MapNode(0));
    let of_blue: Vec<BlockNo> = structures.nodes_of(blue);
    let leaf = leaves.iter().map(|(at, _)| *at).find(|at| of_blue.contains(at)).unwrap();
    reseal(&device, leaf, |bytes| bytes[entries_range(9, 1)].copy_from_slice(&taken.0.to_le_bytes()));
    let report = checked(&device);
    let told = report.problems.iter().find(|problem| problem.what.contains("sharing domain 1")).unwrap();
    assert_eq!(told.block, Some(taken));
    assert!(told.files.contains(&"/red/image.raw".to_owned()), "{told:?}");
    assert!(told.files.contains(&"/blue/image.raw".to_owned()), "{told:?}");
    mend(&device);
    assert!(content(&device, red) == noise(0, BYTES));
    let (found, before) = (content(&device, blue), noise(1, BYTES));
    let changed: Vec<usize> = (0..BYTES / 4096)
        .filter(|at| found[at * 4096..(at + 1) * 4096] != before[at * 4096..(at + 1) * 4096])
        .collect();
    assert_eq!(changed.len(), 1, "one block has another content: the one that the map named");
}

#[test]
fn a_file_that_says_another_domain_than_its_directory_gets_that_of_its_directory() {
    let Tenants { device, files: [red, blue], .. } = tenants();
    change(&device, blue.0, 1, |_| true, |inode| inode[20] = 1);
    let report = checked(&device);
    assert!(report.problems.iter().any(|problem| problem.what.contains("than its directory")), "{report:#?}");
    mend(&device);
    assert!(content(&device, red) == noise(0, BYTES));
    assert!(content(&device, blue) == noise(1, BYTES));
    assert_eq!(open(&device).attr(blue).unwrap().domain, 2);
}

#[test]
fn a_name_in_another_domain_is_taken_away_from_a_file_that_has_one_in_its_own() {
    let Tenants { device, files: [red, blue], directories: [_, blue_directory] } = tenants();
    // The entry of blue's clone now leads to red's file.
    change(&device, blue_directory.0, 2, |entry| entry.ends_with(b"clone.raw"), |entry| entry[0] = red.0 as u8);
    assert!(!checked(&device).is_clean());
    mend(&device);
    assert!(content(&device, red) == noise(0, BYTES));
    assert!(content(&device, blue) == noise(1, BYTES));
    let pool = open(&device);
    assert!(pool.lookup(blue_directory, b"clone.raw").is_err());
    assert_eq!(pool.attr(red).unwrap().link_count, 1);
    let home = pool.lookup(Ino::ROOT, b"lost+found").unwrap().ino;
    let of_domain = pool.lookup(home, b"domain-2").unwrap();
    assert_eq!(of_domain.domain, 2);
    let lost = pool.lookup(of_domain.ino, format!("inode-{}", blue.0 + 1).as_bytes()).unwrap();
    assert_eq!(lost.size_bytes, BYTES as u64, "the clone without a name is kept");
}
