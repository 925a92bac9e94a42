//! POSIX ACLs: stored as the kernel's attribute values, inherited by new files, kept consistent with the mode.
//!
//! The kernel checks permissions (`default_permissions`). The pool stores the attributes, applies a directory's default
//! ACL to new files, and keeps an access ACL consistent with the nine bits of the mode.
//!
//! Value of `system.posix_acl_access` and `system.posix_acl_default` (Linux, `posix_acl_xattr.h`): version u32 = 2,
//! then entries of tag u16, permissions u16, id u32.

use crate::attr::{FileKind, Ino, NewFile};
use crate::error::PoolError;
use crate::format::{get_u16, get_u32};
use crate::meta::{Op, OpResult};

/// Attribute with a file's ACL.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute with the ACL for new files of a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";
const VERSION: u32 = 2;
const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OWNER: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// An ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Decodes an attribute's value.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a value that the kernel would also refuse.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Acl, PoolError> {
        let invalid = PoolError::Invalid("malformed access control list");
        if bytes.len() < 4 || get_u32(bytes, 0) != VERSION || !(bytes.len() - 4).is_multiple_of(8) {
            return Err(invalid);
        }
        let entries: Vec<AclEntry> = bytes[4..]
            .chunks_exact(8)
            .map(|entry| AclEntry { tag: get_u16(entry, 0), permissions: get_u16(entry, 2), id: get_u32(entry, 4) })
            .collect();
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let named = count(TAG_USER) + count(TAG_GROUP);
        let known = count(TAG_OWNER) + count(TAG_GROUP_OWNER) + count(TAG_OTHER) + count(TAG_MASK) + named;
        let sound = count(TAG_OWNER) == 1
            && count(TAG_GROUP_OWNER) == 1
            && count(TAG_OTHER) == 1
            && count(TAG_MASK) <= 1
            && (named == 0 || count(TAG_MASK) == 1)
            && known == entries.len()
            && entries.iter().all(|entry| entry.permissions <= 7);
        if sound { Ok(Acl { entries }) } else { Err(invalid) }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    fn permissions(&self, tag: u16) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn set_permissions(&mut self, tag: u16, permissions: u16) {
        for entry in self.entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// Returns the tag to which the mode's group bits apply.
    fn group_tag(&self) -> u16 {
        if self.permissions(TAG_MASK).is_some() { TAG_MASK } else { TAG_GROUP_OWNER }
    }

    /// Returns the equivalent nine mode bits.
    pub(crate) fn mode_bits(&self) -> u16 {
        let bits = |tag| self.permissions(tag).unwrap_or(0);
        bits(TAG_OWNER) << 6 | bits(self.group_tag()) << 3 | bits(TAG_OTHER)
    }

    /// Returns whether the nine mode bits express the whole ACL.
    pub(crate) fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Applies `chmod` to these mode bits.
    fn apply_mode(&mut self, mode: u16) {
        self.set_permissions(TAG_OWNER, mode >> 6 & 7);
        self.set_permissions(self.group_tag(), mode >> 3 & 7);
        self.set_permissions(TAG_OTHER, mode & 7);
    }

    /// Removes permissions from a new file's ACL that its creator did not request.
    fn restrict_to(&mut self, mode: u16) {
        let owner = self.permissions(TAG_OWNER).unwrap_or(0) & (mode >> 6);
        let group_tag = self.group_tag();
        let group = self.permissions(group_tag).unwrap_or(0) & (mode >> 3);
        let other = self.permissions(TAG_OTHER).unwrap_or(0) & mode;
        self.set_permissions(TAG_OWNER, owner);
        self.set_permissions(group_tag, group);
        self.set_permissions(TAG_OTHER, other);
    }
}

/// The mode and ACLs of a new file.
pub(crate) struct InitialAccess {
    pub(crate) mode: u16,
    pub(crate) attributes: Vec<(&'static [u8], Vec<u8>)>,
}

/// Returns mode and ACLs of a new file: by the directory's default ACL if it has one, else by the umask.
pub(crate) fn inherit(op: &mut Op<'_>, parent: Ino, new: &NewFile) -> OpResult<InitialAccess> {
    if new.kind == FileKind::Symlink {
        return Ok(InitialAccess { mode: 0o777, attributes: Vec::new() });
    }
    let Some(default) = op.xattr(parent, DEFAULT)? else {
        return Ok(InitialAccess { mode: new.mode & !new.umask, attributes: Vec::new() });
    };
    let mut access = Acl::decode(&default)?;
    access.restrict_to(new.mode);
    let mut attributes = Vec::new();
    if !access.is_minimal() {
        attributes.push((ACCESS, access.encode()));
    }
    if new.kind == FileKind::Directory {
        attributes.push((DEFAULT, default));
    }
    Ok(InitialAccess { mode: new.mode & !0o777 | access.mode_bits(), attributes })
}

/// Updates the access ACL after a change of the mode.
pub(crate) fn follow_mode(op: &mut Op<'_>, ino: Ino, mode: u16) -> OpResult<()> {
    if let Some(value) = op.xattr(ino, ACCESS)? {
        let mut access = Acl::decode(&value)?;
        access.apply_mode(mode);
        op.put_xattr(ino, ACCESS, &access.encode())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, permissions, id)| AclEntry { tag, permissions, id }).collect() }
    }

    #[test]
    fn an_acl_survives_its_encoding_and_malformed_ones_are_refused() {
        let full = acl(&[(1, 7, u32::MAX), (2, 5, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)]);
        assert_eq!(Acl::decode(&full.encode()).unwrap(), full);
        assert_eq!(full.mode_bits(), 0o770);
        for broken in [
            acl(&[(1, 7, 0), (4, 5, 0)]),
            acl(&[(1, 7, 0), (2, 5, 1), (4, 5, 0), (0x20, 0, 0)]),
            acl(&[(1, 8, 0), (4, 5, 0), (0x20, 0, 0)]),
            acl(&[(1, 7, 0), (4, 5, 0), (0x20, 0, 0), (0x40, 0, 0)]),
        ] {
            assert!(Acl::decode(&broken.encode()).is_err(), "{broken:?}");
        }
        assert!(Acl::decode(&[2, 0, 0, 0, 1]).is_err() && Acl::decode(&[]).is_err());
    }

    #[test]
    fn chmod_changes_the_mask_where_there_is_one() {
        let mut with_mask = acl(&[(1, 7, 0), (2, 7, 9), (4, 7, 0), (0x10, 7, 0), (0x20, 7, 0)]);
        with_mask.apply_mode(0o640);
        assert_eq!(with_mask, acl(&[(1, 6, 0), (2, 7, 9), (4, 7, 0), (0x10, 4, 0), (0x20, 0, 0)]));
        let mut minimal = acl(&[(1, 7, 0), (4, 7, 0), (0x20, 7, 0)]);
        minimal.restrict_to(0o750);
        assert_eq!(minimal.mode_bits(), 0o750);
    }
}
