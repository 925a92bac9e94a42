//! The images for which `share files` and `share run --files` have given up a tier.

use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_share::files::{GivenUpImages, Tier};
use serde_json::{Value, json};

use crate::output::machine_name;

/// Returns lines that name the images whose claims were given up, for people. `user_path` returns a path in the user's
/// form.
pub(super) fn given_up_lines(
    given_up: &[(Tier, GivenUpImages)],
    named_max: usize,
    user_path: &dyn Fn(&Path) -> PathBuf,
) -> Vec<String> {
    let line = |(tier, images): &(Tier, GivenUpImages)| match images {
        GivenUpImages::One(image) => {
            format!("`{}` makes wrong claims in {tier}: they are no longer followed", user_path(image).shown())
        }
        GivenUpImages::Pair { one, other } => format!(
            "`{}` and `{}` differ in most of what {tier} claims to be equal: they are no longer compared in it",
            user_path(one).shown(),
            user_path(other).shown()
        ),
    };
    let mut lines: Vec<String> = given_up.iter().take(named_max).map(line).collect();
    if given_up.len() > named_max {
        lines.push(format!("and {} more; `--json` has them all", given_up.len() - named_max));
    }
    lines
}

/// Returns the images whose claims were given up, for machines.
pub(super) fn given_up_json(given_up: &[(Tier, GivenUpImages)]) -> Vec<Value> {
    given_up.iter().map(|(tier, images)| each_json(tier.number(), images)).collect()
}

fn each_json(tier: u8, images: &GivenUpImages) -> Value {
    let (path, other) = match images {
        GivenUpImages::One(path) => (path, None),
        GivenUpImages::Pair { one, other } => (one, Some(other)),
    };
    json!({ "tier": tier, "path": machine_name(path), "other": other.map(machine_name) })
}
