//! `onefold pool export`

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onefold_block::Show;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::cli::Talk;
use crate::cli::pool::ExportArgs;
use crate::cli::values::OutputFormat;
use crate::copy::{Copied, copy};
use crate::disk::{Disk, FileSink};
use crate::failure::{Failure, Outcome};
use crate::image::Qcow2Sink;
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::human;
use crate::store::{self, Intent, OpenStore};

pub(super) fn run(arguments: &ExportArgs, talk: Talk) -> Outcome<Report> {
    let started = Instant::now();
    let OpenStore { store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Read)?;
    let name = store.path(&arguments.name)?;
    let output = Output::create(&arguments.output, store.copy_mode(&name)?)?;
    let meter = Meter::new(format!("exporting {name}"), talk.quiet, interrupt);
    let disk = store.open(&name)?;
    let size_bytes = disk.size_bytes();
    let copied = fill(&output, arguments.format, disk.as_ref(), &meter);
    meter.finish();
    let copied = copied?;
    drop(disk);
    output.publish()?;
    let text = format!(
        "exported {name} to {}: {}, of which {} are zero",
        arguments.output.shown(),
        human(size_bytes),
        human(copied.zero_bytes)
    );
    let json = json!({
        "name": name.machine_name(),
        "output": machine_name(&arguments.output),
        "apparent_bytes": size_bytes,
        "zero_bytes": copied.zero_bytes,
        "written_bytes": copied.written_bytes,
        "seconds": started.elapsed().as_secs_f64(),
    });
    Ok(Report::done(text, json))
}

fn fill(output: &Output, format: OutputFormat, disk: &dyn Disk, meter: &Meter) -> Outcome<Copied> {
    match format {
        OutputFormat::Raw => {
            let file = OpenOptions::new()
                .write(true)
                .open(&output.temporary)
                .map_err(|error| Failure::of_io(output.cannot(), &error))?;
            let sink = FileSink::new(file, &output.name, disk.size_bytes())?;
            let copied = copy(disk, &sink, meter)?;
            sink.sync()?;
            Ok(copied)
        }
        OutputFormat::Qcow2 => {
            let sink = Qcow2Sink::create(&output.temporary, disk.size_bytes())?;
            let copied = copy(disk, &sink, meter)?;
            sink.sync()?;
            Ok(copied)
        }
    }
}

/// A new file that gets its name when it is complete, and is removed when it is dropped before.
struct Output {
    name: PathBuf,
    temporary: PathBuf,
    is_published: bool,
}

impl Output {
    /// Makes a file that lets others do no more than `mode`.
    fn create(name: &Path, mode: u16) -> Outcome<Output> {
        let cannot = || format!("cannot write `{}`", name.shown());
        let file_name = name.file_name().ok_or_else(|| Failure::usage(cannot()).because_of("it is not a file name"))?;
        if fs::symlink_metadata(name).is_ok() {
            return Err(Failure::new(cannot()).because_of("it exists").hint("remove it first, or give another name"));
        }
        let mut temporary = std::ffi::OsString::from(format!(".onefold-export-{}-", std::process::id()));
        temporary.push(file_name);
        let temporary = name.with_file_name(temporary);
        let created = OpenOptions::new().write(true).create_new(true).mode(u32::from(mode)).open(&temporary);
        created.map_err(|error| Failure::of_io(cannot(), &error))?;
        Ok(Output { name: name.to_owned(), temporary, is_published: false })
    }

    fn cannot(&self) -> String {
        format!("cannot write `{}`", self.name.shown())
    }

    fn publish(mut self) -> Outcome<()> {
        let renamed = renameat_with(CWD, &self.temporary, CWD, &self.name, RenameFlags::NOREPLACE);
        renamed.map_err(|errno| Failure::of_io(self.cannot(), &io::Error::from(errno)))?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_published {
            // What can't be removed has a name that tells what it is.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("out.raw");
        drop(Output::create(&name, 0o644).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let output = Output::create(&name, 0o644).unwrap();
        assert!(!name.exists());
        output.publish().unwrap();
        assert!(name.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(Output::create(&name, 0o644).is_err(), "what exists is not overwritten");
    }
}
