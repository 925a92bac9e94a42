//! `onefold image install`

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use onefold_block::Show;
use onefold_disk::Disk;
use onefold_image::archive::ArchiveError;
use onefold_image::format::manifest::Manifest;
use onefold_image::install::{
    Content, FileTarget, FreeSectorPolicy, HEAD_BYTES, InstallError, InstallOptions, InstallReport, Target,
    TargetPlace, check_fit, differences, examine, install,
};
use onefold_image::{ArchivedDisk, ImageSource, ImageVersion, MeteredSource, MeteredTarget, SECTOR_BYTES};
use serde_json::{Value, json};

use super::comparison::TargetComparison;
use super::failed_place::CHECK_BYTES;
use super::figures::InstallFigures;
use super::installable::InstallableImage;
use super::remote::GROUP_SHARE;
use super::{failed_place, find_manifest, group, partitions, rate, remote, seeds, signed, threads};
use crate::cli::Talk;
use crate::cli::image::{FreeSectors, InstallArgs};
use crate::cli::place::ArchiveArg;
use crate::failure::{Failure, Outcome, TargetRemains};
use crate::host;
use crate::interrupt::Interrupt;
use crate::outgoing::UnpublishedFile;
use crate::output::{Report, TextTable, machine_name};
use crate::progress::Meter;
use crate::size::{grouped, human};
use crate::verbs::{archive, in_use};

/// Least `--memory`.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Mode of a new file: its owner alone has access, because a user who may read a disk may read all files on it.
const NEW_FILE_MODE: u16 = 0o600;

pub(super) fn run(arguments: &InstallArgs, talk: Talk) -> Outcome<Report> {
    let started = Instant::now();
    let target = &arguments.target;
    let memory_bytes = memory(arguments.memory.0)?;
    if !arguments.offset.0.is_multiple_of(SECTOR_BYTES) {
        return Err(Failure::usage("cannot install between two sectors")
            .because_of(format!("--offset is no multiple of {SECTOR_BYTES} bytes")));
    }
    let InstallableImage { record, manifest, source, group, report } = find_accepted(arguments, talk)?;
    let figures = Arc::new(InstallFigures::new(&*source, group.clone()));
    let work = Work {
        source: &source,
        figures: &figures,
        seeds: &arguments.seed,
        manifest: &manifest,
        cannot: format!("cannot install `{}` to `{}`", record.image, target.shown()),
        options: InstallOptions {
            free: match arguments.free {
                FreeSectors::Leave => FreeSectorPolicy::Leave,
                FreeSectors::Zero => FreeSectorPolicy::Zero,
                FreeSectors::Discard => FreeSectorPolicy::Discard,
            },
            verify: arguments.verify,
            fresh: arguments.fresh,
            threads: threads(),
            memory_bytes: if group.is_some() { memory_bytes - memory_bytes / GROUP_SHARE } else { memory_bytes },
            fit: arguments.fit,
            start_bytes: 0,
        },
        rate: arguments.rate.map(|rate| rate.0),
        meter: Meter::new(format!("installing {}", record.image), talk.quiet, Interrupt::watch()),
    };
    if arguments.dry_run {
        seeds::check(&arguments.seed, &work.options, &work.meter.on_progress())?;
    }
    let reporter = report.filter(|_| !arguments.dry_run).map(|report| {
        let (name, figures) = (arguments.machine_name.clone().unwrap_or_else(host::name), Arc::clone(&figures));
        report.begin(name, Arc::new(move || figures.progress()))
    });
    if let Some(reporter) = &reporter {
        figures.end_by(reporter.is_ended());
    }
    let is_new = fs::symlink_metadata(target).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let installed = match is_new {
        true => install_new(&work, arguments)?,
        false => install_over(&work, arguments)?,
    };
    if let Some(reporter) = reporter {
        reporter.finish();
    }
    let repeated_bytes = group.as_ref().map_or(0, |group| group.lock().repeated_bytes);
    let text = match &installed {
        Answer::Fits => {
            format!("{} fits on {}: {} would be written", record.image, target.shown(), data_text(&manifest))
        }
        Answer::Compared(compared) => compared.text(&record.image, target),
        Answer::Done(done) => {
            let text = done.text(&record.image, arguments, is_new);
            let way = group::text(group.as_ref());
            format!("{text}{way}\n{}\n{}", done.table(&manifest, repeated_bytes), figures.table())
        }
    };
    let mut json = installed.json();
    json["image"] = record.image.to_string().into();
    json["target"] = machine_name(target).into();
    json["size_bytes"] = manifest.size_bytes.into();
    json["needed_bytes"] = manifest.totals.data_bytes.into();
    json["repeated_bytes"] = repeated_bytes.into();
    json["stages"] = figures.json();
    json["multicast"] = group.as_ref().map(group::json).into();
    json["seconds"] = started.elapsed().as_secs_f64().into();
    Ok(Report::done(text, json))
}

/// Finds the image in its archive or at its server, and fails unless the user accepts it.
fn find_accepted(arguments: &InstallArgs, talk: Talk) -> Outcome<InstallableImage> {
    if let Some(server) = remote::server(&arguments.archive) {
        return remote::find_accepted(server, arguments, talk);
    }
    if arguments.multicast_key.is_some() {
        return Err(Failure::usage("cannot receive by multicast")
            .because_of("--multicast-key is for a server of images, such as http://HOST:7443"));
    }
    if !arguments.server.are_absent() {
        return Err(Failure::usage(format!("`{}` is no server of images", arguments.archive.shown()))
            .because_of("--pin and --token-file are for a server")
            .hint("give the address of the server, as in `https://HOST:7443`"));
    }
    let place = ArchiveArg { archive: arguments.archive.clone(), store: arguments.store.clone() };
    let archive = archive::open(&place)?;
    let (record, manifest) = find_manifest(&archive, &place, &arguments.image)?;
    signed::require(&archive, &record, arguments.acceptance)?;
    Ok(InstallableImage { record, manifest, source: archive, group: None, report: None })
}

/// Checks `--memory`.
pub(super) fn memory(bytes: u64) -> Outcome<u64> {
    if bytes < MEMORY_BYTES_MIN {
        let least = human(MEMORY_BYTES_MIN);
        return Err(Failure::usage("too little memory").because_of(format!("--memory is at least {least}")));
    }
    Ok(bytes)
}

fn data_text(manifest: &Manifest) -> String {
    format!("{} of data and {} of zeros", human(manifest.totals.data_bytes), human(manifest.totals.zero_bytes))
}

/// Outcome of the command.
enum Answer {
    /// A dry run found that the image fits on a target that is not there, or that was not compared.
    Fits,
    /// A dry run has compared the target.
    Compared(TargetComparison),
    Done(InstallResult),
}

impl Answer {
    /// Returns what happened, for machines. Without an installation, all amounts are zero.
    fn json(&self) -> Value {
        let done = if let Answer::Done(done) = self { Some(done) } else { None };
        let installed = done.map(|done| done.installed).unwrap_or_default();
        json!({
            "dry_run": done.is_none(),
            "differences": if let Answer::Compared(compared) = self { compared.json() } else { Value::Null },
            "found_bytes": installed.found_bytes,
            "seed_bytes": installed.seed_bytes,
            "received_bytes": installed.received_bytes,
            "written_bytes": installed.written_bytes,
            "zero_bytes": installed.zero_bytes,
            "zeroed_bytes": installed.zeroed_bytes,
            "discarded_bytes": installed.discarded_bytes,
            "verified_bytes": installed.verified_bytes,
            "fitted": installed.is_fitted,
            "hidden_sectors": installed.hidden_sectors,
            "stale_partitions": done.is_some_and(|done| done.stale.is_some()),
        })
    }
}

/// A finished installation.
struct InstallResult {
    installed: InstallReport,
    /// Why the kernel keeps the partitions that the target had before.
    stale: Option<io::Error>,
}

impl InstallResult {
    /// Returns what to say to people.
    fn text(&self, image: &ImageVersion, arguments: &InstallArgs, is_new: bool) -> String {
        let (installed, target) = (&self.installed, arguments.target.shown());
        let data = human(installed.found_bytes.saturating_add(installed.written_bytes));
        let zero = human(installed.zero_bytes);
        let mut text = format!("installed {image} on {target}: {data} of data, {zero} of zeros");
        match (arguments.free, installed.discarded_bytes) {
            // A new file has nothing to give back.
            (FreeSectors::Discard, 0) if is_new => {}
            // Beside a part of the image, only free sectors are tried, and there may be none.
            (FreeSectors::Discard, 0) if installed.found_bytes > 0 => text += ", nothing discarded",
            (FreeSectors::Discard, 0) => text += ", nothing discarded: the target takes no holes",
            (FreeSectors::Discard, bytes) => text += &format!(", {} discarded", human(bytes)),
            _ => {}
        }
        if installed.is_fitted {
            text += ", the GPT fitted to the target";
        }
        if let Some(sectors) = installed.hidden_sectors {
            text += &format!(", {} hidden sectors", grouped(sectors.into()));
        }
        if arguments.verify {
            text += ", read back and equal";
        }
        if let Some(error) = &self.stale {
            text += &format!("\nthe kernel still has the old partitions ({error}): run `partprobe {target}`");
        }
        text
    }

    /// Returns where the bytes came from and went: `needed = found + written`.
    fn table(&self, manifest: &Manifest, repeated_bytes: u64) -> TextTable {
        let InstallReport { found_bytes, seed_bytes, received_bytes, written_bytes, zeroed_bytes, .. } = self.installed;
        let mut table = TextTable::new(["needed", "found", "seeds", "received", "twice", "written", "zeroed"]);
        let needed_bytes = manifest.totals.data_bytes;
        let kept = [needed_bytes, found_bytes, seed_bytes, received_bytes, repeated_bytes, written_bytes, zeroed_bytes];
        table.row(kept.map(human));
        table
    }
}

/// One installation.
struct Work<'a> {
    source: &'a Arc<dyn ImageSource>,
    figures: &'a InstallFigures,
    /// Disks that may have units of the image.
    seeds: &'a [PathBuf],
    manifest: &'a Manifest,
    /// Error message of the installation, without a cause.
    cannot: String,
    options: InstallOptions,
    /// Bytes per second, if there is a limit.
    rate: Option<NonZeroU64>,
    meter: Meter,
}

impl Work<'_> {
    /// Examines the image as an installation does before it touches a target.
    fn examine(&self) -> Outcome<()> {
        let examined = examine(&**self.source, self.manifest, &self.options, &self.meter.on_progress());
        self.meter.finish();
        examined.map_err(|error| Failure::of_install(&self.cannot, &error, TargetRemains::Untouched))
    }

    /// Compares a target with the image, and names the files that differ.
    fn compare(&self, target: &dyn Target) -> Outcome<TargetComparison> {
        let is_stopped = || self.meter.is_interrupted();
        let found = rate::of_target(target, self.rate, &is_stopped, |target| {
            differences(&**self.source, self.manifest, target, &self.options, &self.meter.on_progress())
        });
        self.meter.finish();
        let found = found.map_err(|error| Failure::of_install(&self.cannot, &error, TargetRemains::Untouched))?;
        Ok(TargetComparison::new(found, self.source, self.manifest))
    }

    /// Returns the bytes of the target that the image takes, unless that is all of it.
    fn place(&self, arguments: &InstallArgs) -> Option<Range<u64>> {
        let offset = arguments.offset.0;
        (offset > 0).then(|| offset..offset.saturating_add(self.manifest.size_bytes))
    }

    /// Fails if the partition table of the image cannot be fitted to a target, before anything is written.
    fn check_fit(&self, target_bytes: u64) -> Outcome<()> {
        if !self.options.fit {
            return Ok(());
        }
        let disk = ArchivedDisk::new(Arc::clone(self.source), self.manifest.clone(), CHECK_BYTES);
        let mut head = vec![0; usize::try_from(HEAD_BYTES.min(disk.size_bytes())).unwrap_or(0)];
        disk.read(0, &mut head).map_err(|error| Failure::of_disk(&error).wrap(&self.cannot))?;
        let fits = check_fit(&head, target_bytes);
        fits.map_err(|error| Failure::of_install(&self.cannot, &error.into(), TargetRemains::Nothing))
    }

    /// Installs to a target that begins at byte `start_bytes` of its disk.
    fn install(&self, target: &dyn Target, start_bytes: u64, left: TargetRemains) -> Outcome<InstallReport> {
        let options = InstallOptions { start_bytes, ..self.options };
        if self.seeds.is_empty() {
            return self.install_from(&**self.source, target, &options, left);
        }
        let seeded = seeds::add(self.source, self.manifest, self.seeds, &options, &self.meter.on_progress());
        let (source, options) = seeded.map_err(|failure| {
            self.meter.finish();
            failure.wrap(&self.cannot)
        })?;
        self.install_from(&source, target, &options, left)
    }

    fn install_from(
        &self,
        source: &dyn ImageSource,
        target: &dyn Target,
        options: &InstallOptions,
        left: TargetRemains,
    ) -> Outcome<InstallReport> {
        let is_stopped = || self.meter.is_interrupted();
        let stages = self.figures.stages();
        let source = MeteredSource::new(source, stages);
        let show = self.meter.on_progress();
        let installed = rate::of_target(target, self.rate, &is_stopped, |target| {
            // Pauses for a limit of the rate count for the target.
            install(&source, self.manifest, &MeteredTarget::new(target, stages), options, &|progress| {
                if let Some(detail) = self.figures.note(progress) {
                    self.meter.show_detail(&detail);
                }
                if self.figures.is_ended() { ControlFlow::Break(()) } else { show(progress) }
            })
        });
        self.meter.finish();
        installed.map_err(|error| {
            let file = error.failed_byte().filter(|_| !is_stopped());
            let file = file.and_then(|byte| failed_place::describe(self.source, self.manifest, byte, &is_stopped));
            let error = match error {
                InstallError::Stopped if self.figures.is_ended() => {
                    InstallError::Archive(ArchiveError::Removed { image: self.manifest.image.clone() })
                }
                error => error,
            };
            let failure = Failure::of_install(&self.cannot, &error, left);
            match file {
                Some(file) => failure.because_of(file),
                None => failure,
            }
        })
    }
}

/// Installs to a file that is not there yet.
fn install_new(work: &Work<'_>, arguments: &InstallArgs) -> Outcome<Answer> {
    // A folder that takes no file is found out by a dry run, too. A file without a name leaves nothing behind.
    let output = UnpublishedFile::create(&arguments.target, NEW_FILE_MODE)?;
    let place = work.place(arguments);
    let length_bytes = place.as_ref().map_or(work.manifest.size_bytes, |place| place.end);
    work.check_fit(length_bytes)?;
    if arguments.dry_run {
        work.examine()?;
        return Ok(Answer::Fits);
    }
    let target = FileTarget::blank(output.descriptor()?, length_bytes);
    let target = target.map_err(|error| Failure::of_io(&work.cannot, &error))?;
    let installed = match place {
        None => work.install(&target, 0, TargetRemains::Nothing)?,
        Some(place) => {
            let target = TargetPlace::new(&target, place.start, length_of(&place));
            work.install(&target, place.start, TargetRemains::Nothing)?
        }
    };
    output.publish()?;
    Ok(Answer::Done(InstallResult { installed, stale: None }))
}

/// Installs over what is there. A dry run answers for a target that is not blank, too.
fn install_over(work: &Work<'_>, arguments: &InstallArgs) -> Outcome<Answer> {
    let may_overwrite = arguments.force || arguments.dry_run;
    let content = if may_overwrite { Content::Overwrite } else { Content::Refuse };
    let place = work.place(arguments);
    let target = FileTarget::open_at(&arguments.target, content, place.clone().unwrap_or(0..u64::MAX));
    let target = target.map_err(|error| Failure::of_target(&work.cannot, &error))?;
    refuse_if_open(&work.cannot, &target, &arguments.target)?;
    let needed_bytes = place.as_ref().map_or(work.manifest.size_bytes, |place| place.end);
    let target_bytes = target.length_bytes();
    if target_bytes < needed_bytes {
        let error = InstallError::TooSmall { needed_bytes, target_bytes };
        return Err(Failure::of_install(&work.cannot, &error, TargetRemains::Nothing));
    }
    work.check_fit(target_bytes)?;
    if arguments.dry_run && arguments.fresh {
        work.examine()?;
        return Ok(Answer::Fits);
    }
    if arguments.dry_run {
        return Ok(Answer::Compared(match place {
            None => work.compare(&target)?,
            Some(place) => work.compare(&TargetPlace::new(&target, place.start, length_of(&place)))?,
        }));
    }
    let start_bytes = partitions::start_bytes(&target).saturating_add(arguments.offset.0);
    // Behind the start of a disk, nothing changes its table.
    let may_have_table = place.as_ref().is_none_or(|place| place.start == 0);
    let installed = match place {
        None => work.install(&target, start_bytes, TargetRemains::Incomplete)?,
        Some(place) => {
            let place = TargetPlace::new(&target, place.start, length_of(&place));
            work.install(&place, start_bytes, TargetRemains::Incomplete)?
        }
    };
    let stale = partitions::read_again(&target).err().filter(|_| may_have_table);
    Ok(Answer::Done(InstallResult { installed, stale }))
}

fn length_of(place: &Range<u64>) -> u64 {
    place.end - place.start
}

/// Fails if a virtual machine has the target open.
fn refuse_if_open(cannot: &str, target: &FileTarget, path: &Path) -> Outcome<()> {
    if in_use::has_writer(target) {
        return Err(Failure::new(cannot)
            .because_of(format!("a virtual machine has `{}` open for writing", path.shown()))
            .hint("stop the machine first"));
    }
    Ok(())
}
