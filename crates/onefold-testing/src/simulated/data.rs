//! Reading and writing files.

use std::io;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use rustix::io::Errno;

use super::blocks::PhysicalNo;
use super::checks::StepChange;
use super::content::{Content, cut, merged};
use super::files::{FileNo, pieces};
use super::names::{FolderNo, Name, NameTarget};
use super::options::Mistake;
use super::rights::Ownership;
use super::world::{Actor, World};

/// Maximum length of a file, so that arithmetic with offsets cannot overflow: 2^52 bytes.
const FILE_BYTES_MAX: u64 = 1 << 52;

impl World {
    /// Reads from an offset; returns the number of bytes that the file had there.
    pub(super) fn read(&self, no: FileNo, offset: u64, into: &mut [u8]) -> usize {
        let file = self.files.get(no);
        let left = file.length.saturating_sub(offset);
        let length = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let mut done = 0;
        for (index, within, count) in pieces(offset, length) {
            let into = &mut into[done..done + count];
            match self.content_at(no, index) {
                Some(content) => into.copy_from_slice(&content[within..within + count]),
                None => into.fill(0),
            }
            done += count;
        }
        length
    }

    /// Returns whether a range touches an unreadable block.
    pub(super) fn has_bad_block(&self, no: FileNo, offset: u64, length: usize) -> bool {
        self.bad.range((no, 0)..=(no, u64::MAX)).any(|(_, index)| {
            let start = index * BLOCK_BYTES_U64;
            start < offset + length as u64 && offset < start + BLOCK_BYTES_U64
        })
    }

    /// Returns the content of a block of a file; `None` is a hole.
    pub(super) fn content_at(&self, no: FileNo, index: u64) -> Option<&Content> {
        self.files.get(no).block(index).map(|block| self.blocks.content(block))
    }

    /// Writes bytes. If the room runs out, the first of them are written.
    pub(super) fn write(&mut self, actor: Actor, no: FileNo, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Errno::FBIG.into());
        }
        let mut done = 0;
        for (index, within, count) in pieces(offset, bytes.len()) {
            let piece = &bytes[done..done + count];
            let was_left = self.left.contains(&(no, index));
            let content = merged(self.content_at(no, index).filter(|_| count < BLOCK_BYTES), within, piece);
            self.put_block(actor, no, index, Some(content.clone()))?;
            self.lengthen(actor, no, offset + (done + count) as u64);
            if self.is_followed(actor, no) && was_left {
                // A write into an unfilled hole of a share loses the rest of the block.
                self.reference.set(no, index, Some(content));
            } else if self.is_followed(actor, no) {
                self.reference.write(no, index, within, piece, &content);
            }
            done += count;
        }
        Ok(())
    }

    /// Writes one whole block, or makes it a hole, as writers do.
    pub(super) fn write_block(
        &mut self,
        actor: Actor,
        no: FileNo,
        index: u64,
        content: Option<Content>,
    ) -> io::Result<()> {
        let is_data = content.is_some();
        self.put_block(actor, no, index, content.clone())?;
        if is_data {
            self.lengthen(actor, no, (index + 1) * BLOCK_BYTES_U64);
        }
        if self.is_followed(actor, no) {
            self.reference.set(no, index, content);
        }
        Ok(())
    }

    /// Sets the length. Data beyond it is dropped, and an added part is a hole.
    pub(super) fn set_length(&mut self, actor: Actor, no: FileNo, length: u64) -> io::Result<()> {
        if length > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        self.take_over(actor.host(), no);
        let before = self.files.get(no).length;
        if length < before {
            self.cut_tail(actor, no, length)?;
            let first = length.div_ceil(BLOCK_BYTES_U64);
            let dropped: Vec<u64> = self.files.get(no).map.indices_from(first);
            for index in dropped {
                self.note_durable(no, index);
                self.remap(no, index, None);
            }
        }
        self.change_length(actor, no, length);
        if self.is_followed(actor, no) {
            self.reference.set_length(no, length);
            for index in length / BLOCK_BYTES_U64..before.div_ceil(BLOCK_BYTES_U64) {
                // The rest of an unfilled block stays zero from now on.
                if self.forget_hole(no, index) {
                    self.reference.set(no, index, None);
                }
            }
        }
        Ok(())
    }

    /// Zeros the block in which the new length ends, from there on.
    fn cut_tail(&mut self, actor: Actor, no: FileNo, length: u64) -> io::Result<()> {
        let within = usize::try_from(length % BLOCK_BYTES_U64).expect("below a block's length");
        let index = length / BLOCK_BYTES_U64;
        match self.content_at(no, index) {
            Some(content) if within > 0 => {
                let content = cut(content, within);
                self.put_block(actor, no, index, Some(content))
            }
            _ => Ok(()),
        }
    }

    /// Makes a range of bytes a hole. Where its ends lie within blocks, those parts become zeros.
    pub(super) fn punch(&mut self, actor: Actor, no: FileNo, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length).min(self.files.get(no).length);
        if offset >= end {
            return Ok(());
        }
        let whole = offset.div_ceil(BLOCK_BYTES_U64)..end / BLOCK_BYTES_U64;
        if whole.is_empty() {
            let count = usize::try_from(end - offset).expect("less than two blocks");
            return self.write(actor, no, offset, &vec![0; count]);
        }
        let count = |bytes: u64| usize::try_from(bytes).expect("less than a block");
        self.write(actor, no, offset, &vec![0; count(whole.start * BLOCK_BYTES_U64 - offset)])?;
        self.write(actor, no, whole.end * BLOCK_BYTES_U64, &vec![0; count(end - whole.end * BLOCK_BYTES_U64)])?;
        let mapped = self.files.get(no).map.iter_from(whole.start).map(|(index, _)| index);
        let mapped: Vec<u64> = mapped.take_while(|index| *index < whole.end).collect();
        for index in mapped {
            self.write_block(actor, no, index, None)?;
        }
        let left: Vec<u64> = self.left.range((no, whole.start)..(no, whole.end)).map(|(_, index)| *index).collect();
        left.into_iter().try_for_each(|index| self.write_block(actor, no, index, None))
    }

    /// Changes the content of a block of a file: in place if nothing else refers to it and the file system works that
    /// way.
    pub(super) fn put_block(
        &mut self,
        actor: Actor,
        no: FileNo,
        index: u64,
        content: Option<Content>,
    ) -> io::Result<()> {
        self.take_over(actor.host(), no);
        self.mark_unsynced(actor.host(), no);
        self.note_durable(no, index);
        let was_left = self.forget_hole(no, index);
        if was_left && !self.is_followed(actor, no) {
            self.files.get_mut(no).unsynced.filled.insert(index);
        }
        self.replace_block(no, index, content)?;
        self.touch(actor.host(), no);
        Ok(())
    }

    /// Replaces the block at a place of a file, for whatever reason.
    pub(super) fn replace_block(&mut self, no: FileNo, index: u64, content: Option<Content>) -> io::Result<()> {
        let Some(content) = content else {
            self.remap(no, index, None);
            return Ok(());
        };
        let present = self.files.get(no).block(index);
        if let Some(block) = present {
            let is_alone = self.blocks.count(block) == 1;
            let is_mistaken = self.options.mistake == Some(Mistake::SharedBlockOverwritten);
            if (is_alone && self.options.habits.overwrites_in_place) || (!is_alone && is_mistaken) {
                self.fill(block, content);
                return Ok(());
            }
        }
        // Prefers the place behind the preceding block, so that sequential writes form one extent.
        let wanted = index.checked_sub(1).and_then(|before| self.files.get(no).block(before));
        let wanted = wanted.map(|block| PhysicalNo(block.0 + 1));
        let block = match self.blocks.allocate(wanted, content.clone()) {
            Ok(block) => block,
            // Removed files hold their blocks until the removal is durable. This makes removals durable to free them.
            Err(_) if self.settle_all_names() => self.blocks.allocate(wanted, content)?,
            Err(error) => return Err(error),
        };
        self.remap(no, index, Some(block));
        Ok(())
    }

    /// Lengthens a file to at least this length.
    pub(super) fn lengthen(&mut self, actor: Actor, no: FileNo, length: u64) {
        if length > self.files.get(no).length {
            self.change_length(actor, no, length);
            if self.is_followed(actor, no) {
                self.reference.set_length(no, length);
            }
        }
    }

    fn change_length(&mut self, actor: Actor, no: FileNo, length: u64) {
        let file = self.files.get_mut(no);
        let before = std::mem::replace(&mut file.length, length);
        file.unsynced.length.get_or_insert(before);
        self.mark_unsynced(actor.host(), no);
        self.touch(actor.host(), no);
        self.changes.push(StepChange::Length(no));
    }

    /// Returns whether the reference copy follows a change: it does not follow an engine's change of an image.
    pub(super) fn is_followed(&self, actor: Actor, no: FileNo) -> bool {
        matches!(actor, Actor::Writer(_)) || !self.files.get(no).is_image
    }

    /// Makes a file. No name leads to it yet.
    pub(super) fn add_file(&mut self, actor: Actor) -> FileNo {
        let no = self.files.add();
        let owner = self.owner_for(actor, no);
        let file = self.files.get_mut(no);
        file.is_image = matches!(actor, Actor::Writer(_));
        file.owned = Ownership { owner, ..Ownership::default() };
        self.reference.add(no);
        self.touch(actor.host(), no);
        self.files.get_mut(no).unsynced.modified = self.files.get(no).modified;
        no
    }

    /// Makes an empty file with a name.
    pub(super) fn create_file(&mut self, actor: Actor, folder: FolderNo, name: &Name) -> io::Result<FileNo> {
        self.settle_names(actor.host(), folder);
        if self.names.get(folder, name).is_some() {
            return Err(Errno::EXIST.into());
        }
        let no = self.add_file(actor);
        self.change_names(actor, vec![(folder, name.clone(), Some(NameTarget::File(no)))]);
        Ok(no)
    }
}
