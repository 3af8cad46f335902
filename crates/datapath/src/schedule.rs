//! When each packet of constant bit rate traffic is due, without drift.

/// Times `start + k / rate`, rounded down to nanoseconds, for k = 0, 1, …
#[derive(Clone, Debug)]
pub struct Schedule {
    due: u64,
    /// Nanoseconds between packets: whole, and the remainder in 1/rate.
    step: u64,
    step_rest: u64,
    rest: u64,
    rate: u64,
}

impl Schedule {
    /// A schedule of `rate` packets a second (at least 1), the first at `start_ns`.
    pub fn new(start_ns: u64, rate: u64) -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self { due: start_ns, step: SECOND / rate, step_rest: SECOND % rate, rest: 0, rate }
    }

    /// When the next packet is due.
    #[inline]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Goes on to the packet after it.
    #[inline]
    pub fn advance(&mut self) {
        self.due += self.step;
        self.rest += self.step_rest;
        if self.rest >= self.rate {
            self.rest -= self.rate;
            self.due += 1;
        }
    }
}

/// Packets that start within `duration_ns` at `rate` packets a second; `None` beyond 2^64.
pub fn packets_in(duration_ns: u64, rate: u64) -> Option<u64> {
    let packets = u128::from(duration_ns) * u128::from(rate) / 1_000_000_000;
    u64::try_from(packets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_packet_drifts(rate in 1..20_000_000u64, start in 0..1u64 << 50) {
            let mut schedule = Schedule::new(start, rate);
            for k in 0..2000u64 {
                let exact = u128::from(start) + u128::from(k) * 1_000_000_000 / u128::from(rate);
                prop_assert_eq!(u128::from(schedule.due()), exact);
                schedule.advance();
            }
        }
    }

    #[test]
    fn durations_become_counts() {
        assert_eq!(packets_in(1_000_000_000, 3), Some(3));
        assert_eq!(packets_in(999_999_999, 1), Some(0));
        assert_eq!(packets_in(1_500_000_000, 10_000), Some(15_000));
        assert_eq!(packets_in(u64::MAX, u64::MAX), None);
    }
}
