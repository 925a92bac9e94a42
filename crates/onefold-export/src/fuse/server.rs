//! Answering requests, on any number of threads.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BufferPool, Polling};

use super::device::FuseDevice;
use super::door::{Door, Gathered};
use super::filesystem::PoolFilesystem;
use super::held_replies::HeldReplies;
use super::lead::{Lead, Leader};
use super::open_files::OpenFiles;
use super::protocol::{Abilities, Header, Operation, WriteHead};
use crate::log::Log;
use crate::options::MountOptions;

/// Largest request: 256 blocks that are hashed side by side. It is what the kernel allows without a sysctl.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Where the data of a write come to lie in a buffer: at a page, so that they go to the device as they are.
const DATA_START: usize = BLOCK_BYTES;
pub(super) const REQUEST_START: usize = DATA_START - WriteHead::DATA_OFFSET;
/// Blocks of a buffer: what comes before the data, the data, and the rest of the longest other request.
const BUFFER_BLOCKS: usize = 2 + REQUEST_BYTES_MAX as usize / BLOCK_BYTES;
/// Writes up to this length are copied into buffers of their own size.
const SMALL_BYTES_MAX: usize = 64 << 10;
const SMALL_BUFFERS_BYTES_MAX: usize = 2 << 20;

/// Accepted blocks that a brief request may find before it. Where there are more, it may have to hash and store them.
const FEW_BLOCKS: usize = 16;

/// Reads that one thread answers together: half of what a queue of 32 has, so that another thread has the other half.
const GATHERED_MAX: usize = 16;

/// What a request asks of the thread that has received it.
enum Received<'d> {
    /// To read: alone, or together with others.
    Read(Gathered<'d>),
    /// To do what takes a few microseconds, but for waits.
    Brief,
    /// To do what takes longer: another thread receives meanwhile.
    Long,
}

/// Answers requests.
pub(super) struct Server {
    door: Door,
    has_long_setxattr: bool,
    log: Arc<dyn Log>,
    lead: Arc<Lead>,
    /// Of waits for the request after one that was answered from memory.
    polling: Polling,
    buffers: BufferPool,
    small_buffers: BufferPool,
    block_buffers: BufferPool,
}

impl Server {
    /// Returns a server of what was agreed on with the kernel.
    pub(super) fn new(filesystem: PoolFilesystem, options: &MountOptions, agreed: Abilities) -> Server {
        // A thread has one of its own; half as many again wait with the data of accepted writes.
        let buffers = options.threads.get().min(MountOptions::THREADS_MAX).div_ceil(2) * 3;
        Server {
            door: Door::new(filesystem, options, agreed),
            has_long_setxattr: agreed.has(Abilities::SETXATTR_EXT),
            log: options.log.clone(),
            lead: Arc::default(),
            polling: Polling::new(options.processors.clone(), options.clock.clone()),
            buffers: BufferPool::new(BUFFER_BLOCKS, buffers * BUFFER_BLOCKS * BLOCK_BYTES),
            small_buffers: BufferPool::new(SMALL_BYTES_MAX / BLOCK_BYTES, SMALL_BUFFERS_BYTES_MAX),
            block_buffers: BufferPool::new(1, SMALL_BUFFERS_BYTES_MAX),
        }
    }

    /// Tells the log of something that went wrong.
    pub(super) fn warn(&self, what: &str) {
        self.log.error(what);
    }

    /// Returns the replies that wait for the kernel to drop pages, and the register that knows which.
    pub(super) fn held_replies(&self) -> (Arc<HeldReplies>, Arc<OpenFiles>) {
        self.door.held_replies()
    }

    /// Answers requests until the connection ends.
    ///
    /// # Errors
    /// When no more can be received.
    pub(super) fn serve(&self, device: &FuseDevice) -> io::Result<()> {
        // Without it, as on an odd kernel, each request is answered by itself.
        let impatient = device.try_clone_impatient().ok();
        let mut buffer = self.buffers.take();
        let leader = Rc::new(Leader::new(self.lead.clone()));
        let _notice = onefold_pool::notice_waits({
            let leader = leader.clone();
            move || leader.pass()
        });
        loop {
            // A thread that has waited meanwhile, or has just got the lead, need not poll: it sleeps in the device.
            let looking = impatient.as_ref().filter(|_| leader.has_lead());
            leader.take();
            let Some((bytes, device)) = self.receive(&mut buffer, device, looking)? else { return Ok(()) };
            match self.look_at(&buffer, bytes, device) {
                Received::Read(first) => self.answer_gathered(&leader, first, &mut buffer, impatient.as_ref())?,
                Received::Brief => self.answer(&mut buffer, bytes, device)?,
                Received::Long => {
                    leader.pass();
                    self.answer(&mut buffer, bytes, device)?;
                }
            }
        }
    }

    /// Receives a request, and returns its length and the descriptor that it came from, or nothing once the connection has
    /// ended. Looks for it on `impatient`, if given, before it sleeps.
    fn receive<'d>(
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

    /// Returns what a request in `buffer` asks of the thread that has received it.
    fn look_at<'d>(&self, buffer: &AlignedBuffer, bytes: usize, device: &'d FuseDevice) -> Received<'d> {
        // What is not understood is soon answered.
        let Ok((header, body)) = Header::decode(&buffer[REQUEST_START..REQUEST_START + bytes]) else {
            return Received::Brief;
        };
        match Operation::decode(&header, body, self.has_long_setxattr) {
            Ok(Operation::Read(read)) => Received::Read(Gathered { header, read, device }),
            Ok(operation) if !self.is_brief(&operation) => Received::Long,
            _ => Received::Brief,
        }
    }

    /// Tells whether answering takes a few microseconds as a rule, but for waits.
    fn is_brief(&self, operation: &Operation<'_>) -> bool {
        // Most verbs wait for accepted writes, and carry them out where nobody has begun.
        operation.is_brief() && (!operation.waits_for_writes() || self.door.blocks_behind() <= FEW_BLOCKS)
    }

    /// Answers a read, and what else is there at the same time, as far as it is reads.
    fn answer_gathered<'d>(
        &self,
        leader: &Leader,
        first: Gathered<'d>,
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
        match other {
            Some(bytes) => self.answer(buffer, bytes, impatient),
            None => Ok(()),
        }
    }

    /// Takes what reads are there at the same time as a first one, up to as many bytes as one request has: their waits for
    /// the device are to overlap. Nobody waits for more to come. Returns them, and the length of another request that came
    /// instead, in `buffer`.
    fn gather<'d>(
        &self,
        buffer: &mut AlignedBuffer,
        first: Gathered<'d>,
        impatient: &'d FuseDevice,
    ) -> io::Result<(Vec<Gathered<'d>>, Option<usize>)> {
        let mut room = (REQUEST_BYTES_MAX as usize).saturating_sub(first.room());
        let mut reads = vec![first];
        while reads.len() < GATHERED_MAX {
            let Some(bytes) = impatient.receive_more(&mut buffer[REQUEST_START..])? else { break };
            match self.look_at(buffer, bytes, impatient) {
                Received::Read(read) if read.room() <= room => {
                    room -= read.room();
                    reads.push(read);
                }
                _ => return Ok((reads, Some(bytes))),
            }
        }
        Ok((reads, None))
    }

    fn answer_reads(&self, reads: &[Gathered<'_>]) {
        let requests: Vec<(Header, &FuseDevice)> = reads.iter().map(|read| (read.header, read.device)).collect();
        self.guard(&requests, |has_begun| {
            *has_begun = true;
            match reads {
                [read] => self.door.answer(&read.header, Operation::Read(read.read), read.device),
                _ => self.door.answer_reads(reads),
            }
        });
    }

    /// Takes the data of a write out of the buffer that it came in. Much is not copied: the next request comes into another
    /// buffer.
    fn take_data(&self, buffer: &mut AlignedBuffer, range: Range<usize>) -> (AlignedBuffer, Range<usize>) {
        if range.len() > SMALL_BYTES_MAX {
            return (std::mem::replace(buffer, self.buffers.take()), range);
        }
        let shelf = if range.len() <= BLOCK_BYTES { &self.block_buffers } else { &self.small_buffers };
        let mut data = shelf.take();
        data[..range.len()].copy_from_slice(&buffer[range.clone()]);
        (data, 0..range.len())
    }

    /// Answers one request, `bytes` long, in `buffer`, which may be another one afterwards. Whatever happens, whoever
    /// waits for it gets an answer.
    ///
    /// # Errors
    /// When the request has no header: nobody can be answered, and what comes next can't be trusted either.
    pub(super) fn answer(&self, buffer: &mut AlignedBuffer, bytes: usize, device: &FuseDevice) -> io::Result<()> {
        let request = REQUEST_START..REQUEST_START + bytes;
        let (header, _) = Header::decode(&buffer[request.clone()])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.guard(&[(header, device)], |has_begun| {
            let (header, body) = Header::decode(&buffer[request.clone()])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let Ok(operation) = Operation::decode(&header, body, self.has_long_setxattr) else {
                return device.reply(header.unique, libc::EIO, &[]);
            };
            *has_begun = true;
            match &operation {
                Operation::Write(write) if DATA_START + write.data.len() == request.end => {
                    let head = write.head;
                    drop(operation);
                    let (data, range) = self.take_data(buffer, DATA_START..request.end);
                    self.door.answer_write(&header, &head, data, range, device)
                }
                _ => self.door.answer(&header, operation, device),
            }
        });
        Ok(())
    }

    /// Answers requests by `work`, which sets its argument when it begins with what they ask. Whatever happens, whoever
    /// waits for one gets an answer.
    fn guard(&self, requests: &[(Header, &FuseDevice)], work: impl FnOnce(&mut bool) -> io::Result<()>) {
        let mut has_begun = false;
        let failed = match catch_unwind(AssertUnwindSafe(|| work(&mut has_begun))) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("the kernel did not take a reply: {error}"),
            Err(_) => {
                let cause = requests.first().map_or_else(String::new, |(header, _)| {
                    format!("a bug: the daemon panicked at request {} of inode {}", header.opcode, header.node)
                });
                if has_begun {
                    // Nobody knows what it left undone: nothing may be promised from here on.
                    self.door.stop(&cause);
                }
                cause
            }
        };
        for (header, device) in requests.iter().filter(|(_, device)| device.is_connected()) {
            onefold_pool::about_to_wait();
            self.log.error(&format!("request {} of inode {}: {failed}", header.opcode, header.node));
            // The kernel does not know this request any more if it was answered before something went wrong.
            let _ = device.reply(header.unique, libc::EIO, &[]);
        }
    }
}
