//! Small reads bring what lies beside them: nobody can tell but by the time.

mod common;

use std::sync::Arc;

use common::{environment, letters, open, quiet, read_as_doors_do, regular};
use onefold_block::BlockDevice;
use onefold_block::device::{Call, Fault, FaultyDevice, MemoryDevice, When};
use onefold_pool::{AllocateMode, CreateOptions, Durability, Ino, Pool, SetAttr};

const BLOCK: u64 = 4096;

type Device = Arc<FaultyDevice<MemoryDevice>>;

/// Returns a pool with a file of 64 blocks, the letters 1 to 64, of which nothing is in memory.
fn cold() -> (Device, Pool, Ino) {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(16_384), 1));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let create = CreateOptions { journal_bytes: Some(2 << 20), ..CreateOptions::default() };
    Pool::create(&seam, &create, &environment()).expect("a pool is made");
    let pool = open(&seam, &quiet());
    let ino = pool.create_file(Ino::ROOT, b"image", &regular()).expect("there is room").ino;
    pool.write(ino, 0, &letters(1..65), Durability::Later).expect("writes");
    pool.close().expect("closes");
    drop(pool);
    let pool = open(&seam, &quiet());
    // What tells where its blocks are is in memory from here on.
    assert_eq!(pool.lookup(Ino::ROOT, b"image").expect("is there").ino, ino);
    assert_eq!(block(&pool, ino, 63), letters([64]));
    (device, pool, ino)
}

fn block(pool: &Pool, ino: Ino, at: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; 4096];
    let got = read_as_doors_do(pool, ino, at * BLOCK, &mut bytes).expect("reads");
    bytes.truncate(got);
    bytes
}

#[test]
fn what_lies_beside_a_small_read_is_read_from_the_device_no_more() {
    let (device, pool, ino) = cold();
    let reads = || device.count(Call::Read);
    let before = reads();
    assert_eq!(block(&pool, ino, 5), letters([6]));
    assert_eq!(reads(), before + 1);
    for at in 0..16 {
        assert_eq!(block(&pool, ino, at), letters([at + 1]), "block {at}");
    }
    assert_eq!(reads(), before + 1, "sixteen blocks by one request");
    // Over the end of a piece, half of it here: what is missing comes with its own neighbours.
    let mut two = vec![0; 2 * 4096];
    assert_eq!(read_as_doors_do(&pool, ino, 15 * BLOCK, &mut two).expect("reads"), two.len());
    assert_eq!((two, reads()), (letters(16..18), before + 2));
    assert_eq!((block(&pool, ino, 31), reads()), (letters([32]), before + 2));
    // Large reads bring nothing.
    let mut large = vec![0; 16 * 4096];
    assert_eq!(read_as_doors_do(&pool, ino, 33 * BLOCK, &mut large[..15 * 4096]).expect("reads"), 15 * 4096);
    let after = reads();
    assert_eq!(read_as_doors_do(&pool, ino, 32 * BLOCK, &mut large).expect("reads"), large.len());
    assert_eq!((large, reads()), (letters(33..49), after), "block 32 came with the fifteen");
}

#[test]
fn a_neighbour_that_cannot_be_read_is_nobodys_failure() {
    let (device, pool, ino) = cold();
    device.fail(Call::Read, When::Nth(device.count(Call::Read) + 1), Fault::Torn);
    assert_eq!(block(&pool, ino, 5), letters([6]));
    for at in 0..64 {
        assert_eq!(block(&pool, ino, at), letters([at + 1]), "block {at}");
    }
    device.fail(Call::Read, When::FromNth(1), Fault::Io);
    assert_eq!(block(&pool, ino, 6), letters([7]), "it is in memory");
}

#[test]
fn what_was_brought_is_not_believed_once_it_is_another_block() {
    let (_, pool, ino) = cold();
    assert_eq!(block(&pool, ino, 5), letters([6]));
    // Overwritten; cut off and written again, where the freed blocks are the next to be taken; punched out.
    pool.write(ino, 6 * BLOCK, &letters([99]), Durability::Now).expect("writes");
    pool.set_attr(ino, &SetAttr { size_bytes: Some(8 * BLOCK), ..SetAttr::default() }).expect("truncates");
    pool.commit().expect("commits");
    while pool.reclaim().expect("reclaims") {}
    let other = pool.create_file(Ino::ROOT, b"other", &regular()).expect("there is room").ino;
    pool.write(other, 0, &letters(200..264), Durability::Now).expect("writes");
    pool.write(ino, 8 * BLOCK, &letters(300..308), Durability::Later).expect("writes");
    pool.allocate(ino, BLOCK, 2 * BLOCK, AllocateMode::PunchHole).expect("punches");
    let expected = [1, 0, 0, 4, 5, 6, 99, 8].into_iter().chain(300..308);
    for (at, letter) in (0..).zip(expected) {
        let bytes = if letter == 0 { vec![0; 4096] } else { letters([letter]) };
        assert!(block(&pool, ino, at) == bytes, "block {at} is not letter {letter}");
    }
    for at in 0..64 {
        assert!(block(&pool, other, at) == letters([200 + at]), "block {at} of the other");
    }
    assert_eq!(block(&pool, ino, 16), Vec::<u8>::new(), "past the end");
    pool.close().expect("closes");
}
