//! Names and their metadata: renames, extended attributes, ACLs.

use onefold_pool::{Durability, FileKind, RenameMode};

use super::SMALL;
use super::anything::anything_goes;
use crate::common::actions::Habits;
use crate::common::bench::{Bench, WorkloadRecord};
use crate::common::reference::ROOT;
use crate::common::{new_file, regular};

/// New files are renamed over old ones, as by programs that replace a file; directories, too; with other actions on
/// names in between.
pub(super) fn renames(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let habits = Habits { write_blocks: 2, ..anything_goes() };
    let directories: Vec<u64> = ["left", "right"].iter().map(|name| directory(&mut bench, ROOT, name)).collect();
    for round in 0..16 {
        // Actions may have moved or removed any inode, and put another one in its place.
        let alive = |bench: &Bench, ino: u64| bench.reference.nodes.get(&ino).is_some_and(|node| node.links > 0);
        let places: Vec<u64> = directories.iter().copied().filter(|&ino| alive(&bench, ino)).chain([ROOT]).collect();
        let (from, to) = (*bench.dice.pick(&places), *bench.dice.pick(&places));
        replace(&mut bench, from, to, round);
        if round % 4 == 3 {
            replace_directory(&mut bench, to);
        }
        for _ in 0..3 {
            bench.act(&habits);
        }
        if round % 5 == 0 {
            bench.commit();
        }
    }
    bench.end()
}

fn kind_at(bench: &Bench, parent: u64, name: &str) -> Option<FileKind> {
    let entry = bench.reference.node(parent).entries.get(name.as_bytes());
    entry.map(|ino| bench.reference.node(*ino).kind)
}

fn directory(bench: &mut Bench, parent: u64, name: &str) -> u64 {
    bench.create_in(parent, name, &new_file(FileKind::Directory))
}

/// Writes a new file and renames it over another one.
fn replace(bench: &mut Bench, from: u64, to: u64, round: u64) {
    if kind_at(bench, from, "new").is_some() {
        return;
    }
    let file = bench.create_in(from, "new", &regular());
    bench.write(file, 0, 6000, Durability::Later);
    if round.is_multiple_of(2) {
        bench.fsync(file);
    }
    let mode = match kind_at(bench, to, "current") {
        None => RenameMode::NoReplace,
        Some(FileKind::Directory) => return,
        Some(_) if round % 3 == 2 => RenameMode::Exchange,
        Some(_) => RenameMode::Replace,
    };
    bench.rename_between((from, "new"), (to, "current"), mode);
    if mode == RenameMode::Exchange {
        bench.unlink_from(from, "new");
    }
}

/// Renames a directory over an empty one.
fn replace_directory(bench: &mut Bench, parent: u64) {
    for name in ["old-directory", "new-directory"] {
        match kind_at(bench, parent, name) {
            None => {
                directory(bench, parent, name);
            }
            Some(FileKind::Directory) => {}
            Some(_) => return,
        }
    }
    let target = bench.reference.node(parent).entries[&b"old-directory"[..]];
    if bench.reference.node(target).entries.is_empty() {
        bench.rename_between((parent, "new-directory"), (parent, "old-directory"), RenameMode::Replace);
    }
}

/// Attributes of all sizes are added, changed and removed, on a file and on a directory.
pub(super) fn xattrs(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let inodes = [bench.create("file"), directory(&mut bench, ROOT, "directory")];
    for round in 0..80 {
        let ino = *bench.dice.pick(&inodes);
        let name = format!("user.{}", bench.dice.below(9)).into_bytes();
        if bench.dice.one_in(3) && bench.reference.node(ino).xattrs.contains_key(&name) {
            bench.remove_xattr(ino, &name);
        } else {
            let longest = *bench.dice.pick(&[0, 20, 400, 5000, 65_536]);
            let letter = b'a' + u8::try_from(round % 26).expect("below 26");
            let value = vec![letter; bench.dice.index(longest + 1)];
            bench.set_xattr(ino, &name, &value);
        }
        match bench.dice.below(12) {
            0 => bench.commit(),
            1 => bench.fsync(inodes[0]),
            2 => bench.checkpoint(),
            _ => {}
        }
    }
    bench.unlink("file");
    bench.commit();
    bench.reclaim(10);
    bench.end()
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Returns an ACL as the kernel passes it: owner, one more user, group, mask and others.
fn acl(permissions: [u16; 5], user: u32) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let tags = [(0x01, u32::MAX), (0x02, user), (0x04, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
    for ((tag, id), permissions) in tags.into_iter().zip(permissions) {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// ACLs are set, inherited by new inodes, changed by a new mode and removed.
pub(super) fn acls(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let mut directories = vec![directory(&mut bench, ROOT, "top")];
    let mut files = Vec::new();
    for round in 0..60 {
        let parent = *bench.dice.pick(&directories);
        let permissions = std::array::from_fn(|_| u16::try_from(bench.dice.below(8)).expect("three bits"));
        let value = acl(permissions, 100 + u32::try_from(round).expect("small"));
        match bench.dice.below(8) {
            0..2 => bench.set_xattr(parent, DEFAULT, &value),
            2 => {
                let made = directory(&mut bench, parent, &format!("directory{round}"));
                directories.push(made);
            }
            3..5 => {
                let file = bench.create_in(parent, &format!("file{round}"), &regular());
                bench.write(file, 0, 4096, Durability::Later);
                files.push(file);
            }
            5 if !files.is_empty() => bench.set_xattr(*bench.dice.pick(&files), ACCESS, &value),
            6 if !files.is_empty() => {
                let mode = u16::try_from(bench.dice.below(0o1000)).expect("nine bits");
                bench.set_mode(*bench.dice.pick(&files), mode);
            }
            _ if bench.reference.node(parent).xattrs.contains_key(DEFAULT) => bench.remove_xattr(parent, DEFAULT),
            _ => {}
        }
        if bench.dice.one_in(6) {
            bench.commit();
        }
    }
    bench.end()
}
