//! A common volume that `share files --common` uses.

use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_linux::{LinuxFile, LinuxSubstrate};
use onefold_share::files::CommonSource;
use onefold_share::files::common::{self, CommonError, GrowOptions, GrowReport, Volume};
use onefold_share::pace::Pace;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_substrate::{Sharing, SubstrateKind};
use serde_json::{Value, json};

use super::failure::{common_failure, unsupported};
use super::result::changed_json;
use crate::failure::Outcome;
use crate::output::machine_name;
use crate::size::human;
use crate::verbs::share::user_paths::UserPaths;

const CANNOT: &str = "cannot share by way of a common volume";

/// A common volume, and the run's changes to it.
pub(in crate::verbs::share) struct UsedVolume {
    volume: Volume<LinuxFile>,
    root: PathBuf,
    /// `None` in a dry run, or if another process changes the volume.
    grown: Option<GrowReport>,
    /// Why content that should have been added was not.
    failed: Option<String>,
}

/// The images of a run, and its memory.
pub(in crate::verbs::share) struct RunImages<'a> {
    pub(in crate::verbs::share) root: &'a Path,
    pub(in crate::verbs::share) paths: &'a [PathBuf],
    pub(in crate::verbs::share) selection: Selection<'a>,
    pub(in crate::verbs::share) memory_bytes: usize,
    pub(in crate::verbs::share) temporary_folder: &'a Path,
    pub(in crate::verbs::share) is_dry_run: bool,
    /// The form in which the user gave paths.
    pub(in crate::verbs::share) user_paths: &'a UserPaths,
    pub(in crate::verbs::share) pace: &'a Pace<'a>,
}

impl UsedVolume {
    /// Finds the common volume of a run, adds content that two images hold, and opens it.
    pub(in crate::verbs::share) fn find(
        state: &State<'_, LinuxSubstrate>,
        used: &RunImages<'_>,
    ) -> Outcome<UsedVolume> {
        let substrate = state.substrate();
        let failed = |error: CommonError| common_failure(CANNOT, error, used.user_paths);
        let kind = substrate.abilities().kind;
        if !matches!(kind, SubstrateKind::Xfs | SubstrateKind::Btrfs) {
            return Err(unsupported(CANNOT, kind));
        }
        let mut path = None;
        for named in used.paths {
            match common::find(substrate, named) {
                // A named file is an image, unless it opens as a volume.
                Ok(found) if found != *named || common::open(substrate, &found).is_ok() => path = Some(found),
                Ok(_) | Err(CommonError::Missing { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
            if path.is_some() {
                break;
            }
        }
        let folder = used.paths.first().cloned().unwrap_or_default();
        let path = path.ok_or(CommonError::Missing { folder }).map_err(failed)?;
        let growing = GrowOptions {
            volume: &path,
            selection: used.selection,
            memory_bytes: used.memory_bytes,
            temporary_folder: used.temporary_folder,
            random: &SystemRandom,
            pace: used.pace,
        };
        let (grown, why) = match used.is_dry_run {
            true => (None, None),
            false => match common::grow(state, &growing) {
                Ok(report) => (Some(report), None),
                // Hosts do not wait for each other: the volume serves as a source unchanged.
                Err(CommonError::Busy { .. } | CommonError::Replaced { .. }) => (None, None),
                // Nor do images wait for content that does not fit in the volume.
                Err(error @ CommonError::Full { .. }) => (None, Some(error.to_string())),
                Err(error) => return Err(failed(error)),
            },
        };
        let volume = common::open(substrate, &path).map_err(failed)?;
        Ok(UsedVolume { volume, root: used.root.to_owned(), grown, failed: why })
    }

    /// Returns whether anything that was requested failed.
    pub(in crate::verbs::share) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns it as a source of sharing.
    pub(in crate::verbs::share) fn source(&self) -> CommonSource<'_> {
        CommonSource { handle: self.volume.handle(), contents: self.volume.contents() }
    }

    /// Returns the run's changes to it, for people.
    pub(in crate::verbs::share) fn text(&self) -> String {
        let (path, count) = (self.volume.path().shown(), self.volume.contents().len());
        let mut text = match &self.grown {
            Some(grown) => format!(
                "common volume `{path}`: {} contents, {} of them new ({}), {} dropped, {} not matching their digests",
                count,
                grown.changed.added,
                human(grown.changed.added_bytes),
                grown.changed.removed,
                grown.changed.differed
            ),
            None => format!("common volume `{path}`: {count} contents, none of them new"),
        };
        if let Some(why) = &self.failed {
            text.push_str(&format!("\n{why}: make room, or a new volume with a larger --size"));
        }
        text
    }

    /// Returns the run's changes to it, for machines.
    pub(in crate::verbs::share) fn json(&self) -> Value {
        json!({
            "contents": self.volume.contents().len(),
            "failed": self.failed,
            "failed_images": self.grown.as_ref().map(|grown| {
                let named = grown.failed.iter().map(|(path, why)| json!({ "path": machine_name(path), "why": why }));
                named.collect::<Vec<_>>()
            }),
            "candidates": self.grown.as_ref().map(|grown| grown.candidates),
            "changed": self.grown.as_ref().map(|grown| changed_json(&self.root, self.volume.path(), &grown.changed)),
        })
    }
}
