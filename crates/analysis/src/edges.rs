//! Packets without a partner near the ends of the other capture.
//!
//! Captures seldom begin and end together. Which packets could not be in the other one is known when
//! all latencies are, at the end; until then those are kept that came within a window of its ends.

use serde::{Deserialize, Serialize};

/// The times of the first and of the last record of a capture, whatever they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The first, in nanoseconds.
    pub from_ns: u64,
    /// The last.
    pub until_ns: u64,
}

impl Covered {
    /// No time at all.
    pub const NONE: Self = Self { from_ns: u64::MAX, until_ns: 0 };
    /// All of time, while the ends are not known.
    pub const ALL: Self = Self { from_ns: 0, until_ns: u64::MAX };

    /// Takes in a time.
    #[inline]
    pub fn add(&mut self, time: u64) {
        self.from_ns = self.from_ns.min(time);
        self.until_ns = self.until_ns.max(time);
    }

    /// Takes in the times of another part of the capture.
    pub fn merge(&mut self, other: Self) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.until_ns = self.until_ns.max(other.until_ns);
    }
}

/// A stretch of time: from the first time, to before the second, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first time within.
    pub from_ns: u64,
    /// The first time behind.
    pub until_ns: u64,
}

impl Span {
    /// All of time.
    pub const ALL: Self = Self { from_ns: 0, until_ns: u64::MAX };

    /// Whether a time lies within.
    #[inline]
    pub fn contains(&self, time: u64) -> bool {
        time >= self.from_ns && (time < self.until_ns || self.is_open())
    }

    /// Whether nothing lies behind it.
    pub(crate) fn is_open(&self) -> bool {
        self.until_ns == u64::MAX
    }

    /// Those of the ascending times that lie within.
    pub(crate) fn of<'a>(&self, times: &'a [u64]) -> &'a [u64] {
        if *self == Self::ALL {
            return times;
        }
        let start = times.partition_point(|&time| time < self.from_ns);
        let behind = |time| time >= self.from_ns && !self.contains(time);
        &times[start..times.partition_point(|&time| !behind(time))]
    }
}

/// Packets without a partner near the ends of the other capture, or beyond them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edges {
    /// How many came when the other capture surely had not begun, and when it had ended.
    before: u64,
    after: u64,
    /// Times of those that came near its ends, in no order.
    near: Vec<u64>,
}

impl Edges {
    /// Takes note of a packet; `covered` is what the other capture covers. Whether it came when that
    /// surely did not run.
    pub fn add(&mut self, time: u64, covered: Covered, window: u64) -> bool {
        if time > covered.until_ns {
            self.after += 1;
        } else if covered.from_ns >= window && time <= covered.from_ns - window {
            self.before += 1;
        } else {
            let near = time.abs_diff(covered.from_ns) < window
                || time.saturating_add(window) > covered.until_ns;
            if near && covered != Covered::ALL {
                self.near.push(time);
            }
            return false;
        }
        true
    }

    /// Adds those of another part of the captures.
    pub fn merge(&mut self, next: Self) {
        self.before += next.before;
        self.after += next.after;
        self.near.extend(next.near);
        self.near.sort_unstable();
    }

    /// The same with the times in order.
    pub fn sorted(mut self) -> Self {
        self.near.sort_unstable();
        self
    }

    /// How many came too early, and how many too late, by what says it of a time.
    pub fn outside(&self, early: impl Fn(u64) -> bool, late: impl Fn(u64) -> bool) -> [u64; 2] {
        let early = |time: &&u64| early(**time);
        let early_near = self.near.iter().filter(early).count();
        let late_near = self.near.iter().filter(|time| !early(time) && late(**time)).count();
        [self.before + early_near as u64, self.after + late_near as u64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_a_window_before_a_capture_or_behind_it_is_surely_outside() {
        let covered = Covered { from_ns: 1_000, until_ns: 2_000 };
        let mut edges = Edges::default();
        let surely = [900, 901, 2_000, 2_001].map(|time| edges.add(time, covered, 100));
        assert_eq!(surely, [true, false, false, true]);
        assert_eq!(edges.outside(|_| false, |_| false), [1, 1]);
        assert_eq!(edges.outside(|time| time == 901, |time| time == 2_000), [2, 2]);
    }
}
