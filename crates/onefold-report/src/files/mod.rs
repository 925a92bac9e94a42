//! What the blocks of images belong to: packages and folders, metadata, swap, gaps, and free blocks that are not zero.
//!
//! While the blocks of an image are read, or before, `survey` reads its guest: the paths of its files give each file
//! an owner (`named`), its extents (`extents`) take the owner along into the order of the disk (`rows`), and with the
//! map of the disk they become runs of blocks (`sweep`, `blocks`). Contents of blocks wait for the end of the survey.
//! Then the scan reads these runs, and each record carries the number of its owner, so that the sort by content brings
//! owners and sharing together.
//!
//! | module | is |
//! |---|---|
//! | `analysis` | what a user gets: sums, groups with their parts, packages in several versions |
//! | `names` | numbers for owners in one image, and which of them are large enough to be kept |
//! | `uses` | the names of what is no file |
//! | `named` | the owner of each file |
//! | `extents` | the extents of each file, within what a volume has room for |
//! | `rows` | files and extents as rows, and how they are joined |
//! | `map` | the map of the disk, as a list in a file |
//! | `sweep` | the owner of each byte |
//! | `blocks` | the owner of each block, as a list in a file |
//! | `counts` | how the blocks of each owner are shared |
//! | `versions` | packages in several versions |
//! | `doubts` | what is not certain |
//! | `paths` | the paths of the files that have the most repeated blocks |
//! | `survey` | all this for each image, within the memory that there is |
//! | `assemble` | from owners and counts to what a user gets |

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
pub(crate) use counts::{OwnerCounts, Places};
pub(crate) use error::SurveyError;
pub(crate) use paths::paths_of;
pub(crate) use survey::{ImageSurvey, Survey};
