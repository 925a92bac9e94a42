//! The list of packages, with their files and their history.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onefold_block::Show;
use onefold_guest::packages::{InstallationTime, OwnedPath, Package, PackageDatabase, PackageEvent, PackageState};
use onefold_guest::tree::Problem;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::{Value, json};

use super::ImagePackages;
use crate::calendar;
use crate::failure::Failure;
use crate::output::{RowForm, StdoutListing};
use crate::verbs::guest::describe::hex;
use crate::verbs::guest::streaming::PrintResult;

/// Maximum number of bytes of events that are kept, plus [`EVENT_BYTES`] for each: 300,000 usual events. A longer log
/// is an artificial one.
const EVENTS_BYTES_MAX: usize = 96 << 20;
const EVENT_BYTES: usize = 300;

/// Information that a list needs besides the packages themselves.
pub(super) struct PackageList {
    /// Since when each package is installed; empty unless the history is requested.
    times: Vec<Option<InstallationTime>>,
    /// The events of each package, by name; empty unless the history is requested.
    events: BTreeMap<String, Vec<PackageEvent>>,
}

impl PackageList {
    pub(super) fn of(of: &ImagePackages<'_>) -> PackageList {
        if !of.arguments.history {
            return PackageList { times: Vec::new(), events: BTreeMap::new() };
        }
        let times = of.database.installation_times();
        PackageList { times, events: events(of.database, &|name| of.takes(name), EVENTS_BYTES_MAX) }
    }

    /// Prints the requested packages, followed by those that only the history knows.
    pub(super) fn print(mut self, of: &ImagePackages<'_>, listing: &mut StdoutListing) -> PrintResult<()> {
        for (at, package) in of.database.packages().iter().enumerate() {
            if of.image.is_interrupted() {
                return Err(Failure::interrupted("listing packages").into());
            }
            // Packages of several architectures share a name, and the first one has the history.
            let events = self.events.remove(&package.name).unwrap_or_default();
            if of.takes(&package.name) {
                self.package(of, listing, at, package, &events)?;
            }
        }
        for (name, events) in &self.events {
            self.gone(of, listing, name, events)?;
        }
        Ok(())
    }

    fn package(
        &self,
        of: &ImagePackages<'_>,
        listing: &mut StdoutListing,
        at: usize,
        package: &Package,
        events: &[PackageEvent],
    ) -> PrintResult<()> {
        let time = self.times.get(at).copied().flatten();
        if listing.form() == RowForm::Json {
            let mut row = PackageRow::of(of, package);
            row.files = of.arguments.files.then_some(PackageFiles { database: of.database, at });
            if of.arguments.history {
                row.since = Some(time.map(since));
                row.since_from = Some(time.map(since_from));
                row.history = Some(events.iter().map(event_json).collect());
            }
            return Ok(listing.json(&row)?);
        }
        let state = match package.state {
            PackageState::Installed => "",
            PackageState::Partial => " (not completely installed)",
            PackageState::ConfigurationOnly => " (removed; its configuration is left)",
        };
        let since = time.map(|time| format!(", since {}{}", since(time), since_remark(time))).unwrap_or_default();
        let Package { name, version, architecture, .. } = package;
        let line = format!("{} {} {}{state}{since}", name.shown(), version.shown(), architecture.shown());
        listing.line(&format!("{}{line}", of.prefix()))?;
        events.iter().try_for_each(|event| listing.line(&event_line(event)))?;
        if of.arguments.files {
            let mut outcome = Ok(());
            of.database.each_path(at, &mut |owned| {
                outcome = listing.line(&format!("  {}{}", owned.path.shown(), owned_marks(owned)));
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            outcome?;
        }
        Ok(())
    }

    /// Prints a package that is no longer installed.
    fn gone(
        &self,
        of: &ImagePackages<'_>,
        listing: &mut StdoutListing,
        name: &str,
        events: &[PackageEvent],
    ) -> PrintResult<()> {
        if listing.form() == RowForm::Json {
            let history: Vec<Value> = events.iter().map(event_json).collect();
            let row = json!({ "image": of.image.name(), "name": name, "state": "gone", "history": history });
            return Ok(listing.json(&row)?);
        }
        listing.line(&format!("{}{} (no longer there)", of.prefix(), name.shown()))?;
        Ok(events.iter().try_for_each(|event| listing.line(&event_line(event)))?)
    }
}

/// Returns the events of requested packages, by the packages' names.
fn events(
    database: &dyn PackageDatabase,
    takes: &dyn Fn(&str) -> bool,
    bytes_max: usize,
) -> BTreeMap<String, Vec<PackageEvent>> {
    let mut events: BTreeMap<String, Vec<PackageEvent>> = BTreeMap::new();
    let mut bytes_left = bytes_max;
    database.each_event(&mut |event| {
        if !takes(&event.package) {
            return ControlFlow::Continue(());
        }
        let Some(left) = bytes_left.checked_sub(event_bytes(event)) else {
            database.problems().note(Problem::of_file(b"/var/log", "more history than is kept"));
            return ControlFlow::Break(());
        };
        bytes_left = left;
        events.entry(event.package.clone()).or_default().push(event.clone());
        ControlFlow::Continue(())
    });
    events
}

/// Returns the memory of an event, including its package as a key.
fn event_bytes(event: &PackageEvent) -> usize {
    let texts = [&event.architecture, &event.version_before, &event.version_after];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    EVENT_BYTES + 2 * event.package.len() + texts
}

/// Returns since when a package is installed. Times of the log are those of the guest's clock.
fn since(time: InstallationTime) -> String {
    match time {
        InstallationTime::Logged(time) => time.to_string(),
        InstallationTime::ListWritten(time) => calendar::iso(time.seconds),
    }
}

/// Returns the source of an installation time, for programs.
fn since_from(time: InstallationTime) -> &'static str {
    match time {
        InstallationTime::Logged(_) => "log",
        InstallationTime::ListWritten(_) => "list",
    }
}

/// Returns a remark for people about a time that is not from the log.
fn since_remark(time: InstallationTime) -> &'static str {
    match time {
        InstallationTime::Logged(_) => "",
        InstallationTime::ListWritten(_) => " (by its list of files)",
    }
}

fn event_line(event: &PackageEvent) -> String {
    let version = |version: &Option<String>| version.as_deref().map(|version| version.shown().to_string());
    let versions = match (version(&event.version_before), version(&event.version_after)) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (before, after) => before.or(after).unwrap_or_default(),
    };
    format!("  {} {} {versions}", event.time, event.action)
}

fn event_json(event: &PackageEvent) -> Value {
    json!({
        "time": event.time.to_string(),
        "action": event.action.name(),
        "version_before": event.version_before,
        "version_after": event.version_after,
    })
}

/// A package for programs. Its members are sorted by name, as in all documents.
#[derive(Serialize)]
struct PackageRow<'p> {
    architecture: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<PackageFiles<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<Value>>,
    image: String,
    installed_bytes: Option<u64>,
    name: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_from: Option<Option<&'static str>>,
    state: &'static str,
    version: &'p str,
}

impl<'p> PackageRow<'p> {
    /// Returns a package without its files and its history.
    fn of(of: &ImagePackages<'_>, package: &'p Package) -> PackageRow<'p> {
        PackageRow {
            architecture: &package.architecture,
            files: None,
            history: None,
            image: of.image.name(),
            installed_bytes: package.installed_bytes,
            name: &package.name,
            since: None,
            since_from: None,
            state: match package.state {
                PackageState::Installed => "installed",
                PackageState::Partial => "partial",
                PackageState::ConfigurationOnly => "configuration_only",
            },
            version: &package.version,
        }
    }
}

/// The files of a package. Each becomes text as it is read, because a package may have a million files. Only the text
/// of the package's row is kept until the row is printed.
struct PackageFiles<'p> {
    database: &'p dyn PackageDatabase,
    at: usize,
}

impl Serialize for PackageFiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut files = serializer.serialize_seq(None)?;
        let mut outcome = Ok(());
        self.database.each_path(self.at, &mut |owned| {
            outcome = files.serialize_element(&FileRow::of(owned));
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome?;
        files.end()
    }
}

/// A file of a package for programs, with its members sorted by name.
#[derive(Serialize)]
struct FileRow<'f> {
    digest: Option<String>,
    digest_algorithm: Option<&'static str>,
    is_configuration: bool,
    is_excluded: bool,
    path: Cow<'f, str>,
    /// The bytes of its path, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'f> FileRow<'f> {
    fn of(owned: &OwnedPath<'f>) -> FileRow<'f> {
        let path = String::from_utf8_lossy(owned.path);
        FileRow {
            digest: owned.digest.map(|digest| hex(digest.bytes())),
            digest_algorithm: owned.digest.map(|digest| digest.algorithm()),
            is_configuration: owned.is_configuration,
            is_excluded: owned.is_excluded,
            path_hex: matches!(path, Cow::Owned(_)).then(|| hex(owned.path)),
            path,
        }
    }
}

fn owned_marks(owned: &OwnedPath<'_>) -> String {
    let marks: Vec<&str> = [(owned.is_configuration, "configuration"), (owned.is_excluded, "not installed")]
        .into_iter()
        .filter_map(|(is_set, mark)| is_set.then_some(mark))
        .collect();
    if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::packages::open;
    use onefold_guest::tree::Tree;

    /// Regression: a million events with long versions took gigabytes, and events were left out silently.
    #[test]
    fn a_long_history_is_cut_and_that_is_a_problem() {
        let mut system = MemoryFileSystem::default();
        system.write("/var/lib/dpkg/status", "");
        let version = "1".repeat(1000);
        system.write("/var/log/dpkg.log", format!("2026-01-01 00:00:01 upgrade a:amd64 1 {version}\n").repeat(50));
        let tree = Tree::new(&system);
        for (bytes_max, count, problems) in [(1 << 20, 50, 0), (20_000, 15, 1)] {
            let database = open(&tree).unwrap().unwrap();
            let events = events(database.as_ref(), &|_| true, bytes_max);
            assert_eq!((events["a"].len(), database.problems().count()), (count, problems));
        }
        let database = open(&tree).unwrap().unwrap();
        assert!(events(database.as_ref(), &|name| name == "b", 0).is_empty());
        assert_eq!(database.problems().count(), 0);
    }
}
