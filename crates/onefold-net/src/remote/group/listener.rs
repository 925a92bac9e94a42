//! The receiving thread. It opens packets and passes them to the state machine, and never decompresses, reads, writes
//! or waits for HTTP.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onefold_block::random::SystemRandom;
use onefold_image::LackingPart;
use onefold_image::multicast::{HttpReason, Receiver, ReceiverAction, ReceiverSettings, Settlement};
use onefold_linux::DatagramBatch;

use super::arrivals::{ArrivalQueue, Content, RestOverHttp};
use super::join::{Join, JoinError, JoinedSession};
use super::link::{GroupLink, Packet};
use super::{GroupOptions, GroupReport, GroupWay, SharedGroupReport};
use crate::remote::transport::RemoteTransport;

/// Longest time without a look at chunks that were read, and at the end of the installation.
const LOOK: Duration = Duration::from_millis(10);
/// How long the reply to the first join is waited for. A server needs no more than two seconds.
const JOIN_PATIENCE: Duration = Duration::from_secs(10);
/// Batches of packets that are taken before anything else is done.
const BATCHES_MAX: usize = 16;
/// Pause once no packet waits, so that the thread does not wake up for each one. It is shorter where packets would take
/// too much of the socket's buffer meanwhile.
const PAUSE: Duration = Duration::from_micros(500);
/// How often packets and requests are counted for the report.
const COUNT: Duration = Duration::from_millis(500);
/// Chunks that wait to be fetched over HTTP. Others stay open for multicast.
const OVER_HTTP_MAX: usize = 16;

/// The receiving thread. It ends when this is dropped.
pub(super) struct Listener {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The image whose session is joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinedImage {
    /// Digest of its manifest.
    pub(super) digest: [u8; 32],
    /// Whether this machine may have a part of it, so that its chunks are compared before they are requested.
    pub(super) is_compared: bool,
}

impl Listener {
    /// Joins the session of an image and begins to receive. `None` if the server does not send the image by multicast,
    /// or the group cannot be joined; the reason has been told then.
    pub(super) fn start(
        http: &Arc<RemoteTransport>,
        image: JoinedImage,
        options: &GroupOptions,
        queue: &Arc<ArrivalQueue>,
        report: &SharedGroupReport,
    ) -> Option<Listener> {
        let note = |text: &str| {
            (options.on_note)(text);
            None
        };
        let (answers, joined) = mpsc::channel();
        let join = Join { http: Arc::clone(http), digest: image.digest, key: options.key.clone(), answers };
        if let Err(error) = join.begin() {
            return note(&format!("no random bytes ({error}): the image comes over HTTP"));
        }
        let Ok(session) = joined.recv_timeout(JOIN_PATIENCE) else {
            return note("the server does not answer the join: the image comes over HTTP");
        };
        let session = match session {
            Ok(session) => session,
            Err(error) => return note(&join_complaint(&error, options.key.is_some())),
        };
        if session.reply.chunks as usize != queue.chunks() {
            return note("the server's reply to a join is for another image: this one comes over HTTP");
        }
        let link = match GroupLink::open(session) {
            Ok(link) => link,
            Err(error) => return note(&format!("cannot join the group ({error}): the image comes over HTTP")),
        };
        let way = link.way();
        (options.on_note)(&format!("listening to {}{}", link.text(), details(&way)));
        report.lock().way = Some(way);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let settings = ReceiverSettings { chunks: link.reply.chunks, memory_bytes: options.memory_bytes };
        let mut receiver = Receiver::new(settings, Arc::new(SystemRandom), Duration::ZERO);
        if image.is_compared {
            receiver.expect_comparison();
        }
        receiver.joined(link.reply.clone(), Duration::ZERO);
        let work = ListenerThread {
            batch: link.batch(),
            link,
            receiver,
            queue: Arc::clone(queue),
            options: options.clone(),
            report: Arc::clone(report),
            join,
            joined,
            began: Instant::now(),
            counted: GroupReport::default(),
            counted_at: Instant::now(),
            is_joining: false,
            is_http: false,
            is_finished: false,
            has_failed: false,
        };
        report.lock().is_arriving = true;
        let stopped = Arc::clone(&is_stopped);
        let thread = std::thread::Builder::new().name("multicast".to_owned()).spawn(move || work.run(&stopped));
        match thread {
            Ok(thread) => Some(Listener { is_stopped, thread: Some(thread) }),
            Err(error) => {
                report.lock().is_arriving = false;
                note(&format!("cannot start a thread ({error}): the image comes over HTTP"))
            }
        }
    }
}

/// State of the receiving thread.
struct ListenerThread {
    link: GroupLink,
    batch: DatagramBatch,
    receiver: Receiver,
    queue: Arc<ArrivalQueue>,
    options: GroupOptions,
    report: SharedGroupReport,
    join: Join,
    joined: mpsc::Receiver<Result<JoinedSession, JoinError>>,
    began: Instant,
    /// The part of the report that was counted last, and when.
    counted: GroupReport,
    counted_at: Instant,
    is_joining: bool,
    is_http: bool,
    is_finished: bool,
    has_failed: bool,
}

impl ListenerThread {
    /// Receives until all chunks are there, or the installation ends.
    fn run(mut self, is_stopped: &AtomicBool) {
        let _rest = RestOverHttp(Arc::clone(&self.queue));
        while !is_stopped.load(Ordering::Relaxed) && !self.is_finished {
            for chunk in self.queue.settled() {
                self.receiver.settle(chunk, Settlement::Present);
            }
            self.spare();
            while let Ok(session) = self.joined.try_recv() {
                self.is_joining = false;
                if let Ok(session) = session {
                    self.rejoin(session);
                }
            }
            let now = self.began.elapsed();
            while let Some(action) = self.receiver.next_action(now) {
                self.act(action);
            }
            self.claim();
            if self.counted_at.elapsed() >= COUNT {
                self.count();
            }
            let next = self.receiver.next_time().map_or(LOOK, |next| next.saturating_sub(self.began.elapsed()));
            if let Err(error) = self.receive(next.min(LOOK)) {
                self.fail(&error);
            }
        }
        self.link.leave();
        self.count();
    }

    /// Takes packets, and the chunks that they complete.
    fn receive(&mut self, mut patience: Duration) -> io::Result<()> {
        for _ in 0..BATCHES_MAX {
            let (receiver, began) = (&mut self.receiver, self.began);
            let has_come = self.link.receive(&mut self.batch, patience, |packet| {
                // A packet of no use changes nothing.
                let _ = match packet {
                    Packet::Opened(header, body) => receiver.packet(header, body, began.elapsed()),
                    Packet::OfOtherSession(header) => receiver.packet(header, &[], began.elapsed()),
                };
            })?;
            if !has_come {
                // Without any packets, it has waited for one.
                if patience.is_zero() {
                    std::thread::sleep(PAUSE.min(self.link.pause_max()));
                }
                break;
            }
            patience = Duration::ZERO;
        }
        Ok(())
    }

    fn act(&mut self, action: ReceiverAction) {
        match action {
            ReceiverAction::Send(mut datagram) => self.link.send(&mut datagram),
            ReceiverAction::Take { chunk, content } => {
                self.report.lock().chunks += 1;
                self.queue.push(Content::Received(chunk, content));
            }
            ReceiverAction::FetchByHttp { chunk } => self.fetch(chunk),
            ReceiverAction::UseHttp(reason) => {
                self.is_http = true;
                let counts = self.receiver.counts();
                let reason = told_reason(reason, counts.useful_bytes + counts.repeated_bytes);
                self.note_way(Some(reason));
                (self.options.on_note)(&self.complaint(reason));
            }
            ReceiverAction::UseMulticast => {
                self.is_http = false;
                self.note_way(None);
                (self.options.on_note)(&format!("{} arrives again", self.link.text()));
            }
            // The reply to an overlapping join would be another number, which nobody uses.
            ReceiverAction::Join if self.is_joining => {}
            // Without random bytes there is no join, and the action comes again.
            ReceiverAction::Join => self.is_joining = self.join.begin().is_ok(),
            ReceiverAction::Finish => self.is_finished = true,
        }
    }

    /// Notes for the report on which way the rest comes.
    fn note_way(&self, http_reason: Option<HttpReason>) {
        let mut report = self.report.lock();
        (report.is_arriving, report.http_reason) = (http_reason.is_none(), http_reason);
    }

    /// Describes why multicast does not arrive.
    fn complaint(&self, reason: HttpReason) -> String {
        let (way, interface) = (self.link.text(), &self.link.interface);
        let (_, forged) = self.link.refused();
        let text = match reason {
            HttpReason::NothingArrives if forged > 0 => {
                format!("{way} is not sealed under the key of this session: does another program send there?")
            }
            HttpReason::NothingArrives => format!("{way} does not arrive on {interface}: is there an IGMP querier?"),
            HttpReason::Unheard => {
                let port = self.link.reply.request_port;
                format!("{way}: the server hears no request of this machine: does a firewall drop UDP to port {port}?")
            }
            HttpReason::Waiting => format!("{way}: a new session waits for other machines."),
            HttpReason::Excluded => {
                format!("{way} loses far more packets on {interface} than on the way to other machines.")
            }
            HttpReason::NoSymbols => {
                format!("{way} arrives on {interface} in part: is the MTU on the way smaller than the server's?")
            }
            HttpReason::Silence => format!("{way} has fallen silent on {interface}."),
        };
        format!("{text} Going on over HTTP")
    }

    /// Has the chunks that lack little fetched over HTTP, unit by unit.
    fn spare(&mut self) {
        for (chunk, LackingPart { lacking_bytes, bytes }) in self.queue.compared() {
            if self.receiver.compared(chunk, lacking_bytes, bytes, self.began.elapsed()) {
                self.report.lock().spared_chunks += 1;
                self.queue.push(Content::OverHttp(chunk));
            }
        }
    }

    fn fetch(&mut self, chunk: u32) {
        self.queue.push(Content::OverHttp(chunk));
    }

    /// Has the next lacking chunks fetched over HTTP while multicast does not arrive.
    fn claim(&mut self) {
        if !self.is_http {
            return;
        }
        for _ in self.queue.waiting_over_http()..OVER_HTTP_MAX {
            match self.receiver.claim(0) {
                Some(chunk) => self.fetch(chunk),
                None => break,
            }
        }
    }

    /// Continues with the reply to another join. If its sockets cannot be opened, nothing changes, and the next join is
    /// due later.
    fn rejoin(&mut self, session: JoinedSession) {
        if session.reply.chunks as usize != self.queue.chunks() {
            return;
        }
        let reply = session.reply.clone();
        match self.link.reopen(session) {
            Ok(()) => {
                self.batch = self.link.batch();
                self.report.lock().way = Some(self.link.way());
                self.receiver.joined(reply, self.began.elapsed());
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Tells of the first of several failures in a row, and waits, so that the next ones take no processor.
    fn fail(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            (self.options.on_note)(&format!("{} fails on {}: {error}", self.link.text(), self.link.interface));
        }
        std::thread::sleep(LOOK);
    }

    /// Adds what came since the last count to the report.
    fn count(&mut self) {
        let counts = self.receiver.counts();
        let counted = GroupReport {
            received_packets: counts.received,
            sent_packets: counts.expected,
            refused_packets: self.link.refused().0,
            dropped_chunks: counts.dropped_chunks,
            requests: counts.requests,
            requested_symbols: counts.requested_symbols,
            repeated_bytes: counts.repeated_bytes,
            ..GroupReport::default()
        };
        self.report.lock().add_since(&counted, &self.counted);
        (self.counted, self.counted_at) = (counted, Instant::now());
    }
}

/// Describes why the session of an image cannot be used, with or without a key of a file.
fn join_complaint(error: &JoinError, has_key: bool) -> String {
    match (error, has_key) {
        (JoinError::NoReply, false) => {
            "the server does not send this image by multicast now: it comes over HTTP".into()
        }
        (JoinError::NoReply, true) => {
            "the server does not send this image by multicast, or has another --multicast-key: it comes over HTTP"
                .into()
        }
        (JoinError::Format(_) | JoinError::Keys, _) => format!("cannot join ({error}): the image comes over HTTP"),
    }
}

/// Returns the rest of the way of packets, for people.
fn details(way: &GroupWay) -> String {
    let GroupWay { interface, group, ttl, is_source_specific, .. } = way;
    let membership = if *is_source_specific { "source-specific" } else { "any source" };
    format!(", UDP port {}, TTL {ttl}, on {interface} ({membership})", group.port())
}

/// Returns why multicast does not arrive, for people. Where only small packets pass, the server sees the loss of all
/// others before the machine has waited long enough for one.
fn told_reason(reason: HttpReason, symbol_bytes: u64) -> HttpReason {
    match reason {
        HttpReason::Excluded if symbol_bytes == 0 => HttpReason::NoSymbols,
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use onefold_image::format::FormatError;

    use super::*;

    #[test]
    fn a_reply_of_another_version_is_the_cause_of_http() {
        let version = FormatError::Newer { structure: "reply to a join", version: 1, features: 4 };
        let text = join_complaint(&JoinError::Format(version), true);
        assert!(text.contains("the reply to a join has version 1 ") && text.ends_with("comes over HTTP"), "{text}");
        assert!(join_complaint(&JoinError::NoReply, true).contains("--multicast-key"));
    }

    #[test]
    fn a_machine_that_got_no_symbol_is_told_of_the_mtu_though_it_is_excluded() {
        assert_eq!(told_reason(HttpReason::Excluded, 0), HttpReason::NoSymbols);
        assert_eq!(told_reason(HttpReason::Excluded, 1), HttpReason::Excluded);
        assert_eq!(told_reason(HttpReason::Unheard, 0), HttpReason::Unheard);
    }
}
