//! `onefold guest cat`

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, Show};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::FileKind;
use onefold_guest::tree::{Links, ResolvedFile};

use super::ending::Ending;
use super::scene::Scene;
use super::streaming::{self, PrintResult, PrintStop};
use crate::cli::Talk;
use crate::cli::guest::GuestCatArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Report;

/// Number of bytes that are read at once: small enough for a processor's cache, from which they are written.
const PIECE_BYTES: usize = 512 << 10;

pub(super) fn run(arguments: &GuestCatArgs, talk: Talk) -> Outcome<Report> {
    if talk.json {
        return Err(Failure::usage("cannot write the content of files").because_of("the result is not a JSON document"));
    }
    streaming::with_scene(&arguments.image, talk, |scene, ending| {
        let mut out = io::stdout().lock();
        for path in &arguments.paths {
            match content(scene, path.as_bytes(), ending, &mut out) {
                Ok(()) => {}
                Err(PrintStop::Closed) => break,
                Err(PrintStop::Failed(failure)) => ending.failed(failure),
            }
        }
        scene.look_at(ending);
        ending.tell();
        Ok(streaming::ended(ending))
    })
}

/// Writes the content of a file. Writes nothing if the content exists only in another form.
fn content(scene: &Scene<'_, '_>, path: &[u8], ending: &mut Ending, out: &mut impl Write) -> PrintResult<()> {
    let found = scene.find(path, Links::Follow)?;
    let cannot = || format!("cannot read `{}`", path.shown());
    match found.stat.kind {
        FileKind::Regular => {}
        FileKind::Directory => {
            let failure = Failure::new(cannot()).because_of("it is a directory");
            return Err(failure
                .hint("`onefold guest ls` lists its files, and `onefold guest tar` writes them all")
                .into());
        }
        _ => return Err(Failure::new(cannot()).because_of("it is not a file with content").into()),
    }
    if let Some(encoding) = found.stat.encoding {
        return Err(Failure::of_guest(cannot(), &GuestError::Encoded(encoding)).into());
    }
    let written = copy(scene, &found, out).map_err(|stop| match stop {
        CopyError::Guest(error) => PrintStop::Failed(Failure::of_guest(cannot(), &error)),
        CopyError::Out(error) => PrintStop::from(error),
    })?;
    if written < found.stat.size_bytes {
        ending.damaged(format!("`{}` ended {} bytes early", path.shown(), found.stat.size_bytes - written));
    }
    Ok(())
}

/// Why copying content stopped.
pub(super) enum CopyError {
    /// The guest cannot be read.
    Guest(GuestError),
    /// The output cannot be written.
    Out(io::Error),
}

/// Writes the content of a file up to its length. Returns the number of bytes that were available.
fn copy(scene: &Scene<'_, '_>, found: &ResolvedFile, out: &mut impl Write) -> Result<u64, CopyError> {
    let system = scene.tree.system(found.file.system);
    let room = |bytes_left: u64| usize::try_from(bytes_left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    // The kernel copies faster into aligned memory: that alone takes 8 % of the time from a large file.
    let mut buffer = AlignedBuffer::zeroed(room(found.stat.size_bytes).div_ceil(BLOCK_BYTES));
    let mut offset = 0;
    while offset < found.stat.size_bytes {
        let piece = &mut buffer[..room(found.stat.size_bytes - offset)];
        let count = system.read(found.file.file, offset, piece).map_err(CopyError::Guest)?.min(piece.len());
        if count == 0 {
            break;
        }
        out.write_all(&piece[..count]).map_err(CopyError::Out)?;
        offset += count as u64;
    }
    out.flush().map_err(CopyError::Out)?;
    Ok(offset)
}
