//! Shared memory mappings of files with a safe interface, in this process and in another one.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of the first bytes of a file, with access to single bytes.
pub struct SharedMapping {
    address: *mut u8,
    bytes: usize,
}

#[expect(unsafe_code, reason = "mappings have no safe interface")]
impl SharedMapping {
    /// Maps the first `bytes` bytes of `file`, which has at least that length and is open for reading and writing.
    pub fn new(file: &File, bytes: usize) -> rustix::io::Result<SharedMapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of this process.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        Ok(SharedMapping { address: address.cast(), bytes })
    }

    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: within the mapping, which lives as long as `self`; volatile, because others change the file.
        unsafe { self.address.add(at).read_volatile() }
    }

    pub fn set(&self, at: usize, value: u8) {
        assert!(at < self.bytes);
        // SAFETY: as in `get`; no reference into the mapping is ever given out.
        unsafe { self.address.add(at).write_volatile(value) }
    }

    pub fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is exactly the mapping.
        unsafe { msync(self.address.cast(), self.bytes, MsyncFlags::SYNC) }
    }
}

#[expect(unsafe_code, reason = "mappings have no safe interface")]
impl Drop for SharedMapping {
    fn drop(&mut self) {
        // Unmapping changed pages waits for their write, with this process's address space locked. The threads that
        // write them belong to this process too, and may need that lock. So the pages are written first. (A separate
        // daemon has an address space of its own.)
        let _ = self.sync();
        // SAFETY: the range is exactly the mapping, and nothing refers to it any more.
        let _ = unsafe { munmap(self.address.cast(), self.bytes) };
    }
}

const PAGE_BYTES: usize = 4096;

/// Changes each page of the file in its first argument, whose length is the second, then waits for the end of its
/// input.
const CHANGE_PAGES: &str = r#"
import mmap, os, sys
path, length = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(file, length)
mapping = mmap.mmap(file, length)
for page in range(length // 4096):
    mapping[page * 4096 : page * 4096 + 4] = (page + 1).to_bytes(4, "little")
print("changed", flush=True)
sys.stdin.read()
os._exit(0)
"#;

/// A process that has changed each page of a file to its own content through a shared mapping, and keeps the mapping.
/// It is another process, because a process that waits for a daemon with its address space locked must not be the
/// daemon.
pub struct CountedPages {
    process: Child,
}

/// Starts a script with the file at `path` and numbers, and returns once it says that it has changed the file's pages.
fn spawn_changed(script: &str, path: &Path, numbers: &[usize]) -> Child {
    let mut process = Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .args(numbers.iter().map(usize::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "changed\n");
    process
}

impl CountedPages {
    /// Makes the file at `path` and returns once its pages are changed.
    pub fn new(path: &Path, bytes: usize) -> CountedPages {
        CountedPages { process: spawn_changed(CHANGE_PAGES, path, &[bytes]) }
    }

    /// Returns how many pages of a file differ from what such a process wrote.
    pub fn wrong_in(path: &Path) -> usize {
        let content = fs::read(path).unwrap();
        let is_wrong =
            |(page, bytes): &(usize, &[u8])| !bytes.starts_with(&u32::try_from(*page + 1).unwrap().to_le_bytes());
        content.chunks(PAGE_BYTES).enumerate().filter(is_wrong).count()
    }
}

impl Drop for CountedPages {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Changes a byte in the first page of each piece of a file, again and again until its input ends. The arguments are
/// the path, the number of pieces, and the length of a piece. In the end, the mapping must hold the same as the file.
const CHANGE_ALL_THE_TIME: &str = r#"
import mmap, os, select, sys
path, pieces, piece = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(path, os.O_RDWR)
mapping = mmap.mmap(file, pieces * piece)
def change(value):
    for number in range(pieces):
        mapping[number * piece + 4000] = value
change(1)
print("changed", flush=True)
value = 1
while not select.select([0], [], [], 0)[0]:
    value = value % 255 + 1
    change(value)
# Other writers have ended: nothing may replace this one.
change(77)
for number in range(pieces):
    assert mapping[number * piece + 4000] == 77, f"piece {number} lost the last change"
mapping.flush()
for number in range(pieces):
    page = slice(number * piece, number * piece + 4096)
    assert os.pread(file, 4096, page.start) == mapping[page], f"the mapping of piece {number} differs from its file"
os._exit(0)
"#;

/// A process that changes the first page of each piece of a file through a shared mapping all the time, so that such a
/// page is dirty at nearly every moment.
pub struct BusyMapping {
    process: Child,
}

impl BusyMapping {
    /// Maps the file at `path` and returns once each page was changed for the first time.
    pub fn new(path: &Path, pieces: usize, piece_bytes: usize) -> BusyMapping {
        BusyMapping { process: spawn_changed(CHANGE_ALL_THE_TIME, path, &[pieces, piece_bytes]) }
    }

    /// Ends the process. Panics if its last changes are lost, or differ from what the file holds.
    pub fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success(), "the mapping lost changes");
    }
}

impl Drop for BusyMapping {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
