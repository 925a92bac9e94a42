//! `onefold share mend`, and the reports of `run` and `watch` about mending.

use std::path::Path;
use std::time::Duration;

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_share::mend::{
    DoubtfulImagePolicy, ForeignIntentPolicy, MendOutcome, MendReport, MendRules, MendedImage, Patience, mend_patiently,
};
use onefold_share::run::Seams;
use onefold_share::state::{Notice, State, StateError};
use onefold_substrate::Substrate;
use serde_json::{Value, json};

use super::open::{OpenFileSystem, append, check_root, state_failure};
use super::status::noun;
use super::user_paths::UserPaths;
use crate::cli::share::{ForeignAction, ShareMendArgs};
use crate::cli::share_work::RootArgs;
use crate::failure::{Exit, Outcome};
use crate::output::{Report, machine_name};
use crate::size::human;

/// How long a run waits for the hosts whose images may have holes. A host that mends an image holds it only for a
/// moment.
pub(super) const MEND_WAIT: Duration = Duration::from_secs(10);

/// Maximum number of ranges named in the text; the JSON has all of them.
const RANGES_MAX: usize = 4;

const CANNOT: &str = "cannot mend images";

pub(crate) fn run(arguments: &ShareMendArgs) -> Outcome<Report> {
    let file_system = OpenFileSystem::open(CANNOT, std::slice::from_ref(&arguments.path))?;
    let doubtful = if arguments.accept_changed { DoubtfulImagePolicy::Fill } else { DoubtfulImagePolicy::Keep };
    let foreign = match arguments.foreign {
        None => ForeignIntentPolicy::Keep,
        Some(ForeignAction::Mend) => ForeignIntentPolicy::Mend,
        Some(ForeignAction::GiveUp) => ForeignIntentPolicy::GiveUp,
    };
    let rules = MendRules { doubtful, foreign };
    let notices = std::cell::RefCell::new(Vec::new());
    let take = |notice: Notice| notices.borrow_mut().push(file_system.notice_text(notice));
    let seams = Seams { substrate: &file_system.substrate, clock: &SystemClock, random: &SystemRandom, notices: &take };
    let mended = mend_images(&seams, rules, arguments.root, &file_system.user_paths)?;
    let mut text = lines(&mended, &file_system.user_paths).join("\n");
    if text.is_empty() {
        text = "no image waits to be mended".to_owned();
    }
    let notices = notices.take();
    append(&mut text, &notices);
    let json = json!({ "root": machine_name(&file_system.root), "images": json(&mended), "notices": notices });
    let is_waiting = mended.waiting().any(|image| !is_settled(image, doubtful));
    Ok(Report { text, json, exit: if is_waiting { Exit::Failed } else { Exit::Done } })
}

/// Mends what hosts that died have left. If no host has shared, there is nothing to mend, and no state folder is made.
fn mend_images<S: Substrate>(
    seams: &Seams<'_, S>,
    rules: MendRules,
    accepted: RootArgs,
    paths: &UserPaths,
) -> Outcome<MendReport> {
    let failure = |error: StateError| state_failure(CANNOT, error, paths);
    if State::look(seams.substrate, seams.clock, &|_| {}).map_err(failure)?.is_some() {
        check_root(CANNOT, seams.substrate, accepted)?;
    }
    // If the identity is lost, there may be something to mend.
    let opened = State::open_to_mend(seams.substrate, seams.clock, seams.random, seams.notices).map_err(failure)?;
    let Some(state) = opened else { return Ok(MendReport::default()) };
    let patience = Patience { clock: seams.clock, most: MEND_WAIT, is_stopped: &|| false };
    mend_patiently(&state, rules, &patience).map_err(failure)
}

/// Returns whether an incomplete image will not be reported again.
fn is_settled(image: &MendedImage, doubtful: DoubtfulImagePolicy) -> bool {
    matches!(image.became, MendOutcome::GivenUp)
        || doubtful == DoubtfulImagePolicy::Fill && matches!(image.became, MendOutcome::Differing | MendOutcome::Lost)
}

/// Returns the outcome for each image.
pub(super) fn lines(mended: &MendReport, paths: &UserPaths) -> Vec<String> {
    mended.images.iter().map(|image| line(image, &paths.of(&image.path))).collect()
}

fn line(image: &MendedImage, path: &Path) -> String {
    let path = path.shown();
    let filled = || if image.filled > 0 { format!("; {} were filled", human(image.filled)) } else { String::new() };
    match &image.became {
        MendOutcome::Whole if image.filled > 0 => {
            format!("`{path}` is mended: {} that a host which died had left as holes", human(image.filled))
        }
        MendOutcome::Whole => format!("`{path}` is whole: the host that died had left no holes in it"),
        MendOutcome::Gone => format!("`{path}` was about to be shared by a host that died, and is gone"),
        MendOutcome::Busy => {
            format!("`{path}` is in use, and may have holes that a host which died has left: {}", ranges(image))
        }
        MendOutcome::Elsewhere => format!(
            "`{path}` may have holes that a host which died has left; it is left to the process that works on it, on \
             another host or in another run: {}",
            ranges(image)
        ),
        MendOutcome::Changed => format!(
            "`{path}` was written to since a host died that was about to share {}: holes there may be wanted; look at \
             them, and `onefold share mend --accept-changed` fills them",
            ranges(image)
        ),
        MendOutcome::Differing => format!(
            "`{path}` has other content than before a host died that was about to share {}{}; look at it, and `onefold \
             share mend --accept-changed` accepts it",
            ranges(image),
            filled()
        ),
        MendOutcome::Lost => format!(
            "`{path}` may have holes that cannot be filled any more: {}{}; compare it with a backup, and `onefold share \
             mend --accept-changed` accepts them",
            ranges(image),
            filled()
        ),
        MendOutcome::Foreign => format!(
            "`{path}` may have holes that a host which died has left, declared under another identity than that of this \
             state folder: {}; restore `.onefold/identity` from a backup, or let `onefold share mend --foreign mend` fill \
             them, or `--foreign give-up` give them up",
            ranges(image)
        ),
        MendOutcome::GivenUp if image.ranges.is_empty() => format!("`{path}` could not be read and is given up"),
        MendOutcome::GivenUp => format!(
            "`{path}` is given up: it may have holes that a host which died has left; compare it with a backup: {}",
            ranges(image)
        ),
        MendOutcome::Failed(why) => format!("`{path}` cannot be mended: {why}; it may have holes: {}", ranges(image)),
    }
}

/// Returns the first ranges, and the number of further ones.
fn ranges(image: &MendedImage) -> String {
    let named = image
        .ranges
        .iter()
        .take(RANGES_MAX)
        // Exact, because the reader looks there with other tools.
        .map(|(offset, length)| format!("bytes {offset} to {}", offset.saturating_add(*length).saturating_sub(1)));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = image.ranges.len().checked_sub(RANGES_MAX) {
        text.push_str(&format!(" and {more} more {}", noun(more as u64, "range")));
    }
    text
}

/// Returns the outcome for each image, for machines.
pub(super) fn json(mended: &MendReport) -> Value {
    let image = |image: &MendedImage| {
        let (became, why) = match &image.became {
            MendOutcome::Whole => ("whole", None),
            MendOutcome::Gone => ("gone", None),
            MendOutcome::Busy => ("busy", None),
            MendOutcome::Elsewhere => ("elsewhere", None),
            MendOutcome::Changed => ("changed", None),
            MendOutcome::Differing => ("differing", None),
            MendOutcome::Lost => ("lost", None),
            MendOutcome::Foreign => ("foreign", None),
            MendOutcome::GivenUp => ("given_up", None),
            MendOutcome::Failed(why) => ("failed", Some(why.to_string())),
        };
        let ranges = image.ranges.iter().map(|(offset, length)| json!({ "offset": offset, "length": length }));
        json!({
            "image": machine_name(&image.path),
            "became": became,
            "why": why,
            "filled_bytes": image.filled,
            "ranges": ranges.collect::<Vec<_>>(),
        })
    };
    Value::Array(mended.images.iter().map(image).collect())
}

#[cfg(test)]
mod tests {
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::UserNo;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;

    /// Where a state folder says which holes to fill, another user could have put an earlier one in its place.
    #[test]
    fn a_state_folder_that_another_user_can_replace_is_mended_only_by_consent() {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() }.in_two_steps(|_| None);
        let file_system = SimulatedFileSystem::new(&options);
        let substrate = file_system.observe().substrate;
        let (clock, random) = (ManualClock::starting_at(5), SeededRandom::new(5));
        let seams = Seams { substrate: &substrate, clock: &clock, random: &random, notices: &|_| {} };
        let rules = MendRules { doubtful: DoubtfulImagePolicy::Keep, foreign: ForeignIntentPolicy::Keep };
        let paths = UserPaths::new(Path::new("/nowhere"), &[], &[]);
        let mend = |accept_writable_root| mend_images(&seams, rules, RootArgs { accept_writable_root }, &paths);
        file_system.protect("", UserNo(7), 0o755).unwrap();
        assert_eq!(mend(false).unwrap().images.len(), 0, "there is no state folder");
        drop(seams.open().unwrap());
        let message = mend(false).unwrap_err().to_string();
        let parts = ["cannot mend images", "belongs to user 7", "--accept-writable-root"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(mend(true).unwrap().images.len(), 0);
        file_system.protect("", UserNo::ROOT, 0o755).unwrap();
        assert_eq!(mend(false).unwrap().images.len(), 0);
    }

    fn image(became: MendOutcome, filled: u64, ranges: u64) -> MendedImage {
        let ranges = (0..ranges).map(|at| (at * 8192, 4096)).collect();
        MendedImage { path: "vm/a.raw".into(), ranges, filled, became }
    }

    #[test]
    fn each_image_is_named_with_what_is_to_be_done() {
        let text = |became, filled| line(&image(became, filled, 6), Path::new("vm/a.raw"));
        assert_eq!(
            text(MendOutcome::Whole, 8192),
            "`vm/a.raw` is mended: 8.00 KiB that a host which died had left as holes"
        );
        assert!(text(MendOutcome::Whole, 0).contains("no holes"));
        let changed = text(MendOutcome::Changed, 0);
        assert!(changed.contains("bytes 24576 to 28671 and 2 more ranges: holes there may be wanted"), "{changed}");
        assert!(
            changed.contains("`onefold share mend --accept-changed` fills them") && !changed.contains("  "),
            "{changed}"
        );
        let differing = text(MendOutcome::Differing, 4096);
        assert!(differing.contains("; 4.00 KiB were filled; look") && !differing.contains("  "), "{differing}");
        assert!(text(MendOutcome::Busy, 0).contains("in use"));
        let foreign = text(MendOutcome::Foreign, 0);
        let parts = ["another identity", ".onefold/identity", "--foreign mend", "--foreign give-up"];
        assert!(parts.iter().all(|part| foreign.contains(part)) && !foreign.contains("  "), "{foreign}");
        let given_up = text(MendOutcome::GivenUp, 0);
        assert!(given_up.contains("bytes 24576 to 28671 and 2 more ranges") && !given_up.contains("  "), "{given_up}");
        let elsewhere = text(MendOutcome::Elsewhere, 0);
        assert!(elsewhere.contains("left to the process that works on it") && !elsewhere.contains("  "), "{elsewhere}");
    }

    #[test]
    fn the_document_has_all_ranges() {
        let mended =
            MendReport { images: vec![image(MendOutcome::Failed(std::io::Error::other("the disk is gone")), 0, 6)] };
        let json = json(&mended);
        assert_eq!(json[0]["ranges"].as_array().unwrap().len(), 6);
        assert_eq!((json[0]["became"].as_str(), json[0]["why"].as_str()), (Some("failed"), Some("the disk is gone")));
    }
}
