//! The times of a recording, again and again.

use std::sync::Arc;

/// Offsets of recorded packets from the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    times: Arc<[u64]>,
    /// From the first packet to where the recording begins again: a mean gap after the last one.
    period: u64,
}

impl Recorded {
    /// The schedule of packets with these time stamps; one that is earlier than the packet before
    /// it leaves together with that. `None` without packets.
    pub fn new(stamps: &[u64]) -> Option<Self> {
        let &first = stamps.first()?;
        let mut latest = first;
        let times: Arc<[u64]> = stamps
            .iter()
            .map(|&stamp| {
                latest = latest.max(stamp);
                latest - first
            })
            .collect();
        let last = latest - first;
        let gap = last / (times.len() as u64 - 1).max(1);
        Some(Self { times, period: last.saturating_add(gap.max(1)) })
    }

    /// Packets of the recording.
    pub fn packets(&self) -> u64 {
        self.times.len() as u64
    }

    /// From the first packet to where the recording begins again.
    pub fn period_ns(&self) -> u64 {
        self.period
    }

    /// The times of all packets, without end.
    pub fn times(&self) -> impl Iterator<Item = u64> + Send + use<> {
        let Self { times, period } = self.clone();
        (0u64..).flat_map(move |round| {
            let times = Arc::clone(&times);
            let begin = round.saturating_mul(period);
            (0..times.len()).map(move |packet| begin.saturating_add(times[packet]))
        })
    }

    /// How many packets are due before `duration_ns`.
    pub fn packets_in(&self, duration_ns: u64) -> u64 {
        let rest = duration_ns % self.period;
        let rounds = duration_ns / self.period;
        rounds.saturating_mul(self.packets())
            + self.times.partition_point(|&time| time < rest) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounds_follow_each_other_and_are_counted(
            stamps in proptest::collection::vec(0..1000u64, 1..50), duration in 0..100_000u64,
        ) {
            let recorded = Recorded::new(&stamps).expect("not empty");
            let times: Vec<u64> = recorded.times().take_while(|&time| time < duration).collect();
            prop_assert!(times.is_sorted());
            prop_assert_eq!(times.len() as u64, recorded.packets_in(duration));
            for (packet, time) in times.iter().enumerate() {
                let before = packet % stamps.len();
                let latest = stamps[..=before].iter().max().unwrap().max(&stamps[0]);
                let round = (packet / stamps.len()) as u64 * recorded.period;
                prop_assert_eq!(*time, latest - stamps[0] + round);
            }
        }
    }

    #[test]
    fn the_next_round_begins_a_mean_gap_after_the_last_packet() {
        let recorded = Recorded::new(&[100, 120, 160]).expect("not empty");
        assert_eq!(recorded.times().take(5).collect::<Vec<_>>(), [0, 20, 60, 90, 110]);
        assert_eq!(Recorded::new(&[]), None);
    }
}
