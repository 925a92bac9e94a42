//! Arbitrary bytes. A decoder returns an error, or an object that encodes to exactly these bytes.

use onefold_block::random::SeededRandom;

use super::*;
use crate::format::manifest::{REGIONS_MAX, RegionChunks, Totals};
use crate::{SectorRun, UnitName};

/// Checks that the decoder refuses the bytes, or that they are what the encoder would write. Returns whether it refuses
/// them.
fn refused(structure: &str, bytes: &[u8], again: Again) -> bool {
    match again(bytes) {
        Ok(encoded) => {
            assert_eq!(encoded, bytes, "a {structure} was accepted that no encoder writes");
            false
        }
        Err(_) => true,
    }
}

#[test]
fn every_truncation_is_refused() {
    for (structure, samples, again) in structures() {
        for sample in samples {
            for length in 0..sample.len() {
                let mut cut = sample[..length].to_vec();
                assert!(refused(structure, &cut, again), "{structure} of {length} bytes");
                // The same with the length field and the digest corrected.
                if length > 64 {
                    cut[56..64].copy_from_slice(&(length as u64).to_le_bytes());
                    seal(&mut cut);
                    assert!(refused(structure, &cut, again), "{structure} of {length} bytes, sealed");
                }
            }
            assert!(refused(structure, &[&sample[..], &[0]].concat(), again), "{structure}, longer");
        }
    }
}

#[test]
fn every_changed_byte_is_refused_or_another_object() {
    for (structure, samples, again) in structures() {
        let has_digest = !structure.ends_with("header") && !structure.starts_with("multicast");
        for sample in samples {
            for at in 0..sample.len() {
                for flip in [0x01, 0x80, 0xff, sample[at], sample[at] ^ 0xff] {
                    let mut changed = sample.clone();
                    changed[at] ^= flip;
                    if changed == sample {
                        continue;
                    }
                    let is_refused = refused(structure, &changed, again);
                    assert!(is_refused || !has_digest, "{structure}: byte {at} may change unseen");
                    seal(&mut changed);
                    refused(structure, &changed, again);
                }
            }
        }
    }
}

#[test]
fn seeded_mutations_never_confuse_a_decoder() {
    let mut accepted = std::collections::BTreeMap::new();
    for seed in 0..6000 {
        let random = SeededRandom::new(seed);
        let below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
        for (structure, samples, again) in structures() {
            let mut bytes = samples[below(samples.len())].clone();
            let start = if structure.ends_with("header") || bytes.len() <= 64 { 0 } else { 64 };
            for _ in 0..=below(4) {
                if bytes.len() <= start {
                    break;
                }
                let at = start + below(bytes.len() - start);
                match below(5) {
                    0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
                    1 => bytes[at] ^= 1 << below(8),
                    2 => {
                        bytes.remove(at);
                    }
                    3 => bytes.insert(at, bytes[below(bytes.len())]),
                    _ => {
                        let end = (at + 4).min(bytes.len());
                        let number = [u32::MAX, 0, 1 << 31, 1, 1 << 20][below(5)].to_le_bytes();
                        bytes[at..end].copy_from_slice(&number[..end - at]);
                    }
                }
            }
            if start > 0 && bytes.len() > 64 {
                let length = bytes.len() as u64;
                bytes[56..64].copy_from_slice(&length.to_le_bytes());
            }
            seal_if_whole(structure, &mut bytes);
            *accepted.entry(structure).or_insert(0) += usize::from(!refused(structure, &bytes, again));
        }
    }
    assert_eq!(accepted.len(), structures().len());
    assert!(accepted.values().all(|count| *count > 50), "{accepted:?}: what stands behind the digest is reached");
}

/// Packs have no digest over their whole content, and headers have none at all.
fn seal_if_whole(structure: &str, bytes: &mut [u8]) {
    match structure {
        "pack" => seal_pack(bytes),
        structure if structure.ends_with("header") => {}
        _ => seal(bytes),
    }
}

#[test]
fn counts_of_four_thousand_million_take_no_memory() {
    // A segment whose body claims that 2^32 - 1 packs and entries follow.
    let mut segment = samples::segments().remove(0);
    segment[64..72].copy_from_slice(&[0xff; 8]);
    seal(&mut segment);
    assert_eq!(Segment::decode(ARCHIVE, ID, &segment), Err(FormatError::Length { structure: "segment of the index" }));
    // A pack whose footer claims the same of its table.
    let mut pack = samples::pack();
    let footer = pack.len() - 48;
    pack[footer..footer + 4].copy_from_slice(&[0xff; 4]);
    assert!(matches!(decode_tail(ARCHIVE, ID, &pack), Err(FormatError::Value { .. })));
    // A unit that claims a length of 4 GiB.
    let mut header = samples::unit_headers().remove(1);
    header[8..16].copy_from_slice(&[0xff; 8]);
    assert!(UnitHeader::decode(&header).is_err());
}

#[test]
fn a_segment_has_each_entry_once() {
    let sample = Segment::decode(ARCHIVE, ID, &samples::segments()[0]).unwrap();
    let mut twice = sample.clone();
    twice.entries.insert(1, sample.entries[0]);
    assert!(twice.encode(ARCHIVE, ID).is_err());
}

#[test]
fn a_manifest_of_too_many_regions_or_volumes_is_refused_before_they_take_memory() {
    let sample = Manifest::decode(ARCHIVE, ID, &samples::manifests()[0]).unwrap();
    let of = |regions: u64| Manifest {
        size_bytes: regions * 512,
        region_bytes: 512,
        totals: Totals { free_bytes: regions * 512, ..Totals::default() },
        volumes: Vec::new(),
        chunks: Vec::new(),
        regions: vec![RegionChunks { first: 0, others: None }; usize::try_from(regions).unwrap()],
        ..sample.clone()
    };
    let largest = of(REGIONS_MAX).encode().unwrap();
    assert!(Manifest::decode(ARCHIVE, ID, &largest).is_ok());
    assert!(of(REGIONS_MAX + 1).encode().is_err());
    let mut volumes = sample.clone();
    volumes.volumes = vec![sample.volumes[0].clone(); (1 << 16) + 1];
    assert!(volumes.encode().is_err());
    // Numbers that only say so: no region follows, and the number alone is what is wrong.
    let numbers = 64 + 4 + 2 + sample.image.name.as_str().len() + 12 + 8 + 8 + 8 + 7 * 8;
    for (at, number) in [(numbers, (1u32 << 16) + 1), (numbers + 8, (1 << 20) + 1)] {
        let mut object = samples::manifests().remove(0);
        object[at..at + 4].copy_from_slice(&number.to_le_bytes());
        seal(&mut object);
        let error = Manifest::decode(ARCHIVE, ID, &object).unwrap_err();
        assert!(matches!(error, FormatError::Value { what: "too many volumes or regions", .. }), "{error}");
    }
}

#[test]
fn a_chunk_header_says_one_content_for_each_sector() {
    let run = |start, count| SectorRun { start, count };
    let unit = |plain_bytes, runs| chunk_header::PlacedUnit { name: UnitName([1; 32]), plain_bytes, runs };
    let header = |units, zeros| ChunkHeader { region: 0, units, zeros };
    let wrong = [
        header(vec![unit(1024, vec![run(5, 2)]), unit(512, vec![run(6, 1)])], vec![]),
        header(vec![unit(1024, vec![run(5, 1), run(5, 1)])], vec![]),
        header(vec![unit(1024, vec![run(5, 2)])], vec![run(0, 6)]),
        header(vec![], vec![run(0, 6), run(5, 1)]),
        header(vec![], vec![run(9, 1), run(5, 1)]),
        header(vec![unit(1024, vec![run(5, 3)])], vec![]),
        header(vec![unit(1025, vec![run(5, 2)])], vec![]),
        header(vec![unit(512, vec![])], vec![]),
        header(vec![unit(0, vec![])], vec![]),
        header(vec![unit(512, vec![run(5, 0), run(6, 1)])], vec![]),
        header(vec![unit((1 << 20) + 1, vec![run(0, 2049)])], vec![]),
        header(vec![unit(512, vec![run(1 << 53, 1)])], vec![]),
        header(vec![unit(512, vec![run(u64::MAX, u64::MAX)])], vec![]),
        header(vec![], vec![run(0, (1 << 53) + 1)]),
    ];
    for header in wrong {
        assert!(header.encode().is_err(), "{header:?}");
    }
    assert!(header(vec![unit(513, vec![run(5, 1), run(4, 1)])], vec![run(6, 1)]).encode().is_ok());
}
