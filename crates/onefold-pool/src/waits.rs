//! Notifies a thread before the pool makes it wait.
//!
//! A door has a thread that receives requests. It may answer a request itself as long as that takes a few microseconds;
//! before it waits, another thread has to receive the next one. Whether a verb waits shows only while it runs: a block
//! may be missing in a cache, a range locked, a transaction full. So the door sets a notice on its thread, and each
//! wait of the pool calls it first. The pool waits in few places: its locks and conditions ([`crate::sync`]), and the
//! device ([`WaitsForDevice`]).

use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo, ReadOp, WriteOp};

thread_local! {
    static NOTICE: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    /// Whether a notice is set; checked whenever a lock is not free.
    static HAS_NOTICE: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a notice set on the thread that set it, until dropped.
#[derive(Debug)]
#[must_use = "the notice ends when this is dropped"]
pub struct WaitNotice {
    /// Makes the type bound to its thread.
    thread: PhantomData<*const ()>,
}

/// Calls `notice` on this thread before each wait in a verb of a pool. Locks of the pool may be held during the call,
/// so it must neither wait for long nor call the pool. A later notice replaces an earlier one.
pub fn notice_waits(notice: impl Fn() + 'static) -> WaitNotice {
    NOTICE.set(Some(Rc::new(notice)));
    HAS_NOTICE.set(true);
    WaitNotice { thread: PhantomData }
}

impl Drop for WaitNotice {
    fn drop(&mut self) {
        HAS_NOTICE.set(false);
        NOTICE.set(None);
    }
}

/// Calls the notice of this thread, if it has one. Must be called before each wait that another thread, a device or
/// another process ends; doors call it before their own waits.
pub fn about_to_wait() {
    if is_noticed() {
        let notice = NOTICE.with_borrow(Option::clone);
        if let Some(notice) = notice {
            notice();
        }
    }
}

/// Returns whether this thread has a notice.
pub(crate) fn is_noticed() -> bool {
    HAS_NOTICE.get()
}

/// A device on which each call is a wait.
pub(crate) struct WaitsForDevice {
    device: Arc<dyn BlockDevice>,
}

impl WaitsForDevice {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> WaitsForDevice {
        WaitsForDevice { device }
    }

    fn device(&self) -> &dyn BlockDevice {
        about_to_wait();
        &*self.device
    }
}

impl BlockDevice for WaitsForDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.device().block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.device().read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.device().write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.device().sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.device().discard(first, count)
    }

    fn room_blocks(&self) -> Option<u64> {
        self.device().room_blocks()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.device().has_room_for_all_blocks()
    }

    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        self.device().read_batch(batch)
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        self.device().write_batch(batch)
    }
}
