//! Bursts: n packets are due at once, and bursts follow each other at rate / n.

use super::SECOND;
use super::constant::every;

/// Times of bursts of `packets` at a mean of `rate` packets a second.
pub fn times(rate: u64, packets: u64) -> impl Iterator<Item = u64> + Send {
    // Up to 2^32 packets: the product stays below 2^62.
    every(SECOND * packets, rate).flat_map(move |time| (0..packets).map(move |_| time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_burst_leaves_when_its_first_packet_would_alone(
            rate in 1..20_000_000u64, packets in 1..100u64,
        ) {
            for (k, time) in (0..2000u64).zip(times(rate, packets)) {
                let first = u128::from(k / packets * packets);
                prop_assert_eq!(u128::from(time), first * 1_000_000_000 / u128::from(rate));
            }
        }
    }
}
