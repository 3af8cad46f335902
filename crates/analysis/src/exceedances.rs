//! The largest latencies in time order: what a model of the tail is fitted to.
//!
//! Which latencies are large is known at the end only. So packets are kept that may yet be among
//! the largest, and the bar rises as more come. A packet is kept with its position among
//! all matched packets, so that a model can tell any early part of a run from the rest.

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

/// At most so many packets are kept.
const LIMIT: usize = 1 << 20;
/// So many are wanted in the end: enough for the 99.5th percentile of the first fifth of a run.
const WANTED: u64 = 1 << 16;
/// Or one packet in so many, where that is more.
const WANTED_OF: u64 = 50;

/// A packet with a large latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceedance {
    /// How many matched packets left the device before it.
    pub position: u64,
    /// Stamp before the device in nanoseconds.
    pub ingress_ns: u64,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
}

/// Keeps the packets with the largest latencies of all that it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceedances {
    /// So many are kept at most.
    limit: usize,
    /// In the order of their positions.
    packets: Vec<Exceedance>,
    /// Every packet with at least this latency is kept, and no other.
    least_ns: u64,
    /// Packets shown.
    shown: u64,
}

impl Exceedances {
    /// Keeps twice as many as will be wanted of about so many packets, since some may tie; as many
    /// as may be when their number is not known.
    pub fn new(expected: Option<u64>) -> Self {
        let likely = expected.map_or(u64::MAX, |packets| 2 * wanted(packets));
        let limit = usize::try_from(likely).unwrap_or(LIMIT).min(LIMIT);
        Self { limit, packets: Vec::new(), least_ns: 0, shown: 0 }
    }

    /// Shows packets by their ingress stamps and latencies; they come in the order in which they
    /// left the device.
    pub fn record_all(&mut self, ingress: &[u64], latencies: &[u64]) {
        let least_ns = self.least_ns;
        for (position, (&ingress_ns, &latency_ns)) in
            (self.shown..).zip(ingress.iter().zip(latencies))
        {
            if latency_ns >= least_ns {
                self.packets.push(Exceedance { position, ingress_ns, latency_ns });
            }
        }
        self.shown += latencies.len() as u64;
    }

    /// Whether so many packets are kept that it is time to [shrink](Self::shrink).
    #[inline]
    pub fn is_full(&self) -> bool {
        self.packets.len() >= self.limit + self.limit / 2
    }

    /// Leaves out all but the `limit` largest. Packets of equal latency stay or go together, so
    /// that what is kept depends on nothing but the packets. `all` holds the latencies of all
    /// packets shown.
    #[cold]
    pub fn shrink(&mut self, all: &Distribution) {
        if self.packets.len() <= self.limit {
            return;
        }
        // Where the latencies are counted, that saves a copy of those kept, and a search through it.
        self.least_ns = all.floor(self.limit as u64).unwrap_or_else(|| {
            let mut latencies: Vec<u64> = self.packets.iter().map(|p| p.latency_ns).collect();
            let from_below = latencies.len() - 1 - self.limit;
            let (_, largest_out, _) = latencies.select_nth_unstable(from_below);
            *largest_out + 1
        });
        self.packets.retain(|packet| packet.latency_ns >= self.least_ns);
    }

    /// Adds the packets that left the device afterwards. `all` holds the latencies of both.
    pub fn merge(&mut self, next: Self, all: &Distribution) {
        self.least_ns = self.least_ns.max(next.least_ns);
        self.packets.retain(|packet| packet.latency_ns >= self.least_ns);
        let further = next.packets.into_iter().filter(|p| p.latency_ns >= self.least_ns);
        self.packets.extend(further.map(|p| Exceedance { position: p.position + self.shown, ..p }));
        self.shown += next.shown;
        self.shrink(all);
    }

    /// The packets above a latency that follows from the distribution of all, and that latency:
    /// the largest that leaves the wanted number above it, or if these are too many, as with equal
    /// latencies, the smallest that does not.
    pub fn into_largest(mut self, all: &Distribution) -> (u64, Vec<Exceedance>) {
        let wanted = wanted(all.count());
        let counts: Vec<(u64, u64)> = all.counts().collect();
        let mut from = 0;
        let mut above = 0;
        for (value, count) in counts.into_iter().rev() {
            from = value;
            if above + count > self.limit as u64 {
                from = value + 1;
                break;
            }
            above += count;
            if above >= wanted {
                break;
            }
        }
        self.packets.retain(|packet| packet.latency_ns >= from);
        (from.saturating_sub(1), self.packets)
    }
}

/// So many of the largest of `packets` are wanted.
fn wanted(packets: u64) -> u64 {
    WANTED.max(packets.div_ceil(WANTED_OF))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies with many ties and a few large ones.
    fn latencies(count: u64, distinct: u64) -> Vec<u64> {
        let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (0..count).map(|i| 1_000 + spread(i) % distinct).collect()
    }

    fn of(latencies: &[u64]) -> (Exceedances, Distribution) {
        let mut exceedances = Exceedances::new(Some(latencies.len() as u64));
        let mut all = Distribution::new();
        for (i, &latency) in latencies.iter().enumerate() {
            exceedances.record_all(&[i as u64 * 100], &[latency]);
            all.record(latency);
            if exceedances.is_full() {
                exceedances.shrink(&all);
            }
        }
        exceedances.shrink(&all);
        (exceedances, all)
    }

    #[test]
    fn every_packet_above_the_floor_is_there_and_no_other() {
        // Few packets; more than the wanted share; more than can be kept; ties at the edge.
        for (count, distinct, expected) in [
            (1_000, 500, 1_000..=1_000),
            (200_000, 1 << 40, 1 << 16..=1 << 16),
            (6_000_000, 1 << 40, 120_000..=120_000),
            (200_000, 2, 100_000..=110_000),
            (3_000_000, 2, 0..=0),
        ] {
            let latencies = latencies(count, distinct);
            let (exceedances, all) = of(&latencies);
            let (floor, packets) = exceedances.into_largest(&all);
            let above = latencies.iter().enumerate().filter(|&(_, &latency)| latency > floor);
            let above: Vec<_> = above.map(|(i, &latency)| (i as u64, latency)).collect();
            let kept: Vec<_> = packets.iter().map(|p| (p.position, p.latency_ns)).collect();
            assert_eq!(kept, above, "{count} packets");
            assert!(expected.contains(&kept.len()), "{} of {count}", kept.len());
            assert!(packets.iter().all(|packet| packet.ingress_ns == packet.position * 100));
        }
    }

    #[test]
    fn merging_parts_equals_the_whole() {
        let latencies = latencies(3_000_000, 700_000);
        let (whole, _) = of(&latencies);
        for cuts in [[1, 2_999_999], [1_000_000, 1_500_000], [0, 3_000_000]] {
            let parts =
                [&latencies[..cuts[0]], &latencies[cuts[0]..cuts[1]], &latencies[cuts[1]..]];
            let merge = |(mut left, mut all): (Exceedances, Distribution), right: &_| {
                let (right, further): &(Exceedances, Distribution) = right;
                all.merge(further);
                left.merge(right.clone(), &all);
                (left, all)
            };
            let [first, second, third] = parts.map(of);
            let (left, _) = merge(merge(first.clone(), &second), &third);
            let (grouped, _) = merge(first, &merge(second, &third));
            let unstamped = |merged: Exceedances| {
                let packets = merged.packets.into_iter();
                packets.map(|p| (p.position, p.latency_ns)).collect::<Vec<_>>()
            };
            assert_eq!((left.least_ns, left.shown), (whole.least_ns, whole.shown));
            assert_eq!(unstamped(grouped), unstamped(whole.clone()));
            assert_eq!(unstamped(left), unstamped(whole.clone()));
        }
    }
}
