//! Places for connections: a bounded number in total, and of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// All places of one kind.
#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
    of_client_max: usize,
    clients: Arc<Clients>,
}

/// Number of taken places of each address.
#[derive(Debug, Default)]
struct Clients(Mutex<HashMap<IpAddr, usize>>);

/// One place, until it is dropped.
pub(super) struct Place {
    clients: Arc<Clients>,
    client: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// Returns so many places in total, of which one address may have `of_client_max`.
    pub(super) fn new(all: usize, of_client_max: usize) -> Places {
        Places { free: Arc::new(Semaphore::new(all)), all, of_client_max, clients: Arc::default() }
    }

    /// Returns a place for a client; `None` if it has too many, or all are taken.
    pub(super) fn take(&self, client: IpAddr) -> Option<Place> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        let mut counts = self.clients.0.lock();
        let count = counts.entry(client).or_insert(0);
        if *count >= self.of_client_max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { clients: Arc::clone(&self.clients), client, _permit: permit })
    }

    /// Waits for a place for a client, and looks for one each `pause`.
    pub(super) async fn wait(&self, client: IpAddr, pause: Duration) -> Place {
        loop {
            match self.take(client) {
                Some(place) => return place,
                None => sleep(pause).await,
            }
        }
    }

    /// Waits until no place is taken, for at most `limit`.
    pub(super) async fn all_free(&self, limit: Duration) {
        let all = u32::try_from(self.all).unwrap_or(u32::MAX);
        let _ = timeout(limit, self.free.acquire_many(all)).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.clients.0.lock();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const OF_CLIENT_MAX: usize = 64;

    #[test]
    fn a_client_has_a_bounded_number_of_places_and_gives_them_back() {
        let all = Places::new(OF_CLIENT_MAX + 1, OF_CLIENT_MAX);
        let take = |last: u8| all.take(Ipv4Addr::new(192, 0, 2, last).into());
        let mut places: Vec<Place> = (0..OF_CLIENT_MAX).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none(), "one client");
        let other = take(2).unwrap();
        assert!(take(2).is_none(), "all");
        drop(places.pop());
        assert!(take(1).is_some());
        drop((places, other));
        assert!(all.clients.0.lock().is_empty());
    }
}
