//! Requirements of the kinds of file systems beyond compare-and-share. They are determined once, when the state folder
//! is opened.
//!
//! | file system | a share | space is freed | blocks to which only the arena refers |
//! |---|---|---|---|
//! | XFS, a pool | is one step | by blocks | are shown by maps |
//! | Btrfs | is one step | by whole extents | are shown by maps, for whole extents |
//! | OCFS2 | is two steps | by blocks | are found by comparing maps |

use onefold_substrate::Abilities;

/// How hosts share on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharePolicy {
    /// The steps of a share.
    pub steps: ShareSteps,
    /// The unit in which space is freed once nothing refers to it.
    pub freed: FreedUnit,
    /// How unneeded slots are found, to whose blocks only the arena refers.
    pub unneeded: UnneededSlots,
    /// Whether a map shows that a block has only one reference left.
    pub tells_last_reference: bool,
}

/// The steps of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareSteps {
    /// One step: a host that dies leaves the range unshared or shared.
    One,
    /// Two steps, with a hole between them. A host declares what it is about to share, with exclusive use of the image,
    /// and other hosts fill the holes of dead hosts. State that another user could have written is not used, because it
    /// names the blocks that are put into holes.
    Declared,
}

/// The unit in which space is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedUnit {
    /// Each block.
    Block,
    /// A whole extent. The remaining references to it are moved away.
    Extent,
}

/// How unneeded slots are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnneededSlots {
    /// By the maps of arena files.
    Told,
    /// By the maps of all images, which are compared with those of arena files from time to time.
    Compared,
    /// Not at all: images may share without being seen.
    Unknown,
}

impl SharePolicy {
    /// Returns the policy for what a file system can do.
    #[must_use]
    pub fn of(abilities: &Abilities) -> SharePolicy {
        let Abilities { tells_last_reference, frees_whole_extents, shares_in_two_steps, .. } = *abilities;
        let unneeded = match (tells_last_reference || frees_whole_extents, shares_in_two_steps) {
            (true, _) => UnneededSlots::Told,
            (false, true) => UnneededSlots::Compared,
            (false, false) => UnneededSlots::Unknown,
        };
        SharePolicy {
            steps: if shares_in_two_steps { ShareSteps::Declared } else { ShareSteps::One },
            freed: if frees_whole_extents { FreedUnit::Extent } else { FreedUnit::Block },
            unneeded,
            tells_last_reference,
        }
    }

    /// Returns whether hosts declare what they share.
    #[must_use]
    pub fn is_declared(&self) -> bool {
        self.steps == ShareSteps::Declared
    }
}

#[cfg(test)]
mod tests {
    use onefold_substrate::SubstrateKind;

    use super::*;

    #[test]
    fn each_kind_of_file_system_has_the_policy_that_it_needs() {
        let policy = |tells_last_reference, frees_whole_extents, shares_in_two_steps| {
            SharePolicy::of(&Abilities {
                kind: SubstrateKind::Simulated,
                block_bytes: 4096,
                share_bytes_max: 1 << 20,
                tells_last_reference,
                frees_whole_extents,
                is_clustered: shares_in_two_steps,
                shares_in_two_steps,
                has_own_domains: false,
            })
        };
        let facts = |policy: SharePolicy| (policy.steps, policy.freed, policy.unneeded, policy.tells_last_reference);
        let (xfs, btrfs, ocfs2) = (policy(true, false, false), policy(false, true, false), policy(false, false, true));
        assert_eq!(facts(xfs), (ShareSteps::One, FreedUnit::Block, UnneededSlots::Told, true));
        assert_eq!(facts(btrfs), (ShareSteps::One, FreedUnit::Extent, UnneededSlots::Told, false));
        assert_eq!(facts(ocfs2), (ShareSteps::Declared, FreedUnit::Block, UnneededSlots::Compared, false));
        // Images may share there without being seen, so no slot is known to be unneeded.
        assert_eq!(policy(false, false, false).unneeded, UnneededSlots::Unknown);
    }
}
