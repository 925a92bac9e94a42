//! Damage to files of sharing's state folder, in their common frames (`onefold_share::format::record`).

use onefold_share::format::FileBlock;
use onefold_share::format::record::{HEADER_BYTES, PAYLOAD_BYTES_MAX};

use crate::Choices;

const FRAME_HEADER_BYTES: usize = 8;
const LAST: u32 = 1 << 31;
/// Places and lengths of a header's kind, version, identity and subject.
const HEADER_FIELDS: [(usize, usize); 4] = [(8, 2), (10, 2), (16, 8), (32, 8)];
/// Lengths of numeric fields in payloads.
const FIELD_BYTES: [usize; 6] = [1, 2, 4, 5, 8, 12];

/// Numbers at the limits of fields or formats.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    3,
    5460,
    0x7fff,
    0x8000,
    0xffff,
    PAYLOAD_BYTES_MAX as u64,
    PAYLOAD_BYTES_MAX as u64 + 1,
    1 << 18,
    1 << 31,
    u32::MAX as u64,
    FileBlock::LIMIT - 1,
    FileBlock::LIMIT,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Returns a replacement for `old`: a limit, a nearby number, a flipped bit, or any number.
pub fn hurtful_number(choices: &mut Choices<'_>, old: u64) -> u64 {
    match choices.below(8) {
        0..=3 => *choices.one_of(&EDGES),
        4 => old.wrapping_add(1),
        5 => old.wrapping_sub(1),
        6 => old ^ 1 << choices.below(64),
        _ => choices.number(),
    }
}

/// Damages a file in one way, and mostly corrects its checksums.
pub fn damage_record(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    let frames = frames(bytes);
    match choices.below(10) {
        0 => change_number(choices, bytes, |choices| *choices.one_of(&HEADER_FIELDS)),
        1 => {
            let length = choices.index(bytes.len() + 1);
            bytes.truncate(length);
        }
        2 if !frames.is_empty() => {
            let (frame, _) = *choices.one_of(&frames);
            change_number(choices, bytes, |_| (frame, 4));
        }
        3 if !bytes.is_empty() => {
            let at = choices.index(bytes.len());
            bytes[at] = choices.byte();
        }
        4 if !frames.is_empty() => {
            // Duplicates or removes a frame, or what looks like one.
            let (frame, end) = *choices.one_of(&frames);
            if choices.below(2) == 0 {
                let copy = bytes[frame..end].to_vec();
                bytes.splice(end..end, copy);
            } else {
                bytes.drain(frame..end);
            }
        }
        5 if !frames.is_empty() => {
            // Fills a payload with any bytes.
            let (frame, end) = *choices.one_of(&frames);
            let count = choices.index(64);
            let payload = choices.take(count).to_vec();
            let length = u32::try_from(payload.len()).expect("a few bytes") | frame_flag(&bytes[frame..]);
            bytes.splice(frame + FRAME_HEADER_BYTES..end, payload);
            bytes[frame..frame + 4].copy_from_slice(&length.to_le_bytes());
        }
        6 if !frames.is_empty() => {
            let (frame, end) = *choices.one_of(&frames);
            let (from, to) = (choices.index(end - frame), choices.index(end - frame));
            let length = (1 + choices.index(24)).min(end - frame - from.max(to));
            bytes.copy_within(frame + from..frame + from + length, frame + to);
        }
        _ if !frames.is_empty() => {
            let (frame, end) = *choices.one_of(&frames);
            let payload = frame + FRAME_HEADER_BYTES..end;
            change_number(choices, bytes, |choices| {
                (payload.start + choices.index(payload.len()), *choices.one_of(&FIELD_BYTES))
            });
        }
        _ => {}
    }
    // Now and then a checksum is wrong, as after damage by a disk.
    if choices.below(16) != 15 {
        seal_record(bytes);
    }
}

/// Corrects all checksums of a file, as far as it has frames.
pub fn seal_record(bytes: &mut [u8]) {
    for (number, (frame, end)) in (0_u64..).zip(frames(bytes)) {
        let checksum = crc32c::crc32c(&number.to_le_bytes());
        let checksum = crc32c::crc32c_append(checksum, &bytes[frame + FRAME_HEADER_BYTES..end]);
        bytes[frame + 4..frame + 8].copy_from_slice(&checksum.to_le_bytes());
    }
    if let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>() {
        let checksum = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Returns the start and end of each frame that lies wholly in the file.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut frames, mut at) = (Vec::new(), HEADER_BYTES);
    while let Some(header) = bytes.get(at..at + FRAME_HEADER_BYTES) {
        let [a, b, c, d, ..] = *header else { break };
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d]) & !LAST).unwrap_or(usize::MAX);
        let end = at.saturating_add(FRAME_HEADER_BYTES).saturating_add(length);
        if end > bytes.len() {
            break;
        }
        frames.push((at, end));
        at = end;
    }
    frames
}

fn frame_flag(frame: &[u8]) -> u32 {
    frame.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) & LAST)
}

/// Sets a field to a harmful number. A field that would reach past the end is cut.
fn change_number<'a>(
    choices: &mut Choices<'a>,
    bytes: &mut [u8],
    pick: impl FnOnce(&mut Choices<'a>) -> (usize, usize),
) {
    let (from, length) = pick(choices);
    let (from, to) = (from.min(bytes.len()), (from + length.min(8)).min(bytes.len()));
    let mut wide = [0; 8];
    wide[..to - from].copy_from_slice(&bytes[from..to]);
    let number = hurtful_number(choices, u64::from_le_bytes(wide)).to_le_bytes();
    bytes[from..to].copy_from_slice(&number[..to - from]);
}
