//! What chance would give: the same events shifted against the packets.
//!
//! Besag, J. and Clifford, P. (1991), Sequential Monte Carlo p-values, Biometrika 78, 301-304: a test
//! may end when `ENOUGH` shifts have reached what was observed.

use std::collections::{BTreeMap, HashSet};
use std::thread;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::join::Join;
use super::timeline::Timeline;
use super::{NOTHING, Row, SERVING};
use crate::stream::Span;

/// Shifts that reach what was observed, after which a test ends.
const ENOUGH: u32 = 10;

/// A stay that a stall made long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The core.
    pub cpu: u16,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
    /// How much longer than usual it was.
    pub excess_ns: u64,
}

/// What the test of one row found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The row.
    pub row: Row,
    /// Over all windows, the sum of the shares of their excess that the row covers.
    pub observed: f64,
    /// The mean of the same over shifts.
    pub expected: f64,
    /// Shifts that were made.
    pub shifts: u32,
    /// The share of shifts that give as much, the observation being one of them.
    pub p: f64,
}

/// The stretches of one row on one core, and how long they are up to each.
#[derive(Default)]
struct Sums {
    starts: Vec<u64>,
    /// How long all before were, and the length of this one.
    before: Vec<(u64, u64)>,
}

impl Sums {
    fn push(&mut self, from: u64, until: u64) {
        let total = self.before.last().map_or(0, |&(before, length)| before + length);
        self.starts.push(from);
        self.before.push((total, until - from));
    }

    /// Nanoseconds of the row before a time.
    fn until(&self, time: u64) -> u64 {
        let Some(last) = self.starts.partition_point(|&start| start < time).checked_sub(1) else {
            return 0;
        };
        let (before, length) = self.before[last];
        before + (time - self.starts[last]).min(length)
    }

    fn within(&self, from: u64, until: u64) -> u64 {
        self.until(until) - self.until(from)
    }
}

impl Join<'_> {
    /// Tests each of the rows `tested`: its stretches during `span` are shifted around the end of it,
    /// `shifts` times at most. Of its stretches those count that lie in a time without service of
    /// more than `longer_than` ns.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn test(
        &self,
        tested: &[Row],
        windows: &[Window],
        span: Span,
        longer_than: u64,
        shifts: u32,
        seed: u64,
    ) -> Vec<Claim> {
        let inside =
            |window: &&Window| window.from_ns >= span.from_ns && window.until_ns <= span.until_ns;
        let windows: Vec<Window> = windows.iter().filter(inside).copied().collect();
        let length = span.until_ns.saturating_sub(span.from_ns).max(1);
        // All rows are shifted by the same times.
        let mut random = SplitMix64::seed_from_u64(seed);
        // Shorter ones would not part a long stay from what it met.
        let least = windows.iter().map(|window| window.until_ns - window.from_ns).max();
        let least = least.unwrap_or(0).min(length / 4);
        let range = (length - 2 * least).max(1);
        let by: Vec<u64> = (0..shifts).map(|_| least + random.next_u64() % range).collect();
        let sums = self.sums(tested, longer_than);
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let share = tested.len().div_ceil(workers).max(1);
        let unserved = self.unserved();
        let claim = |row: &Row| {
            let sums = sums.get(row);
            Test { sums, unserved: &unserved, windows: &windows, span }.claim(*row, &by)
        };
        thread::scope(|scope| {
            let parts: Vec<_> = tested
                .chunks(share)
                .map(|rows| scope.spawn(move || rows.iter().map(claim).collect::<Vec<_>>()))
                .collect();
            let parts = parts.into_iter().map(|part| part.join().expect("tests do not panic"));
            parts.flatten().collect()
        })
    }

    /// The times without service of each core, the ends exclusive. What nobody saw may be service.
    fn unserved(&self) -> BTreeMap<u16, Vec<(u64, u64)>> {
        let of = |timeline: &Timeline| {
            let mut found: Vec<(u64, u64)> = Vec::new();
            for (from, until, owner) in timeline.stretches() {
                match found.last_mut() {
                    _ if matches!(self.rows[owner as usize], SERVING | NOTHING) => {}
                    Some(last) if last.1 == from => last.1 = until,
                    _ => found.push((from, until)),
                }
            }
            found
        };
        self.cores.timelines.iter().map(|(&cpu, timeline)| (cpu, of(timeline))).collect()
    }

    fn sums(&self, tested: &[Row], longer_than: u64) -> BTreeMap<Row, BTreeMap<u16, Sums>> {
        let tested: HashSet<Row> = tested.iter().copied().collect();
        let mut sums: BTreeMap<Row, BTreeMap<u16, Sums>> = BTreeMap::new();
        for (&cpu, timeline) in &self.cores.timelines {
            let mut unserved: Vec<(u64, u64, Row)> = Vec::new();
            let mut end = |unserved: &mut Vec<(u64, u64, Row)>| {
                let length = unserved.last().map_or(0, |last| last.1 - unserved[0].0);
                for (from, until, row) in unserved.drain(..) {
                    if length > longer_than && tested.contains(&row) {
                        sums.entry(row).or_default().entry(cpu).or_default().push(from, until);
                    }
                }
            };
            for (from, until, owner) in timeline.stretches() {
                match self.rows[owner as usize] {
                    SERVING => end(&mut unserved),
                    row => unserved.push((from, until, row)),
                }
            }
            end(&mut unserved);
        }
        sums
    }
}

/// The test of one row.
struct Test<'a> {
    sums: Option<&'a BTreeMap<u16, Sums>>,
    unserved: &'a BTreeMap<u16, Vec<(u64, u64)>>,
    windows: &'a [Window],
    span: Span,
}

impl Test<'_> {
    /// What the row covers of the windows that are shifted by a time.
    fn covered(&self, shift: u64) -> f64 {
        let Span { from_ns, until_ns } = self.span;
        let length = (until_ns - from_ns).max(1);
        let of = |window: &Window| {
            let cpu = window.cpu;
            let Some(sums) = self.sums.and_then(|sums| sums.get(&cpu)) else { return 0.0 };
            // Shifting the packets is the same as shifting the events the other way.
            let from = from_ns + (window.from_ns - from_ns + shift) % length;
            let until = from + (window.until_ns - window.from_ns);
            let covered = if until <= until_ns {
                sums.within(from, self.served_until(cpu, until).max(from))
            } else {
                let around = self.served_until(cpu, from_ns + (until - until_ns));
                sums.within(from, until_ns) + sums.within(from_ns, around.max(from_ns))
            };
            (covered as f64 / window.excess_ns.max(1) as f64).min(1.0)
        };
        self.windows.iter().map(of).sum()
    }

    /// Up to when a packet that left at a time was waiting for service: it cannot have left while
    /// nobody served.
    fn served_until(&self, cpu: u16, time: u64) -> u64 {
        let Some(unserved) = self.unserved.get(&cpu) else { return time };
        let before = unserved.partition_point(|&(start, _)| start < time);
        match before.checked_sub(1).map(|last| unserved[last]) {
            Some((start, end)) if time < end => start,
            _ => time,
        }
    }

    fn claim(&self, row: Row, by: &[u64]) -> Claim {
        let observed = self.covered(0);
        let (mut reached, mut total, mut shifts) = (0, 0.0, 0);
        if observed > 0.0 {
            for &shift in by {
                let found = self.covered(shift);
                total += found;
                shifts += 1;
                reached += u32::from(found >= observed);
                if reached >= ENOUGH {
                    break;
                }
            }
        }
        let expected = if shifts == 0 { 0.0 } else { total / f64::from(shifts) };
        let p = match (shifts, reached) {
            (0, _) => 1.0,
            (_, ENOUGH) => f64::from(reached) / f64::from(shifts),
            _ => f64::from(reached + 1) / f64::from(shifts + 1),
        };
        Claim { row, observed, expected, shifts, p }
    }
}
