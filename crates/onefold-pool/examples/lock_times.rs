//! Measures how long the metadata lock is held per mebibyte written or read, and per operation on names.
//!
//! `cargo run --release -p onefold-pool --features lock-times --example lock_times -- [MIB [WRITERS]]`. The pool is in
//! memory: device times are not included, as the lock is not held during device calls.
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice};
use onefold_pool::{
    CreateOptions, Durability, Environment, FileKind, Ino, NewFile, OpenOptions, OwnedWrite, Pool, WriteStart,
    take_lock_times,
};
use onefold_testing::device::MemoryDevice;

const NEW: NewFile = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };

/// Returns blocks that each contain their number, `first` and up.
fn blocks(first: u64, count: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(count);
    for (number, block) in (first..).zip(buffer.blocks_mut()) {
        block[..8].copy_from_slice(&(number + 1).to_le_bytes());
    }
    buffer
}

/// Runs `work` on `count` items and prints the lock time for each.
fn measured(what: &str, thing: &str, count: u64, pool: &Pool, work: impl FnOnce()) {
    pool.sync().expect("commits");
    take_lock_times();
    let began = Instant::now();
    work();
    pool.commit().expect("commits");
    let (wall, times) = (began.elapsed(), take_lock_times());
    let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{what}: {:.2} us held for each {thing} ({:.1} holds, {:.2} us waited), longest {:.0} us; {:.2} us wall",
        each(times.held),
        times.holds as f64 / count as f64,
        each(times.waited),
        times.longest.as_secs_f64() * 1e6,
        each(wall),
    );
}

/// Calls `work` once with each number below `count`, on `threads` threads.
fn in_threads(threads: u64, count: u64, work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || (thread..count).step_by(usize::try_from(threads).expect("few")).for_each(work));
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mib = arguments.next().transpose()?.unwrap_or(512);
    let threads = arguments.next().transpose()?.unwrap_or(2);
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(3 * mib * 256 + (1 << 18)));
    Pool::create(&device, &CreateOptions::default(), &Environment::system())?;
    let pool = Pool::open(device, OpenOptions::default(), Environment::system())?;
    let file = |name: &str| pool.create_file(Ino::ROOT, name.as_bytes(), &NEW).expect("a new name").ino;
    let (one, other, small) = (file("one"), file("other"), file("small"));
    let write = |ino, at: u64, content: u64, count: usize| {
        let (offset, buffer, range) = (at * BLOCK_BYTES as u64, blocks(content, count), 0..count * BLOCK_BYTES);
        pool.write_behind(OwnedWrite { ino, offset, buffer, range }, WriteStart::ByWorker).expect("writes");
    };
    let read = |ino, at: u64, count: usize| {
        let mut into = AlignedBuffer::zeroed(count);
        assert!(pool.read(ino, at * BLOCK_BYTES as u64, &mut into).expect("reads") > 0);
    };
    let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (mib * 256);
    println!("{mib} MiB, {threads} threads");
    measured("unique, 1 MiB", "MiB", mib, &pool, || {
        in_threads(threads, mib, |number| write(one, number * 256, number * 256, 256));
    });
    measured("duplicate, 1 MiB", "MiB", mib, &pool, || {
        in_threads(threads, mib, |number| write(other, number * 256, number * 256, 256));
    });
    measured("read, 1 MiB", "MiB", mib, &pool, || in_threads(threads, mib, |number| read(one, number * 256, 256)));
    let few = mib * 64;
    measured("unique at random, 4 KiB", "write", few, &pool, || {
        in_threads(threads, few, |number| write(one, scattered(number), (1 << 40) + number, 1));
    });
    measured("duplicate at random, 4 KiB", "write", few, &pool, || {
        in_threads(threads, few, |number| write(other, scattered(number), (1 << 40) + number, 1));
    });
    measured("read at random, 4 KiB", "read", few, &pool, || {
        in_threads(threads, few, |number| read(one, scattered(number), 1));
    });
    measured("overwritten and made durable, 4 KiB", "write", 2000, &pool, || {
        in_threads(threads, 2000, |number| {
            pool.write(small, number * 4096, &blocks((1 << 41) + number, 1), Durability::Now).expect("writes");
        });
    });
    measured("create and remove", "file", 10_000, &pool, || {
        in_threads(threads, 10_000, |number| {
            let name = format!("{number}");
            let made = pool.create_file(Ino::ROOT, name.as_bytes(), &NEW).expect("a new name");
            pool.release(made.ino, 1);
            pool.unlink(Ino::ROOT, name.as_bytes()).expect("is there");
        });
    });
    pool.close()?;
    Ok(())
}
