//! On and off: a constant rate that is cut into pieces with silence between them.

use super::constant;

/// Times of packets at `rate` for `on_ns`, then none for `off_ns`, and so on.
pub fn times(rate: u64, on_ns: u64, off_ns: u64) -> impl Iterator<Item = u64> + Send {
    constant::times(rate).map(move |time| time + (time / on_ns).saturating_mul(off_ns))
}

/// How much of the first `duration_ns` packets are sent in.
pub fn time_on(duration_ns: u64, on_ns: u64, off_ns: u64) -> u64 {
    let period = on_ns + off_ns;
    duration_ns / period * on_ns + (duration_ns % period).min(on_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_leave_only_while_it_is_on(
            rate in 1000..20_000_000u64, on in 1..5_000_000u64, off in 0..5_000_000u64,
        ) {
            for (k, time) in (0..2000u64).zip(times(rate, on, off)) {
                prop_assert!(time % (on + off) < on);
                // Without the silences it is the constant rate.
                let plain = time / (on + off) * on + time % (on + off);
                prop_assert_eq!(plain, k * 1_000_000_000 / rate);
            }
        }
    }

    #[test]
    fn the_last_piece_counts_as_far_as_it_goes() {
        assert_eq!(time_on(100, 3, 7), 30);
        assert_eq!(time_on(102, 3, 7), 32);
        assert_eq!(time_on(107, 3, 7), 33);
    }
}
