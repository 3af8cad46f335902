//! The worst packets: those with the largest latencies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

#[derive(Clone, Debug, PartialEq, Eq)]
struct ByRank<T>(WorstPacket<T>);

impl<T: Ord> PartialOrd for ByRank<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> Ord for ByRank<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.rank().cmp(&other.0.rank())
    }
}

/// Keeps the worst packets of all that it is shown.
#[derive(Clone, Debug)]
pub struct Worst<T> {
    limit: usize,
    /// Latencies below this cannot be among the worst any more.
    threshold: u64,
    heap: BinaryHeap<Reverse<ByRank<T>>>,
}

impl<T: Ord> Worst<T> {
    /// Keeps at most `limit` packets.
    pub fn new(limit: usize) -> Self {
        let threshold = if limit == 0 { u64::MAX } else { 0 };
        // A limit that no capture reaches must not take memory.
        let room = limit.saturating_add(1).min(FIRST_ROOM);
        Self { limit, threshold, heap: BinaryHeap::with_capacity(room) }
    }

    /// Shows a packet. `key` is asked for only when the packet is a candidate.
    #[inline]
    pub fn offer(&mut self, ingress_ns: u64, egress_ns: u64, key: impl FnOnce() -> T) {
        let latency_ns = egress_ns - ingress_ns;
        if latency_ns >= self.threshold && self.limit > 0 {
            self.push(WorstPacket { latency_ns, ingress_ns, egress_ns, key: key() });
        }
    }

    /// Shows a packet that another one kept.
    pub fn push(&mut self, packet: WorstPacket<T>) {
        if packet.latency_ns < self.threshold {
            return;
        }
        self.heap.push(Reverse(ByRank(packet)));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
        if self.heap.len() == self.limit
            && let Some(Reverse(least)) = self.heap.peek()
        {
            self.threshold = least.0.latency_ns;
        }
    }

    /// The worst packets, worst first.
    pub fn into_sorted(self) -> Vec<WorstPacket<T>> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse(ByRank(packet))| packet).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_beyond_all_packets_keeps_them_all() {
        let mut worst = Worst::new(usize::MAX);
        worst.offer(3, 5, || ());
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
                worst.offer(ingress, ingress + latency, || i);
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
