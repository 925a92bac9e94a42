//! `onefold pool import`

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use onefold_block::Show;
use onefold_disk::{Disk, ImageFormat, OpenImage, SIZE_BYTES_MAX, copy};
use onefold_pool::{FILE_BYTES_MAX, PoolStat};
use serde_json::{Value, json};

use crate::cli::Talk;
use crate::cli::pool::ImportArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, TextTable, machine_name};
use crate::progress::Meter;
use crate::size::{counted, human};
use crate::store::{self, COPY_MODE_MAX, Intent, OpenStore, PoolFileKind, PoolPath, Store};
use crate::verbs::images::archived::STREAM_BYTES;
use crate::verbs::images::{self, FoundImage, archived};
use crate::verbs::no_image::{NoImage, why_no_image};

/// Every disk that can be opened can be stored.
const _: () = assert!(SIZE_BYTES_MAX <= FILE_BYTES_MAX);

/// Endings of image files that have no meaning once the image is raw.
const IMAGE_ENDINGS: [&str; 8] = ["qcow2", "qcow", "vmdk", "vdi", "vhdx", "vhd", "img", "raw"];

pub(super) fn run(arguments: &ImportArgs, talk: Talk) -> Outcome<Report> {
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Change)?;
    // All names and sources are checked before the first byte is copied.
    let sources = sources(&arguments.images)?;
    let (names, skipped) = names(arguments, &sources, store.as_ref())?;
    for (path, _) in &names {
        check_source(path, arguments.format.map(Into::into))
            .map_err(|failure| failure.wrap("cannot import, and nothing was copied"))?;
    }
    let mut imported = Vec::new();
    for (path, name) in &names {
        let meter = |doing: String| Meter::new(doing, talk.quiet, interrupt.clone());
        let one = open(path, arguments, &meter)
            .and_then(|image| import(store.as_mut(), path, &image, name, &meter(format!("importing {name}"))));
        match one {
            Ok(one) => imported.push(one),
            Err(failure) => {
                let done = imported.len();
                store.close()?;
                let failure = failure.wrap(format!("cannot import `{}`", path.shown()));
                return Err(match done {
                    0 => failure,
                    done => failure.because_of(format!("in the pool before it: {}", counted(done as u64, "image"))),
                });
            }
        }
    }
    store.close()?;
    let images: Vec<Value> = imported.iter().map(ImportResult::json).collect();
    let skipped_names: Vec<String> = skipped.iter().map(PoolPath::machine_name).collect();
    Ok(Report::done(text(&imported, &skipped), json!({ "images": images, "skipped": skipped_names })))
}

/// Returns the images that the user named. A folder stands for the files in it that have the ending of an image.
fn sources(named: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for path in named {
        if !path.is_dir() {
            sources.push(path.clone());
            continue;
        }
        let cannot = || format!("cannot import the images in `{}`", path.shown());
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|error| Failure::of_io(cannot(), &error))?;
        let mut found: Vec<PathBuf> =
            entries.iter().map(fs::DirEntry::path).filter(|path| has_image_ending(path)).collect();
        found.retain(|path| path.is_file());
        if found.is_empty() {
            return Err(Failure::new(cannot())
                .because_of("no file in it has the ending of a disk image")
                .hint(format!("looked for .{}; name other files one by one", IMAGE_ENDINGS.join(", ."))));
        }
        found.sort_unstable();
        sources.extend(found);
    }
    Ok(sources)
}

fn has_image_ending(path: &Path) -> bool {
    path.extension().is_some_and(|ending| IMAGE_ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Finds and opens an image, and reads its first bytes, so that a missing or unreadable one, and a file that is no
/// image, are noticed early.
fn check_source(path: &Path, format: Option<ImageFormat>) -> Outcome<()> {
    let cannot_open = || format!("cannot open the image `{}`", path.shown());
    let cannot = |error| Failure::of_io(cannot_open(), &error);
    let FoundImage::File(found) = images::find_one(path).map_err(|failure| failure.wrap(cannot_open()))? else {
        return Ok(());
    };
    let file = found.open().map_err(cannot)?;
    let is_guessed_raw = format.is_none() && onefold_disk::format_of(&file) == Some(ImageFormat::Raw);
    if !is_guessed_raw || !file.metadata().is_file() {
        return Ok(());
    }
    let head = onefold_disk::head_of(&file).map_err(cannot)?;
    match why_no_image(&head, file.length(), has_image_ending(path)) {
        None => Ok(()),
        Some(NoImage { why, hint }) => {
            Err(Failure::new(format!("`{}` is no disk image", path.shown())).because_of(why).hint(hint))
        }
    }
}

/// An image, with the permissions that its copy may have.
struct SourceImage {
    disk: Box<dyn Disk>,
    /// The name of its format.
    format: &'static str,
    copy_mode: u16,
}

/// Mode of a copy of an archived image: its owner alone has access, as to an exported one.
const ARCHIVED_COPY_MODE: u16 = 0o600;

/// Opens the image at `path` once, so that format, permissions and content are those of one file. `meter` returns the
/// meter of a conversion that must come first.
fn open(path: &Path, arguments: &ImportArgs, meter: &(dyn Fn(String) -> Meter + Sync)) -> Outcome<SourceImage> {
    let cannot = || format!("cannot open the image `{}`", path.shown());
    let found = match images::find_one(path).map_err(|failure| failure.wrap(cannot()))? {
        FoundImage::File(found) => found,
        FoundImage::Archived(image) => {
            // A machine may start from it next, as from an installed one.
            image.require(arguments.acceptance)?;
            let disk = Box::new(image.disk(STREAM_BYTES));
            return Ok(SourceImage { disk, format: archived::FORMAT, copy_mode: ARCHIVED_COPY_MODE });
        }
    };
    let file = found.open().map_err(|error| Failure::of_io(cannot(), &error))?;
    let copy_mode = copy_mode(file.metadata());
    let converting = OnceLock::new();
    let on_progress = |progress| {
        let meter = converting.get_or_init(|| meter(format!("converting {}", path.shown())));
        meter.on_progress()(progress)
    };
    let image = onefold_disk::open(file, arguments.format.map(Into::into), &arguments.backing_from, &on_progress);
    if let Some(meter) = converting.get() {
        meter.finish();
    }
    let OpenImage { disk, format, .. } = image?;
    Ok(SourceImage { disk, format: format.name(), copy_mode })
}

/// Returns the permissions that a copy of an image may have. The permissions of a block device apply to the device.
fn copy_mode(metadata: &Metadata) -> u16 {
    let mode = if metadata.is_file() { metadata.mode() & 0o777 } else { 0o600 };
    u16::try_from(mode).expect("nine bits") & COPY_MODE_MAX
}

/// An image, and its name in the pool.
type NamedSource = (PathBuf, PoolPath);

/// Returns the name of each image in the pool, and the names to skip because the pool has them. The former are free,
/// and they differ.
fn names(arguments: &ImportArgs, sources: &[PathBuf], store: &dyn Store) -> Outcome<(Vec<NamedSource>, Vec<PoolPath>)> {
    let is_folder = match &arguments.to {
        Some(to) => {
            to.as_os_str().as_bytes().ends_with(b"/") || store.kind(&store.path(to)?)? == PoolFileKind::Directory
        }
        None => false,
    };
    if arguments.to.is_some() && !is_folder && sources.len() > 1 {
        return Err(Failure::usage("cannot give several images one name")
            .hint("with several images --to must be an existing directory of the pool"));
    }
    let (mut names, mut skipped) = (Vec::new(), Vec::new());
    let mut taken = HashMap::new();
    for image in sources {
        let own = own_name(image, arguments.format.map(Into::into))?;
        let name = match &arguments.to {
            Some(to) if is_folder => store.path(to)?.join(&own),
            Some(to) => store.path(to)?,
            None => store.path(Path::new("."))?.join(&own),
        };
        let cannot = || format!("cannot import `{}` as `{name}`", image.shown());
        if let Some(other) = taken.insert(name.as_path().to_owned(), image.as_path()) {
            return Err(name_clash(cannot(), other));
        }
        let kind = store.kind(&name)?;
        if kind == PoolFileKind::Regular && arguments.skip_existing {
            skipped.push(name);
            continue;
        }
        if kind != PoolFileKind::Missing {
            return Err(Failure::new(cannot()).because_of("the pool already has a file of that name").hint(
                "give another name with --to, leave existing files alone with --skip-existing, or remove the file",
            ));
        }
        names.push((image.clone(), name));
    }
    Ok((names, skipped))
}

/// Returns the failure for an image whose name in the pool image `other` gets, too.
fn name_clash(cannot: String, other: &Path) -> Failure {
    Failure::usage(cannot)
        .because_of(format!("another image gets that name too: `{}`", other.shown()))
        .hint("name only one of them, and import the other one by itself with --to and another name")
}

/// Returns the default name of an image: its own, with `.raw` in place of the ending of an image file, or behind the
/// last part of an archived image's name.
fn own_name(image: &Path, format: Option<ImageFormat>) -> Outcome<OsString> {
    // A file that is named like an archived image wins, as it does when it is opened.
    if fs::symlink_metadata(image).is_err()
        && let Some(archived) = archived::image_name(image)
    {
        let name = archived.name.as_str();
        return Ok(format!("{}.raw", name.rsplit('/').next().unwrap_or(name)).into());
    }
    let name =
        image.file_name().ok_or_else(|| Failure::usage(format!("`{}` is not the name of an image", image.shown())))?;
    let keeps = format == Some(ImageFormat::Raw);
    Ok(match has_image_ending(image) && !keeps {
        true => Path::new(name).with_extension("raw").into_os_string(),
        false => name.to_owned(),
    })
}

/// The result of one import, in bytes: `apparent = zero + stored + saved`.
struct ImportResult {
    source: PathBuf,
    name: PoolPath,
    format: &'static str,
    apparent_bytes: u64,
    zero_bytes: u64,
    /// Growth of the pool's stored blocks meanwhile.
    stored_bytes: u64,
    seconds: f64,
}

impl ImportResult {
    fn saved_bytes(&self) -> u64 {
        self.apparent_bytes.saturating_sub(self.zero_bytes).saturating_sub(self.stored_bytes)
    }

    fn json(&self) -> Value {
        json!({
            "source": machine_name(&self.source),
            "name": self.name.machine_name(),
            "format": self.format,
            "apparent_bytes": self.apparent_bytes,
            "zero_bytes": self.zero_bytes,
            "stored_bytes": self.stored_bytes,
            "saved_bytes": self.saved_bytes(),
            "seconds": self.seconds,
        })
    }
}

fn import(
    store: &mut dyn Store,
    path: &Path,
    source: &SourceImage,
    name: &PoolPath,
    meter: &Meter,
) -> Outcome<ImportResult> {
    let disk = source.disk.as_ref();
    let started = Instant::now();
    let before = store.stat()?;
    let draft = store.draft(name, disk.size_bytes(), source.copy_mode)?;
    let copied = copy(disk, draft.as_ref(), &meter.on_progress());
    meter.finish();
    let copied = copied?;
    draft.publish(name)?;
    let after = store.stat()?;
    let stored_bytes = distinct_bytes(&after).saturating_sub(distinct_bytes(&before));
    Ok(ImportResult {
        source: path.to_owned(),
        name: name.clone(),
        format: source.format,
        apparent_bytes: disk.size_bytes(),
        zero_bytes: copied.zero_bytes,
        // Other users may write to a mounted pool at the same time, and their blocks must not count for this image.
        stored_bytes: stored_bytes.min(copied.written_bytes),
        seconds: started.elapsed().as_secs_f64(),
    })
}

fn distinct_bytes(stat: &PoolStat) -> u64 {
    stat.unique_bytes.saturating_add(stat.shared_bytes)
}

fn text(imported: &[ImportResult], skipped: &[PoolPath]) -> String {
    let mut lines: Vec<String> =
        skipped.iter().map(|name| format!("skipped {name}: the pool has a file of that name")).collect();
    if !imported.is_empty() {
        lines.push(table(imported));
    }
    lines.join("\n")
}

fn table(imported: &[ImportResult]) -> String {
    let mut table = TextTable::new(["image", "apparent", "zero", "stored", "saved"]);
    let sum = |of: &dyn Fn(&ImportResult) -> u64| human(imported.iter().map(of).fold(0, u64::saturating_add));
    for one in imported {
        table.row([
            one.name.to_string(),
            human(one.apparent_bytes),
            human(one.zero_bytes),
            human(one.stored_bytes),
            human(one.saved_bytes()),
        ]);
    }
    if imported.len() > 1 {
        table.row([
            "all".to_owned(),
            sum(&|one| one.apparent_bytes),
            sum(&|one| one.zero_bytes),
            sum(&|one| one.stored_bytes),
            sum(&ImportResult::saved_bytes),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, format: Option<ImageFormat>) -> String {
        own_name(Path::new(path), format).unwrap().into_string().unwrap()
    }

    #[test]
    fn images_get_their_own_name_ending_in_raw() {
        assert_eq!(named("/a/debian-12.qcow2", None), "debian-12.raw");
        assert_eq!(named("disk.VMDK", None), "disk.raw");
        assert_eq!(named("disk.raw", None), "disk.raw");
        assert_eq!(named("debian-12.5", None), "debian-12.5");
        assert_eq!(named("disk", None), "disk");
        assert_eq!(named("/dev/vdb1", None), "vdb1");
        assert_eq!(named("a.qcow2", Some(ImageFormat::Raw)), "a.qcow2");
        assert_eq!(named("/none/archive#debian/12.5@3", None), "12.5.raw");
        assert_eq!(named("/none/archive#no name", None), "archive#no name");
    }

    #[test]
    fn a_path_without_a_name_is_refused() {
        assert!(own_name(Path::new("/"), None).is_err());
        assert!(own_name(Path::new("a/.."), None).is_err());
    }
}
