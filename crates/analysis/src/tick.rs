//! The step in which the stamps of a capture come: what its clock resolves at best.

use serde::{Deserialize, Serialize};

use crate::series::Series;

/// Fewer packets say nothing: any few numbers may have a divisor in common.
const ENOUGH: u64 = 100;
/// Steps may be the traffic's and not the clock's, unless gaps are of this many lengths, or stamps equal.
const MANY: usize = 16;

/// The greatest common divisor of the differences of times. Whatever times are added, in whatever order
/// and grouping, the value is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// 0 while all times are equal.
    step: u64,
    /// What is left of all times when they are divided by the step; the time itself for a step of 0.
    rest: u64,
    any: bool,
}

impl Tick {
    /// Adds times.
    pub fn record_all(&mut self, times: &[u64]) {
        let mut left = times;
        while self.step != 1 {
            let fits = match (self.any, self.step) {
                (true, 0) => left.iter().position(|&time| time != self.rest),
                (true, step) => {
                    let divides = Divides::by(step);
                    left.iter().position(|&time| !divides.divides(time.abs_diff(self.rest)))
                }
                (false, _) => (!left.is_empty()).then_some(0),
            };
            let Some(place) = fits else { return };
            self.add(left[place]);
            left = &left[place + 1..];
        }
    }

    fn add(&mut self, time: u64) {
        self.merge(&Self { step: 0, rest: time, any: true });
    }

    /// Adds the times of another.
    pub fn merge(&mut self, other: &Self) {
        if !other.any {
            return;
        }
        if !self.any {
            *self = *other;
            return;
        }
        let apart = self.rest.abs_diff(other.rest);
        self.step = gcd(gcd(self.step, other.step), apart);
        if self.step > 0 {
            self.rest %= self.step;
        }
    }

    /// The step as far as it tells of the clock and not of the traffic, which `series` is of; in
    /// nanoseconds.
    pub fn of_clock(&self, series: &Series) -> Option<u64> {
        let gaps: Vec<u64> = series.gaps.counts().map(|(gap, _)| gap).take(MANY).collect();
        let clock = gaps.first() == Some(&0) || gaps.len() == MANY;
        let known = series.packets >= ENOUGH && gaps.len() > 1 && self.step > 0;
        (known && clock).then_some(self.step)
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Tells whether numbers can be divided by another without dividing: D. Lemire, O. Kaser and N. Kurz,
/// "Faster remainder by direct computation", Software: Practice and Experience 49 (2019), section 3.
struct Divides {
    inverse: u64,
    zeros: u32,
    most: u64,
}

impl Divides {
    fn by(divisor: u64) -> Self {
        let zeros = divisor.trailing_zeros();
        let odd = divisor >> zeros;
        // Newton's method doubles the bits that are right, of which there are three at first.
        let mut inverse = odd;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        Self { inverse, zeros, most: u64::MAX / divisor }
    }

    #[inline]
    fn divides(&self, number: u64) -> bool {
        number.wrapping_mul(self.inverse).rotate_right(self.zeros) <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tick(times: &[u64]) -> Tick {
        let mut tick = Tick::default();
        tick.record_all(times);
        tick
    }

    fn series(times: &[u64]) -> Series {
        let mut series = Series::default();
        series.record_all(times);
        series
    }

    #[test]
    fn the_step_of_a_clock_is_told_from_that_of_traffic() {
        let of = |times: &[u64]| tick(times).of_clock(&series(times));
        let every = |gap: u64| (0..200).map(|place| 7 + place * gap).collect::<Vec<_>>();
        // Ideal traffic: all gaps are equal.
        assert_eq!(of(&every(50_000)), None);
        assert_eq!(of(&every(1_000)), None);
        let jitter = |step: u64| -> Vec<u64> {
            (0..200u64)
                .map(|place| (place * 50_000 + place * place * 7919 % 40_009) / step * step)
                .collect()
        };
        assert_eq!(of(&jitter(1_000)), Some(1_000));
        assert_eq!(of(&jitter(8)), Some(8));
        assert_eq!(of(&jitter(1)), Some(1));
        assert_eq!(of(&jitter(1)[..50]), None);
        // Bursts of traffic that is ideal otherwise; and a clock so coarse that stamps are equal.
        let bursts: Vec<u64> =
            (0..200).map(|place| place / 2 * 90_000 + place % 2 * 10_000).collect();
        assert_eq!(of(&bursts), None);
        let coarse: Vec<u64> =
            (0..200).map(|place| place * 300_000 / 1_000_000 * 1_000_000).collect();
        assert_eq!(of(&coarse), Some(1_000_000));
    }

    proptest! {
        #[test]
        fn it_is_the_greatest_common_divisor_in_any_grouping(
            step in 1..5_000u64,
            start in 0..1u64 << 61,
            steps in proptest::collection::vec(0..1u64 << 40, 1..30),
            cut in any::<proptest::sample::Index>(),
        ) {
            let times: Vec<u64> = steps.iter().map(|n| start + n * step).collect();
            let whole = tick(&times);
            let expected = times.iter().map(|time| time.abs_diff(times[0])).fold(0, gcd);
            prop_assert_eq!(whole.step, expected);
            let (left, right) = times.split_at(cut.index(times.len()));
            for (one, other) in [(left, right), (right, left)] {
                let mut merged = tick(one);
                merged.merge(&tick(other));
                prop_assert_eq!(merged, whole);
            }
        }

        #[test]
        fn dividing_is_known_without_it(divisor in 1..1u64 << 40, number: u64) {
            prop_assert_eq!(Divides::by(divisor).divides(number), number % divisor == 0);
            let multiple = number / divisor * divisor;
            prop_assert!(Divides::by(divisor).divides(multiple));
        }
    }
}
