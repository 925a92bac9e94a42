//! Savings analysis: the space that a set of disk images would take if equal blocks existed once. It changes nothing.
//!
//! Every byte, or every byte of a sample, is read once and becomes one record for each block size. Records that do not
//! fit into memory are sorted externally. All figures come from one pass over the records in order of content. Decision
//! 10 gives the reasons.
//!
//! Nothing here writes to an image, opens one by itself, or knows a format: images come as
//! [`Disk`](onefold_disk::Disk)s.

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
