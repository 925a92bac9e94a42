//! What an analysis found, whether all was read or a sample.

use onefold_report::{Analysis, LeftOut, SampledAnalysis};
use serde_json::Value;

use crate::output::analysis::{self, Cost};
use crate::output::sampled;

/// Findings about all that there is, or about a sample of it.
pub(super) enum Found {
    Whole(Box<Analysis>),
    Sampled(Box<SampledAnalysis>),
}

impl Found {
    /// Returns what is in no number.
    pub(super) fn left_out(&self) -> &[LeftOut] {
        match self {
            Found::Whole(found) => &found.left_out,
            Found::Sampled(found) => &found.left_out,
        }
    }

    pub(super) fn leave_out(&mut self, more: impl Iterator<Item = LeftOut>) {
        match self {
            Found::Whole(found) => found.left_out.extend(more),
            Found::Sampled(found) => found.left_out.extend(more),
        }
    }

    /// Tells whether no image could be read.
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Found::Whole(found) => found.images.is_empty(),
            Found::Sampled(found) => found.images.is_empty(),
        }
    }

    /// Returns the page.
    pub(super) fn page(&self, cost: &Cost) -> String {
        match self {
            Found::Whole(found) => onefold_report::page(found, &analysis::made(&found.effort, cost)),
            Found::Sampled(found) => onefold_report::sampled_page(found, &analysis::made(&found.effort, cost)),
        }
    }

    /// Returns the findings for people.
    pub(super) fn text(&self, cost: &Cost) -> String {
        match self {
            Found::Whole(found) => analysis::text(found, cost),
            Found::Sampled(found) => sampled::text(found, cost),
        }
    }

    /// Returns the findings for machines.
    pub(super) fn json(&self, cost: &Cost) -> Value {
        match self {
            Found::Whole(found) => analysis::json(found, cost),
            Found::Sampled(found) => sampled::json(found, cost),
        }
    }
}
