//! Sessions of multicast: one for each image that machines have joined, with a thread that sends.
//!
//! | part       | is                                                                 |
//! |------------|--------------------------------------------------------------------|
//! | `session`  | the thread of one session: opens requests, seals and sends packets |
//! | `builders` | the threads that build its chunks                                  |
//! | `joins`    | the latest joins, none of which counts twice                       |
//! | `shares`   | the share of each image of the maximum rate                        |

mod builders;
mod joins;
mod session;
mod shares;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use onefold_block::Random;
use onefold_block::random::SystemRandom;
use onefold_image::archive::ImageRecord;
use onefold_image::format::multicast::{
    CHUNKS_MAX, HEADER_BYTES, JoinReply, RepairCode, SessionId, TAG_BYTES, body_bytes_max, symbol_bytes_for,
};
use onefold_image::multicast::{SenderSettings, SessionStart};
use onefold_image::{ImageName, ImageVersion, UnitName};
use parking_lot::Mutex;

use super::network::network_of;
use super::state::ServerState;
use crate::NetError;
use crate::multicast::{
    GroupRoute, JOIN_BYTES, JOIN_REQUEST_BYTES, KeySource, MulticastKey, ServerSocket, address_of, mtu_bytes,
};
use crate::report::SessionStatus;

use joins::LatestJoins;
use session::{Join, Session, SessionFigures};
use shares::{RateShare, RateShares};

/// Number of images that are sent at the same time. Machines get others over HTTP.
pub const SESSIONS_MAX: u8 = 4;
/// Machines of one session. Further ones are served over HTTP.
const CLIENTS_MAX: u32 = 4096;
/// Divisor for the share of the memory that the built chunks of one session get.
const CACHE_SHARE: usize = 32;
/// How long the sending thread may take to answer a join.
const JOIN_PATIENCE: Duration = Duration::from_secs(2);

/// How images are sent by multicast.
#[derive(Clone, Debug)]
pub struct MulticastOptions {
    /// The group and the UDP port of the first session. Each further one has the next group and the next port. The
    /// server sends from, and receives requests at, the same port.
    pub group: SocketAddrV4,
    /// How many routers packets may cross, plus one.
    pub ttl: u8,
    /// Bytes of UDP payload that all sessions together send per second at most.
    pub rate_bytes_per_second: NonZeroU64,
    /// Bytes of UDP payload per second below which losses do not slow a session.
    pub rate_floor_bytes_per_second: NonZeroU64,
    /// Images whose share of the rate is not that of others, 1.
    pub weights: Vec<(ImageName, NonZeroU32)>,
    /// The key that clients of a server without TLS have, too. Over TLS the server hands out keys of its own, and there
    /// is none.
    pub key: Option<MulticastKey>,
    /// How long a session waits for machines before it sends chunks; `None` if it does not.
    pub start: Option<SessionStart>,
    /// The repair symbols that are sent to machines that have lost others.
    pub repairs: RepairCode,
}

/// Why a machine may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinRefusal {
    /// The body of its request has another length.
    Length,
    /// It does not prove that it has the key, or repeats an earlier request.
    Proof,
}

/// A request to join that may be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinRequest {
    /// Random bytes of a machine that has the key in a file, else zeros.
    random: [u8; JOIN_BYTES],
    address: IpAddr,
}

impl MulticastOptions {
    /// Returns the group of a session, unless there is none that far behind the first one.
    fn group_of(&self, place: u8) -> Option<SocketAddrV4> {
        let group = Ipv4Addr::from(u32::from(*self.group.ip()).checked_add(place.into())?);
        let port = self.group.port().checked_add(place.into())?;
        group.is_multicast().then(|| SocketAddrV4::new(group, port))
    }

    /// Returns the way of a session's packets that leave by the interface with an address.
    fn route(&self, source: Ipv4Addr, place: u8) -> Option<GroupRoute> {
        let group = self.group_of(place)?;
        Some(GroupRoute { group, source: SocketAddrV4::new(source, group.port()), ttl: self.ttl })
    }

    /// Returns the weight of an image.
    fn weight(&self, image: &ImageName) -> NonZeroU32 {
        let weight = self.weights.iter().rfind(|(name, _)| name == image);
        weight.map_or(NonZeroU32::MIN, |(_, weight)| *weight)
    }
}

/// All sessions of a server.
pub(super) struct Sessions {
    options: MulticastOptions,
    /// Address of the interface that packets leave by.
    source: Ipv4Addr,
    symbol_bytes: u16,
    cache_bytes: usize,
    keys: KeySource,
    /// Start of the server: with it and a session's number, no session has the keys of an earlier one.
    epoch: u64,
    running: Mutex<Running>,
    shares: Arc<RateShares>,
    latest_joins: Mutex<LatestJoins>,
    is_stopped: AtomicBool,
}

struct Running {
    /// Number of the last session. It begins at random, so that clients tell sessions of an earlier start apart.
    last: u32,
    /// By the digest of the image's manifest.
    sessions: HashMap<[u8; 32], SessionHandle>,
}

struct SessionHandle {
    /// Which of the groups it uses.
    place: u8,
    image: ImageVersion,
    group: SocketAddrV4,
    figures: Arc<Mutex<SessionFigures>>,
    joins: mpsc::SyncSender<Join>,
}

impl SessionHandle {
    fn status(&self) -> SessionStatus {
        let SessionFigures { status, ceiling } = *self.figures.lock();
        SessionStatus {
            image: self.image.to_string(),
            group: self.group.to_string(),
            rate_bytes_per_second: status.rate_bytes_per_second.min(ceiling).get(),
            ceiling_bytes_per_second: ceiling.get(),
            machines: status.machines,
            excluded_machines: status.excluded,
            is_waiting: status.is_waiting,
        }
    }
}

impl Sessions {
    /// Prepares sessions that leave by an interface.
    ///
    /// # Errors
    /// When the interface has no IPv4 address, there are not enough groups, or another program has one of the ports.
    pub(super) fn new(options: MulticastOptions, interface: &str, memory_bytes: usize) -> Result<Sessions, NetError> {
        let cannot = |source| NetError::Multicast { interface: interface.to_owned(), source };
        if options.group_of(SESSIONS_MAX - 1).is_none() || !options.group.ip().is_multicast() {
            let what = format!("{} and the {} groups behind it are not all multicast", options.group, SESSIONS_MAX - 1);
            return Err(cannot(io::Error::other(what)));
        }
        let source = address_of(interface).map_err(cannot)?;
        let symbol_bytes = symbol_bytes_for(mtu_bytes(source, options.group).map_err(cannot)?);
        // A port that is taken is noticed now rather than when the first machine joins.
        for route in (0..SESSIONS_MAX).filter_map(|place| options.route(source, place)) {
            open_socket(route, symbol_bytes).map_err(cannot)?;
        }
        let (mut epoch, mut last) = ([0; 8], [0; 4]);
        let random = Arc::new(SystemRandom);
        random.fill(&mut epoch).and_then(|()| random.fill(&mut last)).map_err(cannot)?;
        let keys = options.key.clone().map_or(KeySource::Drawn(random), KeySource::File);
        let running = Running { last: u32::from_le_bytes(last) / 2, sessions: HashMap::new() };
        Ok(Sessions {
            shares: Arc::new(RateShares::new(options.rate_bytes_per_second)),
            options,
            source,
            symbol_bytes,
            cache_bytes: memory_bytes / CACHE_SHARE,
            keys,
            epoch: u64::from_le_bytes(epoch),
            running: Mutex::new(running),
            latest_joins: Mutex::new(LatestJoins::default()),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Describes from where to which groups packets go, and how fast, for people.
    pub(super) fn text(&self) -> String {
        let last = self.options.group_of(SESSIONS_MAX - 1).unwrap_or(self.options.group);
        let MulticastOptions { group, ttl, rate_bytes_per_second, .. } = &self.options;
        let rate = onefold_block::size::human(rate_bytes_per_second.get());
        format!("from {} to {group} up to {last}, TTL {ttl}, at most {rate} a second", self.source)
    }

    /// Returns the state of all sessions, sorted by image.
    pub(super) fn status(&self) -> Vec<SessionStatus> {
        let running = self.running.lock();
        let mut sessions: Vec<&SessionHandle> = running.sessions.values().collect();
        sessions.sort_by(|one, other| one.image.cmp(&other.image));
        sessions.into_iter().map(SessionHandle::status).collect()
    }

    /// Ends all sessions.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether the image whose manifest has this digest has a session.
    pub(super) fn has(&self, digest: [u8; 32]) -> bool {
        self.running.lock().sessions.contains_key(&digest)
    }

    /// Returns whether machines get keys when they join, and need none in a file.
    pub(super) fn hands_out_keys(&self) -> bool {
        matches!(self.keys, KeySource::Drawn(_))
    }

    /// Examines a request to join the session of an image, which came from an address. Over TLS its body is empty: the
    /// right to the image is what counts. Else it proves that the machine has the key.
    pub(super) fn accept_join(
        &self,
        digest: &[u8; 32],
        body: &[u8],
        address: IpAddr,
    ) -> Result<JoinRequest, JoinRefusal> {
        let address = network_of(address);
        let KeySource::File(key) = &self.keys else {
            let join = JoinRequest { random: [0; JOIN_BYTES], address };
            return if body.is_empty() { Ok(join) } else { Err(JoinRefusal::Length) };
        };
        let request = <[u8; JOIN_REQUEST_BYTES]>::try_from(body).map_err(|_| JoinRefusal::Length)?;
        let random = key.verify_join(digest, &request).filter(|random| self.latest_joins.lock().insert(*random));
        random.map(|random| JoinRequest { random, address }).ok_or(JoinRefusal::Proof)
    }

    /// Has a machine join the session of `image`. If there is none, one begins that sends `chunks`. `None` if there
    /// are too many sessions or machines, or the session has just ended: the machine is served over HTTP then.
    ///
    /// # Errors
    /// When the session's socket cannot be opened, or there are no random bytes for its keys.
    pub(super) fn join(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        image: &ImageRecord,
        chunks: Option<Vec<UnitName>>,
        JoinRequest { random, address }: JoinRequest,
    ) -> io::Result<Option<JoinReply>> {
        let (reply, answer) = mpsc::sync_channel(1);
        {
            let mut running = self.running.lock();
            if !running.sessions.contains_key(&image.digest) {
                let Some(chunks) = chunks else { return Ok(None) };
                let Some(session) = self.begin(&running, state, image, chunks)? else { return Ok(None) };
                running.last += 1;
                running.sessions.insert(image.digest, session);
            }
            // A thread that ends takes its session away under this lock, once no join is left here.
            let Some(session) = running.sessions.get(&image.digest) else { return Ok(None) };
            if session.joins.try_send(Join { random, address, reply }).is_err() {
                return Ok(None);
            }
        }
        Ok(answer.recv_timeout(JOIN_PATIENCE).unwrap_or(None))
    }

    fn begin(
        self: &Arc<Self>,
        running: &Running,
        state: &Arc<ServerState>,
        image: &ImageRecord,
        chunks: Vec<UnitName>,
    ) -> io::Result<Option<SessionHandle>> {
        let is_taken = |place: &u8| running.sessions.values().any(|session| session.place == *place);
        let Some(place) = (0..SESSIONS_MAX).find(|place| !is_taken(place)) else { return Ok(None) };
        let Some(route) = self.options.route(self.source, place) else { return Ok(None) };
        let Some(count) = u32::try_from(chunks.len()).ok().filter(|count| *count <= CHUNKS_MAX) else {
            return Ok(None);
        };
        let number = running.last.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
        let socket = open_socket(route, self.symbol_bytes)?;
        let share = RateShare::new(&self.shares, place, self.options.weight(&image.image.name));
        let settings = SenderSettings {
            session: SessionId(number),
            epoch: self.epoch,
            chunks: count,
            symbol_bytes: self.symbol_bytes,
            rate_bytes_per_second: share.rate(false),
            rate_floor_bytes_per_second: self.options.rate_floor_bytes_per_second,
            cache_bytes: self.cache_bytes,
            clients_max: CLIENTS_MAX,
            repairs: self.options.repairs,
        };
        let (joins, joined) = mpsc::sync_channel(CLIENTS_MAX as usize);
        let keys = self.keys.begin(settings.session, settings.epoch)?;
        let mut session = Session::new(settings, share, route, socket, keys, Arc::clone(state), chunks)?;
        if let Some(start) = self.options.start {
            session.wait_for(start);
        }
        let figures = session.figures();
        let (sessions, digest) = (Arc::clone(self), image.digest);
        std::thread::Builder::new().name("multicast".to_owned()).spawn(move || {
            session.run(&joined, &|| sessions.is_stopped.load(Ordering::Relaxed), &|| sessions.end(digest, &joined));
        })?;
        Ok(Some(SessionHandle { place, image: image.image.clone(), group: route.group, figures, joins }))
    }

    /// Takes a session away, unless a machine is about to join it.
    fn end(&self, digest: [u8; 32], joined: &mpsc::Receiver<Join>) -> Option<Join> {
        let mut running = self.running.lock();
        let waiting = joined.try_recv().ok();
        if waiting.is_none() {
            running.sessions.remove(&digest);
        }
        waiting
    }
}

/// Opens the socket of a session with symbols of this size.
fn open_socket(route: GroupRoute, symbol_bytes: u16) -> io::Result<ServerSocket> {
    let packet_bytes = HEADER_BYTES + body_bytes_max(symbol_bytes) + TAG_BYTES;
    let socket = ServerSocket::open(route, u16::try_from(packet_bytes).unwrap_or(u16::MAX));
    socket.map_err(|error| io::Error::new(error.kind(), format!("UDP port {}: {error}", route.source)))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use onefold_image::format::multicast::ClientNumber;

    use super::*;

    /// Prepares sessions at any ports in a row that are free.
    fn started(key: Option<&MulticastKey>) -> Sessions {
        let options = |port| MulticastOptions {
            group: SocketAddrV4::new(Ipv4Addr::new(239, 192, 113, 1), port),
            ttl: 1,
            rate_bytes_per_second: NonZeroU64::MIN,
            rate_floor_bytes_per_second: NonZeroU64::MIN,
            weights: Vec::new(),
            key: key.cloned(),
            start: None,
            repairs: RepairCode::None,
        };
        let start = |_| {
            let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            Sessions::new(options(port), "lo", 1 << 20).ok()
        };
        (0..100).find_map(start).unwrap()
    }

    /// Even if both starts give a session the same number, and a client the same number and random bytes.
    #[test]
    fn two_starts_of_a_server_have_no_key_in_common() {
        for key in [None, Some(MulticastKey::of_bytes([7; 32]))] {
            let keys = [(); 2].map(|()| {
                let sessions = started(key.as_ref());
                let keys = sessions.keys.begin(SessionId(1), sessions.epoch).unwrap();
                let (client, _) = keys.of_client(ClientNumber(1), &[3; JOIN_BYTES]).unwrap();
                [keys.group().clone(), client]
            });
            let [first, second] = &keys;
            assert!(first.iter().all(|key| !second.contains(key)), "{key:?}");
        }
    }
}
