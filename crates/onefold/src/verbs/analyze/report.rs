//! The file that the report goes to: there when it is whole, and never in the place of anything else.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;

use crate::failure::{Failure, Outcome};

/// Beginning of a report.
const HEAD: &[u8] = b"<!DOCTYPE html>";

/// Where a report goes.
#[derive(Debug)]
pub(super) struct ReportFile {
    path: PathBuf,
}

impl ReportFile {
    /// Takes the place at `path`: free, or that of an older report. The folder is tried, so that nobody waits in vain.
    pub(super) fn at(path: &Path) -> Outcome<ReportFile> {
        let report = ReportFile { path: path.to_owned() };
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                if !is_page(path).map_err(|error| report.failure(&error))? {
                    return Err(Failure::new(report.cannot())
                        .because_of("there is a file of that name that is no page of HTML")
                        .hint("give another name with --report, or remove the file first"));
                }
            }
            Ok(_) => return Err(Failure::new(report.cannot()).because_of("there is something else than a file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(report.failure(&error)),
        }
        tempfile::tempfile_in(report.folder()).map_err(|error| report.failure(&error))?;
        Ok(report)
    }

    /// Writes the page.
    pub(super) fn write(&self, page: &str) -> Outcome<()> {
        let write = || -> io::Result<()> {
            // The user's umask applies.
            let permissions = Permissions::from_mode(0o666);
            let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(self.folder())?;
            file.write_all(page.as_bytes())?;
            file.persist(&self.path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| self.failure(&error))
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    fn cannot(&self) -> String {
        format!("cannot write the report `{}`", self.path.shown())
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::of_io(self.cannot(), error)
    }
}

fn is_page(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD.len() as u64).read_to_end(&mut head)?;
    Ok(head == HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_replaces_a_report_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        ReportFile::at(&path).unwrap().write("<!DOCTYPE html>one").unwrap();
        ReportFile::at(&path).unwrap().write("<!DOCTYPE html>two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"<!DOCTYPE html>two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        let image = folder.path().join("disk.raw");
        fs::write(&image, [0; 100]).unwrap();
        assert!(ReportFile::at(&image).unwrap_err().to_string().contains("no page of HTML"));
        assert!(ReportFile::at(folder.path()).is_err());
        assert!(ReportFile::at(&folder.path().join("gone/report.html")).is_err());
    }
}
