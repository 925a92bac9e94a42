//! Carries out a plan for names and inodes.

use super::each_item::ITEMS_PER_STEP;
use super::names::{InodeRecord, NamesPlan};
use crate::attr::{Dedup, FileKind, Ino, NewFile};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::inode::{Inode, MapRoot};
use crate::format::items;
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::names::directory::EntryName;

/// The directory for files that no directory leads to.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl NamesPlan {
    /// Carries out the plan. Each operation is independent: the next repair plans again whatever is interrupted.
    pub(super) fn carry_out(mut self, engine: &Engine) -> Result<()> {
        for keys in self.removals.chunks(ITEMS_PER_STEP) {
            engine.run(Privilege::Freeing, |op| keys.iter().try_for_each(|key| op.remove_item(key).map(|_| ())))?;
        }
        for puts in self.puts.chunks(ITEMS_PER_STEP) {
            engine.run(Privilege::Freeing, |op| puts.iter().try_for_each(|(key, value)| op.put_item(key, value)))?;
        }
        self.mend_root(engine)?;
        let lost = self.settle(engine)?;
        self.mend_numbers(engine)?;
        self.attach(engine, &lost)
    }

    /// Makes a root directory if it is missing.
    fn mend_root(&mut self, engine: &Engine) -> Result<()> {
        let root = self.inodes.get_mut(&Ino::ROOT).filter(|known| known.kind == FileKind::Directory);
        if let Some(known) = root {
            known.parent = Ino::ROOT.0;
            return Ok(());
        }
        let now = engine.environment.clock.now();
        let inode = engine.run(Privilege::Freeing, |op| {
            op.remove_item(&items::inode_key(Ino::ROOT))?;
            op.new_root(0, 0, Dedup::On, now)?;
            op.inode(Ino::ROOT)
        })?;
        self.inodes.insert(Ino::ROOT, InodeRecord::new(&inode));
        Ok(())
    }

    /// Corrects each inode. Returns those that no directory leads to.
    fn settle(&self, engine: &Engine) -> Result<Vec<Ino>> {
        let (mut lost, mut changed) = (Vec::new(), Vec::new());
        let (mut new_orphans, mut gone_orphans) = (Vec::new(), Vec::new());
        for (&ino, known) in &self.inodes {
            let Some(held) = engine.view(|op| op.item(&items::inode_key(ino)))? else { continue };
            let Some(mut inode) = Inode::decode(ino, &held) else { continue };
            (inode.parent, inode.attr.domain) = (known.parent, known.domain);
            let is_directory = inode.attr.kind == FileKind::Directory;
            let is_orphan = self.orphans.contains(&ino) || inode.attr.link_count == 0;
            let stays_orphan = is_orphan && known.names == 0 && ino != Ino::ROOT;
            match inode.attr.kind {
                FileKind::Regular => {}
                FileKind::Directory => inode.attr.size_bytes = known.entries,
                FileKind::Symlink => inode.attr.size_bytes = known.target_bytes,
                _ => inode.attr.size_bytes = 0,
            }
            if inode.attr.kind != FileKind::Regular {
                (inode.map, inode.mapped, inode.reserved_blocks) = (MapRoot::EMPTY, 0, 0);
            }
            if !is_directory {
                inode.parent = 0;
            }
            inode.attr.link_count = match (stays_orphan, is_directory) {
                (true, _) => 0,
                (false, true) => 2 + known.subdirectories,
                (false, false) => known.names,
            };
            if stays_orphan && !self.orphans.contains(&ino) {
                new_orphans.push(ino);
            }
            if !stays_orphan && self.orphans.contains(&ino) {
                gone_orphans.push(ino);
            }
            if known.names == 0 && !stays_orphan && ino != Ino::ROOT {
                lost.push(ino);
            }
            if held != inode.encode() {
                changed.push(inode);
            }
            if changed.len() == ITEMS_PER_STEP {
                put_inodes(engine, &mut changed)?;
            }
        }
        put_inodes(engine, &mut changed)?;
        gone_orphans.extend(self.orphans.iter().filter(|ino| !self.inodes.contains_key(ino)));
        for inos in new_orphans.chunks(ITEMS_PER_STEP) {
            engine.run(Privilege::Freeing, |op| {
                inos.iter().try_for_each(|ino| op.put_item(&items::orphan_key(*ino), &[]))
            })?;
        }
        for inos in gone_orphans.chunks(ITEMS_PER_STEP) {
            engine.run(Privilege::Freeing, |op| {
                inos.iter().try_for_each(|ino| op.remove_item(&items::orphan_key(*ino)).map(|_| ()))
            })?;
        }
        Ok(lost)
    }

    /// Ensures that newly assigned numbers are unused.
    fn mend_numbers(&self, engine: &Engine) -> Result<()> {
        let next_ino = self.inodes.keys().next_back().map_or(0, |ino| ino.0.saturating_add(1));
        engine.run(Privilege::Freeing, |op| {
            for (field, least) in [(Field::NextIno, next_ino), (Field::NextReclaim, self.next_reclaim)] {
                if op.state(field) < least {
                    op.set_state(field, least)?;
                }
            }
            Ok(())
        })
    }

    /// Gives inodes that no directory leads to a name in `/lost+found`: their number. A directory holds only files of
    /// its own sharing domain, so each domain except the root's has a directory there.
    fn attach(&self, engine: &Engine, lost: &[Ino]) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let now = engine.environment.clock.now();
        let home = found_directory(engine, Ino::ROOT, LOST_AND_FOUND, None)?;
        let home_domain = engine.view(|op| op.directory(home))?.attr.domain;
        for &ino in lost {
            let attr = engine.view(|op| op.inode(ino))?.attr;
            let place = if attr.kind == FileKind::Directory || attr.domain == home_domain {
                home
            } else {
                found_directory(engine, home, format!("domain-{}", attr.domain).as_bytes(), Some(attr.domain))?
            };
            let text = format!("inode-{}", ino.0);
            let name = EntryName::new(text.as_bytes(), &engine.name_hash)?;
            engine.run(Privilege::Freeing, |op| {
                let mut inode = op.inode(ino)?;
                let mut directory = op.directory(place)?;
                if inode.attr.kind == FileKind::Directory {
                    inode.parent = place.0;
                } else {
                    inode.attr.link_count = 1;
                }
                op.put_inode(&inode)?;
                op.add_entry(&mut directory, name, &inode, now)
            })?;
        }
        Ok(())
    }
}

fn put_inodes(engine: &Engine, inodes: &mut Vec<Inode>) -> Result<()> {
    engine.run(Privilege::Freeing, |op| inodes.iter().try_for_each(|inode| op.put_inode(inode)))?;
    inodes.clear();
    Ok(())
}

/// Returns a directory in `parent`, and makes it if it is missing, with its own sharing domain if one is given. Only
/// root may read it.
fn found_directory(engine: &Engine, parent: Ino, name: &[u8], domain: Option<u16>) -> Result<Ino> {
    let now = engine.environment.clock.now();
    let place = EntryName::new(name, &engine.name_hash)?;
    let new = NewFile { kind: FileKind::Directory, mode: 0o700, umask: 0, uid: 0, gid: 0, rdev: 0 };
    engine.run(Privilege::Freeing, |op| {
        if let Some(entry) = op.find_entry(parent, place)? {
            return Ok(entry.item.ino);
        }
        let mut parent = op.directory(parent)?;
        let mut inode = op.new_inode(&parent, &new, now)?;
        if let Some(domain) = domain {
            inode.attr.domain = domain;
            op.put_inode(&inode)?;
        }
        op.add_entry(&mut parent, place, &inode, now)?;
        Ok(inode.attr.ino)
    })
}
