//! Measures how fast chunks of the newest version of an archived image are built, on one thread:
//! `chunk_speed ARCHIVE IMAGE WHAT`. Prints one JSON object. The caller decides whether the packs are in the page
//! cache.
//!
//! | WHAT     | measures                                                                          |
//! |----------|-----------------------------------------------------------------------------------|
//! | `list`   | nothing: number and length of the chunks, and the name of the last one             |
//! | `order`  | all chunks, in order                                                               |
//! | `random` | each chunk once, in another order: the time of the slowest of a hundred, and the median |
//! | `stages` | bytes a second to build chunks, to decompress their units, and to verify these     |

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_block::random::SeededRandom;
use onefold_image::archive::Archive;
use onefold_image::compress::Decompressor;
use onefold_image::format::wire::StoredUnits;
use onefold_image::served::ServedArchive;
use onefold_image::store::FolderStore;
use onefold_image::{ImageName, UnitName};

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, image, what] = &arguments[..] else {
        return Err("usage: chunk_speed ARCHIVE IMAGE list|order|random|stages".into());
    };
    let archive = Arc::new(Archive::open(Arc::new(FolderStore::open(Path::new(folder))?))?);
    let record = archive.find(&ImageName::new(image)?, None).ok_or("no such image")?;
    let chunks = archive.manifest(&record)?.chunks;
    // No unit is kept in memory: each chunk is read.
    let served = ServedArchive::new(Arc::clone(&archive), 0);
    match what.as_str() {
        "list" => list(&served, &chunks),
        "order" => in_order(&served, &chunks),
        "random" => at_random(&served, chunks),
        "stages" => stages(&archive, &served, &chunks),
        _ => Err("expected list, order, random or stages".into()),
    }
}

fn list(served: &ServedArchive, chunks: &[UnitName]) -> Done<()> {
    let last = chunks.last().ok_or("no chunk")?;
    let lengths: Result<Vec<usize>, _> =
        chunks.iter().map(|chunk| served.chunk(chunk).map(|chunk| chunk.length_bytes)).collect();
    let bytes: usize = lengths?.iter().sum();
    println!(r#"{{ "chunks": {}, "bytes": {bytes}, "last": "{last}" }}"#, chunks.len());
    Ok(())
}

fn in_order(served: &ServedArchive, chunks: &[UnitName]) -> Done<()> {
    let begun = Instant::now();
    let mut bytes = 0;
    for chunk in chunks {
        bytes += served.chunk(chunk)?.length_bytes;
    }
    println!(r#"{{ "bytes": {bytes}, "seconds": {:.6} }}"#, begun.elapsed().as_secs_f64());
    Ok(())
}

fn at_random(served: &ServedArchive, mut chunks: Vec<UnitName>) -> Done<()> {
    let random = SeededRandom::new(1);
    for at in (1..chunks.len()).rev() {
        chunks.swap(at, usize::try_from(random.below(at as u64 + 1))?);
    }
    let mut times = Vec::with_capacity(chunks.len());
    for chunk in &chunks {
        let begun = Instant::now();
        served.chunk(chunk)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |hundredths: usize| {
        let index = (times.len() * hundredths / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, Duration::as_secs_f64)
    };
    println!(r#"{{ "chunks": {}, "median_seconds": {:.6}, "p99_seconds": {:.6} }}"#, times.len(), at(50), at(99));
    Ok(())
}

fn stages(archive: &Archive, served: &ServedArchive, chunks: &[UnitName]) -> Done<()> {
    let [mut build, mut decompress, mut verify] = [Duration::ZERO; 3];
    let (mut sent_bytes, mut plain_bytes) = (0_usize, 0_usize);
    let mut decompressor = Decompressor::new()?;
    let mut plain = Vec::new();
    for chunk in chunks {
        let begun = Instant::now();
        let message = served.chunk(chunk)?.pieces.concat();
        build += begun.elapsed();
        sent_bytes += message.len();
        for unit in StoredUnits::of(&message) {
            let (header, stored) = unit?;
            let begun = Instant::now();
            if !decompressor.decompress(header, stored, &mut plain) {
                return Err("a damaged unit".into());
            }
            decompress += begun.elapsed();
            let begun = Instant::now();
            std::hint::black_box(archive.descriptor().key.name(&plain));
            verify += begun.elapsed();
            plain_bytes += plain.len();
        }
    }
    println!(r#"{{ "sent_bytes": {sent_bytes}, "plain_bytes": {plain_bytes},"#);
    println!(r#""build_seconds": {:.6},"#, build.as_secs_f64());
    println!(r#""decompress_seconds": {:.6},"#, decompress.as_secs_f64());
    println!(r#""verify_seconds": {:.6} }}"#, verify.as_secs_f64());
    Ok(())
}
