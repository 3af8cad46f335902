//! Constant bit rate: packet k is due at k / rate.

use super::SECOND;

/// Times `k / rate`, rounded down to nanoseconds, for k = 0, 1, …
pub fn times(rate: u64) -> impl Iterator<Item = u64> + Send {
    every(SECOND, rate)
}

/// Times `k · nanoseconds / parts`, rounded down, for k = 0, 1, …, without a division each.
pub fn every(nanoseconds: u64, parts: u64) -> impl Iterator<Item = u64> + Send {
    let (step, step_rest) = (nanoseconds / parts, nanoseconds % parts);
    let (mut due, mut rest) = (0u64, 0u64);
    std::iter::repeat_with(move || {
        let this = due;
        due += step;
        rest += step_rest;
        if rest >= parts {
            rest -= parts;
            due += 1;
        }
        this
    })
}

/// Packets that start within `duration_ns` and have their whole gap there.
pub fn packets_in(duration_ns: u64, rate: u64) -> u64 {
    let packets = u128::from(duration_ns) * u128::from(rate) / u128::from(SECOND);
    u64::try_from(packets).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_packet_drifts(rate in 1..20_000_000u64) {
            for (k, time) in (0..2000u64).zip(times(rate)) {
                let exact = u128::from(k) * 1_000_000_000 / u128::from(rate);
                prop_assert_eq!(u128::from(time), exact);
            }
        }
    }

    #[test]
    fn durations_become_counts() {
        assert_eq!(packets_in(1_000_000_000, 3), 3);
        assert_eq!(packets_in(999_999_999, 1), 0);
        assert_eq!(packets_in(1_500_000_000, 10_000), 15_000);
        assert_eq!(packets_in(u64::MAX, u64::MAX), u64::MAX);
    }
}
