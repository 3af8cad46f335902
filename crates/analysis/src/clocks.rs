//! Two clocks: the times of one, brought to the other, and what these may be off by.

use serde::{Deserialize, Serialize};

use crate::capture::LATEST_NS;

/// All times are later by this while two clocks are evaluated, so that none of them is before the
/// beginning of time. The widths of all [blocks](crate::blocks) divide it.
const LIFT_NS: i128 = 1 << 60;

/// The clock behind the device, said by the one before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Times of the clock behind the device, each with what the one before it showed then. Lines
    /// lead from each to the next.
    knots: Vec<(u64, u64)>,
    /// What the time of a packet behind the device may be off by, to either side.
    within_ns: u64,
}

/// What is to be taken off the times of an evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Off times before the device, in nanoseconds.
    pub ingress_ns: u64,
    /// Off times behind the device.
    pub egress_ns: u64,
    /// Off latencies, which may be below nothing then.
    pub latency_ns: u64,
}

impl Clocks {
    /// `knots` are times of the clock behind the device with those of the one before it; the
    /// truth is nowhere farther from the lines between them than `within_ns`. `None` unless there
    /// is a knot and both times ascend from each to the next.
    pub fn new(knots: Vec<(u64, u64)>, within_ns: u64) -> Option<Self> {
        let ascend = |pair: &[(u64, u64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        let known = !knots.is_empty() && knots.windows(2).all(ascend);
        (known && i128::from(within_ns) < LIFT_NS / 2).then_some(Self { knots, within_ns })
    }

    /// One clock, the stamps of which may be off by `within_ns`, to either side.
    pub fn one(within_ns: u64) -> Self {
        Self { knots: vec![(0, 0)], within_ns }
    }

    /// The same clocks where stamps may be off by so much more, as far as that can be.
    pub fn widened(&self, more_ns: u64) -> Self {
        let within_ns = self.within_ns.saturating_add(more_ns).min((LIFT_NS / 2 - 1) as u64);
        Self { knots: self.knots.clone(), within_ns }
    }

    /// What is added to times before the device. As these are earlier than they should be, no packet
    /// that may have been in time looks as if it had left before it came.
    pub fn ingress_shift_ns(&self) -> u64 {
        (LIFT_NS - i128::from(self.within_ns)) as u64
    }

    /// How long a packet that was in the device for one `window_ns` may seem to have been there.
    pub fn window_ns(&self, window_ns: u64) -> u64 {
        window_ns.saturating_add(2 * self.within_ns)
    }

    /// Brings times behind the device to the clock before it.
    pub fn convert(&self, times: &mut [u64]) {
        let last = self.knots.len().saturating_sub(2);
        let mut place = 0;
        for time in times {
            // Nearly all times come after the one before them.
            while place > 0 && *time < self.knots[place].0 {
                place -= 1;
            }
            while place < last && *time >= self.knots[place + 1].0 {
                place += 1;
            }
            let (theirs, ours) = self.knots[place];
            let since = i128::from(*time) - i128::from(theirs);
            let slower = self.knots.get(place + 1).map_or(0, |next| {
                let length = i128::from(next.0 - theirs);
                div_floor(since, i128::from(next.1 - ours) - length, length)
            });
            let found = i128::from(ours) + since + slower + LIFT_NS;
            *time = found.clamp(0, i128::from(LATEST_NS)) as u64;
        }
    }

    /// What the times and latencies of an evaluation are too large by.
    pub fn excess(&self) -> Excess {
        Excess {
            ingress_ns: self.ingress_shift_ns(),
            egress_ns: LIFT_NS as u64,
            latency_ns: self.within_ns,
        }
    }
}

/// `a * b / c` rounded down, for a positive `c`; in 64 bits where these are enough, which is faster.
fn div_floor(a: i128, b: i128, c: i128) -> i128 {
    let narrow = || {
        let (a, b, c) = (i64::try_from(a).ok()?, i64::try_from(b).ok()?, i64::try_from(c).ok()?);
        Some(i128::from(a.checked_mul(b)?.div_euclid(c)))
    };
    narrow().unwrap_or_else(|| (a * b).div_euclid(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn converted(clocks: &Clocks, times: &[u64]) -> Vec<i128> {
        let mut times = times.to_vec();
        clocks.convert(&mut times);
        times.into_iter().map(|time| i128::from(time) - LIFT_NS).collect()
    }

    #[test]
    fn one_knot_is_an_offset() {
        let clocks = Clocks::new(vec![(5_000, 100)], 7).expect("a knot");
        assert_eq!(converted(&clocks, &[5_000, 4_000, 9_999]), [100, -900, 5_099]);
        let off = clocks.excess();
        assert_eq!(off.egress_ns - off.ingress_ns, 7);
        assert_eq!(clocks.window_ns(100), 114);
    }

    #[test]
    fn knots_that_do_not_ascend_are_none() {
        for knots in [vec![], vec![(1, 1), (1, 2)], vec![(1, 2), (2, 2)], vec![(2, 1), (1, 2)]] {
            assert_eq!(Clocks::new(knots, 0), None);
        }
        assert_eq!(Clocks::new(vec![(1, 1)], u64::MAX), None);
    }

    proptest! {
        /// Times lie on the lines, in whatever order they come, and keep their order.
        #[test]
        fn times_lie_on_the_lines(
            start in (0..1u64 << 61, 0..1u64 << 60),
            steps in proptest::collection::vec((2_000..1u64 << 40, -900..900i64), 0..6),
            mut times in proptest::collection::vec(0..1u64 << 42, 1..50),
        ) {
            let mut knots = vec![start];
            for (step, drift) in steps {
                let last = knots[knots.len() - 1];
                knots.push((last.0 + step, last.1 + step.saturating_add_signed(drift)));
            }
            let clocks = Clocks::new(knots.clone(), 0).expect("they ascend");
            times.iter_mut().for_each(|time| *time += start.0);
            let found = converted(&clocks, &times);
            for (&time, &ours) in times.iter().zip(&found) {
                // The line of the last knot before this time, or the last line.
                let place = knots.iter().rposition(|knot| knot.0 <= time).unwrap_or(0);
                let place = place.min(knots.len().saturating_sub(2));
                let (r0, s0) = knots[place];
                let (r1, s1) = *knots.get(place + 1).unwrap_or(&(r0 + 1, s0 + 1));
                let product = i128::from(time - r0) * i128::from(s1 - s0);
                let exact = product - (ours - i128::from(s0)) * i128::from(r1 - r0);
                prop_assert!((0..i128::from(r1 - r0)).contains(&exact), "rounded down");
            }
            let mut pairs: Vec<_> = times.iter().zip(&found).collect();
            pairs.sort();
            prop_assert!(pairs.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        }
    }
}
