//! How late packets left against their schedule, counted while others wait to leave.
//!
//! Counting must not hold the generator up: a late packet would make the next one later still. So
//! memory is asked for beforehand. What is a little late has its counter already; what is later is
//! only noted, with room for thousands of notes, and counted when all is sent.

use serde::Serialize;
use tailtap_analysis::distribution::Distribution;

use crate::generate::schedule::Times;

/// Packets handed over together with one that was this late are counted at the end. The counters
/// for those less late take half a megabyte.
const OVERDUE_NS: u64 = 1 << 16;
/// Room for this many notes before more has to be found.
const ROOM: usize = 1 << 12;
/// The percentiles that are reported, in parts of [`WHOLE`].
const PERCENTILES: [u64; 6] = [50_000, 90_000, 99_000, 99_900, 99_990, 99_999];
const WHOLE: u64 = 100_000;

/// How late packets left against their schedule, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slip {
    /// The least.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The most.
    pub max: u64,
    /// Exact nearest-rank percentiles.
    pub percentiles: Vec<Percentile>,
}

/// So many nanoseconds late were packets at most, but for a share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentile {
    /// The share of packets.
    pub p: f64,
    /// The time.
    pub value: u64,
}

/// The slip of packets that are being sent.
pub(crate) struct Counter {
    counted: Distribution,
    overdue: Vec<Overdue>,
}

/// Packets that were handed over together, too late to be counted at once.
#[derive(Clone)]
struct Overdue {
    /// The first of them.
    first: u32,
    /// How many they are.
    count: u32,
    /// When they left.
    left: u64,
}

impl Counter {
    /// Nothing was sent yet.
    pub(crate) fn new() -> Self {
        let mut overdue = vec![Overdue { first: 0, count: 0, left: 0 }; ROOM];
        // Written to, so that its pages are there: finding one can take a virtual machine the
        // better part of a millisecond.
        std::hint::black_box(&mut overdue).clear();
        Self { counted: Distribution::reaching(OVERDUE_NS - 1), overdue }
    }

    /// Packets from number `first` of those counted here on, due at these times (ascending, at least one), left at
    /// `left`.
    pub(crate) fn add(&mut self, first: u32, due: &[u64], left: u64) {
        if left - due[0] < OVERDUE_NS {
            self.counted.record_all(due.iter().map(|due| left - due));
        } else {
            self.overdue.push(Overdue { first, count: due.len() as u32, left });
        }
    }

    /// The slips of all packets, which were due at `times` after `start`. The schedule is gone through
    /// once more for those that were noted only.
    pub(crate) fn finish(mut self, start: u64, times: Times) -> Distribution {
        let mut times = times.enumerate().peekable();
        for overdue in self.overdue {
            while times.next_if(|&(number, _)| number < overdue.first as usize).is_some() {}
            let late = times.by_ref().take(overdue.count as usize);
            self.counted.record_all(late.map(|(_, time)| overdue.left - (start + time)));
        }
        self.counted
    }
}

/// The summary of a distribution of slips; `None` when it is empty.
pub(crate) fn summarise(slip: &Distribution) -> Option<Slip> {
    let count = slip.count();
    let mean = slip.mean()?;
    let rank = |part: u64| {
        let rank = (u128::from(count) * u128::from(part)).div_ceil(u128::from(WHOLE));
        rank.max(1) as u64
    };
    let ranks: Vec<u64> = [1].into_iter().chain(PERCENTILES.map(rank)).chain([count]).collect();
    let values = slip.at_ranks(&ranks);
    let percentiles = PERCENTILES.iter().zip(&values[1..]);
    Some(Slip {
        min: values[0],
        mean,
        max: values[values.len() - 1],
        percentiles: percentiles
            .map(|(&part, &value)| Percentile { p: part as f64 / WHOLE as f64, value })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 5_000_000_000;
    const GAP: u64 = 10_000;

    fn due(numbers: std::ops::Range<u64>) -> Vec<u64> {
        numbers.map(|number| START + number * GAP).collect()
    }

    fn times(packets: u64) -> Times {
        Box::new((0..packets).map(|number| number * GAP))
    }

    #[test]
    fn late_packets_are_counted_as_exactly_as_others() {
        let mut counter = Counter::new();
        let mut expected = Distribution::new();
        let mut next = 0;
        // Hand-overs of many sizes, on time, just below and above the limit, and far too late.
        for (packets, late) in [(1, 0), (1, 65_535), (1, 65_536), (7, 3), (20, 900_000), (2, 7)] {
            let due = due(next..next + packets);
            let left = due.last().expect("not empty") + late;
            counter.add(next as u32, &due, left);
            expected.record_all(due.iter().map(|due| left - due));
            next += packets;
        }
        assert_eq!(summarise(&counter.finish(START, times(next))), summarise(&expected));
    }

    #[test]
    fn no_counter_is_made_while_packets_leave() {
        let mut counter = Counter::new();
        let room = counter.overdue.capacity();
        for number in 1..ROOM as u64 {
            counter.add(number as u32, &due(number..number + 1), START + number * GAP + (1 << 20));
        }
        // The last of these is on time, the first is not.
        counter.add(ROOM as u32, &due(0..90), START + 89 * GAP);
        assert_eq!((counter.counted.count(), counter.overdue.len()), (0, ROOM));
        assert_eq!(counter.overdue.capacity(), room);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut distribution = Distribution::new();
        assert_eq!(summarise(&distribution), None);
        (1..=1000).for_each(|value| distribution.record(value));
        let slip = summarise(&distribution).expect("not empty");
        assert_eq!((slip.min, slip.max), (1, 1000));
        assert!((slip.mean - 500.5).abs() < 1e-9);
        let values: Vec<u64> = slip.percentiles.iter().map(|p| p.value).collect();
        assert_eq!(values, [500, 900, 990, 999, 1000, 1000]);
        assert_eq!(slip.percentiles[4].p, 0.9999);
    }
}
