//! What the stamps of one side say by themselves: gaps between packets, packets per second.

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

const SECOND_NS: u64 = 1_000_000_000;

/// Gaps and rates of the packets on one side of the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Packets counted.
    pub packets: u64,
    /// Gaps between consecutive stamps in nanoseconds.
    pub gaps: Distribution,
    /// Packets in each second that has any, as (second, packets).
    seconds: Vec<(u64, u64)>,
    /// The seconds count from here; the first stamp unless it was set.
    origin: Option<u64>,
    first: u64,
    last: u64,
}

impl Series {
    /// Of a part of the stamps: the first of all of them is `origin`.
    pub fn starting(origin: Option<u64>) -> Self {
        Self { origin, ..Self::default() }
    }

    /// Adds stamps, which must ascend and not be earlier than those before them.
    pub fn record_all(&mut self, times: &[u64]) {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return };
        if self.packets == 0 {
            self.first = first;
        } else {
            self.gaps.record(first - self.last);
        }
        self.gaps.record_all(times.windows(2).map(|pair| pair[1] - pair[0]));
        self.packets += times.len() as u64;
        self.last = last;
        let origin = *self.origin.get_or_insert(first);
        let mut rest = times;
        while let Some(time) = rest.first() {
            let second = (time - origin) / SECOND_NS;
            let end = origin.saturating_add((second + 1).saturating_mul(SECOND_NS));
            let within = rest.partition_point(|&time| time < end).max(1);
            self.add_second(second, within as u64);
            rest = &rest[within..];
        }
    }

    /// Adds the series of the stamps that follow.
    pub fn merge(&mut self, next: &Self) {
        if next.packets == 0 {
            return;
        }
        if self.packets == 0 {
            self.first = next.first;
            self.origin = next.origin;
        } else {
            self.gaps.record(next.first - self.last);
        }
        self.gaps.merge(&next.gaps);
        self.packets += next.packets;
        self.last = next.last;
        next.seconds.iter().for_each(|&(second, count)| self.add_second(second, count));
    }

    fn add_second(&mut self, second: u64, count: u64) {
        match self.seconds.last_mut() {
            Some((last, sum)) if *last == second => *sum += count,
            _ => self.seconds.push((second, count)),
        }
    }

    /// The first stamp; 0 without any.
    pub fn first_ns(&self) -> u64 {
        self.first
    }

    /// The last stamp; 0 without any.
    pub fn last_ns(&self) -> u64 {
        self.last
    }

    /// Packets per second as (start of the second in nanoseconds, packets), ascending. Seconds
    /// without packets are left out.
    pub fn rates(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let origin = self.origin.unwrap_or(self.first);
        self.seconds.iter().map(move |&(second, count)| (origin + second * SECOND_NS, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_from_the_first_stamp() {
        let mut series = Series::default();
        series.record_all(&[500, 500 + SECOND_NS - 1]);
        series.record_all(&[500 + SECOND_NS, 500 + 3 * SECOND_NS]);
        let rates: Vec<_> = series.rates().collect();
        assert_eq!(rates, [(500, 2), (500 + SECOND_NS, 1), (500 + 3 * SECOND_NS, 1)]);
        let gaps: Vec<_> = series.gaps.counts().collect();
        assert_eq!(gaps, [(1, 1), (SECOND_NS - 1, 1), (2 * SECOND_NS, 1)]);
    }
}
