//! The state of the volume: its version, label and flags, and whether metadata is kept elsewhere.
//!
//! | bytes of the volume information | field |
//! |---|---|
//! | 8, 9 | major and minor version |
//! | 10..12 | flags: 1 dirty, 2 resize the log, 4 upgrade, `20` repair object ids, `4000` a check is under way |

use super::Ntfs;
use super::file::MftFile;
use super::names::Units;
use super::record::{VOLUME_INFORMATION, VOLUME_NAME};
use super::{ROOT, log};
use crate::error::GuestError;
use crate::filesystem::{Doubt, FileNumber, FileSystem, State};

const VOLUME_RECORD: u64 = 3;
const LOG_RECORD: u64 = 2;
/// Flags of a volume that must be checked.
const FLAGS_DIRTY: u16 = 0x4027;
/// File in the root with the memory of a hibernated Windows.
const HIBERNATION_FILE: &[u8] = b"hiberfil.sys";
const HIBERNATION_HEAD_BYTES: usize = 4096;
/// Start of the file after the memory was read back.
const AWAKE: [[u8; 4]; 2] = [*b"wake", *b"WAKE"];

/// Content of `$Volume`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeFacts {
    /// The version; `None` if it cannot be read.
    pub(super) version: Option<(u8, u8)>,
    /// Whether a flag requests a check.
    pub(super) is_dirty: bool,
    /// The label in UTF-8.
    pub(super) label: Vec<u8>,
}

impl VolumeFacts {
    fn of(file: &MftFile) -> VolumeFacts {
        let label = file.value(VOLUME_NAME).map(|value| Units(value.0).to_utf8()).unwrap_or_default();
        let information = file.value(VOLUME_INFORMATION);
        let version = information.and_then(|found| found.u8(8).zip(found.u8(9)));
        let flags = information.and_then(|found| found.le16(10));
        VolumeFacts { version, is_dirty: flags.is_none_or(|flags| flags & FLAGS_DIRTY != 0), label }
    }
}

/// Returns the content of `$Volume`. If it is damaged, the volume counts as dirty.
pub(super) fn volume_facts(ntfs: &Ntfs<'_>) -> Result<VolumeFacts, GuestError> {
    let file = ntfs.damage.skip(ntfs.system_file(VOLUME_RECORD))?;
    Ok(file.map_or(VolumeFacts { is_dirty: true, ..VolumeFacts::default() }, |file| VolumeFacts::of(&file)))
}

/// Returns the reliability of the maps.
pub(super) fn state(ntfs: &Ntfs<'_>, facts: &VolumeFacts) -> Result<State, GuestError> {
    let mut doubts = Vec::new();
    if ntfs.geometry.size_bytes() > ntfs.mft.clusters().volume.size_bytes() {
        doubts.push(Doubt::LongerThanVolume);
    }
    if facts.is_dirty {
        doubts.push(Doubt::HasErrors);
    }
    doubts.extend(ntfs.damage.skip(log_doubt(ntfs))?.unwrap_or(Some(Doubt::JournalDamaged)));
    match is_hibernated(ntfs) {
        Ok(false) => {}
        Ok(true) => doubts.push(Doubt::Hibernated),
        Err(GuestError::Disk(error)) => return Err(error.into()),
        Err(_) => doubts.push(Doubt::MetadataDamaged),
    }
    if ntfs.damage.count() > 0 {
        doubts.push(Doubt::MetadataDamaged);
    }
    doubts.sort_unstable();
    doubts.dedup();
    Ok(if doubts.is_empty() { State::Certain } else { State::Unsure(doubts) })
}

/// Returns why the log makes the volume doubtful, if it does.
fn log_doubt(ntfs: &Ntfs<'_>) -> Result<Option<Doubt>, GuestError> {
    match ntfs.system_stream(LOG_RECORD)? {
        Some(stream) => log::doubt(&stream, ntfs.mft.clusters()),
        None => Ok(Some(Doubt::JournalDamaged)),
    }
}

/// Returns whether a hibernated Windows is on the volume: the file with its memory begins with something other than
/// zeros and the mark that it was read back.
fn is_hibernated(ntfs: &Ntfs<'_>) -> Result<bool, GuestError> {
    let Some(file) = ntfs.look_up(FileNumber(ROOT), HIBERNATION_FILE)? else { return Ok(false) };
    let mut head = [0; HIBERNATION_HEAD_BYTES];
    ntfs.read(file, 0, &mut head)?;
    let is_awake = head.first_chunk().is_some_and(|signature| AWAKE.contains(signature));
    Ok(!is_awake && head.iter().any(|byte| *byte != 0))
}
