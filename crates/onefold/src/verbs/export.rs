//! `onefold pool export`

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onefold_block::Show;
use onefold_disk::{Copied, Disk, FileSink, Qcow2Sink, copy};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::cli::Talk;
use crate::cli::pool::ExportArgs;
use crate::cli::values::OutputFormat;
use crate::failure::{Failure, Outcome};
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
            let sink = FileSink::new(output.file()?, &output.name, disk.size_bytes())?;
            let copied = copy(disk, &sink, &meter.on_progress())?;
            sink.sync()?;
            Ok(copied)
        }
        OutputFormat::Qcow2 => {
            let sink = Qcow2Sink::create(output.file()?, &output.name, disk.size_bytes())?;
            let copied = copy(disk, &sink, &meter.on_progress())?;
            sink.sync()?;
            Ok(copied)
        }
    }
}

/// A new file that gets its name when it is complete, and is removed when it is dropped before.
struct Output {
    /// The file itself. It is not opened by its name again, which others may have given to another file meanwhile.
    file: File,
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
        // The writer of qcow2 reads its own tables.
        let created = OpenOptions::new().read(true).write(true).create_new(true).mode(u32::from(mode)).open(&temporary);
        let file = created.map_err(|error| Failure::of_io(cannot(), &error))?;
        Ok(Output { file, name: name.to_owned(), temporary, is_published: false })
    }

    /// Returns a further descriptor of the file, open for reading and writing.
    fn file(&self) -> Outcome<File> {
        self.file.try_clone().map_err(|error| Failure::of_io(self.cannot(), &error))
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

    /// A user of the folder put a link to another file in the place of the new file; the export then wrote through it,
    /// because it opened the file by its name again.
    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_written_through() {
        struct Ones;
        impl Disk for Ones {
            fn size_bytes(&self) -> u64 {
                8192
            }

            fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>, onefold_disk::DiskError> {
                Ok((offset < 8192).then_some(offset..8192))
            }

            fn read(&self, _: u64, into: &mut [u8]) -> Result<(), onefold_disk::DiskError> {
                into.fill(1);
                Ok(())
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        for format in [OutputFormat::Raw, OutputFormat::Qcow2] {
            fs::write(&victim, "secret").unwrap();
            let output = Output::create(&folder.path().join("out"), 0o644).unwrap();
            fs::remove_file(&output.temporary).unwrap();
            std::os::unix::fs::symlink(&victim, &output.temporary).unwrap();
            let meter = Meter::new("exporting", true, crate::interrupt::Interrupt::default());
            fill(&output, format, &Ones, &meter).unwrap();
            assert_eq!(fs::read(&victim).unwrap(), b"secret");
        }
    }
}
