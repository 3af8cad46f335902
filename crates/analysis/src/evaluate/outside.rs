//! Packets that are in both captures, and farther apart than the matching window.
//!
//! Only where packets were not matched: it tells a window that is too short, or clocks that differ, from
//! a key that the device changes.

use super::Options;
use super::choose::KeyChoice;
use super::keyed::{LOOK, common, keyed, once};
use crate::clocks::Clocks;
use crate::key::{KeyKind, Moonsniff, Signatures};

/// Clocks that differ by whole seconds are near one: that is how far TAI, GPS and UTC are apart.
const NEAR_NS: i128 = 50_000_000;
const SECOND_NS: i128 = 1_000_000_000;
/// How far TAI and GPS are ahead of UTC, in seconds, since 2017.
const TIME_SCALES: [(i128, &str); 2] = [(37, "TAI and UTC"), (18, "GPS and UTC")];

/// How long after their copies before the device packets were stamped that are outside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    packets: usize,
    /// How many are outside in the other direction of time: captures of both directions, say.
    others: usize,
    looked_at: usize,
    least_ns: i128,
    middle_ns: i128,
    most_ns: i128,
    /// The least and the most of the same by the stamps as they are, whatever is known of their clocks.
    stamped_ns: [i128; 2],
}

/// Such packets among the first ones of two captures; none where these cannot be read.
pub(super) fn look(choice: &KeyChoice, options: &Options) -> Option<Outside> {
    let read = |source, key| match key {
        KeyKind::Packet(packet) => keyed(source, packet, LOOK),
        KeyKind::Stream(stream) => keyed(source, stream, LOOK),
        KeyKind::Moonsniff => keyed(source, Moonsniff, LOOK),
        KeyKind::Signature => keyed(source, Signatures, LOOK),
        KeyKind::Field(field) | KeyKind::Fields([field, _]) => keyed(source, field, LOOK),
    };
    let keys = choice.key.sides();
    let mut before = read(&choice.ingress, keys[0])?;
    let mut after = read(&choice.egress, keys[1])?;
    let looked_at = after.len();
    let later = |packets: &mut [(u64, u64)], ns| {
        packets.iter_mut().for_each(|packet| packet.1 = packet.1.saturating_add(ns));
    };
    let pairs = |before: &[(u64, u64)], after: &[(u64, u64)]| {
        let both = common(&once(before.to_vec()), &once(after.to_vec()));
        both.into_iter().map(|(came, left)| i128::from(left) - i128::from(came))
    };
    later(&mut before, choice.ingress_shift_ns);
    later(&mut after, choice.egress_shift_ns);
    let stamped = pairs(&before, &after);
    let mut off_ns = 0;
    if let Some(clocks) = &choice.clocks {
        let mut times: Vec<u64> = after.iter().map(|packet| packet.1).collect();
        clocks.convert(&mut times);
        after.iter_mut().zip(times).for_each(|(packet, time)| packet.1 = time);
        later(&mut before, clocks.ingress_shift_ns());
        off_ns = i128::from(clocks.excess().latency_ns);
    }
    let window = choice
        .clocks
        .as_ref()
        .map_or(options.window_ns, |clocks: &Clocks| clocks.window_ns(options.window_ns));
    let mut apart: Vec<(i128, i128)> = pairs(&before, &after)
        .zip(stamped)
        .filter(|(apart, _)| apart.unsigned_abs() >= u128::from(window))
        .map(|(apart, stamped)| (apart - off_ns, stamped))
        .collect();
    apart.sort_unstable();
    let (earlier, later) = apart.split_at(apart.partition_point(|apart| apart.0 < 0));
    let (apart, others) = match earlier.len() > later.len() {
        true => (earlier, later.len()),
        false => (later, earlier.len()),
    };
    Some(Outside {
        packets: apart.len(),
        others,
        looked_at,
        least_ns: apart.first()?.0,
        middle_ns: apart[apart.len() / 2].0,
        most_ns: apart.last()?.0,
        stamped_ns: [
            apart.iter().map(|apart| apart.1).min()?,
            apart.iter().map(|apart| apart.1).max()?,
        ],
    })
}

impl Outside {
    /// What was found and which option mends it.
    pub fn told(&self, window_ns: u64) -> String {
        let Self { packets, others, looked_at, least_ns, middle_ns, most_ns, stamped_ns } = *self;
        let seconds = |ns: i128| ns.abs() as f64 / SECOND_NS as f64;
        let (near, far) = match middle_ns < 0 {
            true => (most_ns, least_ns),
            false => (least_ns, most_ns),
        };
        let how = if middle_ns < 0 { "earlier" } else { "later" };
        let whole = (stamped_ns[0] + SECOND_NS / 2).div_euclid(SECOND_NS);
        let by_seconds = stamped_ns.iter().all(|ns| (ns - whole * SECOND_NS).abs() < NEAR_NS);
        let scales = TIME_SCALES.iter().find(|(seconds, _)| by_seconds && *seconds == whole.abs());
        let known = scales.map_or(String::new(), |(_, names)| format!(", as {names} differ"));
        let ahead = match (by_seconds, stamped_ns.map(|ns| ns.div_euclid(1000))) {
            (true, _) => format!("{whole} s..{whole} s"),
            (false, [least, most]) => format!("{least} us..{} us", most + 1),
        };
        let longer = (2.0 * seconds(far)).ceil();
        let window = match middle_ns < 0 {
            true => String::new(),
            false => {
                format!("if the device takes that long, give --window '{longer} s'; ")
            }
        };
        let range = match format!("{:.3}", seconds(near)) == format!("{:.3}", seconds(far)) {
            true => format!("{:.6} s", seconds(middle_ns)),
            false => format!("{:.3} to {:.3} s", seconds(near), seconds(far)),
        };
        let others = match (others, how) {
            (0, _) => String::new(),
            (_, "later") => format!(" ({others} others earlier)"),
            _ => format!(" ({others} others later)"),
        };
        format!(
            "{packets} of the first {looked_at} packets are there {range} {how}{others}{known}, and \
             --window is {:.3} s: {window}if the captures are of two clocks, give \
             --egress-ahead '{ahead}' or --back",
            window_ns as f64 / 1e9
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(times: [i128; 3]) -> String {
        let [least_ns, middle_ns, most_ns] = times;
        let stamped_ns = [least_ns, most_ns];
        Outside { packets: 9, others: 0, looked_at: 10, least_ns, middle_ns, most_ns, stamped_ns }
            .told(5_000_000_000)
    }

    #[test]
    fn the_option_that_mends_it_is_named() {
        let tai = told([37_000_020_000, 37_000_024_000, 37_000_028_000]);
        assert!(tai.contains("37.000024 s later, as TAI and UTC differ"), "{tai}");
        assert!(tai.contains("--egress-ahead '37 s..37 s'"), "{tai}");
        let slow = told([6_000_000_000, 6_200_000_000, 7_500_000_000]);
        assert!(slow.contains("6.000 to 7.500 s later"), "{slow}");
        assert!(slow.contains("give --window '15 s'"), "{slow}");
        let behind = told([-8_300_000_000, -8_250_000_000, -8_200_000_000]);
        assert!(behind.contains("8.200 to 8.300 s earlier"), "{behind}");
        assert!(behind.contains("--egress-ahead '-8300000 us..-8199999 us'"), "{behind}");
        assert!(!behind.contains("if the device takes"), "{behind}");
    }
}
