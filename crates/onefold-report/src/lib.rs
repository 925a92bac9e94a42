//! Savings analysis: what a set of disk images would take where equal blocks exist once, before anything is changed.
//!
//! Every byte is read once and becomes one record for each block size; the records are sorted outside memory where they
//! do not fit, and all figures come out of one walk over them in order of content. Decision 10 says why.
//!
//! Nothing here writes to an image, opens one by itself, or knows a format: images come as [`Source`]s.

mod advice;
mod analysis;
mod analyze;
mod assemble;
mod cost;
mod count;
mod map_nodes;
mod page;
mod realign;
mod record;
mod repeats;
mod runs;
mod scan;
mod similarity;
mod size;
mod sizes;
mod sort;
mod source;
mod top;

pub use analysis::*;
pub use analyze::{AnalyzeError, GROUPS_MAX, Options, Progress, Shifts, Stage, analyze};
pub use page::page;
pub use source::{Image, Open, Source, SourceError};
