//! Reads units of a pack from known places, in as few calls as these allow.

use crate::ObjectId;
use crate::archive::objects::Folder;
use crate::format::pack::UNIT_HEADER_BYTES;
use crate::store::{ByteRange, Store, StoreError};

/// Maximum gap between two units that one call reads, in bytes.
const GAP_BYTES: u64 = 64 << 10;
/// Maximum length of one read, in bytes. A longer unit is read alone.
const READ_BYTES: u64 = 4 << 20;

/// Where a unit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Offset of its header in the pack, in bytes.
    pub(super) offset: u32,
    /// Bytes that are stored behind the header.
    pub(super) stored_bytes: u32,
}

impl Span {
    fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(UNIT_HEADER_BYTES) + u64::from(self.stored_bytes)
    }
}

/// Header and stored bytes of a unit as far as its pack has them, or the reason why they cannot be read.
type ReadUnit<'r> = Result<&'r [u8], &'r StoreError>;

/// Reads units of one pack, which are in the order of their offsets. Calls `each` with the index of each unit, and
/// what was read.
pub(super) fn read_spans<E>(
    store: &dyn Store,
    pack: ObjectId,
    spans: &[Span],
    each: &mut dyn FnMut(usize, ReadUnit<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let name = Folder::Packs.object(pack);
    let mut start = 0;
    while let Some(first) = spans.get(start) {
        let group = &spans[start..start + joined(&spans[start..])];
        let offset = u64::from(first.offset);
        let end = group.iter().map(|span| span.end()).max().unwrap_or(offset);
        let read = store.get(&name, ByteRange::From { offset, length_bytes: end - offset });
        for (index, span) in (start..).zip(group) {
            let at = (span.offset - first.offset) as usize;
            let length = UNIT_HEADER_BYTES as usize + span.stored_bytes as usize;
            match &read {
                // A unit that lies behind the end of the pack has no bytes, and so fails as a damaged one does.
                Ok(bytes) => each(index, Ok(bytes.get(at..at + length).unwrap_or_default()))?,
                Err(error) => each(index, Err(error))?,
            }
        }
        start += group.len();
    }
    Ok(())
}

/// Returns how many of the first units one call reads.
fn joined(spans: &[Span]) -> usize {
    let Some((first, rest)) = spans.split_first() else {
        return 0;
    };
    let mut reached = first.end();
    let follows = |span: &&Span| {
        let near = span.offset >= first.offset && u64::from(span.offset) <= reached + GAP_BYTES;
        reached = reached.max(span.end());
        near && reached - u64::from(first.offset) <= READ_BYTES
    };
    1 + rest.iter().take_while(follows).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriterId;
    use crate::store::MemoryStore;

    #[test]
    fn near_units_are_read_together_and_each_gets_its_bytes() {
        let span = |offset, stored_bytes| Span { offset, stored_bytes };
        let spans = [span(64, 100), span(180, 1000), span(100_000, 5), span(199_990, 20), span(300_000, 1)];
        assert_eq!(joined(&spans), 2);
        assert_eq!(joined(&spans[2..]), 1, "the gap is too long");
        assert_eq!(joined(&[span(0, 3 << 20), span(3 << 20, 2 << 20)]), 1, "the read is too long");
        let store = MemoryStore::default();
        let pack = ObjectId { writer: WriterId([1; 16]), random: [2; 8] };
        let bytes: Vec<u8> = (0..200_000u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut lengths = Vec::new();
        let mut each = |index: usize, read: ReadUnit<'_>| {
            let read = read.map_err(ToString::to_string)?;
            assert!(read.iter().enumerate().all(|(at, byte)| *byte == bytes[spans[index].offset as usize + at]));
            lengths.push(read.len());
            Ok::<(), String>(())
        };
        assert!(read_spans(&store, pack, &spans, &mut each).is_err(), "there is no pack");
        store.put(&Folder::Packs.object(pack), &[&bytes]).unwrap();
        read_spans(&store, pack, &spans, &mut each).unwrap();
        assert_eq!(lengths, [116, 1016, 21, 0, 0]);
    }
}
