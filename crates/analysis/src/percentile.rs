//! Exact percentiles and how well they are known.
//!
//! A percentile is the nearest-rank order statistic, as SQL's `percentile_disc` defines it: the
//! smallest value whose share of values at or below it is at least p. Its confidence interval is
//! distribution-free: the number of values below the true quantile is binomial, so two order
//! statistics enclose it with a known probability whatever the distribution of the values (H. A.
//! David, H. N. Nagaraja, Order Statistics, 3rd edition, section 7.1).

use crate::distribution::at_ranks;

/// Fewer values above a percentile than this, and it is not supported by the data.
pub const SUPPORT: u64 = 10;
/// Confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// A percentile of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// Which one, 0 to 1.
    pub p: f64,
    /// Its value.
    pub value: u64,
    /// Lower end of the confidence interval; none where it lies below every value.
    pub low: Option<u64>,
    /// Upper end of the confidence interval; none where it lies above every value.
    pub high: Option<u64>,
    /// How many values have a higher rank.
    pub above: u64,
    /// Whether that is enough for the percentile to mean something.
    pub supported: bool,
}

/// The nearest rank (1 to `count`) of percentile `p`: the least k with k / count >= p.
pub fn nearest_rank(p: f64, count: u64) -> u64 {
    let n = count as f64;
    let rank = (p * n).ceil().clamp(1.0, n);
    // The product may be rounded past a whole number: 0.07 * 100 > 7, and what lies next above 1 / 3
    // has 1 of 3.
    let off = match rank {
        one if one > 1.0 && (one - 1.0) / n >= p => -1.0,
        short if short < n && short / n < p => 1.0,
        _ => 0.0,
    };
    (rank + off) as u64
}

/// The percentiles `ps` (each 0 to 1, in any order) of a distribution given as distinct values,
/// ascending, and how often each occurs; none of an empty one.
pub fn percentiles(counts: &[(u64, u64)], ps: &[f64]) -> Vec<Percentile> {
    let count = counts.iter().fold(0, |sum: u64, &(_, count)| sum.saturating_add(count));
    if count == 0 {
        return Vec::new();
    }
    struct Ranks {
        value: u64,
        low: Option<u64>,
        high: Option<u64>,
    }
    let ranks: Vec<Ranks> = ps
        .iter()
        .map(|&p| {
            let (low, high) = interval_ranks(p, count);
            Ranks { value: nearest_rank(p, count), low, high }
        })
        .collect();
    let mut wanted: Vec<u64> =
        ranks.iter().flat_map(|r| [Some(r.value), r.low, r.high]).flatten().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let values = at_ranks(counts.iter().copied(), &wanted);
    let value_at = |rank: u64| values[wanted.partition_point(|&w| w < rank)];
    ps.iter()
        .zip(&ranks)
        .map(|(&p, ranks)| {
            let above = count - ranks.value;
            Percentile {
                p,
                value: value_at(ranks.value),
                low: ranks.low.map(value_at),
                high: ranks.high.map(value_at),
                above,
                supported: above >= SUPPORT,
            }
        })
        .collect()
}

/// Ranks of the order statistics that enclose quantile `p` of the population with at least
/// [`CONFIDENCE`], each tail having at most half of the rest.
fn interval_ranks(p: f64, count: u64) -> (Option<u64>, Option<u64>) {
    if p <= 0.0 || p >= 1.0 {
        return (None, None);
    }
    let low = binomial_quantile(count, p);
    // The upper end by symmetry: successes and failures change places.
    let high = count - binomial_quantile(count, 1.0 - p) + 1;
    ((low >= 1).then_some(low), (high <= count).then_some(high))
}

/// From so many deviations on, a quantile comes from its expansion instead of a sum.
const WIDE: f64 = 1e4;
/// P(Z <= -NORMAL) = 0.025 for a standard normal Z.
const NORMAL: f64 = 1.959_963_984_540_054;

/// The least k with P(X <= k) >= (1 - [`CONFIDENCE`]) / 2, for X binomial with `n` trials of
/// probability `p`.
///
/// Sums the probabilities from far out in the lower tail, each from the one before it. What lies
/// below 8 deviations (and 60, for the skewed case of few successes) is less than 10^-14 of the
/// whole, and what lies there is still far above the least positive float.
///
/// The sum ends at the mean at the latest, whatever the floats do: the median of a binomial is
/// within one of its mean, so more than the wanted tail lies below that. With the start above, these
/// are at most 8 deviations and 62 steps, and deviations are below [`WIDE`]. Beyond, the expansion
/// of Cornish and Fisher is less than one rank off, and has no steps at all.
fn binomial_quantile(n: u64, p: f64) -> u64 {
    let (trials, q) = (n as f64, 1.0 - p);
    if q == 0.0 {
        return n;
    }
    let mean = trials * p;
    let deviation = (mean * q).sqrt();
    if deviation > WIDE {
        let skewed = (NORMAL * NORMAL - 1.0) * (q - p) / 6.0;
        return (mean - NORMAL * deviation + skewed - 0.5).round().clamp(0.0, trials) as u64;
    }
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let last = (mean.ceil() + 1.0).min(trials);
    let mut k = (mean - 8.0 * deviation - 60.0).floor().max(0.0);
    let mut probability = binomial(k, trials, p);
    let mut sum = probability;
    while sum < tail && k < last {
        probability *= (trials - k) / (k + 1.0) * (p / q);
        k += 1.0;
        sum += probability;
    }
    k as u64
}

/// P(X = k) for X binomial, to the last digits also where the factorials have no digits behind the
/// point: the saddle-point form of C. Loader, Fast and accurate computation of binomial
/// probabilities (2000).
fn binomial(k: f64, n: f64, p: f64) -> f64 {
    let q = 1.0 - p;
    if k == 0.0 {
        return (n * (-p).ln_1p()).exp();
    }
    if k == n {
        return (n * p.ln()).exp();
    }
    let rest = n - k;
    let exponent = stirling_error(n)
        - stirling_error(k)
        - stirling_error(rest)
        - deviance(k, n * p)
        - deviance(rest, n * q);
    exponent.exp() * (n / (2.0 * std::f64::consts::PI * k * rest)).sqrt()
}

/// x ln(x / m) + m - x, without cancellation where x is near m.
fn deviance(x: f64, m: f64) -> f64 {
    let apart = (x - m) / m;
    if apart.abs() > 0.1 {
        return x * (x / m).ln() + m - x;
    }
    // (1 + a) ln(1 + a) - a = sum of (-a)^j / (j (j - 1)) from j = 2 on; 0.1^17 ends it.
    let mut power = -apart;
    let mut sum = 0.0;
    for j in 2..17 {
        power *= -apart;
        sum += power / f64::from(j * (j - 1));
    }
    m * sum
}

/// ln x! less Stirling's formula for it; exact products where the series is poor.
fn stirling_error(x: f64) -> f64 {
    if x < 16.0 {
        let half_ln_two_pi = 0.918_938_533_204_672_8;
        let factorial: f64 = (2..=x as u64).map(|k| (k as f64).ln()).sum();
        return factorial - (x + 0.5) * x.ln() + x - half_ln_two_pi;
    }
    let inverse = 1.0 / x;
    inverse / 12.0 - inverse.powi(3) / 360.0 + inverse.powi(5) / 1260.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_is_the_least_that_covers_p() {
        for (p, count, rank) in [
            (0.0, 10, 1),
            (0.5, 10, 5),
            (0.51, 10, 6),
            (0.07, 100, 7),
            (0.999, 1000, 999),
            (1.0, 10, 10),
            (0.999_999, 10, 10),
            (0.5, 1, 1),
            (1.0 / 3.0, 3, 1),
            ((1.0f64 / 3.0).next_up(), 3, 2),
        ] {
            assert_eq!(nearest_rank(p, count), rank, "p {p} of {count}");
        }
    }

    #[test]
    fn quantiles_of_small_binomials_are_those_of_the_full_sum() {
        for n in [1u64, 2, 5, 17, 60, 300] {
            for p in [0.001, 0.1, 0.5, 0.9, 0.999] {
                let mut probability = (1.0f64 - p).powi(n as i32);
                if probability == 0.0 {
                    continue; // too small for this way of computing it
                }
                let (mut sum, mut k) = (probability, 0);
                while sum < 0.025 {
                    probability *= (n - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
                    sum += probability;
                    k += 1;
                }
                assert_eq!(binomial_quantile(n, p), k, "n {n} p {p}");
            }
        }
    }

    #[test]
    fn interval_of_the_median_of_many_is_about_one_deviation_times_1_96() {
        let count = 1_000_000;
        let (low, high) = interval_ranks(0.5, count);
        assert_eq!((low, high), (Some(499_020), Some(500_981)));
    }

    #[test]
    fn quantiles_of_any_count_are_found_in_few_steps() {
        for n in [1_000_000_000_000_000u64, 1 << 53, 1 << 62] {
            for p in [1e-18, 1e-9, 0.025, 0.5, 0.999_999_999, 1.0 - 1e-16] {
                let (low, high) = interval_ranks(p, n);
                let rank = nearest_rank(p, n);
                // Beyond 2^53 floats have no digits for the difference, and it only has to end.
                let exact = n <= 1 << 53;
                assert!(!exact || low.is_none_or(|low| low <= rank), "{n} {p}: {low:?} {rank}");
                assert!(!exact || high.is_none_or(|high| high >= rank), "{n} {p}: {high:?} {rank}");
            }
        }
    }

    #[test]
    fn sum_and_expansion_agree_where_one_follows_the_other() {
        for p in [0.5, 0.1, 0.9, 0.001] {
            let n = (0.999 * WIDE * WIDE / (p * (1.0 - p))) as u64;
            let deviation = (n as f64 * p * (1.0 - p)).sqrt();
            let skewed = (NORMAL * NORMAL - 1.0) * (1.0 - 2.0 * p) / 6.0;
            let expanded = n as f64 * p - NORMAL * deviation + skewed - 0.5;
            let summed = binomial_quantile(n, p) as f64;
            assert!((summed - expanded).abs() <= 1.0, "p {p}: {summed} {expanded}");
        }
    }

    #[test]
    fn interval_without_enough_values_is_open() {
        assert_eq!(interval_ranks(0.999, 100), (Some(99), None));
        assert_eq!(interval_ranks(0.001, 100).0, None);
    }

    #[test]
    fn few_values_above_are_no_support() {
        let counts: Vec<_> = (1..=1000).map(|value| (value, 1)).collect();
        let found = percentiles(&counts, &[0.999, 0.5, 0.99]);
        let summary: Vec<_> = found.iter().map(|p| (p.value, p.above, p.supported)).collect();
        assert_eq!(summary, [(999, 1, false), (500, 500, true), (990, 10, true)]);
        assert!(found.iter().all(|p| p.low.is_none_or(|low| low <= p.value)));
        assert!(percentiles(&[], &[0.5]).is_empty());
    }
}
