//! `onefold image capture`

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onefold_block::Show;
use onefold_block::clock::{Clock, SystemClock};
use onefold_block::random::SystemRandom;
use onefold_image::archive::{Archive, ArchiveError};
use onefold_image::capture::{self, CaptureError, CaptureOptions, CaptureReport, MEMORY_BYTES_MIN, Scope, capture};
use onefold_image::format::manifest::Totals;
use onefold_image::signature::SecretKey;
use onefold_image::{ImageName, ImageVersion};
use serde_json::{Value, json};

use super::list::json_of;
use super::source::Source;
use super::{rate, signed};
use crate::cli::Talk;
use crate::cli::image::CaptureArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::interrupt::Interrupt;
use crate::output::{Report, TextTable, machine_name};
use crate::progress::Meter;
use crate::size::human;
use crate::verbs::archive::{self, room};
use crate::verbs::images::{self, FoundImage, UnfitFile};
use crate::verbs::key::secret;

/// Endings of image files, which are no part of an image's name.
const IMAGE_ENDINGS: [&str; 8] = ["qcow2", "qcow", "vmdk", "vdi", "vhdx", "vhd", "img", "raw"];

/// Meaning of the columns of the table.
const COLUMNS: &str = "size = free + zero + known + new; known: in the archive before, or repeated on the disk; stored: \
                       the new bytes, compressed";

/// Divisor of `--memory`: the index of the archive may take this share.
const INDEX_SHARE: u64 = 4;

/// An image that is to be captured, and its name in the archive.
struct CaptureRequest {
    found: FoundImage,
    name: ImageName,
}

/// Outcome of the capture of an image.
struct CaptureResult {
    path: PathBuf,
    captured: CaptureReport,
    format: &'static str,
    is_clone: bool,
    /// Units in packs that an interrupted capture left, and that became usable.
    reused_units: u64,
    seconds: f64,
}

/// An image that was not captured.
struct FailedCapture {
    path: PathBuf,
    failure: Failure,
}

pub(super) fn run(arguments: &CaptureArgs, talk: Talk) -> Outcome<Report> {
    if arguments.memory.0 < MEMORY_BYTES_MIN as u64 {
        let least = human(MEMORY_BYTES_MIN as u64);
        return Err(Failure::usage("too little memory").because_of(format!("--memory is at least {least}")));
    }
    let (mut failed, mut repeated) = (Vec::new(), Vec::new());
    let wanted = match (&arguments.source, &arguments.each) {
        (Some(source), _) => vec![one(source, arguments.name.clone())?],
        (None, Some(folder)) => each(folder, &arguments.archive, &mut failed, &mut repeated)?,
        (None, None) => Vec::new(),
    };
    // A key that cannot be used is found out before the work.
    let key = arguments.sign.as_deref().map(|key| secret::open(key, arguments.signing.password_file.as_deref()));
    let archive = archive::open(&arguments.archive)?;
    room::give(&archive, arguments.memory.0 / INDEX_SHARE);
    let work = Work { archive: &archive, arguments, key: key.transpose()?, talk, interrupt: Interrupt::watch() };
    let mut done = Vec::new();
    let mut wanted = wanted.into_iter();
    for wanted in wanted.by_ref() {
        match work.capture(&wanted) {
            Ok(captured) => done.push(captured),
            Err(failure) if arguments.each.is_none() => return Err(failure),
            Err(failure) => failed.push(FailedCapture { path: wanted.found.path().to_owned(), failure }),
        }
        if work.interrupt.is_asked() {
            break;
        }
    }
    let left: Vec<PathBuf> = wanted.map(|wanted| wanted.found.path().to_owned()).collect();
    Ok(with_repeated(report(&done, &failed, &left), &repeated))
}

/// Returns the one image that the user named.
fn one(source: &Path, name: Option<ImageName>) -> Outcome<CaptureRequest> {
    let cannot = || format!("cannot capture `{}`", source.shown());
    let found = images::find_one(source).map_err(|failure| failure.wrap(cannot()))?;
    let name = match (name, &found) {
        (Some(name), _) => name,
        (None, FoundImage::Archived(image)) => image.version().name.clone(),
        (None, FoundImage::File(_)) => {
            name_of(Path::new(source.file_name().unwrap_or_default())).map_err(|failure| failure.wrap(cannot()))?
        }
    };
    Ok(CaptureRequest { found, name })
}

/// Returns the images in a folder, named after their files; objects of the archive are none. What cannot be captured
/// goes to `failed`, and further names of one file to `repeated`.
fn each(
    folder: &Path,
    archive: &Path,
    failed: &mut Vec<FailedCapture>,
    repeated: &mut Vec<UnfitFile>,
) -> Outcome<Vec<CaptureRequest>> {
    if !folder.is_dir() {
        return Err(Failure::usage(format!("cannot capture the images in `{}`", folder.shown()))
            .because_of("it is not a folder"));
    }
    let finding = images::find(&[folder.to_owned()]);
    failed.extend(finding.unfit.into_iter().map(|unfit| {
        let failure = unfit.why.wrap(format!("cannot capture `{}`", unfit.path.shown()));
        FailedCapture { path: unfit.path, failure }
    }));
    repeated.extend(finding.repeated);
    let archive = fs::canonicalize(archive).ok();
    let is_object = |found: &FoundImage| {
        let path = fs::canonicalize(match found {
            FoundImage::File(found) => &found.path,
            FoundImage::Archived(image) => image.folder(),
        });
        let path = path.ok();
        path.zip(archive.as_ref()).is_some_and(|(path, archive)| path.starts_with(archive))
    };
    let mut names = HashSet::new();
    let mut wanted = Vec::new();
    for found in finding.images.into_iter().filter(|found| !is_object(found)) {
        let cannot = format!("cannot capture `{}`", found.path().shown());
        let name = match &found {
            FoundImage::File(found) => name_of(found.path.strip_prefix(folder).unwrap_or(&found.path)),
            FoundImage::Archived(image) => Ok(image.version().name.clone()),
        };
        let name = name.and_then(|name| match names.insert(name.clone()) {
            true => Ok(name),
            false => Err(Failure::new(format!("another image in the folder is named `{name}`, too"))
                .hint("capture it by itself, with a name of its own")),
        });
        match name {
            Ok(name) => wanted.push(CaptureRequest { found, name }),
            Err(failure) => failed.push(FailedCapture { path: found.path().to_owned(), failure: failure.wrap(cannot) }),
        }
    }
    if wanted.is_empty() && failed.is_empty() {
        return Err(Failure::new(format!("cannot capture the images in `{}`", folder.shown()))
            .because_of("there is no image in it or below it"));
    }
    Ok(wanted)
}

/// Returns the name of an image by the path of its file, without the ending of an image.
fn name_of(path: &Path) -> Outcome<ImageName> {
    let is_known =
        path.extension().is_some_and(|ending| IMAGE_ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)));
    let path = if is_known { path.with_extension("") } else { path.to_owned() };
    let cannot = || Failure::new(format!("`{}` cannot be the name of an image", path.shown()));
    let text = path.to_str().ok_or_else(cannot)?;
    ImageName::new(text).map_err(|error| cannot().because(&error).hint("give a name behind the file"))
}

/// State that all captures of one run share.
struct Work<'a> {
    archive: &'a Archive,
    arguments: &'a CaptureArgs,
    /// The key that signs the images.
    key: Option<SecretKey>,
    talk: Talk,
    interrupt: Interrupt,
}

impl Work<'_> {
    fn capture(&self, wanted: &CaptureRequest) -> Outcome<CaptureResult> {
        let started = Instant::now();
        let path = wanted.found.path();
        let cannot = || format!("cannot capture `{}`", path.shown());
        let began = SystemClock.now();
        let converting = self.meter(format!("converting {}", path.shown()));
        let source = Source::open(&wanted.found, self.arguments, &converting);
        converting.finish();
        let source = source.map_err(|failure| failure.wrap(cannot()))?;
        let temporary = onefold_disk::temporary_folder();
        let of_archive = |error| Failure::of_archive(cannot(), &error);
        let mut writer = self.archive.writer(&SystemClock, &SystemRandom, &host::process()).map_err(of_archive)?;
        let reused_units = writer.reuse(&host::has_ended).map_err(of_archive)?;
        let memory_bytes = left_beside(self.archive, self.arguments.memory.0, source.memory_bytes);
        let options = CaptureOptions {
            name: wanted.name.clone(),
            began,
            scope: if self.arguments.all { Scope::All } else { Scope::Allocated },
            exact: self.arguments.exact,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes.map_err(of_archive)?,
            level: self.arguments.level,
            folder: &temporary,
        };
        let meter = self.meter(format!("capturing {}", wanted.name));
        let has_changed_now = || -> io::Result<bool> { Ok(!source.is_unchanged()) };
        let is_stopped = || meter.is_interrupted();
        let captured =
            rate::of_disk(source.disk.as_ref(), self.arguments.rate.map(|rate| rate.0), &is_stopped, |disk| {
                let disk = capture::Source { disk, has_changed: &has_changed_now };
                capture(self.archive, &mut writer, disk, &options, &meter.on_progress())
            });
        meter.finish();
        match captured {
            Ok(captured) => {
                self.sign(&captured)?;
                Ok(CaptureResult {
                    path: path.to_owned(),
                    captured,
                    format: source.format,
                    is_clone: source.is_clone,
                    reused_units,
                    seconds: started.elapsed().as_secs_f64(),
                })
            }
            Err(CaptureError::Changed) => Err(source.has_changed(path)),
            // A file that becomes shorter has changed, too.
            Err(CaptureError::Disk(_) | CaptureError::Guest(_) | CaptureError::Plan(_)) if !source.is_unchanged() => {
                Err(source.has_changed(path))
            }
            Err(error) => Err(Failure::of_capture(cannot(), &error)),
        }
    }

    /// Signs a captured image, if a key is given.
    fn sign(&self, captured: &CaptureReport) -> Outcome<()> {
        let Some(key) = &self.key else {
            return Ok(());
        };
        let ImageVersion { name, version } = &captured.image;
        let cannot = || Failure::new(format!("captured `{}`, but cannot sign it", captured.image));
        let record = self.archive.find(name, Some(*version));
        let record = record.ok_or_else(|| cannot().because_of("it was removed meanwhile"))?;
        match signed::sign(self.archive, &record, key) {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.wrap(cannot().error).hint("`onefold image sign` signs it later")),
        }
    }

    fn meter(&self, doing: String) -> Meter {
        Meter::new(doing, self.talk.quiet, self.interrupt.clone())
    }
}

/// Returns what source and index leave of the memory. The index grows with each image, and with those of other hosts.
fn left_beside(archive: &Archive, memory_bytes: u64, source_bytes: u64) -> Result<usize, ArchiveError> {
    let left = memory_bytes.saturating_sub(source_bytes.saturating_add(archive.index_bytes()? as u64));
    Ok(usize::try_from(left).unwrap_or(usize::MAX))
}

/// `left` are the images that an interrupt left out.
fn report(done: &[CaptureResult], failed: &[FailedCapture], left: &[PathBuf]) -> Report {
    let images: Vec<Value> = done.iter().map(json_of_done).collect();
    let failures: Vec<Value> = failed
        .iter()
        .map(|failed| {
            let Failure { error, causes, hint, .. } = &failed.failure;
            json!({ "source": machine_name(&failed.path), "error": error, "causes": causes, "hint": hint })
        })
        .collect();
    let mut text = String::new();
    if !done.is_empty() {
        text = format!("{}\n{COLUMNS}", table(done));
    }
    for failed in failed {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&failed.failure.to_string());
    }
    for path in left {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("not captured, as the command was interrupted: {}", path.shown()));
    }
    let exit = failed.iter().fold(Exit::Done, |exit, failed| exit.worse(failed.failure.exit));
    let exit = if left.is_empty() { exit } else { Exit::Interrupted };
    let left: Vec<String> = left.iter().map(machine_name).collect();
    Report { text, json: json!({ "images": images, "failed": failures, "left": left }), exit }
}

/// Adds the files that were not captured because another name of theirs was.
fn with_repeated(mut report: Report, repeated: &[UnfitFile]) -> Report {
    for file in repeated {
        if !report.text.is_empty() {
            report.text.push('\n');
        }
        report.text.push_str(&format!("not captured again: {}: {}", file.path.shown(), file.why.error));
    }
    let repeated = repeated.iter().map(|file| json!({ "source": machine_name(&file.path), "why": file.why.error }));
    report.json["repeated"] = repeated.collect();
    report
}

fn json_of_done(done: &CaptureResult) -> Value {
    let CaptureReport { image, manifest } = &done.captured;
    let mut json = json_of(image, manifest);
    json["source"] = machine_name(&done.path).into();
    json["format"] = done.format.into();
    json["cloned"] = done.is_clone.into();
    json["reused_units"] = done.reused_units.into();
    json["seconds"] = done.seconds.into();
    json
}

/// Bytes of the images: `size = free + zero + known + new`.
fn table(done: &[CaptureResult]) -> TextTable {
    let mut table = TextTable::new(["image", "size", "free", "zero", "known", "new", "stored"]);
    let mut all = [0_u64; 6];
    for one in done {
        let CaptureReport { image, manifest } = &one.captured;
        let Totals { free_bytes, zero_bytes, data_bytes, new_bytes, stored_bytes, .. } = manifest.totals;
        let known_bytes = data_bytes.saturating_sub(new_bytes);
        let bytes = [manifest.size_bytes, free_bytes, zero_bytes, known_bytes, new_bytes, stored_bytes];
        all.iter_mut().zip(bytes).for_each(|(all, bytes)| *all = all.saturating_add(bytes));
        table.row(row(image.to_string(), bytes));
    }
    if done.len() > 1 {
        table.row(row("all".to_owned(), all));
    }
    table
}

fn row(name: String, [size, free, zero, known, new, stored]: [u64; 6]) -> [String; 7] {
    [name, human(size), human(free), human(zero), human(known), human(new), human(stored)]
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use onefold_block::random::{Random, SeededRandom};
    use onefold_disk::FileDisk;
    use onefold_image::format::descriptor::UnitKind;
    use onefold_image::store::MemoryStore;

    use super::*;

    #[test]
    fn the_worst_of_all_images_is_the_exit_code_and_what_is_left_is_listed() {
        let failed =
            |exit| FailedCapture { path: "a".into(), failure: Failure { exit, ..Failure::new("cannot capture `a`") } };
        let exit = |failed: &[FailedCapture], left: &[PathBuf]| report(&[], failed, left).exit;
        assert_eq!(exit(&[], &[]), Exit::Done);
        assert_eq!(exit(&[failed(Exit::Failed), failed(Exit::Damage), failed(Exit::Failed)], &[]), Exit::Damage);
        assert_eq!(exit(&[failed(Exit::Damage), failed(Exit::Interrupted)], &[]), Exit::Interrupted);
        assert_eq!(exit(&[failed(Exit::Damage)], &["b".into()]), Exit::Interrupted);
        let report = report(&[], &[failed(Exit::Failed)], &["b".into(), "c".into()]);
        assert!(
            report.text.ends_with("interrupted: b\nnot captured, as the command was interrupted: c"),
            "{}",
            report.text
        );
        assert_eq!(report.json["left"], json!(["b", "c"]));
    }

    /// Regression: the index was measured before the first image, and grew beside the memory of all others.
    #[test]
    fn the_index_and_each_image_share_the_memory() {
        let (folder, random, clock) = (tempfile::tempdir().unwrap(), SeededRandom::new(5), SystemClock);
        let units = UnitKind::Fixed { unit_bytes: 4096 };
        let archive = Archive::create(Arc::new(MemoryStore::default()), units, &random).unwrap();
        let memory_bytes = 100 << 20;
        let mut left = Vec::new();
        for number in 0..4 {
            let of_image = left_beside(&archive, memory_bytes, 1000).unwrap();
            assert_eq!(of_image + archive.index_bytes().unwrap() + 1000, 100 << 20, "image {number}");
            left.push(of_image);
            let path = folder.path().join("noise.raw");
            let mut noise = vec![0; 4 << 20];
            random.fill(&mut noise).unwrap();
            fs::write(&path, noise).unwrap();
            let on_progress = |_| ControlFlow::Continue(());
            let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
            let options = CaptureOptions {
                name: name_of(Path::new("noise")).unwrap(),
                began: clock.now(),
                scope: Scope::All,
                exact: true,
                threads: 1,
                memory_bytes: of_image,
                level: 1,
                folder: folder.path(),
            };
            let mut writer = archive.writer(&clock, &random, "host").unwrap();
            let source = capture::Source { disk: &disk, has_changed: &|| Ok(false) };
            capture(&archive, &mut writer, source, &options, &on_progress).unwrap();
        }
        assert!(left.is_sorted_by(|one, next| one > next), "{left:?}");
        let grown = (left[0] - left[3]) / 24;
        assert!((3 * 1024..3 * 3000).contains(&grown), "three times 1024 units of 24 bytes: {left:?}");
    }

    #[test]
    fn a_file_with_two_names_is_captured_once_and_the_other_name_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.raw"), vec![1; 2 << 20]).unwrap();
        fs::hard_link(path("a.raw"), path("b.raw")).unwrap();
        let (mut failed, mut repeated) = (Vec::new(), Vec::new());
        let wanted = each(folder.path(), Path::new("/none"), &mut failed, &mut repeated).unwrap();
        assert_eq!((wanted.len(), failed.len(), repeated.len()), (1, 0, 1));
        let report = with_repeated(report(&[], &[], &[]), &repeated);
        assert!(report.text.starts_with("not captured again: ") && report.text.contains("b.raw"), "{}", report.text);
        assert_eq!(report.exit, Exit::Done);
        let [other] = &report.json["repeated"].as_array().unwrap()[..] else { panic!("{}", report.json) };
        assert!(other["why"].as_str().unwrap().contains("the same as"), "{other}");
    }

    #[test]
    fn images_are_named_after_their_files() {
        for (path, name) in [("web.qcow2", "web"), ("a/b.RAW", "a/b"), ("debian-12.5", "debian-12.5"), ("vdb1", "vdb1")]
        {
            assert_eq!(name_of(Path::new(path)).unwrap().as_str(), name);
        }
        for path in ["", ".raw", "a b.raw", "-x.raw", "ä.raw"] {
            assert!(name_of(Path::new(path)).is_err(), "{path}");
        }
    }
}
