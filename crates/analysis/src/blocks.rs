//! A run in equal stretches of time: what latencies were like as time went on.
//!
//! The stretches are as short as may be with no more than [`MOST`] of them: their width is a power
//! of two, and doubles when there are too many. Their edges are multiples of the width, so that
//! nothing depends on where one began.

use serde::{Deserialize, Serialize};

/// Fewer stretches than this lie between the first packet and the last.
const MOST: u64 = 1 << 14;
/// The first width is 2 to the power of this, in nanoseconds: about a millisecond.
const SHORTEST: u32 = 20;

/// The packets of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Where it begins, in widths.
    index: u64,
    /// Packets that left the device in it.
    pub packets: u64,
    /// Sum of their latencies in nanoseconds.
    pub sum_ns: u64,
    /// The largest of their latencies in nanoseconds.
    pub max_ns: u64,
}

impl Block {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// The blocks of a run. Those without packets are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// The width is 2 to the power of this, in nanoseconds.
    power: u32,
    blocks: Vec<Block>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { power: SHORTEST, blocks: Vec::new() }
    }
}

impl Blocks {
    /// None so far, and the first width is 2 to the power of `power`, in nanoseconds.
    pub fn finer(power: u32) -> Self {
        Self { power, ..Self::default() }
    }

    /// Shows packets by their egress stamps, in the order of these, and latencies.
    pub fn record_all(&mut self, mut egress: &[u64], mut latencies: &[u64]) {
        while let Some(first) = egress.first() {
            let index = first >> self.power;
            let count = egress.partition_point(|time| time >> self.power <= index);
            let (now, later) = latencies.split_at(count);
            let block = Block {
                index,
                packets: count as u64,
                sum_ns: now.iter().sum(),
                max_ns: now.iter().fold(0, |max, &latency| max.max(latency)),
            };
            (egress, latencies) = (&egress[count..], later);
            match self.blocks.last_mut() {
                Some(last) if last.index == index => last.add(&block),
                _ => {
                    self.blocks.push(block);
                    self.fit();
                }
            }
        }
    }

    /// Doubles the width until there are few enough.
    #[cold]
    fn fit(&mut self) {
        while let (Some(first), Some(last)) = (self.blocks.first(), self.blocks.last())
            && last.index - first.index >= MOST
        {
            self.widen(self.power + 1);
        }
    }

    fn widen(&mut self, power: u32) {
        let doublings = power - self.power;
        self.power = power;
        self.blocks.iter_mut().for_each(|block| block.index >>= doublings);
        self.blocks.dedup_by(|next, block| {
            let same = next.index == block.index;
            if same {
                block.add(next);
            }
            same
        });
    }

    /// Adds the packets that left the device afterwards.
    pub fn merge(&mut self, mut next: Self) {
        let power = self.power.max(next.power);
        self.widen(power);
        next.widen(power);
        self.blocks.append(&mut next.blocks);
        self.widen(power);
        self.fit();
    }

    /// Width in nanoseconds.
    pub fn width_ns(&self) -> u64 {
        1 << self.power
    }

    /// The blocks with the time at which each begins, in nanoseconds, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|block| (block.index << self.power, block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(packets: &[(u64, u64)]) -> Blocks {
        let mut blocks = Blocks::default();
        let (egress, latencies): (Vec<u64>, Vec<u64>) = packets.iter().copied().unzip();
        for (egress, latencies) in egress.chunks(7).zip(latencies.chunks(7)) {
            blocks.record_all(egress, latencies);
        }
        blocks
    }

    proptest! {
        #[test]
        fn parts_merge_into_the_whole_and_nothing_is_lost(
            steps in proptest::collection::vec((0..1u64 << 36, 1..1_000u64), 1..200),
            cut in 0..200usize,
        ) {
            let mut time = 1 << 50;
            let packets: Vec<_> = steps
                .into_iter()
                .map(|(step, latency)| {
                    time += step >> (step % 30);
                    (time, latency)
                })
                .collect();
            let whole = of(&packets);
            let (left, right) = packets.split_at(cut.min(packets.len()));
            let mut merged = of(left);
            merged.merge(of(right));
            prop_assert_eq!(&merged, &whole);

            let width = whole.width_ns();
            let range = |width: u64| time / width - packets[0].0 / width;
            prop_assert!(range(width) < MOST);
            prop_assert!(width == 1 << SHORTEST || range(width / 2) >= MOST);
            for (start, block) in whole.iter() {
                let within = packets.iter().filter(|p| (start..start + width).contains(&p.0));
                let latencies: Vec<u64> = within.map(|p| p.1).collect();
                prop_assert_eq!(block.packets, latencies.len() as u64);
                prop_assert_eq!(block.sum_ns, latencies.iter().sum::<u64>());
                prop_assert_eq!(Some(block.max_ns), latencies.iter().max().copied());
            }
            prop_assert_eq!(whole.iter().map(|b| b.1.packets).sum::<u64>(), packets.len() as u64);
        }
    }
}
