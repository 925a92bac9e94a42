//! The protection of a file or folder: its owner, its permission bits, and its names.

use std::fmt;

/// Number of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserNo(pub u32);

impl UserNo {
    /// The user that may do everything.
    pub const ROOT: UserNo = UserNo(0);
}

impl fmt::Display for UserNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == UserNo::ROOT { f.write_str("root") } else { write!(f, "user {}", self.0) }
    }
}

/// The protection of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The owner.
    pub owner: UserNo,
    /// Permission bits, with set-uid, set-gid and sticky: the low 12 bits of `st_mode`. If a file has an access control
    /// list, the group's bits are the maximum that the list grants.
    pub mode: u32,
    /// Number of names of a file. Means nothing for a folder.
    pub links: u64,
}

impl Protection {
    /// All bits of the group and of others.
    pub const OTHERS: u32 = 0o077;
    /// The bits that let the group and others write.
    pub const OTHERS_WRITE: u32 = 0o022;
    /// The sticky bit.
    pub const STICKY: u32 = 0o1000;
    /// All bits of a mode.
    pub const MODE: u32 = 0o7777;

    /// Returns whether the bits of the group and of others grant nothing.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.mode & Protection::OTHERS == 0
    }

    /// Returns whether the group or others may write.
    #[must_use]
    pub fn is_writable_by_others(&self) -> bool {
        self.mode & Protection::OTHERS_WRITE != 0
    }

    /// Returns whether root alone may write.
    #[must_use]
    pub fn is_roots_alone(&self) -> bool {
        self.owner == UserNo::ROOT && !self.is_writable_by_others()
    }

    /// Returns whether the sticky bit is set.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        self.mode & Protection::STICKY != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_say_who_may_do_what() {
        let protection = |mode| Protection { owner: UserNo(7), mode, links: 1 };
        assert!(protection(0o1600).is_private() && protection(0o1600).is_sticky());
        assert!(!protection(0o640).is_private() && !protection(0o640).is_writable_by_others());
        assert!(protection(0o620).is_writable_by_others() && protection(0o602).is_writable_by_others());
        assert!(!protection(0o600).is_roots_alone());
        let roots = |mode| Protection { owner: UserNo::ROOT, ..protection(mode) };
        assert!(roots(0o1755).is_roots_alone() && !roots(0o775).is_roots_alone() && !roots(0o757).is_roots_alone());
        assert_eq!((UserNo(0).to_string(), UserNo(7).to_string()), ("root".to_owned(), "user 7".to_owned()));
    }
}
