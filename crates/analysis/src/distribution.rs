//! An exact distribution of non-negative integers (nanoseconds), as counts for each value.
//!
//! Latencies and gaps crowd in a narrow range: values below [`DENSE`] are counted in an array,
//! one counter for each nanosecond; rarer larger ones are kept as they are and folded into sorted
//! `(value, count)` runs whenever many have gathered. Nothing is rounded, and two distributions
//! merge into that of the whole.

/// Values below this are counted in an array: 2^22 ns, about 4.2 ms.
const DENSE: u64 = 1 << 22;
/// Loose large values are folded into runs when this many have gathered.
const FOLD_AT: usize = 1 << 20;

/// An exact distribution of `u64` values.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    dense: Vec<u64>,
    /// Values of at least `DENSE` as (value, count), sorted by value.
    runs: Vec<(u64, u64)>,
    /// Values of at least `DENSE`, not yet folded.
    loose: Vec<u64>,
    count: u64,
    sum: u128,
}

impl Distribution {
    /// An empty distribution.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        if let Some(counter) = self.dense.get_mut(value as usize) {
            *counter += 1;
        } else {
            self.record_rare(value);
        }
    }

    #[cold]
    fn record_rare(&mut self, value: u64) {
        if value < DENSE {
            // Allocated at the first value: an empty distribution costs nothing, and the system
            // hands out zeroed pages only where counters are touched.
            self.dense = vec![0; DENSE as usize];
            self.dense[value as usize] = 1;
            return;
        }
        self.loose.push(value);
        if self.loose.len() >= FOLD_AT {
            self.fold();
        }
    }

    /// Sorts the loose values into the runs.
    fn fold(&mut self) {
        if self.loose.is_empty() {
            return;
        }
        self.loose.sort_unstable();
        let loose = std::mem::take(&mut self.loose);
        let fresh = loose.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u64));
        self.runs = merge_runs(&self.runs, fresh);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        if !other.dense.is_empty() {
            if self.dense.is_empty() {
                self.dense = other.dense.clone();
            } else {
                for (mine, theirs) in self.dense.iter_mut().zip(&other.dense) {
                    *mine += theirs;
                }
            }
        }
        self.loose.extend_from_slice(&other.loose);
        self.fold();
        self.runs = merge_runs(&self.runs, other.runs.iter().copied());
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
    pub fn counts(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.fold();
        let dense = self.dense.iter().enumerate();
        dense
            .filter(|(_, count)| **count > 0)
            .map(|(value, count)| (value as u64, *count))
            .chain(self.runs.iter().copied())
    }

    /// The values at the given ranks (1 = smallest), which must ascend and lie in `1..=count`.
    pub fn at_ranks(&mut self, ranks: &[u64]) -> Vec<u64> {
        debug_assert!(ranks.iter().all(|&r| (1..=self.count).contains(&r)));
        at_ranks(self.counts(), ranks)
    }

    /// Counts for each bucket of `width` (at least 1), as (lower edge, count), ascending, without
    /// empty buckets.
    pub fn histogram(&mut self, width: u64) -> Vec<(u64, u64)> {
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

    /// Values on both sides of the border between array and runs, with ties.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = prop_oneof![0..50u64, DENSE - 3..DENSE + 3, Just(u64::MAX), 0..1u64 << 40];
        proptest::collection::vec(value, 1..200)
    }

    proptest! {
        // Each case clears megabytes of counters.
        #![proptest_config(ProptestConfig::with_cases(32))]

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
            let mut whole = of(&input);
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
