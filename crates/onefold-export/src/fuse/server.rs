//! Answers requests, on any number of threads.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BufferPool, Polling};
use onefold_pool::WriteStart;

use super::device::FuseDevice;
use super::door::{FuseFilesystem, GatheredRead};
use super::filesystem::PoolFilesystem;
use super::held_replies::HeldReplies;
use super::lead::{Lead, Leader};
use super::open_files::OpenFiles;
use super::protocol::{InitFlags, Operation, Read, RequestHeader, WriteHead};
use crate::log::FailureLog;
use crate::options::MountOptions;

/// Largest request: 256 blocks, which are hashed side by side. The kernel allows no more without a sysctl.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Where the data of a write begin in a buffer: at a page boundary, so that the device can take them without a copy.
const DATA_START: usize = BLOCK_BYTES;
pub(super) const REQUEST_START: usize = DATA_START - WriteHead::DATA_OFFSET;
/// Blocks of a buffer: the part before the data, the data, and the rest of the longest other request.
const BUFFER_BLOCKS: usize = 2 + REQUEST_BYTES_MAX as usize / BLOCK_BYTES;
/// Writes up to this length are copied into buffers of their own size.
const SMALL_BYTES_MAX: usize = 64 << 10;
const SMALL_BUFFERS_BYTES_MAX: usize = 2 << 20;

/// Maximum number of accepted blocks that may wait before a brief request. With more, the request may have to hash and
/// store them.
const FEW_BLOCKS: usize = 16;

/// Maximum number of reads that one thread answers together: half of a queue of 32. Another thread takes the other
/// half.
const GATHERED_MAX: usize = 16;

/// A request in a buffer, decoded once: reads and writes completely, other requests only as far as their header.
pub(super) struct ReceivedRequest {
    header: RequestHeader,
    /// Length of the whole request.
    bytes: usize,
    content: RequestContent,
}

enum RequestContent {
    Read(Read),
    /// The data lie in the buffer from [`DATA_START`] to the end of the request.
    Write(WriteHead),
    /// Decoded when it is answered, because its names are borrowed from the buffer.
    Other,
}

impl ReceivedRequest {
    /// Returns the offset in the buffer at which the request ends.
    fn end(&self) -> usize {
        REQUEST_START + self.bytes
    }
}

/// Answers requests.
pub(super) struct Server {
    door: FuseFilesystem,
    has_long_setxattr: bool,
    /// Whether there is more than one thread, so that one can begin a write that another has accepted.
    has_threads: bool,
    log: Arc<dyn FailureLog>,
    lead: Arc<Lead>,
    /// Polls for the request after one that was answered from memory.
    polling: Polling,
    buffers: BufferPool,
    small_buffers: BufferPool,
    block_buffers: BufferPool,
}

impl Server {
    /// Returns a server with the abilities `agreed` on with the kernel.
    pub(super) fn new(filesystem: PoolFilesystem, options: &MountOptions, agreed: InitFlags) -> Server {
        // Each thread has one buffer. Half as many again hold the data of accepted writes.
        let buffers = options.threads.get().min(MountOptions::THREADS_MAX).div_ceil(2) * 3;
        Server {
            door: FuseFilesystem::new(filesystem, options, agreed),
            has_long_setxattr: agreed.has(InitFlags::SETXATTR_EXT),
            has_threads: options.threads.get() > 1,
            log: options.log.clone(),
            lead: Arc::default(),
            polling: Polling::new(options.processors.clone(), options.clock.clone()),
            buffers: BufferPool::new(BUFFER_BLOCKS, buffers * BUFFER_BLOCKS * BLOCK_BYTES),
            small_buffers: BufferPool::new(SMALL_BYTES_MAX / BLOCK_BYTES, SMALL_BUFFERS_BYTES_MAX),
            block_buffers: BufferPool::new(1, SMALL_BUFFERS_BYTES_MAX),
        }
    }

    /// Reports a problem to the log.
    pub(super) fn warn(&self, what: &str) {
        self.log.error(what);
    }

    /// Returns the replies that wait for the kernel to drop pages, and the register that knows these pages.
    pub(super) fn held_replies(&self) -> (Arc<HeldReplies>, Arc<OpenFiles>) {
        self.door.held_replies()
    }

    /// Returns the [`Leader`] of a thread that does not have the lead.
    pub(super) fn leader(&self) -> Leader {
        Leader::new(self.lead.clone())
    }

    /// Answers requests until the connection ends.
    ///
    /// # Errors
    /// When this thread can receive no more requests.
    pub(super) fn serve(&self, device: &FuseDevice) -> io::Result<()> {
        // Without this descriptor, as on an unusual kernel, each request is answered by itself.
        let impatient = device.try_clone_impatient().ok();
        let mut buffer = self.buffers.take();
        // Whether the previous request was a write: this one may then belong to a stream of writes.
        let mut follows_write = false;
        let leader = Rc::new(self.leader());
        let _notice = onefold_pool::notice_waits({
            let leader = leader.clone();
            move || leader.pass()
        });
        loop {
            let received = self.receive(&leader, &mut buffer, device, impatient.as_ref())?;
            let Some((bytes, device)) = received else { return Ok(()) };
            let received = self.look_at(&buffer, bytes)?;
            let begins = self.begins(&received, &leader, follows_write);
            follows_write = matches!(received.content, RequestContent::Write(_));
            if let RequestContent::Read(read) = received.content {
                let first = GatheredRead { header: received.header, read, device };
                self.answer_gathered(&leader, first, &mut buffer, impatient.as_ref())?;
                continue;
            }
            if !self.is_brief(&received) {
                leader.pass();
            }
            self.answer(&received, begins, &mut buffer, device);
        }
    }

    /// Returns which thread begins a write once it is accepted. A client that makes small files waits for each write,
    /// and a worker takes longer to wake up. So the thread that receives the client's requests begins the write itself
    /// once no request is waiting. In a stream of writes, workers begin them, so that this thread can receive
    /// meanwhile.
    pub(super) fn begins(&self, received: &ReceivedRequest, leader: &Leader, follows_write: bool) -> WriteStart {
        let is_for_caller = matches!(received.content, RequestContent::Write(_))
            && received.end() - DATA_START <= SMALL_BYTES_MAX
            && leader.has_lead()
            && !follows_write
            && self.has_threads;
        if is_for_caller { WriteStart::ByCaller } else { WriteStart::ByWorker }
    }

    /// Waits for the lead and for a request. Returns the request's length and the descriptor that it came from; `None`
    /// once the connection has ended. Before each wait, this thread carries out accepted writes that no thread has
    /// begun, because it may have left them itself. If a request is already there, these writes go to a worker instead:
    /// answering that request may have to wait for a thread that waits for these writes.
    pub(super) fn receive<'d>(
        &self,
        leader: &Leader,
        buffer: &mut AlignedBuffer,
        device: &'d FuseDevice,
        impatient: Option<&'d FuseDevice>,
    ) -> io::Result<Option<(usize, &'d FuseDevice)>> {
        // A thread that has waited meanwhile, or has just got the lead, need not poll: it sleeps in the device.
        let mut looking = impatient.filter(|_| leader.has_lead());
        if let Some(impatient) = looking
            && self.door.blocks_behind() > 0
            && let Some(bytes) = impatient.receive_more(&mut buffer[REQUEST_START..])?
        {
            self.door.hand_over_accepted();
            return Ok(Some((bytes, impatient)));
        }
        loop {
            self.door.begin_accepted();
            if leader.has_lead() {
                break;
            }
            leader.take();
            looking = None;
        }
        self.wait_for_request(buffer, device, looking)
    }

    /// Waits for a request like [`Server::receive`]. Polls `impatient`, if given, before it sleeps.
    fn wait_for_request<'d>(
        &self,
        buffer: &mut AlignedBuffer,
        device: &'d FuseDevice,
        impatient: Option<&'d FuseDevice>,
    ) -> io::Result<Option<(usize, &'d FuseDevice)>> {
        let Some(impatient) = impatient else {
            return Ok(device.receive(&mut buffer[REQUEST_START..])?.map(|bytes| (bytes, device)));
        };
        let wait = self.polling.begin();
        if let Some(found) =
            self.polling.look(wait, || impatient.receive_more(&mut buffer[REQUEST_START..]).transpose())
        {
            return Ok(Some((found?, impatient)));
        }
        let received = device.receive(&mut buffer[REQUEST_START..])?;
        self.polling.slept(wait);
        Ok(received.map(|bytes| (bytes, device)))
    }

    /// Decodes a request of `bytes` bytes in `buffer`.
    ///
    /// # Errors
    /// When the request has no header: it cannot be answered, and later requests cannot be trusted either.
    pub(super) fn look_at(&self, buffer: &AlignedBuffer, bytes: usize) -> io::Result<ReceivedRequest> {
        let (header, body) = RequestHeader::decode(&buffer[REQUEST_START..REQUEST_START + bytes])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let transfer = header.is_transfer().then(|| Operation::decode(&header, body, self.has_long_setxattr));
        let content = match transfer {
            Some(Ok(Operation::Read(read))) => RequestContent::Read(read),
            Some(Ok(Operation::Write(write))) if WriteHead::DATA_OFFSET + write.data.len() == bytes => {
                RequestContent::Write(write.head)
            }
            _ => RequestContent::Other,
        };
        Ok(ReceivedRequest { header, bytes, content })
    }

    /// Returns whether answering usually takes a few microseconds, apart from waits.
    fn is_brief(&self, received: &ReceivedRequest) -> bool {
        match &received.content {
            RequestContent::Read(_) => false,
            RequestContent::Write(head) => head.is_brief(received.end() - DATA_START),
            // Most other requests wait for accepted writes, and carry them out if no thread has begun.
            RequestContent::Other => {
                let header = &received.header;
                header.is_brief() && (!header.waits_for_writes() || self.door.blocks_behind() <= FEW_BLOCKS)
            }
        }
    }

    /// Answers a read together with the other reads that wait at the same time.
    fn answer_gathered<'d>(
        &self,
        leader: &Leader,
        first: GatheredRead<'d>,
        buffer: &mut AlignedBuffer,
        impatient: Option<&'d FuseDevice>,
    ) -> io::Result<()> {
        let Some(impatient) = impatient else {
            self.answer_reads(&[first]);
            return Ok(());
        };
        let (reads, other) = self.gather(buffer, first, impatient)?;
        if reads.len() > 1 || other.is_some() {
            leader.pass();
        }
        self.answer_reads(&reads);
        if let Some(received) = other {
            self.answer(&received, WriteStart::ByWorker, buffer, impatient);
        }
        Ok(())
    }

    /// Collects the reads that wait at the same time as a first one, up to the bytes of the largest request, so that
    /// their waits for the device overlap. Does not wait for further reads. Returns the reads, and a request of another
    /// kind that came instead, in `buffer`.
    fn gather<'d>(
        &self,
        buffer: &mut AlignedBuffer,
        first: GatheredRead<'d>,
        impatient: &'d FuseDevice,
    ) -> io::Result<(Vec<GatheredRead<'d>>, Option<ReceivedRequest>)> {
        let mut room = (REQUEST_BYTES_MAX as usize).saturating_sub(first.room());
        let mut reads = vec![first];
        while reads.len() < GATHERED_MAX {
            let Some(bytes) = impatient.receive_more(&mut buffer[REQUEST_START..])? else { break };
            let received = self.look_at(buffer, bytes)?;
            let RequestContent::Read(read) = received.content else { return Ok((reads, Some(received))) };
            let gathered = GatheredRead { header: received.header, read, device: impatient };
            if gathered.room() > room {
                return Ok((reads, Some(received)));
            }
            room -= gathered.room();
            reads.push(gathered);
        }
        Ok((reads, None))
    }

    fn answer_reads(&self, reads: &[GatheredRead<'_>]) {
        let requests: Vec<(RequestHeader, &FuseDevice)> = reads.iter().map(|read| (read.header, read.device)).collect();
        self.guard(&requests, |has_begun| {
            *has_begun = true;
            match reads {
                [read] => self.door.answer(&read.header, Operation::Read(read.read), read.device),
                _ => self.door.answer_reads(reads),
            }
        });
    }

    /// Takes the data of a write out of the buffer that it arrived in. A long write is not copied: it keeps the buffer,
    /// and the next request gets another one.
    fn take_data(&self, buffer: &mut AlignedBuffer, range: Range<usize>) -> (AlignedBuffer, Range<usize>) {
        if range.len() > SMALL_BYTES_MAX {
            return (std::mem::replace(buffer, self.buffers.take()), range);
        }
        let shelf = if range.len() <= BLOCK_BYTES { &self.block_buffers } else { &self.small_buffers };
        let mut data = shelf.take();
        data[..range.len()].copy_from_slice(&buffer[range.clone()]);
        (data, 0..range.len())
    }

    /// Answers one request in `buffer`, which may be another buffer afterwards. The sender gets an answer in any case.
    pub(super) fn answer(
        &self,
        received: &ReceivedRequest,
        begins: WriteStart,
        buffer: &mut AlignedBuffer,
        device: &FuseDevice,
    ) {
        let header = &received.header;
        self.guard(&[(*header, device)], |has_begun| match &received.content {
            RequestContent::Read(read) => {
                *has_begun = true;
                self.door.answer(header, Operation::Read(*read), device)
            }
            RequestContent::Write(head) => {
                *has_begun = true;
                let data = self.take_data(buffer, DATA_START..received.end());
                self.door.answer_write(header, head, data, begins, device)
            }
            RequestContent::Other => {
                let body = &buffer[REQUEST_START + RequestHeader::BYTES..received.end()];
                let Ok(operation) = Operation::decode(header, body, self.has_long_setxattr) else {
                    return device.reply(header.unique, libc::EIO, &[]);
                };
                *has_begun = true;
                self.door.answer(header, operation, device)
            }
        });
    }

    /// Answers requests by `work`, which sets its argument when it begins to carry them out. The senders get an answer
    /// in any case.
    fn guard(&self, requests: &[(RequestHeader, &FuseDevice)], work: impl FnOnce(&mut bool) -> io::Result<()>) {
        let mut has_begun = false;
        let failed = match catch_unwind(AssertUnwindSafe(|| work(&mut has_begun))) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("the kernel did not take a reply: {error}"),
            Err(_) => {
                let cause = requests.first().map_or_else(String::new, |(header, _)| {
                    format!("a bug: the daemon panicked at request {} of inode {}", header.opcode, header.node)
                });
                if has_begun {
                    // The state of the unfinished request is unknown, so the pool may promise nothing from here on.
                    self.door.stop(&cause);
                }
                cause
            }
        };
        for (header, device) in requests.iter().filter(|(_, device)| device.is_connected()) {
            onefold_pool::about_to_wait();
            self.log.error(&format!("request {} of inode {}: {failed}", header.opcode, header.node));
            // If the request was answered before the failure, the kernel does not know it any more.
            let _ = device.reply(header.unique, libc::EIO, &[]);
        }
    }
}
