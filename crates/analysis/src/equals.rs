//! Packets that share their key with another within the window: which copy after the device is of
//! which packet before it.
//!
//! Equal packets can be told apart by their order alone. A device keeps that mostly, but one of them
//! that is lost would shift all behind it, and nothing would show it. So they are matched in order
//! where as many came out as went in until the device had none of them any more; where that is not so,
//! nobody knows, and they are left out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// What a packet after the device turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first copy of the packet that passed before the device at this time.
    Match {
        /// Stamp before the device in nanoseconds.
        ingress_ns: u64,
    },
    /// A further copy of a packet that was matched already.
    Duplicate,
    /// Stamped before its copy before the device. Equal stamps are a pair: nothing stands against it.
    NonCausal,
    /// No usable packet before the device within the window.
    Unmatched,
    /// A piece of a packet that was cut; the last piece is its match.
    Part,
}

/// So many equal packets are looked at in all; beyond that they are left out.
const MOST: usize = 1 << 23;

/// Keys are hashes already.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type ByKey<T> = HashMap<u64, T, BuildHasherDefault<AsItIs>>;

/// Times of equal packets on both sides.
#[derive(Default)]
struct Times {
    before: Vec<u64>,
    after: Vec<u64>,
}

/// The equal packets of two captures, each side in time order.
#[derive(Default)]
pub struct Equals {
    keys: ByKey<Times>,
    packets: usize,
}

/// What became of a packet before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Matched,
    Lost,
    /// So many were lost; which of them nobody knows.
    LostAmong,
    /// Nobody knows.
    Unknown,
}

/// The packets of a key whose fate is settled, in the order in which they will come.
#[derive(Default)]
struct Settled {
    before: Vec<(u64, Fate)>,
    after: Vec<(u64, Verdict)>,
    before_at: usize,
    after_at: usize,
}

/// What became of equal packets.
#[derive(Default)]
pub struct Plan {
    keys: ByKey<Settled>,
    matched: u64,
    lost: u64,
    known: u64,
}

impl Equals {
    /// Adds a packet before the device.
    #[cold]
    pub fn before(&mut self, key: u64, time: u64) {
        if self.packets < MOST {
            self.keys.entry(key).or_default().before.push(time);
        }
        self.packets += 1;
    }

    /// Adds a packet after the device.
    #[cold]
    pub fn after(&mut self, key: u64, time: u64) {
        if self.packets < MOST {
            self.keys.entry(key).or_default().after.push(time);
        }
        self.packets += 1;
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Finds out what became of them. A packet is in the device for less than `window`.
    pub fn settle(self, window: u64) -> Plan {
        let mut plan = Plan::default();
        if self.packets > MOST {
            return plan;
        }
        for (key, times) in self.keys {
            let settled = times.settle(window);
            for (_, fate) in &settled.before {
                plan.matched += u64::from(*fate == Fate::Matched);
                plan.lost += u64::from(matches!(fate, Fate::Lost | Fate::LostAmong));
                plan.known += u64::from(*fate != Fate::Unknown);
            }
            plan.keys.insert(key, settled);
        }
        plan
    }
}

impl Times {
    fn settle(&self, window: u64) -> Settled {
        let Self { before, after } = self;
        let mut settled = Settled {
            before: before.iter().map(|&time| (time, Fate::Unknown)).collect(),
            after: after.iter().map(|&time| (time, Verdict::Unmatched)).collect(),
            ..Settled::default()
        };
        // A stretch of time at whose start the device has none of them, as far as their numbers tell.
        let (mut begun, mut at) = ((0, 0), (0, 0));
        let mut latest = 0;
        loop {
            let next = match (before.get(at.0), after.get(at.1)) {
                (Some(&came), Some(&left)) => (came.min(left), came <= left),
                (Some(&came), None) => (came, true),
                (None, Some(&left)) => (left, false),
                (None, None) => break,
            };
            let (time, comes) = next;
            let inside = (at.0 - begun.0) as i64 - (at.1 - begun.1) as i64;
            let quiet = time - latest >= window;
            if quiet || (comes && inside <= 0) {
                settled.settle(begun.0..at.0, begun.1..at.1, window);
                begun = at;
            }
            match comes {
                true => at.0 += 1,
                false => at.1 += 1,
            }
            latest = time;
        }
        settled.settle(begun.0..at.0, begun.1..at.1, window);
        settled
    }
}

impl Settled {
    /// Settles the packets of a stretch of time.
    fn settle(&mut self, came: Range<usize>, left: Range<usize>, window: u64) {
        if left.is_empty() {
            self.before[came].iter_mut().for_each(|came| came.1 = Fate::Lost);
            return;
        }
        let alone = came.len() == 1;
        if !alone && came.len() != left.len() {
            let fewer = came.len().saturating_sub(left.len());
            let unknown = &mut self.before[came];
            unknown.iter_mut().rev().take(fewer).for_each(|came| came.1 = Fate::LostAmong);
            return;
        }
        let (before, after) = (&mut self.before[came], &mut self.after[left]);
        let pairs = before.iter().zip(after.iter());
        let holds = |(came, left): (&(u64, Fate), &(u64, Verdict))| {
            left.0 >= came.0 && left.0 - came.0 < window
        };
        if !pairs.clone().all(holds) {
            return;
        }
        for (came, left) in before.iter_mut().zip(after.iter_mut()) {
            came.1 = Fate::Matched;
            left.1 = Verdict::Match { ingress_ns: came.0 };
        }
        if alone {
            // Whatever else came out is a further copy of it.
            after.iter_mut().skip(1).for_each(|left| left.1 = Verdict::Duplicate);
        }
    }
}

impl Plan {
    /// How many packets were matched by their order.
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// How many packets that share their key with others were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether it says more than that nobody knows.
    pub fn is_of_use(&self) -> bool {
        self.known > 0
    }

    /// What became of a packet before the device, if it is the next of its key.
    #[inline]
    pub(crate) fn before(&mut self, key: u64, time: u64) -> Option<Fate> {
        let settled = self.keys.get_mut(&key)?;
        let &(next, fate) = settled.before.get(settled.before_at)?;
        (next == time).then(|| {
            settled.before_at += 1;
            fate
        })
    }

    /// What a packet after the device is, if it is the next of its key.
    #[inline]
    pub(crate) fn after(&mut self, key: u64, time: u64) -> Option<Verdict> {
        let settled = self.keys.get_mut(&key)?;
        let &(next, verdict) = settled.after.get(settled.after_at)?;
        (next == time).then(|| {
            settled.after_at += 1;
            verdict
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 100;
    const LOST: (u64, Fate) = (0, Fate::Lost);

    fn settled(before: &[u64], after: &[u64]) -> (Vec<(u64, Fate)>, Vec<Verdict>) {
        let times = Times { before: before.to_vec(), after: after.to_vec() };
        let settled = times.settle(WINDOW);
        (settled.before, settled.after.into_iter().map(|(_, verdict)| verdict).collect())
    }

    fn of(times: &[u64]) -> Vec<Verdict> {
        times.iter().map(|&ingress_ns| Verdict::Match { ingress_ns }).collect()
    }

    #[test]
    fn as_many_as_came_are_matched_in_order() {
        assert_eq!(settled(&[1, 2, 3], &[4, 5, 6]).1, of(&[1, 2, 3]));
        assert_eq!(settled(&[1, 5, 9], &[1, 6, 10]).1, of(&[1, 5, 9]));
    }

    #[test]
    fn a_lost_one_leaves_all_behind_it_open_until_the_device_must_be_empty() {
        let (before, after) = settled(&[1, 10, 20, 300, 310], &[11, 21, 301, 311]);
        let fates: Vec<Fate> = before.iter().map(|(_, fate)| *fate).collect();
        let (among, unknown) = (Fate::LostAmong, Fate::Unknown);
        assert_eq!(fates, [unknown, unknown, among, Fate::Matched, Fate::Matched]);
        assert_eq!(after[..2], [Verdict::Unmatched; 2]);
        assert_eq!(after[2..], of(&[300, 310]));
    }

    #[test]
    fn one_alone_is_lost_or_has_copies() {
        let (before, after) = settled(&[0, 200, 250], &[210, 260, 261]);
        assert_eq!(before[0], LOST);
        assert_eq!(after[..2], of(&[200, 250]));
        assert_eq!(after[2], Verdict::Duplicate);
        // A window later it is alone.
        assert_eq!(settled(&[0, 100], &[150]).1, of(&[100]));
    }

    #[test]
    fn what_takes_a_window_is_no_pair_and_what_is_lost_is_known() {
        assert_eq!(settled(&[0, 50], &[100, 101]).1, [Verdict::Unmatched; 2]);
        assert_eq!(settled(&[0, 50], &[99, 101]).1, of(&[0, 50]));
        let mut equals = Equals::default();
        for time in [0, 10] {
            equals.before(7, time);
        }
        assert!(equals.settle(WINDOW).is_of_use());
    }

    #[test]
    fn a_further_copy_of_one_of_several_leaves_them_open() {
        let (before, after) = settled(&[1, 2], &[3, 4, 5]);
        assert!(before.iter().all(|(_, fate)| *fate == Fate::Unknown));
        assert_eq!(after, [Verdict::Unmatched; 3]);
    }

    proptest! {
        /// What is matched is right, whatever was lost, where no copy overtakes another or is made.
        #[test]
        fn what_is_matched_is_right(
            packets in proptest::collection::vec((0..150u64, 0..90u64, 0..12u8), 1..40),
        ) {
            let (mut time, mut out) = (0, 0);
            let (mut before, mut after, mut truth) = (Vec::new(), Vec::new(), Vec::new());
            for (gap, latency, luck) in packets {
                time += gap;
                before.push(time);
                // In order, and never as long as a window.
                let left = (time + latency).max(out).min(time + WINDOW - 1);
                if luck > 0 && left >= out {
                    out = left;
                    after.push(left);
                    truth.push(Verdict::Match { ingress_ns: time });
                }
            }
            let (fates, verdicts) = settled(&before, &after);
            let lost = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Lost | Fate::LostAmong));
            prop_assert!(lost.count() <= before.len() - after.len());
            for (verdict, truth) in verdicts.into_iter().zip(truth) {
                prop_assert!(verdict == truth || verdict == Verdict::Unmatched);
            }
        }
    }
}
