//! A ramp: the rate changes evenly from one value to another, and stays there.
//!
//! After t ns the ramp over T ns from a to b packets a second has sent
//! N(t) = (a t + (b - a) t² / 2T) / 10^9. Packet k is due at the last whole nanosecond with
//! N(t) <= k: found in floating point and corrected in integers.

use super::SECOND;

/// The times of a ramp.
#[derive(Debug)]
pub struct Ramp {
    from: i128,
    to: i128,
    over: i128,
    next: i128,
}

impl Ramp {
    /// A ramp from `from` to `to` packets a second (1 to 10^9) over `over_ns` (1 ns to a day).
    pub fn new(from: u64, to: u64, over_ns: u64) -> Self {
        Self { from: from.into(), to: to.into(), over: over_ns.into(), next: 0 }
    }

    /// Packets due before `ns`, fractions included, in units of 1 / (2 T 10^9). Within a ramp of a
    /// day that is at most 2 · (8.7 · 10^13)² · 10^9, which fits.
    fn sent(&self, ns: i128) -> i128 {
        let within = ns.min(self.over);
        let ramp = 2 * self.over * self.from * within + (self.to - self.from) * within * within;
        (2 * self.over * self.to).saturating_mul(ns - within).saturating_add(ramp)
    }

    /// One packet, in the units of [`Ramp::sent`].
    fn packet(&self) -> i128 {
        2 * self.over * i128::from(SECOND)
    }

    /// Whole packets that belong to the first `duration_ns`.
    pub fn packets_in(&self, duration_ns: u64) -> u64 {
        let packets = self.sent(duration_ns.into()) / self.packet();
        u64::try_from(packets).unwrap_or(u64::MAX)
    }

    /// When packet `k` is due, roughly.
    fn estimate(&self, k: i128) -> i128 {
        let [from, to, over] = [self.from, self.to, self.over].map(|value| value as f64);
        let packets = k as f64 * SECOND as f64;
        let ramp = (from + to) / 2.0 * over;
        if packets >= ramp {
            return (over + (packets - ramp) / to) as i128;
        }
        // The root that does not subtract nearly equal numbers, and does for from = to.
        let slope = (to - from) / over;
        (2.0 * packets / (from + (from * from + 2.0 * slope * packets).max(0.0).sqrt())) as i128
    }
}

impl Iterator for Ramp {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let wanted = self.next * self.packet();
        let mut time = self.estimate(self.next);
        while self.sent(time) > wanted {
            time -= 1;
        }
        while self.sent(time + 1) <= wanted {
            time += 1;
        }
        self.next += 1;
        Some(time as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_RAMP_NS;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ramp_to_the_same_rate_is_constant(
            rate in 1..20_000_000u64, over in 1..10_000_000_000u64,
        ) {
            for (k, time) in (0..2000u64).zip(Ramp::new(rate, rate, over)) {
                prop_assert_eq!(time, k * 1_000_000_000 / rate);
            }
        }

        #[test]
        fn each_packet_is_due_at_the_last_moment_that_is_not_too_late(
            from in 1..20_000_000u64, to in 1..20_000_000u64, over in 1..10_000_000_000u64,
            skipped in 0..4_000_000_000i128,
        ) {
            let mut ramp = Ramp { next: skipped, ..Ramp::new(from, to, over) };
            for k in skipped..skipped + 50 {
                let time = i128::from(ramp.next().expect("endless"));
                let wanted = k * ramp.packet();
                prop_assert!(ramp.sent(time) <= wanted && wanted < ramp.sent(time + 1));
            }
        }

        /// Half of the time brings the packets of the mean rate of that half.
        #[test]
        fn the_rate_grows_evenly(from in 1000..1_000_000u64, to in 1000..1_000_000u64) {
            let ramp = Ramp::new(from, to, 2_000_000_000);
            prop_assert_eq!(ramp.packets_in(1_000_000_000), (3 * from + to) / 4);
            prop_assert_eq!(ramp.packets_in(2_000_000_000), from + to);
            prop_assert_eq!(ramp.packets_in(3_000_000_000), from + 2 * to);
        }
    }

    #[test]
    fn the_longest_ramp_at_the_highest_rate_fits() {
        let ramp = Ramp::new(SECOND, SECOND, MAX_RAMP_NS);
        assert_eq!(ramp.packets_in(MAX_RAMP_NS), MAX_RAMP_NS);
        assert!(ramp.packets_in(u64::MAX) > 1 << 40);
    }
}
