//! `onefold pool export`

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onefold_block::Show;
use onefold_disk::CopyResult;
use serde_json::{Value, json};

use crate::cli::Talk;
use crate::cli::pool::ExportArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::outgoing::{OutgoingImage, RawStream, is_stream, path_of};
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::{counted, human};
use crate::store::{self, Intent, OpenStore, PoolPath, Store};

pub(super) fn run(arguments: &ExportArgs, talk: Talk) -> Outcome<Report> {
    let OpenStore { store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Read)?;
    let names = arguments.names.iter().map(|name| store.path(name)).collect::<Outcome<Vec<PoolPath>>>()?;
    if is_stream(&arguments.output) {
        return stream(arguments, store.as_ref(), &names, talk, interrupt);
    }
    // All names are checked before the first byte is copied.
    let mut outputs: Vec<PathBuf> = Vec::new();
    for name in &names {
        let path = path_of(&arguments.output, &own_name(name)?, names.len() > 1)?;
        if outputs.contains(&path) {
            return Err(Failure::usage(format!("cannot write two images as `{}`", path.shown())));
        }
        outputs.push(path);
    }
    let mut exported = Vec::new();
    for (name, path) in names.iter().zip(outputs) {
        let meter = Meter::new(format!("exporting {name}"), talk.quiet, interrupt.clone());
        let one = export(arguments, store.as_ref(), name, &path, &meter);
        exported.push(one.map_err(|failure| match exported.len() {
            0 => failure,
            done => failure.because_of(format!("exported before it: {}", counted(done as u64, "image"))),
        })?);
    }
    let images: Vec<Value> = exported.iter().map(ExportResult::json).collect();
    let text: Vec<String> = exported.iter().map(ExportResult::text).collect();
    Ok(Report::done(text.join("\n"), json!({ "images": images })))
}

/// Writes one image to standard output.
fn stream(
    arguments: &ExportArgs,
    store: &dyn Store,
    names: &[PoolPath],
    talk: Talk,
    interrupt: Interrupt,
) -> Outcome<Report> {
    let [name] = names else {
        return Err(Failure::usage("cannot write several images to standard output")
            .because_of("their bytes would follow each other without a mark between them")
            .hint("run the command once for each image, or give a directory"));
    };
    let output = RawStream::open(arguments.format, talk)?;
    let disk = store.open(name)?;
    output.write(disk.as_ref(), &Meter::new(format!("exporting {name}"), talk.quiet, interrupt))?;
    Ok(Report::done("", Value::Null))
}

/// Returns the name of a file in its directory of the pool.
fn own_name(name: &PoolPath) -> Outcome<OsString> {
    match name.split() {
        Some((_, own)) => Ok(own.to_owned()),
        None => Err(Failure::usage("cannot export the root of the pool").hint("give the names of files")),
    }
}

/// Result of one export, in bytes.
struct ExportResult {
    name: PoolPath,
    output: PathBuf,
    format: &'static str,
    apparent_bytes: u64,
    copied: CopyResult,
    seconds: f64,
}

fn export(
    arguments: &ExportArgs,
    store: &dyn Store,
    name: &PoolPath,
    output: &Path,
    meter: &Meter,
) -> Outcome<ExportResult> {
    let started = Instant::now();
    let mode = store.copy_mode(name)?;
    let disk = store.open(name)?;
    let image = OutgoingImage::create(output, disk.as_ref(), arguments.format, mode)?;
    let format = image.format().name();
    let copied = image.write(disk.as_ref(), meter)?;
    Ok(ExportResult {
        name: name.clone(),
        output: output.to_owned(),
        format,
        apparent_bytes: disk.size_bytes(),
        copied,
        seconds: started.elapsed().as_secs_f64(),
    })
}

impl ExportResult {
    fn text(&self) -> String {
        format!(
            "exported {} to {}: {}, of which {} are zero",
            self.name,
            self.output.shown(),
            human(self.apparent_bytes),
            human(self.copied.zero_bytes)
        )
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name.machine_name(),
            "output": machine_name(&self.output),
            "format": self.format,
            "apparent_bytes": self.apparent_bytes,
            "zero_bytes": self.copied.zero_bytes,
            "written_bytes": self.copied.written_bytes,
            "seconds": self.seconds,
        })
    }
}
