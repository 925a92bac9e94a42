//! Owners of the blocks of images: packages and folders, metadata, swap, gaps, and free blocks that are not zero.
//!
//! `survey` reads the guest of an image before its blocks or at the same time. The paths of files give each file an
//! owner (`named`). The extents of files (`extents`) carry the owner into the order of the disk (`rows`), and together
//! with the map of the disk they become runs of blocks (`sweep`, `blocks`). Contents of blocks wait for the end of the
//! survey. Then the scan reads these runs, and each record gets the number of its owner. So the sort by content brings
//! owners and sharing together.
//!
//! | module | is |
//! |---|---|
//! | `analysis` | results for users: sums, groups with their parts, packages in several versions |
//! | `names` | numbers for owners in one image, and which of them are large enough to be kept |
//! | `uses` | names for bytes outside of files |
//! | `named` | the owner of each file |
//! | `extents` | the extents of each file, limited to what a volume can hold |
//! | `rows` | files and extents as rows, and how they are joined |
//! | `map` | the map of the disk, as a list in a file |
//! | `sweep` | the owner of each byte |
//! | `blocks` | the owner of each block, as a list in a file |
//! | `counts` | how the blocks of each owner are shared |
//! | `versions` | packages in several versions |
//! | `doubts` | uncertain facts |
//! | `paths` | the paths of the files that have the most repeated blocks |
//! | `survey` | all of this for each image, within a memory limit |
//! | `assemble` | converts owners and counts to results for users |

mod allowance;
mod analysis;
mod assemble;
mod blocks;
mod counts;
mod doubts;
mod error;
mod extents;
mod map;
mod named;
mod names;
mod paths;
mod rows;
mod survey;
mod sweep;
mod uses;
mod versions;

pub use analysis::*;
pub(crate) use assemble::{SurveyedImage, TopPlaces};
pub(crate) use blocks::{BlockOwners, PieceOwners};
pub(crate) use counts::{OwnedPlaces, OwnerCounts};
pub(crate) use error::SurveyError;
pub(crate) use paths::paths_of;
pub(crate) use survey::{ImageSurvey, Survey};
