//! The next steps after a failure with a common volume.

use onefold_share::files::common::CommonError;
use onefold_share::state::StateError;
use onefold_substrate::{SubstrateKind, ToolError};

use crate::failure::{Exit, Failure};
use crate::verbs::share::open::state_failure;
use crate::verbs::share::user_paths::UserPaths;

/// Returns the failure for a kind of file system without common volumes.
pub(super) fn unsupported(cannot: &str, kind: SubstrateKind) -> Failure {
    Failure::new(cannot)
        .because_of(format!("common volumes are for XFS and Btrfs, and this is {kind}"))
        .hint("share by content with `onefold share run`")
}

/// Returns the failure for an error of a common volume, with the next step.
pub(super) fn common_failure(cannot: &str, error: CommonError, paths: &UserPaths) -> Failure {
    let failure = Failure::new(cannot).because(&error);
    match error {
        CommonError::Missing { .. } => failure.hint("make one with `onefold share common create FOLDER/common.img`"),
        CommonError::Several { .. } => failure.hint("name the file of the one that is meant"),
        CommonError::Exists { .. } => failure.hint("choose another name, or remove the file first"),
        CommonError::Refused { .. } => {
            failure.hint("run the command as its owner; or remove the file, and make a common volume anew")
        }
        CommonError::Damaged { .. } => Failure { exit: Exit::Damage, ..failure }
            .hint("remove it, and make it anew with `onefold share common create`: no image needs it"),
        CommonError::Busy { .. } | CommonError::Replaced { .. } => {
            failure.hint("run the command again once the other process is done")
        }
        CommonError::Full { .. } => {
            failure.hint("make room on the file system, or make a larger volume with --size; the old one is unchanged")
        }
        CommonError::Tool(ToolError::Missing { tool }) => {
            failure.hint(format!("install it: apt install {}", tool.package))
        }
        CommonError::Tool(ToolError::Failed { .. }) => {
            failure.hint("the volume is unchanged; `onefold share common check` says whether it is sound")
        }
        CommonError::State(error @ StateError::Interrupted) => {
            Failure { exit: Exit::Interrupted, ..Failure::new(cannot) }.because(&error)
        }
        CommonError::State(error) => state_failure(cannot, error, paths),
        CommonError::Archive { .. } => failure.hint("`dpkg-deb --info FILE` shows what it is; nothing was added"),
        CommonError::Image { .. } => failure.hint("name a raw image of the same sharing domain with packages of dpkg"),
        CommonError::Tool(_) | CommonError::Io { .. } => failure,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use onefold_substrate::Tool;

    use super::*;

    #[test]
    fn a_missing_program_and_a_damaged_volume_are_named_with_what_to_do() {
        let paths = UserPaths::new(Path::new("/nowhere"), &[], &[]);
        let tool = Tool { program: "debugfs", package: "e2fsprogs" };
        let missing = common_failure("cannot", CommonError::Tool(ToolError::Missing { tool }), &paths).to_string();
        assert!(
            ["`debugfs` is missing", "apt install e2fsprogs"].iter().all(|part| missing.contains(part)),
            "{missing}"
        );
        let damaged = CommonError::Damaged { path: PathBuf::from("vm/common.img"), why: "of noise".to_owned() };
        let damaged = common_failure("cannot", damaged, &paths);
        assert_eq!(damaged.exit, Exit::Damage);
        assert!(damaged.to_string().contains("`vm/common.img` is damaged: of noise"), "{damaged}");
    }
}
