//! What the stamps of one side say by themselves: gaps between packets, packets per second.

use crate::distribution::Distribution;

const SECOND_NS: u64 = 1_000_000_000;

/// Gaps and rates of the packets on one side of the device.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Packets counted.
    pub packets: u64,
    /// Gaps between consecutive stamps in nanoseconds.
    pub gaps: Distribution,
    /// Packets in each second that has any, as (second, packets); seconds count from the first
    /// stamp.
    seconds: Vec<(u64, u64)>,
    first: u64,
    last: u64,
    second_end: u64,
}

impl Series {
    /// Adds a stamp, which must not be earlier than the one before it.
    #[inline]
    pub fn record(&mut self, time: u64) {
        if self.packets == 0 {
            self.first = time;
        } else {
            self.gaps.record(time - self.last);
        }
        self.packets += 1;
        self.last = time;
        match self.seconds.last_mut() {
            Some((_, count)) if time < self.second_end => *count += 1,
            _ => {
                let second = (time - self.first) / SECOND_NS;
                self.second_end = self.first.saturating_add((second + 1).saturating_mul(SECOND_NS));
                self.seconds.push((second, 1));
            }
        }
    }

    /// Packets per second as (start of the second in nanoseconds, packets), ascending. Seconds
    /// without packets are left out.
    pub fn rates(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.seconds.iter().map(|&(second, count)| (self.first + second * SECOND_NS, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_from_the_first_stamp() {
        let mut series = Series::default();
        for time in [500, 500 + SECOND_NS - 1, 500 + SECOND_NS, 500 + 3 * SECOND_NS] {
            series.record(time);
        }
        let rates: Vec<_> = series.rates().collect();
        assert_eq!(rates, [(500, 2), (500 + SECOND_NS, 1), (500 + 3 * SECOND_NS, 1)]);
        let gaps: Vec<_> = series.gaps.counts().collect();
        assert_eq!(gaps, [(1, 1), (SECOND_NS - 1, 1), (2 * SECOND_NS, 1)]);
    }
}
