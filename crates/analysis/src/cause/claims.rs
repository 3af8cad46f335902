//! What chance would give: the same events shifted against the packets.
//!
//! Besag, J. and Clifford, P. (1991), Sequential Monte Carlo p-values, Biometrika 78, 301-304: a test
//! may end when `ENOUGH` shifts have reached what was observed.

use std::thread;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::join::Join;
use super::shifts::{Class, Part, Walk};
use super::{NOTHING, Row, SERVING};
use crate::edges::Span;

/// Shifts that reach what was observed, after which a test ends.
const ENOUGH: u32 = 10;
/// Shifts that are made at once to begin with: most rows have reached their end then.
const FIRST: usize = 32;
/// Numbers that are kept at once, one for each shift, window and row.
const MOST: usize = 1 << 22;

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

/// The windows of a test, and where they may be shifted.
struct Test<'a> {
    join: &'a Join<'a>,
    windows: &'a [Window],
    span: Span,
    longer_than: u64,
}

/// The test of one row so far.
struct Progress {
    claim: Claim,
    /// Shifts that reached what was observed, and what all of them covered.
    reached: u32,
    total: f64,
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
        let test = Test { join: self, windows: &windows, span, longer_than };
        let mut rows: Vec<_> = tested.iter().map(|&row| Progress::new(row)).collect();
        let mut open: Vec<&mut Progress> = rows.iter_mut().collect();
        if open.is_empty() {
            return Vec::new();
        }
        test.shift(&mut open, &[0], Progress::observe);
        open.retain(|row| row.claim.observed > 0.0);
        let (mut made, mut share) = (0, FIRST);
        while made < by.len() && !open.is_empty() {
            let most = MOST / (windows.len() * open.len()).max(1);
            let end = by.len().min(made + share.min(most).max(1));
            test.shift(&mut open, &by[made..end], Progress::count);
            open.retain(|row| row.reached < ENOUGH);
            (made, share) = (end, 2 * share);
        }
        rows.into_iter().map(Progress::finish).collect()
    }
}

impl Progress {
    fn new(row: Row) -> Self {
        let claim = Claim { row, observed: 0.0, expected: 0.0, shifts: 0, p: 1.0 };
        Self { claim, reached: 0, total: 0.0 }
    }

    /// Takes what the row covers of the windows where they are.
    fn observe(&mut self, found: f64) {
        self.claim.observed = found;
    }

    /// Takes what the row covers of shifted windows.
    fn count(&mut self, found: f64) {
        if self.reached < ENOUGH {
            self.total += found;
            self.claim.shifts += 1;
            self.reached += u32::from(found >= self.claim.observed);
        }
    }

    fn finish(mut self) -> Claim {
        let shifts = self.claim.shifts;
        if shifts > 0 {
            self.claim.expected = self.total / f64::from(shifts);
            self.claim.p = match self.reached {
                ENOUGH => f64::from(ENOUGH) / f64::from(shifts),
                reached => f64::from(reached + 1) / f64::from(shifts + 1),
            };
        }
        self.claim
    }
}

impl Test<'_> {
    /// Tells each of some rows what it covers of the windows, shifted by each of some times.
    fn shift(&self, rows: &mut [&mut Progress], by: &[u64], tell: impl Fn(&mut Progress, f64)) {
        let mut classes = vec![Class::Other; self.join.rows.len()];
        for (class, row) in classes.iter_mut().zip(self.join.rows) {
            *class = match (*row, rows.iter().position(|progress| progress.claim.row == *row)) {
                (SERVING, _) => Class::Serving,
                (NOTHING, _) => Class::Nothing,
                (_, Some(place)) => Class::Asked(place),
                _ => Class::Other,
            };
        }
        let (windows, rows_count) = (self.windows.len(), rows.len());
        let mut covered = vec![0; by.len() * windows * rows_count];
        for (parts, found) in self.walk(&classes, rows_count, by) {
            for (part, found) in parts.iter().zip(found.chunks_exact(rows_count)) {
                let covered = &mut covered[part.slot * rows_count..][..rows_count];
                covered.iter_mut().zip(found).for_each(|(sum, ns)| *sum += ns);
            }
        }
        for shifted in covered.chunks_exact(windows.max(1) * rows_count) {
            for (place, row) in rows.iter_mut().enumerate() {
                let share = |(window, at): (&Window, usize)| {
                    let ns = shifted[at * rows_count + place];
                    (ns as f64 / window.excess_ns.max(1) as f64).min(1.0)
                };
                tell(row, self.windows.iter().zip(0..).map(share).sum());
            }
        }
    }

    /// Walks along all cores, side by side: parts of shifted windows, and what rows cover of them.
    fn walk(&self, classes: &[Class], rows: usize, by: &[u64]) -> Vec<(Vec<Part>, Vec<u64>)> {
        let timelines = &self.join.cores.timelines;
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (&cpu, timeline) in timelines {
                let mut parts = self.parts(cpu, by);
                parts.sort_unstable();
                let share = parts.len().div_ceil(workers).max(1);
                let walk = Walk { timeline, classes, rows, longer_than: self.longer_than };
                threads.extend(parts.chunks(share).map(|parts| {
                    let parts = parts.to_vec();
                    scope.spawn(move || {
                        let found = walk.covered(&parts);
                        (parts, found)
                    })
                }));
            }
            threads.into_iter().map(|part| part.join().expect("walks do not panic")).collect()
        })
    }

    /// Where the windows of a core lie when they are shifted. Shifting the packets is the same as
    /// shifting the events the other way.
    fn parts(&self, cpu: u16, by: &[u64]) -> Vec<Part> {
        let Span { from_ns, until_ns } = self.span;
        let length = until_ns.saturating_sub(from_ns).max(1);
        let mut parts = Vec::new();
        let mut push = |from_ns, until_ns, slot, cut| {
            if from_ns < until_ns {
                parts.push(Part { from_ns, until_ns, slot, cut });
            }
        };
        for (place, shift) in by.iter().enumerate() {
            for (at, window) in self.windows.iter().enumerate().filter(|one| one.1.cpu == cpu) {
                let slot = place * self.windows.len() + at;
                let from = from_ns + (window.from_ns - from_ns + shift) % length;
                let until = from + (window.until_ns - window.from_ns);
                push(from, until.min(until_ns), slot, until <= until_ns);
                push(from_ns, from_ns + until.saturating_sub(until_ns), slot, true);
            }
        }
        parts
    }
}
