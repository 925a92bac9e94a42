//! The packages of two images.

use std::collections::BTreeMap;

use onefold_block::Show;
use onefold_guest::packages::{PackageDatabase, PackageState};
use serde_json::json;

use crate::output::{RowForm, StdoutListing};
use crate::verbs::guest::streaming::PrintResult;

/// Prints the packages that only one image has, and those that both have in different versions.
pub(super) fn print(
    one: &dyn PackageDatabase,
    two: &dyn PackageDatabase,
    listing: &mut StdoutListing,
) -> PrintResult<()> {
    let mut versions: BTreeMap<(&str, &str), [Option<&str>; 2]> = BTreeMap::new();
    for (side, database) in [one, two].into_iter().enumerate() {
        let installed = database.packages().iter().filter(|package| package.state != PackageState::ConfigurationOnly);
        for package in installed {
            let both = versions.entry((&package.name, &package.architecture)).or_default();
            if let Some(version) = both.get_mut(side) {
                *version = Some(&package.version);
            }
        }
    }
    for ((name, architecture), [one, two]) in versions {
        if one == two {
            continue;
        }
        if listing.form() == RowForm::Json {
            let row = json!({ "package": name, "architecture": architecture, "version_one": one, "version_two": two });
            listing.json(&row)?;
            continue;
        }
        let change = match (one, two) {
            (Some(one), Some(two)) => format!("{} -> {}", one.shown(), two.shown()),
            (Some(one), None) => format!("{}, only in the first", one.shown()),
            (None, two) => format!("{}, only in the second", two.unwrap_or_default().shown()),
        };
        listing.line(&format!("package {} {}: {change}", name.shown(), architecture.shown()))?;
    }
    Ok(())
}
