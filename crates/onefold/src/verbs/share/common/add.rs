//! `onefold share common add`

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::{DpkgDeb, ProcessCpu};
use onefold_share::files::common::{self, AddOptions, AddReport, ArchiveAddOptions, ChangeCounts};
use onefold_share::pace::{Limits, Pace, Wish};
use onefold_share::state::{Notice, State};

use super::failure::common_failure;
use super::result::changed_json;
use super::{OpenFileSystem, check_kind};
use crate::cli::Talk;
use crate::cli::share_common::ShareCommonAddArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::Report;
use crate::size::human;
use crate::verbs::share::open::append;
use crate::verbs::share::status::noun;

/// Memory for the cache of an image.
const CACHE_BYTES: usize = 32 << 20;

pub(super) fn run(arguments: &ShareCommonAddArgs, _: Talk) -> Outcome<Report> {
    let cannot = format!("cannot add to a common volume in `{}`", arguments.path.shown());
    let interrupt = Interrupt::watch();
    let paths: Vec<PathBuf> = std::iter::once(&arguments.path).chain(&arguments.from).cloned().collect();
    let file_system = OpenFileSystem::open(&cannot, &paths)?;
    check_kind(&cannot, &file_system)?;
    let volume = common::find(&file_system.substrate, file_system.first())
        .map_err(|error| common_failure(&cannot, error, &file_system.user_paths))?;
    let notices = RefCell::new(Vec::new());
    let report = match file_system.paths.get(1) {
        Some(image) => from_image(&cannot, arguments, &file_system, &volume, image, &notices, &interrupt)?,
        None => from_archives(&cannot, arguments, &file_system, &volume, &interrupt)?,
    };
    if report.files == 0 {
        return Err(Failure::new(cannot)
            .because_of("there are no files of these packages")
            .hint("`onefold guest packages IMAGE` lists the packages of an image"));
    }
    let mut text = text(&report);
    append(&mut text, &notices.take());
    let mut json = changed_json(&file_system.root, &volume, &report.changed);
    if let Some(object) = json.as_object_mut() {
        object.insert("files".to_owned(), report.files.into());
        object.insert("misaligned".to_owned(), report.misaligned.into());
    }
    Ok(Report { text, json, exit: Exit::Done })
}

fn from_image(
    cannot: &str,
    arguments: &ShareCommonAddArgs,
    file_system: &OpenFileSystem,
    volume: &Path,
    image: &Path,
    notices: &RefCell<Vec<String>>,
    interrupt: &Interrupt,
) -> Outcome<AddReport> {
    let take = |notice: Notice| notices.borrow_mut().push(file_system.notice_text(notice));
    let state = State::open(&file_system.substrate, &SystemClock, &SystemRandom, &take);
    let state = state.map_err(|error| file_system.state_failure(cannot, error))?;
    let (wish, stop) = wishes(interrupt);
    let pace = Pace::new(Limits::default(), &SystemClock, &ProcessCpu, &wish).stopped_by(&stop);
    let adding = AddOptions {
        volume,
        image,
        wants: &|package| arguments.package.is_empty() || arguments.package.contains(&package.name),
        cache_bytes: CACHE_BYTES,
        random: &SystemRandom,
        pace: &pace,
    };
    common::add_packages(&state, &adding).map_err(|error| common_failure(cannot, error, &file_system.user_paths))
}

fn from_archives(
    cannot: &str,
    arguments: &ShareCommonAddArgs,
    file_system: &OpenFileSystem,
    volume: &Path,
    interrupt: &Interrupt,
) -> Outcome<AddReport> {
    let opened = arguments.archives.iter().map(|path| {
        let cannot_open = || format!("cannot open `{}`", path.shown());
        let failed = |error| Failure::of_io(cannot_open(), &error);
        // Opening a pipe would wait for its other end.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(Failure::new(cannot_open()).because_of("it is not a regular file"));
        }
        Ok((path.clone(), File::open(path).map_err(failed)?))
    });
    let archives = opened.collect::<Outcome<Vec<_>>>()?;
    let (wish, stop) = wishes(interrupt);
    let pace = Pace::new(Limits::default(), &SystemClock, &ProcessCpu, &wish).stopped_by(&stop);
    let adding = ArchiveAddOptions { volume, archives: &archives, tools: &DpkgDeb, random: &SystemRandom, pace: &pace };
    common::add_archives(&file_system.substrate, &adding)
        .map_err(|error| common_failure(cannot, error, &file_system.user_paths))
}

/// Returns the wishes of the user, who may want the work to end, for one thread and for all.
fn wishes(interrupt: &Interrupt) -> (impl Fn() -> Wish, impl Fn() -> bool + Sync) {
    let wish = move || if interrupt.is_asked() { Wish::StopNow } else { Wish::GoOn };
    (wish, move || interrupt.is_asked())
}

fn text(report: &AddReport) -> String {
    let AddReport { files, misaligned, changed } = report;
    let ChangeCounts { added, added_bytes, differed, refused, .. } = changed;
    let bytes = human(*added_bytes);
    let mut text = format!("{files} {}: {added} new {}, {bytes}", noun(*files, "file"), noun(*added, "content"));
    for (count, why) in [
        (differed, "left out: changed since they were packaged, or not zero behind their ends"),
        (refused, "left out: the image may not give them any more, or the file system did not clone their blocks"),
        (misaligned, "left out: not in whole blocks of the host"),
    ] {
        if *count > 0 {
            text.push_str(&format!("\n{count} {why}"));
        }
    }
    text
}
