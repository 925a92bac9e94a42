//! Files that differ from the digests of their packages.

use onefold_block::Show;
use onefold_guest::packages::{Difference, DifferenceKind, Verification, verify};
use serde_json::{Value, json};

use super::ImagePackages;
use crate::cli::Talk;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{RowForm, StdoutListing};
use crate::progress::Meter;
use crate::verbs::guest::describe::{hex, kind_name, path_members};
use crate::verbs::guest::ending::Ending;
use crate::verbs::guest::scene::Scene;
use crate::verbs::guest::streaming::PrintResult;

/// The result of comparing all files with their digests.
pub(super) struct VerificationResult {
    found: Verification,
    is_interrupted: bool,
}

impl VerificationResult {
    pub(super) fn of(
        scene: &Scene<'_, '_>,
        of: &ImagePackages<'_>,
        talk: Talk,
        interrupt: &Interrupt,
    ) -> VerificationResult {
        let meter = Meter::of_files(format!("verifying {}", of.image.path().shown()), talk.quiet, interrupt.clone());
        let found = verify(&scene.tree, of.database, &mut |done, total| meter.show_files(done, total));
        meter.finish();
        VerificationResult { found, is_interrupted: interrupt.is_asked() }
    }

    /// Prints the differences, configuration files last: users are expected to change those.
    pub(super) fn print(
        &self,
        of: &ImagePackages<'_>,
        listing: &mut StdoutListing,
        ending: &mut Ending,
    ) -> PrintResult<()> {
        let name = |difference: &Difference| {
            of.database.packages().get(difference.package).map_or("", |package| &package.name)
        };
        let wanted = || self.found.differences.iter().filter(|difference| of.takes(name(difference)));
        for is_configuration in [false, true] {
            for difference in wanted().filter(|difference| difference.is_configuration == is_configuration) {
                match listing.form() {
                    RowForm::Json => listing.json(&row(of, difference, name(difference)))?,
                    _ => listing.line(&format!("{}{}", of.prefix(), line(difference, name(difference))))?,
                }
            }
        }
        let Verification { equal_count, excluded_count, .. } = &self.found;
        let image = of.image.name();
        ending.verified(json!({ "image": image, "equal_count": equal_count, "excluded_count": excluded_count }));
        if listing.form() == RowForm::Lines {
            let counts = format!("{equal_count} files are as packaged, {excluded_count} are left out of this system");
            listing.line(&format!("{}{counts}", of.prefix()))?;
        }
        // No further image is read.
        if self.is_interrupted { Err(Failure::interrupted("verifying files").into()) } else { Ok(()) }
    }
}

fn line(difference: &Difference, package: &str) -> String {
    let what = match &difference.kind {
        DifferenceKind::Changed { .. } => "changed".to_owned(),
        DifferenceKind::Missing => "missing".to_owned(),
        DifferenceKind::NotRegular(kind) => format!("replaced by something else ({})", kind_name(*kind)),
        DifferenceKind::Unreadable(why) => format!("cannot be read ({})", why.shown()),
    };
    let configuration = if difference.is_configuration { ", configuration" } else { "" };
    format!("{what}: {} ({}{configuration})", difference.path.shown(), package.shown())
}

fn row(of: &ImagePackages<'_>, difference: &Difference, package: &str) -> Value {
    let (kind, recorded, found) = match &difference.kind {
        DifferenceKind::Changed { recorded, found } => {
            ("changed", Some(hex(recorded.bytes())), Some(hex(found.bytes())))
        }
        DifferenceKind::Missing => ("missing", None, None),
        DifferenceKind::NotRegular(_) => ("not_regular", None, None),
        DifferenceKind::Unreadable(_) => ("unreadable", None, None),
    };
    let mut members = path_members("path", &difference.path);
    let further = json!({
        "image": of.image.name(),
        "package": package,
        "kind": kind,
        "recorded": recorded,
        "found": found,
        "is_configuration": difference.is_configuration,
    });
    members.extend(further.as_object().cloned().unwrap_or_default());
    Value::Object(members)
}
