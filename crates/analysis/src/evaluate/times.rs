//! The time of which it is known what became of packets, and the order in which they left.

use serde::{Deserialize, Serialize};

use super::{Side, Warning};
use crate::clocks::Excess;
use crate::edges::{Covered, Edges};

/// The time of which both captures know what became of packets.
///
/// A packet without a copy may have left before the capture after the device began, or may have been in
/// the device yet when that ended. It was not lost for all that is known if it had been there for no longer
/// than the longest latency, and if no packet that is in both captures shows that its turn had come: one
/// that entered after it and left, or before it, by more than packets overtake each other.
pub(super) struct CommonTime {
    covered: [Covered; 2],
    /// The largest latency.
    latency_ns: u64,
    /// By how much packets overtake each other at most.
    overtaken_ns: u64,
    /// When the first of the matched packets entered, and the last of them.
    entered_ns: [u64; 2],
    /// When the first of them left.
    left_ns: u64,
    /// Packets that came before were left out.
    since_ns: u64,
    throughout: bool,
}

impl CommonTime {
    /// Of packets in that order, the times that both captures cover, and the largest latency; what came
    /// before `since_ns` is left out.
    pub fn of(
        reorder: &Reorder,
        covered: [Covered; 2],
        latency_ns: u64,
        since_ns: u64,
        throughout: bool,
    ) -> Self {
        let &Reorder { earliest_ns, latest_ns, overtaken_ns, first_egress_ns, .. } = reorder;
        Self {
            covered,
            latency_ns,
            overtaken_ns,
            entered_ns: [earliest_ns.unwrap_or(0), latest_ns],
            left_ns: first_egress_ns.unwrap_or(0),
            since_ns,
            throughout,
        }
    }

    /// Whether a packet may have left before the capture after the device began.
    fn is_early(&self, time: u64) -> bool {
        let turn = self.entered_ns[0].saturating_add(self.overtaken_ns);
        time < self.covered[1].from_ns && time <= turn
    }

    /// Whether a packet may have been in the device when the capture after it ended.
    fn is_late(&self, time: u64) -> bool {
        let turn = self.entered_ns[1].saturating_sub(self.overtaken_ns);
        time.saturating_add(self.latency_ns) >= self.covered[1].until_ns && time >= turn
    }

    /// Whether it is known of a packet that came at this time whether it was lost, and counts.
    pub fn contains(&self, time: u64) -> bool {
        let within = self.throughout || !(self.is_early(time) || self.is_late(time));
        within && time >= self.since_ns
    }

    /// Whether it is between the first and the last packet that left, and counts.
    pub fn spans(&self, time: u64) -> bool {
        let [first, last] = self.entered_ns;
        (first..=last).contains(&time) && time >= self.since_ns
    }

    /// How many packets of either side are outside, at the beginning and at the end.
    pub fn outside(&self, edges: &[Edges; 2]) -> [[u64; 2]; 2] {
        let [ingress, _] = self.covered;
        let came = ingress.from_ns.saturating_add(self.latency_ns);
        let turn = |time| self.overtaken_ns > 0 || time <= self.left_ns;
        [
            edges[0].outside(|time| self.is_early(time), |time| self.is_late(time)),
            edges[1].outside(|time| time < came && turn(time), |time| time > ingress.until_ns),
        ]
    }

    /// What a reader must know of packets outside.
    pub fn told(
        &self,
        outside: [[u64; 2]; 2],
        sides: [&Side; 2],
        excess: Excess,
    ) -> Option<Warning> {
        let [before, after] = self.covered;
        let ahead = i128::from(excess.egress_ns) - i128::from(excess.ingress_ns);
        let apart = |one: u64, other: u64| {
            let ns = i128::from(other) - i128::from(one) - ahead;
            let how = if ns < 0 { "earlier" } else { "later" };
            format!("{:.6} s {how}", ns.abs() as f64 / 1e9)
        };
        let begins = apart(before.from_ns, after.from_ns);
        let ends = apart(before.until_ns, after.until_ns);
        let [early, late] = [0, 1].map(|end| outside[0][end] + outside[1][end]);
        let [ingress, egress] = sides.map(|side| side.path.display());
        (early + late > 0).then(|| Warning {
            code: "outside-common-time",
            message: format!(
                "{egress} begins {begins} and ends {ends} than {ingress}: {early} packets at the start \
                 and {late} at the end may have passed when the other capture did not run, and count as \
                 outside of the common time; if both ran all the time, and the device failed, give --throughout"),
        })
    }
}

/// Counts packets that left the device after one that had entered it later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reorder {
    count: u64,
    /// Earliest ingress stamp.
    earliest_ns: Option<u64>,
    /// Latest ingress stamp so far.
    latest_ns: u64,
    /// How much later than any of these packets one had entered that left before it, at most.
    overtaken_ns: u64,
    /// Egress stamp of the first packet.
    first_egress_ns: Option<u64>,
    /// Ingress stamps, each the latest when it came, of packets that had entered before the first
    /// one left: those that one of an earlier part may yet have overtaken.
    early: Vec<u64>,
}

impl Reorder {
    /// Shows packets by their stamps; they come in the order of their egress stamps.
    pub fn record_all(&mut self, ingress: &[u64], egress: &[u64]) {
        let mut early_before = self.first_egress_ns.unwrap_or(u64::MAX);
        for (&ingress_ns, &egress_ns) in ingress.iter().zip(egress) {
            if ingress_ns < self.latest_ns {
                self.count += 1;
                self.overtaken_ns = self.overtaken_ns.max(self.latest_ns - ingress_ns);
                self.earliest_ns = self.earliest_ns.min(Some(ingress_ns));
            } else {
                self.latest_ns = ingress_ns;
                if ingress_ns < early_before {
                    self.earliest_ns.get_or_insert(ingress_ns);
                    early_before = *self.first_egress_ns.get_or_insert(egress_ns);
                    self.early.push(ingress_ns);
                }
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the part that follows in time.
    pub fn merge(&mut self, next: &Self) {
        let Some(next_egress) = next.first_egress_ns else { return };
        // Every packet of this part left before any of the next, so that what may have been
        // overtaken is among those that the next part remembers.
        let overtaken = next.early.partition_point(|&ingress| ingress < self.latest_ns);
        self.count += next.count + overtaken as u64;
        let first = *self.first_egress_ns.get_or_insert(next_egress);
        let further = &next.early[overtaken..];
        self.early.extend(&further[..further.partition_point(|&ingress| ingress < first)]);
        let earliest = next.earliest_ns.unwrap_or(self.latest_ns);
        let overtaken = self.latest_ns.saturating_sub(earliest);
        self.overtaken_ns = self.overtaken_ns.max(next.overtaken_ns).max(overtaken);
        self.earliest_ns = self.earliest_ns.map_or(Some(earliest), |own| Some(own.min(earliest)));
        self.latest_ns = self.latest_ns.max(next.latest_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(packets: &[(u64, u64)]) -> Reorder {
        let mut found = Reorder::default();
        let (ingress, egress): (Vec<_>, Vec<_>) = packets.iter().copied().unzip();
        found.record_all(&ingress, &egress);
        found
    }

    proptest! {
        #[test]
        fn parts_merge_into_what_every_two_packets_say(
            mut packets in proptest::collection::vec((0..60u64, 0..60u64), 0..20),
            cut in 0..20usize,
        ) {
            packets.iter_mut().for_each(|packet| packet.1 += packet.0);
            packets.sort_by_key(|packet| packet.1);
            let whole = of(&packets);
            let (left, right) = packets.split_at(cut.min(packets.len()));
            let mut merged = of(left);
            merged.merge(&of(right));
            prop_assert_eq!(&merged, &whole);
            let by = |place: usize| {
                let before = packets[..place].iter().map(|packet| packet.0).max().unwrap_or(0);
                before.saturating_sub(packets[place].0)
            };
            let overtaken: Vec<u64> = (0..packets.len()).map(by).collect();
            prop_assert_eq!(whole.count(), overtaken.iter().filter(|&&ns| ns > 0).count() as u64);
            prop_assert_eq!(whole.overtaken_ns, overtaken.into_iter().max().unwrap_or(0));
        }
    }

    #[test]
    fn a_packet_whose_turn_had_come_is_lost() {
        // They overtake each other by 20, and take 40 at most.
        let reorder = of(&[(140, 150), (120, 160), (200, 230)]);
        let covered =
            [(100, 250), (150, 230)].map(|(from_ns, until_ns)| Covered { from_ns, until_ns });
        let common = CommonTime::of(&reorder, covered, 40, 0, false);
        let known = [140, 141, 149, 179, 180, 190].map(|time| common.contains(time));
        assert_eq!(known, [false, true, true, true, true, false]);
        assert!(CommonTime::of(&reorder, covered, 50, 0, false).contains(179));
        assert!(!CommonTime::of(&reorder, covered, 50, 0, false).contains(180));
    }

    #[test]
    fn behind_a_packet_in_order_none_came_before_the_capture() {
        let reorder = of(&[(100, 120), (200, 260)]);
        let covered = [Covered { from_ns: 100, until_ns: 300 }; 2];
        let common = CommonTime::of(&reorder, covered, 60, 0, false);
        let mut edges = Edges::default();
        for time in [110, 130] {
            edges.add(time, covered[0], 1_000);
        }
        assert_eq!(common.outside(&[Edges::default(), edges]), [[0, 0], [1, 0]]);
    }
}
