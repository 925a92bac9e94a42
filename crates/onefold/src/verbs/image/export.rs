//! `onefold image export`

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use onefold_block::Show;
use onefold_image::ArchivedDisk;
use onefold_image::archive::Archive;
use onefold_image::format::manifest::Manifest;
use onefold_image::install::{FileTarget, FreeSectorPolicy, InstallOptions, examine, install};
use serde_json::{Value, json};

use super::damaged;
use super::exported_file::{FILE_MODE, own_name};
use super::install::memory;
use super::{find_manifest, rate, signed, threads};
use crate::cli::Talk;
use crate::cli::image::ExportArgs;
use crate::cli::values::OutputFormat;
use crate::failure::{Failure, Outcome, TargetRemains};
use crate::interrupt::Interrupt;
use crate::outgoing::{OutgoingImage, RawStream, UnpublishedFile, format_of, is_stream, path_of};
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::human;
use crate::verbs::archive;

/// Divisor of `--memory`: this share is for what was read of the archive. The rest is for the bytes on their way.
const CACHE_SHARE: u64 = 2;

pub(super) fn run(arguments: &ExportArgs, talk: Talk) -> Outcome<Report> {
    let started = Instant::now();
    let memory_bytes = memory(arguments.memory.0)?;
    let archive = archive::open(&arguments.archive)?;
    let (record, manifest) = find_manifest(&archive, &arguments.archive, &arguments.image)?;
    signed::require(&archive, &record, arguments.acceptance)?;
    if arguments.damaged {
        return damaged::run(arguments, &archive, &record, &manifest, talk);
    }
    let cache_bytes = usize::try_from(memory_bytes / CACHE_SHARE).unwrap_or(usize::MAX);
    let disk = ArchivedDisk::new(archive.clone(), manifest.clone(), cache_bytes);
    let meter = Meter::new(format!("exporting {}", record.image), talk.quiet, Interrupt::watch());
    let is_stopped = || meter.is_interrupted();
    let options = InstallOptions {
        free: FreeSectorPolicy::Zero,
        verify: false,
        threads: threads(),
        memory_bytes,
        fresh: false,
        fit: false,
        start_bytes: 0,
    };
    let cannot = format!("cannot export `{}`", record.image);
    // As an installation does: an image that is damaged there is not exported in part.
    let examined = || {
        let examined = examine(&*archive, &manifest, &options, &meter.on_progress());
        examined.map_err(|error| Failure::of_install(&cannot, &error, TargetRemains::Nothing))
    };
    if is_stream(&arguments.output) {
        examined()?;
        let stream = RawStream::open(arguments.format, talk)?;
        rate::of_disk(&disk, arguments.rate.map(|rate| rate.0), &is_stopped, |disk| stream.write(disk, &meter))?;
        return Ok(Report::done("", Value::Null));
    }
    let own = own_name(record.image.name.as_str(), arguments.format);
    let output = path_of(&arguments.output, OsStr::new(&own), false)?;
    let format = format_of(&output, &disk, arguments.format)?;
    let size_bytes = manifest.size_bytes;
    let written_bytes = match format {
        OutputFormat::Raw => raw(&archive, &manifest, (&output, arguments), &options, &meter)?,
        OutputFormat::Qcow2 | OutputFormat::Vmdk => {
            examined()?;
            let image = OutgoingImage::create(&output, &disk, Some(format), FILE_MODE)?;
            rate::of_disk(&disk, arguments.rate.map(|rate| rate.0), &is_stopped, |disk| image.write(disk, &meter))?
                .written_bytes
        }
    };
    let text = format!(
        "exported {} to {}: {}, of which {} were written",
        record.image,
        output.shown(),
        human(size_bytes),
        human(written_bytes)
    );
    let json = json!({
        "image": record.image.to_string(),
        "output": machine_name(&output),
        "format": format.name(),
        "size_bytes": size_bytes,
        "written_bytes": written_bytes,
        "seconds": started.elapsed().as_secs_f64(),
    });
    Ok(Report::done(text, json))
}

/// Makes a raw image, as an installation to a new file does. Returns the number of bytes that were written.
fn raw(
    archive: &Archive,
    manifest: &Manifest,
    (output, arguments): (&Path, &ExportArgs),
    options: &InstallOptions,
    meter: &Meter,
) -> Outcome<u64> {
    let cannot = || format!("cannot export `{}`", manifest.image);
    let file = UnpublishedFile::create(output, FILE_MODE)?;
    let target = FileTarget::blank(file.descriptor()?, manifest.size_bytes);
    let target = target.map_err(|error| Failure::of_io(cannot(), &error))?;
    let is_stopped = || meter.is_interrupted();
    let installed = rate::of_target(&target, arguments.rate.map(|rate| rate.0), &is_stopped, |target| {
        install(archive, manifest, target, options, &meter.on_progress())
    });
    meter.finish();
    let installed = installed.map_err(|error| Failure::of_install(cannot(), &error, TargetRemains::Nothing))?;
    file.publish()?;
    Ok(installed.written_bytes)
}
