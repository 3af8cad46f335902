//! The worst packets: those with the largest latencies.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// Room for so many packets is made in advance, at most.
const FIRST_ROOM: usize = 1 << 16;

/// One packet among the worst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorstPacket<T> {
    /// Latency in nanoseconds.
    pub latency_ns: u64,
    /// Stamp before the device.
    pub ingress_ns: u64,
    /// Stamp after the device.
    pub egress_ns: u64,
    /// Its key.
    pub key: T,
}

impl<T: Ord> WorstPacket<T> {
    /// Larger latencies first, then earlier stamps, then smaller keys: no two packets are equal,
    /// so that the worst are the same in whatever order packets come.
    fn rank(&self) -> (u64, Reverse<u64>, Reverse<&T>) {
        (self.latency_ns, Reverse(self.ingress_ns), Reverse(&self.key))
    }
}

/// Keeps the worst packets of all that it is shown.
#[derive(Clone, Debug)]
pub struct Worst<T> {
    limit: usize,
    /// Latencies below this cannot be among the worst any more.
    threshold: u64,
    /// The worst so far among others, at most twice as many as are kept in the end.
    packets: Vec<WorstPacket<T>>,
}

impl<T: Ord> Worst<T> {
    /// Keeps at most `limit` packets.
    pub fn new(limit: usize) -> Self {
        let threshold = if limit == 0 { u64::MAX } else { 0 };
        // A limit that no capture reaches must not take memory.
        let room = limit.saturating_mul(2).min(FIRST_ROOM);
        Self { limit, threshold, packets: Vec::with_capacity(room) }
    }

    /// Shows packets by their stamps and latencies. `key` is asked for the keys of candidates only,
    /// by place.
    pub fn offer_all(
        &mut self,
        ingress: &[u64],
        egress: &[u64],
        latencies: &[u64],
        key: impl Fn(usize) -> T,
    ) {
        if latencies.iter().max().is_none_or(|&max| max < self.threshold) {
            return;
        }
        for (i, &latency_ns) in latencies.iter().enumerate() {
            if latency_ns >= self.threshold {
                let (ingress_ns, egress_ns) = (ingress[i], egress[i]);
                self.push(WorstPacket { latency_ns, ingress_ns, egress_ns, key: key(i) });
            }
        }
    }

    /// Shows a packet that another one kept.
    pub fn push(&mut self, packet: WorstPacket<T>) {
        if packet.latency_ns < self.threshold || self.limit == 0 {
            return;
        }
        self.packets.push(packet);
        // Now and then, so that a packet costs little however many come in ascending order.
        if self.packets.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    /// Leaves the worst, in no order.
    #[cold]
    fn cut(&mut self) {
        if self.packets.len() > self.limit {
            let by_rank = |a: &WorstPacket<T>, b: &WorstPacket<T>| b.rank().cmp(&a.rank());
            self.packets.select_nth_unstable_by(self.limit - 1, by_rank);
            self.packets.truncate(self.limit);
            self.threshold = self.packets[self.limit - 1].latency_ns;
        }
    }

    /// The worst packets, worst first.
    pub fn into_sorted(mut self) -> Vec<WorstPacket<T>> {
        self.packets.sort_unstable_by(|a, b| b.rank().cmp(&a.rank()));
        self.packets.truncate(self.limit);
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_beyond_all_packets_keeps_them_all() {
        let mut worst = Worst::new(usize::MAX);
        worst.offer_all(&[3], &[5], &[2], |_| ());
        assert_eq!(worst.into_sorted().len(), 1);
    }

    proptest! {
        #[test]
        fn keeps_what_a_full_sort_would(
            packets in proptest::collection::vec((0..50u64, 0..20u64), 0..200),
            limit in 0..40usize,
        ) {
            let mut worst = Worst::new(limit);
            for (i, &(ingress, latency)) in packets.iter().enumerate() {
                worst.offer_all(&[ingress], &[ingress + latency], &[latency], |_| i);
            }
            let found: Vec<_> =
                worst.into_sorted().iter().map(|w| (w.latency_ns, w.ingress_ns)).collect();
            let mut all: Vec<_> = packets.iter().map(|&(i, l)| (Reverse(l), i)).collect();
            all.sort_unstable();
            let expected: Vec<_> = all.iter().take(limit).map(|&(l, i)| (l.0, i)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
