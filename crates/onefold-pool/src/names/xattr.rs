//! Extended attributes: values of up to 64 KiB in chunks.

use std::ops::ControlFlow;

use onefold_block::BlockNo;

use super::NameHash;
use crate::attr::Ino;
use crate::format::items::{self, CHUNK_BYTES};
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};
use crate::tree::{self, Key};

/// Number of names that one operation reads.
const NAMES_PER_STEP: usize = 64;

/// The place of an attribute's chunks.
struct ChunkPlace {
    number: u8,
    chunks: u8,
}

/// An attribute's place and value.
type FoundXattr = (ChunkPlace, Vec<u8>);

/// Attribute names need no secret: a file's owner can slow down only that file.
pub(crate) fn hash(name: &[u8]) -> u64 {
    NameHash { key: [0; 32] }.of(name)
}

impl Op<'_> {
    /// Finds an attribute: its place and value, and the numbers of other attributes with the same hash.
    fn find_xattr(&mut self, ino: Ino, name: &[u8]) -> OpResult<(Option<FoundXattr>, Vec<u8>)> {
        let hash = hash(name);
        let root = self.tree_root();
        let range = items::xattr_key(ino, hash, 0, 0)..=items::xattr_key(ino, hash, u8::MAX, u8::MAX);
        let mut numbers = Vec::new();
        let mut found: Option<(ChunkPlace, usize, Vec<u8>)> = None;
        let mut nonsense = false;
        let _ = tree::scan(self, root, range, |key, value| -> ControlFlow<()> {
            let (number, chunk) = ((key.sub >> 8 & 0xff) as u8, (key.sub & 0xff) as u8);
            if chunk == 0 {
                numbers.push(number);
                match items::xattr_split(value) {
                    Some((this, length, first)) if this == name => {
                        found = Some((ChunkPlace { number, chunks: 1 }, length, first.to_vec()));
                    }
                    Some(_) => {}
                    None => nonsense = true,
                }
            } else if let Some((place, _, bytes)) = found.as_mut().filter(|(place, _, _)| place.number == number) {
                place.chunks = chunk + 1;
                bytes.extend_from_slice(value);
            }
            ControlFlow::Continue(())
        })?;
        match found {
            Some((_, length, bytes)) if bytes.len() != length => nonsense = true,
            Some((place, _, bytes)) if !nonsense => return Ok((Some((place, bytes)), numbers)),
            _ => {}
        }
        if nonsense {
            return Err(damaged("attribute", BlockNo(0), format!("an attribute of inode {ino} makes no sense")));
        }
        Ok((None, numbers))
    }

    /// Returns an attribute's value.
    pub(crate) fn xattr(&mut self, ino: Ino, name: &[u8]) -> OpResult<Option<Vec<u8>>> {
        Ok(self.find_xattr(ino, name)?.0.map(|(_, value)| value))
    }

    /// Makes or replaces an attribute.
    pub(crate) fn put_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) -> OpResult<()> {
        let (found, taken) = self.find_xattr(ino, name)?;
        let number = match &found {
            Some((place, _)) => place.number,
            None => (0..=u8::MAX).find(|number| !taken.contains(number)).ok_or(crate::PoolError::NoSpace)?,
        };
        let length = u32::try_from(value.len()).map_err(|_| crate::PoolError::AttributeTooLarge)?;
        let mut first = items::xattr_opening(name, length);
        let (head, rest) = value.split_at(value.len().min(CHUNK_BYTES - first.len()));
        first.extend_from_slice(head);
        let hash = hash(name);
        self.put_item(&items::xattr_key(ino, hash, number, 0), &first)?;
        let mut chunks = 1;
        for chunk in rest.chunks(CHUNK_BYTES) {
            self.put_item(&items::xattr_key(ino, hash, number, chunks), chunk)?;
            chunks += 1;
        }
        if let Some((old, _)) = found {
            for chunk in chunks..old.chunks {
                self.remove_item(&items::xattr_key(ino, hash, number, chunk))?;
            }
        }
        Ok(())
    }

    /// Removes an attribute. Returns false if there was none.
    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> OpResult<bool> {
        let Some((place, _)) = self.find_xattr(ino, name)?.0 else { return Ok(false) };
        for chunk in 0..place.chunks {
            self.remove_item(&items::xattr_key(ino, hash(name), place.number, chunk))?;
        }
        Ok(true)
    }

    /// Returns a bounded number of attribute names of an inode from a key on, and the key to continue from if there may
    /// be more. Skips values without reading them.
    pub(crate) fn xattr_names(&mut self, ino: Ino, from: Key) -> OpResult<(Vec<Vec<u8>>, Option<Key>)> {
        let (_, last) = items::xattr_bounds(ino);
        let mut names = Vec::new();
        let mut from = from;
        for _ in 0..NAMES_PER_STEP {
            let root = self.tree_root();
            let found = tree::first_at_or_after(self, root, &from)?.filter(|(key, _)| *key <= last);
            let Some((key, value)) = found else { return Ok((names, None)) };
            if key.sub & 0xff == 0 {
                names.extend(items::xattr_split(&value).map(|(name, _, _)| name.to_vec()));
            }
            from = items::after_xattr(&key);
        }
        Ok((names, Some(from)))
    }
}

const _: () = assert!(crate::XATTR_BYTES_MAX / CHUNK_BYTES < 250, "chunk numbers fit a byte");
