//! Explains to users why a guest cannot be read.

use onefold_guest::error::GuestError;

use super::{Exit, Failure};

impl Failure {
    /// Returns the failure for an error of a guest; `error` names the failed action.
    pub(crate) fn of_guest(error: impl Into<String>, cause: &GuestError) -> Failure {
        match cause {
            GuestError::Disk(disk) => Failure::of_disk(disk).wrap(error),
            GuestError::Damaged(damage) => Failure { exit: Exit::Damage, ..Failure::new(error) }.because(damage),
            other => Failure::new(error).because(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_disk::DiskError;
    use onefold_guest::error::Damage;

    #[test]
    fn damage_ends_with_its_own_code_and_a_disk_with_its_cause() {
        let damage = Damage { place: 4096, structure: "inode", problem: "its checksum is wrong" };
        let failure = Failure::of_guest("cannot read `/etc`", &GuestError::Damaged(damage));
        assert_eq!(failure.exit, Exit::Damage);
        assert_eq!(failure.causes, ["damaged inode at byte 4096 of the disk: its checksum is wrong"]);
        let failure = Failure::of_guest("cannot read `/etc`", &GuestError::Disk(DiskError::Other("gone".into())));
        assert_eq!((failure.exit, failure.causes), (Exit::Failed, vec!["gone".to_owned()]));
        assert_eq!(Failure::of_guest("a", &GuestError::NotFound).causes, ["no such file or directory"]);
    }
}
