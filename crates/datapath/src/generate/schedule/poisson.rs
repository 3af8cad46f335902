//! Poisson arrivals: independent gaps of an exponential distribution.
//!
//! The gaps are drawn by von Neumann's method ("Various techniques used in connection with random
//! digits", 1951), which only compares uniform numbers: no logarithm, whose last digit differs
//! between machines, and no rounding. From a uniform number on, draw while they fall. If the run
//! that falls has odd length, its first number is the fraction of the result; the runs of even
//! length before it count one each.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::SECOND;

/// Binary digits after the point, of times while they are added up.
const FRACTION: u32 = 32;

/// Times of Poisson arrivals at a mean of `rate` a second.
pub fn times(rate: u64, seed: u64) -> impl Iterator<Item = u64> + Send {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mean = u128::from(SECOND << FRACTION) / u128::from(rate);
    let mut time = 0u128;
    std::iter::repeat_with(move || {
        time += (u128::from(exponential(&mut random)) * mean) >> FRACTION;
        (time >> FRACTION) as u64
    })
}

/// A number of the exponential distribution with mean 1, in units of 2^-32.
fn exponential(random: &mut impl Rng) -> u64 {
    let mut whole = 0;
    loop {
        let first = random.next_u64();
        let mut last = first;
        let mut odd = true;
        loop {
            let next = random.next_u64();
            if next > last {
                break;
            }
            last = next;
            odd = !odd;
        }
        if odd {
            return (whole << FRACTION) + (first >> FRACTION);
        }
        whole += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u64 = 100_000;
    const MEAN: f64 = 10_000.0;

    fn gaps(seed: u64, count: usize) -> Vec<f64> {
        let mut before = 0;
        times(RATE, seed)
            .take(count)
            .map(|time| (time - std::mem::replace(&mut before, time)) as f64)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        /// The largest distance between the gaps' distribution function and the exponential one
        /// (Kolmogorov), scaled by the root of the sample's size, exceeds 2.8 for one sample in
        /// three million; the gaps' correlation, scaled so, is normal.
        #[test]
        fn gaps_are_exponential_and_independent(seed: u64) {
            let gaps = gaps(seed, 20_000);
            let count = gaps.len() as f64;
            let mut sorted = gaps.clone();
            sorted.sort_by(f64::total_cmp);
            let distance = sorted.iter().enumerate().map(|(rank, gap)| {
                let expected = 1.0 - (-gap / MEAN).exp();
                (expected - rank as f64 / count).abs().max((expected - (rank + 1) as f64 / count).abs())
            });
            prop_assert!(distance.fold(0.0, f64::max) * count.sqrt() < 2.8);
            let product = gaps.windows(2).map(|pair| (pair[0] / MEAN - 1.0) * (pair[1] / MEAN - 1.0));
            prop_assert!((product.sum::<f64>() / count.sqrt()).abs() < 6.0);
        }

        /// Counts in equal times have the variance of a Poisson distribution: their mean.
        #[test]
        fn counts_vary_as_much_as_their_mean(seed: u64) {
            let mut counts = [0f64; 1000];
            for time in times(RATE, seed).take_while(|&time| time < 1_000_000_000) {
                counts[(time / 1_000_000) as usize] += 1.0;
            }
            let mean = counts.iter().sum::<f64>() / 1000.0;
            let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 999.0;
            prop_assert!((mean - 100.0).abs() < 6.0 * 0.32);
            // The ratio's standard deviation is the root of 2/999.
            prop_assert!((variance / mean - 1.0).abs() < 6.0 * 0.045);
        }
    }

    #[test]
    fn seeds_differ_and_times_stay_as_they_are() {
        assert_ne!(gaps(1, 10), gaps(2, 10));
        // Experiments of old must give the same traffic with every later version.
        let first: Vec<u64> = times(RATE, 1).take(4).collect();
        assert_eq!(first, FIRST);
    }

    const FIRST: [u64; 4] = [8116, 9962, 19831, 29035];
}
