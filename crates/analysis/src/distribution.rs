//! An exact distribution of non-negative integers (nanoseconds), as counts for each value.
//!
//! Latencies and gaps crowd in a narrow range: values below [`DENSE`] are counted in an array,
//! one counter for each nanosecond; rarer larger ones are kept as they are and folded into sorted
//! `(value, count)` runs whenever many have gathered. Of few values most are kept as they are: an
//! array takes longer to clear and to look through than they do. Nothing is rounded, and two
//! distributions merge into that of the whole.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Values below this are counted in an array: 2^22 ns, about 4.2 ms.
const DENSE: u64 = 1 << 22;
/// The array has at least this many counters.
const MIN_LENGTH: usize = 1 << 12;
/// The array has no more counters than this for each value.
const COUNTERS: u64 = 64;
/// Loose large values are folded into runs when this many have gathered, or as many as there are
/// runs: the time that folding takes stays in proportion to the values.
const FOLD_AT: usize = 1 << 20;

/// An exact distribution of `u64` values.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Distribution {
    dense: Vec<u64>,
    /// Values beyond the array as (value, count), sorted by value.
    runs: Vec<(u64, u64)>,
    /// Values beyond the array, not yet folded.
    loose: Vec<u64>,
    count: u64,
    sum: u128,
}

impl Distribution {
    /// An empty distribution.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty distribution whose counters for values up to `value` are in memory already, so that
    /// recording one costs no more than counting.
    ///
    /// # Panics
    /// If values as large as `value` are not counted in an array (2^22 and more).
    pub fn reaching(value: u64) -> Self {
        assert!(value < DENSE, "{value} has no counter");
        let mut distribution = Self::new();
        distribution.reach(value);
        distribution
    }

    /// Adds values.
    #[inline]
    pub fn record_all(&mut self, values: impl IntoIterator<Item = u64>) {
        // The sum of values that are counted in the array has room in a word.
        let (mut count, mut sum) = (0, 0);
        for value in values {
            if let Some(counter) = self.dense.get_mut(value as usize) {
                count += 1;
                sum += value;
                *counter += 1;
            } else {
                self.record_rare(value);
            }
        }
        self.count += count;
        self.sum += u128::from(sum);
    }

    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_all([value]);
    }

    #[cold]
    fn record_rare(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        if value < self.worth() {
            self.reach(value);
            self.dense[value as usize] += 1;
            return;
        }
        self.loose.push(value);
        if self.loose.len() >= self.runs.len().max(FOLD_AT) {
            self.fold();
        }
    }

    /// Values below this have a counter as soon as they occur.
    fn worth(&self) -> u64 {
        self.count.saturating_mul(COUNTERS).clamp(MIN_LENGTH as u64, DENSE)
    }

    /// Makes the array reach up to a value below `DENSE`. It is as long as it has to be, so that
    /// distributions of small values are small.
    fn reach(&mut self, value: u64) {
        let length = (value as usize + 1).next_power_of_two().max(MIN_LENGTH);
        if length > self.dense.len() {
            self.dense.resize(length, 0);
            self.fold();
            self.settle();
        }
    }

    /// Counts in the array what it has counters for.
    fn settle(&mut self) {
        let length = self.dense.len() as u64;
        let within = self.runs.partition_point(|run| run.0 < length);
        for (value, count) in self.runs.drain(..within) {
            self.dense[value as usize] += count;
        }
    }

    /// Sorts the loose values into the runs.
    fn fold(&mut self) {
        if !self.loose.is_empty() {
            self.runs = self.folded().into_owned();
            self.loose.clear();
        }
    }

    /// The runs with the loose values sorted in.
    fn folded(&self) -> Cow<'_, [(u64, u64)]> {
        if self.loose.is_empty() {
            return Cow::Borrowed(&self.runs);
        }
        let mut loose = self.loose.clone();
        loose.sort_unstable();
        let fresh = loose.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u64));
        Cow::Owned(merge_runs(&self.runs, fresh))
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        if let Some(last) = other.dense.len().checked_sub(1) {
            self.reach(last as u64);
            self.dense.iter_mut().zip(&other.dense).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.loose.extend_from_slice(&other.loose);
        self.fold();
        self.runs = merge_runs(&self.runs, other.runs.iter().copied());
        self.settle();
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Arithmetic mean; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// All distinct values with their counts, ascending.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let runs = self.folded();
        let runs = (0..runs.len()).map(move |i| runs[i]);
        let dense = self.dense.iter().enumerate().filter(|(_, count)| **count > 0);
        dense.map(|(value, count)| (value as u64, *count)).chain(runs)
    }

    /// The values at the given ranks (1 = smallest), which must ascend and lie in `1..=count`.
    pub fn at_ranks(&self, ranks: &[u64]) -> Vec<u64> {
        debug_assert!(ranks.iter().all(|&r| (1..=self.count).contains(&r)));
        at_ranks(self.counts(), ranks)
    }

    /// The least value that at most `most` values reach, if that is one of those below it that are
    /// counted in the array; found from above, in the time that it takes to pass the counters.
    pub fn floor(&self, most: u64) -> Option<u64> {
        let runs: u64 = self.runs.iter().map(|&(_, count)| count).sum();
        let mut above = runs + self.loose.len() as u64;
        for (value, count) in self.dense.iter().enumerate().rev() {
            if above + count > most {
                return (above <= most).then_some(value as u64 + 1);
            }
            above += count;
        }
        None
    }

    /// Counts for each bucket of `width` (at least 1), as (lower edge, count), ascending, without
    /// empty buckets.
    pub fn histogram(&self, width: u64) -> Vec<(u64, u64)> {
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for (value, count) in self.counts() {
            let edge = value / width * width;
            match buckets.last_mut() {
                Some((last, sum)) if *last == edge => *sum += count,
                _ => buckets.push((edge, count)),
            }
        }
        buckets
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counts()).finish()
    }
}

impl PartialEq for Distribution {
    fn eq(&self, other: &Self) -> bool {
        self.counts().eq(other.counts())
    }
}

impl From<Distribution> for Vec<(u64, u64)> {
    fn from(distribution: Distribution) -> Self {
        distribution.counts().collect()
    }
}

impl From<Vec<(u64, u64)>> for Distribution {
    /// From distinct values, ascending, and how often each occurs.
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut distribution = Self {
            count: counts.iter().map(|&(_, count)| count).sum(),
            sum: counts.iter().map(|&(value, count)| u128::from(value) * u128::from(count)).sum(),
            ..Self::default()
        };
        let worth = distribution.worth();
        let counted = counts.partition_point(|&(value, _)| value < worth);
        distribution.runs = counts;
        if let Some(last) = counted.checked_sub(1) {
            distribution.reach(distribution.runs[last].0);
        }
        distribution
    }
}

/// The values at the given ranks (1 = smallest), which must ascend, of a distribution given as
/// distinct values, ascending, and how often each occurs.
pub fn at_ranks(counts: impl Iterator<Item = (u64, u64)>, ranks: &[u64]) -> Vec<u64> {
    debug_assert!(ranks.is_sorted());
    let mut values = Vec::with_capacity(ranks.len());
    let mut wanted = ranks.iter().peekable();
    let mut below = 0;
    for (value, count) in counts {
        below += count;
        while wanted.next_if(|&&rank| rank <= below).is_some() {
            values.push(value);
        }
        if wanted.peek().is_none() {
            break;
        }
    }
    values
}

fn merge_runs(old: &[(u64, u64)], fresh: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut merged = Vec::with_capacity(old.len());
    let mut old = old.iter().copied().peekable();
    for (value, count) in fresh {
        while let Some(run) = old.next_if(|run| run.0 < value) {
            merged.push(run);
        }
        let same = old.next_if(|run| run.0 == value).map_or(0, |run| run.1);
        merged.push((value, count + same));
    }
    merged.extend(old);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::new();
        values.iter().for_each(|&v| distribution.record(v));
        distribution
    }

    /// Values on both sides of the borders between array and runs, with ties.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = prop_oneof![
            0..50u64,
            4_090..4_100u64,
            8_190..8_200u64,
            DENSE - 3..DENSE + 3,
            Just(u64::MAX),
            0..1u64 << 40
        ];
        proptest::collection::vec(value, 1..200)
    }

    #[test]
    fn counters_made_beforehand_count_the_same() {
        let values = [0, 7, 65_535, 65_536, DENSE, 7];
        let (mut plain, mut reaching) = (Distribution::new(), Distribution::reaching(65_535));
        assert_eq!(reaching, plain);
        assert_eq!(reaching.dense.len(), 65_536);
        plain.record_all(values);
        reaching.record_all(values);
        assert_eq!(reaching, plain);
        assert_eq!(Vec::from(reaching), Vec::from(plain));
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_the_sorted_values(mut input in values()) {
            let ranks: Vec<u64> = (1..=input.len() as u64).collect();
            let found = of(&input).at_ranks(&ranks);
            input.sort_unstable();
            prop_assert_eq!(found, input);
        }

        #[test]
        fn merging_parts_equals_the_whole(input in values(), cut in 0..200usize) {
            let (left, right) = input.split_at(cut.min(input.len()));
            let mut merged = of(left);
            merged.merge(&of(right));
            let whole = of(&input);
            prop_assert_eq!(merged.count(), whole.count());
            prop_assert_eq!(merged.sum(), whole.sum());
            prop_assert_eq!(merged.counts().collect::<Vec<_>>(), whole.counts().collect::<Vec<_>>());
        }

        #[test]
        fn histogram_keeps_every_value(input in values(), width in 1..1000u64) {
            let histogram = of(&input).histogram(width);
            prop_assert_eq!(histogram.iter().map(|b| b.1).sum::<u64>(), input.len() as u64);
            prop_assert!(histogram.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(input.iter().all(|v| histogram.iter().any(|b| b.0 == v / width * width)));
        }
    }
}
