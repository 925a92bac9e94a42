//! The machines of a session: what each has requested last. Bounded for each machine, and in number.

use std::collections::BTreeMap;
use std::time::Duration;

use super::loss::LossWindow;
use crate::format::multicast::{ClientNumber, IndexSet, Request};
use crate::multicast::demand::CountedRequest;
use crate::multicast::rate::quorum;
use crate::multicast::rules::{Rule, follows};
use crate::multicast::timing::{UNHEARD_AFTER, client_silence};

/// Requests of one machine that are accepted per second. A machine that follows the protocol stays far below.
const CLIENT_REQUESTS_PER_SECOND: u32 = 30;
/// How long a machine has a much larger loss than others before it is excluded.
const EXCLUDED_AFTER: Duration = Duration::from_secs(2);
/// Divisor for the share of packets that may be late rather than lost.
const LATE_DIVISOR: u64 = 1000;
/// Requests of all machines that are accepted per second.
const REQUESTS_PER_SECOND: u32 = 2000;

/// A machine of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its number.
    pub client: ClientNumber,
    /// Chunks that it lacks; `None` before its first request.
    pub left: Option<u32>,
    /// Datagrams of the server that it has received.
    pub received: u64,
    /// Datagrams that the server sent since it joined.
    pub expected: u64,
    /// Time since its last request, or since it joined.
    pub silent: Duration,
}

/// The machines of a session.
#[derive(Debug)]
pub(super) struct Clients {
    clients: BTreeMap<ClientNumber, Client>,
    last: ClientNumber,
    clients_max: u32,
    limit: RequestLimit,
    /// Sequence number from which on losses count.
    losses_since: u64,
}

#[derive(Debug)]
struct Client {
    /// Time of the last request, or of the join.
    heard: Duration,
    /// Time at which the machine is forgotten: it knew of so many machines when it was heard.
    expires: Duration,
    limit: RequestLimit,
    seen: u64,
    left: Option<u32>,
    received: u64,
    expected: u64,
    losses: LossWindow,
    /// Whether the machine is to fetch the rest over HTTP.
    is_excluded: bool,
    request: Option<CountedRequest>,
}

/// A limit on requests per second. After a pause, those of one second may come at once.
#[derive(Clone, Copy, Debug)]
struct RequestLimit {
    per_second: u32,
    /// Time at which all requests so far are paid for.
    paid_at: Duration,
}

impl RequestLimit {
    fn takes(&mut self, now: Duration) -> bool {
        let start = self.paid_at.max(now.saturating_sub(Duration::from_secs(1)));
        if start > now {
            return false;
        }
        self.paid_at = start + Duration::from_secs(1) / self.per_second;
        true
    }
}

impl Client {
    /// Returns whether the machine lacks chunks and gets them by multicast.
    fn is_lacking(&self) -> bool {
        self.left != Some(0) && !self.is_excluded
    }

    /// Returns whether the losses of the machine can be known: a packet has reached it, or it has not reported yet.
    fn is_hearing(&self) -> bool {
        self.is_lacking() && (self.left.is_none() || self.expected > 0)
    }

    /// Returns whether the machine has lost more packets than come late.
    fn has_lost(&self) -> bool {
        self.expected.saturating_sub(self.received) > self.expected / LATE_DIVISOR
    }
}

impl Clients {
    pub(super) fn new(clients_max: u32) -> Clients {
        let limit = RequestLimit { per_second: REQUESTS_PER_SECOND, paid_at: Duration::ZERO };
        Clients { clients: BTreeMap::new(), last: ClientNumber(0), clients_max, limit, losses_since: 0 }
    }

    /// Adds a machine. Returns `None` if there are too many.
    pub(super) fn join(&mut self, now: Duration) -> Option<ClientNumber> {
        let number = ClientNumber(self.last.0.checked_add(1)?);
        self.insert(number, now).then(|| {
            self.last = number;
            number
        })
    }

    /// Adds a machine. Returns false if there are too many.
    fn insert(&mut self, number: ClientNumber, now: Duration) -> bool {
        if self.clients.len() >= self.clients_max as usize {
            return false;
        }
        let limit = RequestLimit { per_second: CLIENT_REQUESTS_PER_SECOND, paid_at: Duration::ZERO };
        let expires = now + client_silence(self.lacking() + 1);
        let client = Client {
            heard: now,
            expires,
            limit,
            seen: 0,
            left: None,
            received: 0,
            expected: 0,
            losses: LossWindow::default(),
            is_excluded: false,
            request: None,
        };
        self.clients.insert(number, client);
        true
    }

    /// Removes a machine, and returns its request.
    pub(super) fn leave(&mut self, client: ClientNumber) -> Option<CountedRequest> {
        self.clients.remove(&client)?.request
    }

    /// Notes the figures of a request. Returns false if the request does not count: the machine never joined, requests
    /// too often, or a later request of it came before. A machine that was forgotten is back with its request.
    pub(super) fn accept(&mut self, client: ClientNumber, request: &Request, now: Duration) -> bool {
        if !self.clients.contains_key(&client) && (client > self.last || !self.insert(client, now)) {
            return false;
        }
        let silence = client_silence(self.lacking());
        let Some(client) = self.clients.get_mut(&client) else { return false };
        if request.seen < client.seen || !client.limit.takes(now) || !self.limit.takes(now) {
            return false;
        }
        (client.heard, client.expires) = (now, now + silence);
        client.seen = request.seen;
        client.left = Some(request.left);
        (client.received, client.expected) = (request.received, request.expected);
        client.losses.note(request, self.losses_since, now);
        true
    }

    /// Excludes machines that have lost much for a while, unless so many do that the rate falls, or no other machine
    /// hears the sender. Returns their requests.
    pub(super) fn exclude(&mut self) -> Vec<CountedRequest> {
        let hearing = self.hearing();
        let lossy = self.clients.values().filter(|client| client.is_lacking() && client.losses.is_large()).count();
        let are_few = lossy < quorum(hearing) && lossy < usize::try_from(hearing).unwrap_or(usize::MAX);
        if !are_few || !follows(Rule::LossyExcluded) {
            return Vec::new();
        }
        let is_long = |client: &Client| client.losses.large_for().is_some_and(|time| time >= EXCLUDED_AFTER);
        let lossy = self.clients.values_mut().filter(|client| client.is_lacking() && is_long(client));
        let exclude = |client: &mut Client| {
            client.is_excluded = true;
            client.request.take()
        };
        lossy.filter_map(exclude).collect()
    }

    /// Returns whether the requests of a machine count: it is not excluded, or no other machine hears the
    /// sender.
    pub(super) fn is_served(&mut self, client: ClientNumber) -> bool {
        let others = self.hearing();
        let Some(client) = self.clients.get_mut(&client) else { return false };
        client.is_excluded &= others > 0;
        !client.is_excluded
    }

    /// Returns the machines that are excluded.
    pub(super) fn excluded(&self) -> IndexSet {
        self.clients.iter().filter(|(_, client)| client.is_excluded).map(|(number, _)| number.0).collect()
    }

    /// Returns the machines that joined some time ago, and from which no request has come.
    pub(super) fn unheard(&self, now: Duration) -> IndexSet {
        let is_unheard = |client: &Client| client.left.is_none() && now.saturating_sub(client.heard) >= UNHEARD_AFTER;
        self.clients.iter().filter(|(_, client)| is_unheard(client)).map(|(number, _)| number.0).collect()
    }

    /// Returns whether at most one of the machines has lost packets.
    pub(super) fn are_losses_of_one(&self) -> bool {
        let has_lost = |client: &&Client| client.is_lacking() && client.has_lost();
        self.clients.values().filter(has_lost).take(2).count() < 2
    }

    /// Returns the losses of the machines that have reported some, in parts of a million.
    pub(super) fn losses(&self) -> Vec<u32> {
        self.clients.values().filter(|client| client.is_lacking()).filter_map(|client| client.losses.loss()).collect()
    }

    /// Has the machines report losses again.
    pub(super) fn forget_losses(&mut self) {
        self.clients.values_mut().for_each(|client| client.losses.forget());
    }

    /// Has losses count from this sequence number on only.
    pub(super) fn begin_losses(&mut self, sequence: u64) {
        self.losses_since = sequence;
        self.clients.values_mut().for_each(|client| client.losses.begin_anew());
    }

    /// Replaces the request of a machine.
    pub(super) fn replace_request(
        &mut self,
        client: ClientNumber,
        request: Option<CountedRequest>,
    ) -> Option<CountedRequest> {
        let client = self.clients.get_mut(&client)?;
        std::mem::replace(&mut client.request, request)
    }

    /// Removes machines that have been silent for too long, and returns their requests.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<CountedRequest> {
        // If fewer machines lack chunks than before, beacons say so, and all of them send requests more often. If more
        // do, they send requests less often.
        let silence = client_silence(self.lacking());
        let has_expired = |client: &mut Client| {
            client.expires = client.expires.max(client.heard + silence).min(now + silence);
            now >= client.expires
        };
        self.clients.extract_if(.., |_, client| has_expired(client)).filter_map(|(_, client)| client.request).collect()
    }

    /// Returns how many machines lack chunks, or have not said yet, without those that are excluded.
    pub(super) fn lacking(&self) -> u32 {
        let count = self.clients.values().filter(|client| client.is_lacking()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns how many of these machines packets reach, as far as they have said. Machines that multicast does not
    /// reach lose nothing, and take nothing.
    pub(super) fn hearing(&self) -> u32 {
        let count = self.clients.values().filter(|client| client.is_hearing()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns all machines.
    pub(super) fn status(&self, now: Duration) -> impl Iterator<Item = ClientStatus> + '_ {
        self.clients.iter().map(move |(number, client)| ClientStatus {
            client: *number,
            left: client.left,
            received: client.received,
            expected: client.expected,
            silent: now.saturating_sub(client.heard),
        })
    }
}
