//! A device of known speed: what passes in a second, and what waits.

/// A device of known speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets a second, above zero.
    pub rate: u64,
    /// Packets that may wait for their turn; more are dropped.
    pub queue: u64,
}

/// Who lets packets pass one after the other, at the rate of a [`Limit`] at most.
pub(super) struct Server {
    limit: Limit,
    /// When it began to be busy, and how many packets it has let pass since.
    since: u64,
    served: u64,
}

impl Server {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, since: 0, served: 0 }
    }

    /// When the next packet may leave; the past when nothing is waiting.
    fn free_at(&self) -> u64 {
        // Counted from the beginning: rounding does not add up.
        let busy = u128::from(self.served) * 1_000_000_000 / u128::from(self.limit.rate);
        self.since + busy as u64
    }

    /// When a packet that arrives `now` leaves; None when too many are waiting already.
    pub(super) fn admit(&mut self, now: u64) -> Option<u64> {
        let free = self.free_at();
        if free <= now {
            self.since = now;
            self.served = 0;
        }
        let wait = u128::from(free.saturating_sub(now)) * u128::from(self.limit.rate);
        if wait > u128::from(self.limit.queue) * 1_000_000_000 {
            return None;
        }
        let due = self.free_at();
        self.served += 1;
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_server_passes_its_rate_and_drops_the_rest() {
        const SECOND: u64 = 1_000_000_000;
        let passed = |offered: u64, limit| {
            let mut server = Server::new(limit);
            let mut last = 0;
            let mut longest = 0;
            let mut passed = 0;
            for packet in 0..offered {
                let now = 7 * SECOND + packet * SECOND / offered;
                let Some(due) = server.admit(now) else { continue };
                assert!(due >= now, "packet {packet} leaves before it comes");
                assert!(due >= last, "packet {packet} overtakes");
                longest = longest.max(due - now);
                last = due;
                passed += 1;
            }
            (passed, longest)
        };
        let limit = Limit { rate: 30_000, queue: 60 };
        assert_eq!(passed(29_999, limit), (29_999, 0), "below the limit nothing waits");
        let (slow, longest) = passed(60_000, limit);
        assert!((30_000..=30_062).contains(&slow), "{slow}");
        assert!((1_900_000..=2_000_000).contains(&longest), "{longest}");
        assert!((30_000..=30_002).contains(&passed(60_000, Limit { queue: 0, ..limit }).0));
    }
}
