//! The content of a file: its main stream or an alternate stream, and the form in which it is stored.

use std::ops::ControlFlow;

use super::directory::INDEX_OF_NAMES;
use super::file::MftFile;
use super::mft::Mft;
use super::record::{DATA, INDEX_ALLOCATION, REPARSE_POINT};
use super::reparse::{self, Reparse};
use super::stream::{Clusters, Stream, StreamBody};
use crate::error::{Encoding, GuestError};
use crate::filesystem::{Extent, ExtentKind};

/// Name of the stream with the compressed content of a system file, `WofCompressedData` in UTF-16.
pub(super) const OVERLAY_STREAM: &[u8] = b"W\0o\0f\0C\0o\0m\0p\0r\0e\0s\0s\0e\0d\0D\0a\0t\0a\0";

/// The content of a file.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// Its length in bytes, decoded.
    pub(super) size_bytes: u64,
    /// Its form; `None` if the stored bytes are the content.
    pub(super) form: Option<Form>,
    /// The stored stream; `None` if the content is stored elsewhere, or nowhere.
    pub(super) stream: Option<Stream>,
}

/// A form in which the stored bytes are not the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Encoded.
    Encoded(Encoding),
    /// A form that a driver defines and no reader here knows.
    Unknown,
}

/// Returns the reparse point of a file, if it has one.
pub(super) fn reparse_of(file: &MftFile, mft: &Mft<'_>) -> Result<Option<Reparse>, GuestError> {
    if !file.has(REPARSE_POINT) {
        return Ok(None);
    }
    let Some(stream) = file.stream(REPARSE_POINT, &[], mft)? else { return Ok(None) };
    let value = stream.read_all(mft.clusters(), reparse::BYTES_MAX)?;
    let wrong = || mft.damage(file.base.number, "its reparse point makes no sense");
    Ok(Some(reparse::decode(&value).ok_or_else(wrong)?))
}

impl Content {
    /// Returns the content of a file with `reparse`. For a directory, these are the blocks of its index.
    pub(super) fn of(file: &MftFile, reparse: Option<&Reparse>, mft: &Mft<'_>) -> Result<Content, GuestError> {
        if file.base.is_directory {
            return Ok(Content::of_stream(file.stream(INDEX_ALLOCATION, INDEX_OF_NAMES, mft)?));
        }
        let main = Content::of_stream(file.stream(DATA, &[], mft)?);
        Ok(match reparse {
            Some(Reparse::Compressed) => Content {
                form: Some(Form::Encoded(Encoding::Compressed)),
                stream: file.stream(DATA, OVERLAY_STREAM, mft)?,
                ..main
            },
            Some(Reparse::Deduplicated) => Content { form: Some(Form::Encoded(Encoding::Deduplicated)), ..main },
            Some(Reparse::Unknown) => Content { form: main.form.or(Some(Form::Unknown)), ..main },
            Some(Reparse::Link(_) | Reparse::Special(_)) | None => main,
        })
    }

    /// Returns the content of a stream. An absent stream is empty.
    pub(super) fn of_stream(stream: Option<Stream>) -> Content {
        let form = stream.as_ref().and_then(form_of);
        Content { size_bytes: stream.as_ref().map_or(0, |stream| stream.size_bytes), form, stream }
    }

    /// Returns its encoding.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        match self.form {
            Some(Form::Encoded(encoding)) => Some(encoding),
            Some(Form::Unknown) | None => None,
        }
    }

    /// Calls `visit` with each extent in order, until it breaks.
    pub(super) fn each_extent(
        &self,
        cluster_bytes: u64,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if let StreamBody::Resident { place, value } = &stream.body {
            let length_bytes = value.len() as u64;
            if length_bytes > 0 {
                let _ = visit(Extent { offset: 0, length_bytes, place: *place, kind: ExtentKind::Inline });
            }
            return Ok(());
        }
        for extent in extents(stream, self.encoding(), cluster_bytes) {
            if visit(extent).is_break() {
                return Ok(());
            }
        }
        stream.broken.clone().map_or(Ok(()), |damage| Err(damage.into()))
    }

    /// Fills `into` from byte `offset`. Returns how many bytes there were before the end.
    pub(super) fn read(&self, clusters: Clusters<'_>, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        match (self.form, &self.stream) {
            (Some(Form::Encoded(encoding)), _) => Err(GuestError::Encoded(encoding)),
            (Some(Form::Unknown), _) => Err(GuestError::Unsupported("a file whose content a Windows driver provides")),
            (None, Some(stream)) => stream.read(clusters, offset, into),
            (None, None) => Ok(0),
        }
    }
}

/// Returns the form of a stream. A resident stream is never compressed, whatever its flags request for later.
fn form_of(stream: &Stream) -> Option<Form> {
    let is_mapped = matches!(stream.body, StreamBody::Mapped(_));
    if stream.coding.is_encrypted() {
        Some(Form::Encoded(Encoding::Encrypted))
    } else if is_mapped && stream.coding.is_compressed() {
        Some(Form::Encoded(Encoding::Compressed))
    } else {
        None
    }
}

/// Returns the extents of a stream in clusters. The cluster that contains the end of the written bytes counts as
/// written.
fn extents(stream: &Stream, encoding: Option<Encoding>, cluster_bytes: u64) -> impl Iterator<Item = Extent> {
    let written_end = stream.initialized_bytes.div_ceil(cluster_bytes);
    stream.runs().iter().filter_map(|run| Some((run, run.cluster?))).flat_map(move |(run, cluster)| {
        let written = match encoding {
            Some(_) => run.count,
            None => written_end.saturating_sub(run.first).min(run.count),
        };
        let kind = encoding.map_or(ExtentKind::Written, ExtentKind::Encoded);
        let extent = move |skipped: u64, count: u64, kind| Extent {
            offset: (run.first + skipped) * cluster_bytes,
            length_bytes: count * cluster_bytes,
            place: (cluster + skipped) * cluster_bytes,
            kind,
        };
        let parts = [extent(0, written, kind), extent(written, run.count - written, ExtentKind::Unwritten)];
        parts.into_iter().filter(|part| part.length_bytes > 0)
    })
}
