//! Savings analysis: the space that a set of disk images would take if equal blocks existed once. It changes nothing.
//!
//! Every byte, or every byte of a sample, is read once and becomes one record for each block size. Records that do not
//! fit into memory are sorted externally. All figures come from one pass over the records in order of content. Decision
//! 10 gives the reasons.
//!
//! Nothing here writes to an image, opens one by itself, or knows a format: images come as
//! [`Disk`](onefold_disk::Disk)s.
//!
//! Modules:
//!
//! - `files/`, `scan.rs` and `sizes.rs` read. The first reads, for `--files`, what owns each block. The others read a
//!   `Disk` in pieces of 1 MiB, and make a record of 24 bytes of each block of each size.
//! - `claims.rs` and `parallel_survey.rs` hold contents of blocks until the survey beside the pass says what owns them.
//! - `count.rs` and `runs.rs` walk the records in order of content (`onefold-sort`), and the places of shared blocks.
//! - `assemble.rs` and `page/` turn counts into an [`Analysis`] in bytes, and that into a page.
//! - `top_paths.rs` finds, for `--files`, the paths of the most repeated blocks. It reads them while larger blocks are
//!   counted.
//! - `sample/` decides which regions `--sample` reads, what they show (`evidence.rs`), and the bounds of the whole
//!   (`certificate.rs`).

mod advice;
mod analysis;
mod analyze;
mod assemble;
mod claims;
mod cost;
mod count;
mod files;
mod histogram;
mod image;
mod map_nodes;
mod options;
mod padded;
mod page;
mod parallel_survey;
mod reading;
mod realign;
mod record;
mod repeats;
mod runs;
mod sample;
mod sampled_analysis;
mod scan;
mod scan_error;
mod similarity;
mod sizes;
mod top;
mod top_paths;

pub use analysis::*;
pub use analyze::{analyze, analyze_sample};
pub use files::*;
pub use image::{Image, ImageOpener, WatchedDisk};
pub use options::{AnalyzeError, GROUPS_MAX, Options, Progress, Shifts, Stage};
pub use page::{page, sampled_page};
pub use sample::Share;
pub use sampled_analysis::{
    Range, SampleReport, SampledAnalysis, SampledBlockSize, SampledImage, SampledTotal, SampledWays, ShareRange,
};
