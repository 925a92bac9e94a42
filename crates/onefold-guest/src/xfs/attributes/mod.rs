//! Extended attributes: inline in the inode, one block, or a tree of blocks, with large values in separate blocks.
//!
//! From "XFS Filesystem Structure", chapter "Extended Attributes". Flags of an attribute determine the name space
//! (`user.`, `trusted.`, `security.`), and whether the kernel shows the attribute.

mod acl;
mod leaf;
mod remote;
mod short;

use super::Xfs;
use super::inode::{ForkForm, Inode};
use crate::error::{Damage, GuestError};
use crate::filesystem::ExtendedAttribute;

const STRUCTURE: &str = "extended attributes";
/// Maximum length of the value of an attribute.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum total length of the attributes of one file.
const BYTES_MAX: usize = 16 << 20;

/// Flags of an attribute.
mod flag {
    pub(super) const LOCAL: u8 = 0x01;
    pub(super) const TRUSTED: u8 = 0x02;
    pub(super) const SECURITY: u8 = 0x04;
    pub(super) const PARENT: u8 = 0x08;
    pub(super) const INCOMPLETE: u8 = 0x80;
}

/// The attributes of a file that were read so far.
#[derive(Debug, Default)]
struct Attributes {
    all: Vec<ExtendedAttribute>,
    bytes: usize,
}

impl Attributes {
    /// Returns whether an attribute with these flags is shown. Incomplete attributes and pointers to a parent are not.
    fn shows(flags: u8) -> bool {
        flags & (flag::INCOMPLETE | flag::PARENT) == 0
    }

    /// Adds an attribute by its flags.
    ///
    /// # Errors
    /// A problem if its name is invalid, or if all attributes together are too long.
    fn add(&mut self, flags: u8, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if !Attributes::shows(flags) {
            return Ok(());
        }
        if name.is_empty() || name.contains(&0) {
            return Err("a name cannot be one");
        }
        self.bytes = self.bytes.saturating_add(name.len() + value.len());
        if self.bytes > BYTES_MAX {
            return Err("there are too many of them");
        }
        let prefix: &[u8] = match flags & (flag::TRUSTED | flag::SECURITY) {
            0 => b"user.",
            flag::TRUSTED => {
                if let Some(list) = acl::convert(name, value) {
                    self.all.push(list?);
                    return Ok(());
                }
                b"trusted."
            }
            flag::SECURITY => b"security.",
            _ => return Err("a name belongs to two name spaces"),
        };
        self.all.push(ExtendedAttribute { name: [prefix, name].concat(), value: value.to_vec() });
        Ok(())
    }
}

impl Xfs<'_> {
    /// Returns the extended attributes of a file.
    pub(super) fn attributes_of(&self, inode: &Inode<'_>) -> Result<Vec<ExtendedAttribute>, GuestError> {
        let mut attributes = Attributes::default();
        match &inode.attributes {
            None => {}
            Some(fork) if fork.form == ForkForm::Inline => self.short_attributes(fork, &mut attributes)?,
            Some(fork) => self.leaf_attributes(fork, &mut attributes)?,
        }
        Ok(attributes.all)
    }

    fn attribute_damage(&self, place: u64, problem: &'static str) -> Damage {
        self.reader.damage(place, STRUCTURE, problem)
    }
}
