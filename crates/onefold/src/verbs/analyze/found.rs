//! Result of an analysis of all data or of a sample.

use onefold_report::{Analysis, SampledAnalysis, SkippedImage};
use serde_json::Value;

use crate::output::analysis::{self, Cost, Details};
use crate::output::sampled;

/// Findings about all that there is, or about a sample of it.
pub(super) enum AnalysisResult {
    Whole(Box<Analysis>),
    Sampled(Box<SampledAnalysis>),
}

impl AnalysisResult {
    /// Returns what is in no number.
    pub(super) fn left_out(&self) -> &[SkippedImage] {
        match self {
            AnalysisResult::Whole(found) => &found.left_out,
            AnalysisResult::Sampled(found) => &found.left_out,
        }
    }

    pub(super) fn leave_out(&mut self, more: impl Iterator<Item = SkippedImage>) {
        match self {
            AnalysisResult::Whole(found) => found.left_out.extend(more),
            AnalysisResult::Sampled(found) => found.left_out.extend(more),
        }
    }

    /// Tells whether no image could be read.
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            AnalysisResult::Whole(found) => found.images.is_empty(),
            AnalysisResult::Sampled(found) => found.images.is_empty(),
        }
    }

    /// Tells whether damage in guests was skipped.
    pub(super) fn has_damage(&self) -> bool {
        match self {
            AnalysisResult::Whole(found) => {
                found.files.iter().flat_map(|files| &files.images).any(|image| image.has_damage)
            }
            AnalysisResult::Sampled(_) => false,
        }
    }

    /// Returns the page.
    pub(super) fn page(&self, cost: &Cost) -> String {
        match self {
            AnalysisResult::Whole(found) => onefold_report::page(found, &analysis::made(&found.effort, cost)),
            AnalysisResult::Sampled(found) => onefold_report::sampled_page(found, &analysis::made(&found.effort, cost)),
        }
    }

    /// Returns the findings for people.
    pub(super) fn text(&self, cost: &Cost, details: Details) -> String {
        match self {
            AnalysisResult::Whole(found) => analysis::text(found, cost, details),
            AnalysisResult::Sampled(found) => sampled::text(found, cost, details),
        }
    }

    /// Returns the findings for machines.
    pub(super) fn json(&self, cost: &Cost) -> Value {
        match self {
            AnalysisResult::Whole(found) => analysis::json(found, cost),
            AnalysisResult::Sampled(found) => sampled::json(found, cost),
        }
    }
}
