//! Which packet after the device is which packet before it.
//!
//! The table holds the packets seen before the device. It is filled one window ahead of the
//! packet after the device that is being looked up, so that everything that bears on a packet is
//! known when its turn comes: whether its key repeats before the device, and whether the copy
//! before the device carries a later stamp than the one after it. One pass, and nothing has to be
//! taken back.

use crate::key::Key;
use crate::table::{Entry, State, Table};

/// Tables have at least this many slots.
const MIN_SLOTS: usize = 1 << 12;
/// And start with at most this many, however many packets are expected.
const MAX_FIRST_SLOTS: usize = 1 << 24;

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
    /// Stamped at or before its copy before the device.
    NonCausal,
    /// No usable packet before the device within the window.
    Unmatched,
}

/// What became of the packets before the device that have left the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// No copy after the device.
    pub lost: u64,
    /// Dropped from the evaluation as their key repeats within the window.
    pub repeated: u64,
    /// Of the packets in either class, those stamped before the end of the trimmed time.
    pub trimmed: u64,
}

/// The packets before the device that can still be matched.
pub struct Matcher<K> {
    table: Table<K>,
    window: u64,
    /// Lost packets with an earlier stamp than this count as trimmed.
    trim_before: u64,
    fates: Fates,
}

impl<K: Key> Matcher<K> {
    /// An empty table for a matching window in nanoseconds. Packets before the device that are
    /// stamped earlier than `trim_before` and end without a match are counted as trimmed. The
    /// table has room for the packets that are `expected` within two windows, and grows.
    pub fn new(window: u64, trim_before: u64, expected: usize) -> Self {
        let slots = slots_for(expected).min(MAX_FIRST_SLOTS);
        let table = Table::new(slots, false);
        Self { table, window, trim_before, fates: Fates::default() }
    }

    /// Adds a packet before the device. `frontier` is the time that the packets after the device
    /// have reached: what is older than one window by then is out of reach and may be forgotten.
    #[inline]
    pub fn insert(&mut self, key: K, time: u64, frontier: u64) {
        // A packet that comes later than the frontier may still repeat a key within the window.
        let frontier = frontier.min(time);
        if self.table.used() * 4 >= self.table.slots() * 3 {
            self.rebuild(frontier, self.table.mixing());
        }
        let window = self.window;
        let mut state = State::Open;
        let mut earliest: Option<(usize, Entry)> = None;
        let mut spare: Option<(usize, Entry)> = None;
        let (empty, steps) = self.table.search(key, |at, other| {
            if time.abs_diff(other.time) >= window {
                if !reachable(other, window, frontier) {
                    spare = Some((at, other));
                }
                return (None, true);
            }
            state = State::Repeated;
            let repeated = Some((at, Entry { state, ..other }));
            if earliest.is_none_or(|(_, first)| other.time < first.time) {
                spare = earliest.or(spare);
                earliest = repeated;
            } else {
                spare = repeated;
            }
            (Some(state), true)
        });
        let entry = Entry { time, state };
        // Entries of one key stay few, so that a key that never changes costs no more than others.
        // Of packets that repeat a key within the window, the first and this one tell the same
        // without those between them: whatever time comes before this packet and after the first
        // has one of the two less than a window before it.
        if let Some((at, other)) = spare {
            self.settle(other);
            self.table.replace(at, entry);
        } else if let Some(at) = empty {
            self.table.fill(at, key, entry);
        }
        if self.table.crowded(steps) {
            self.rebuild(frontier, true);
        }
    }

    /// Finds what a packet after the device is.
    #[inline]
    pub fn look_up(&mut self, key: K, time: u64) -> Verdict {
        let mut verdict = Verdict::Unmatched;
        let mut repeated = false;
        let (_, steps) = self.table.search(key, |_, entry| {
            if entry.time.abs_diff(time) >= self.window {
                return (None, true);
            }
            if entry.time >= time {
                if verdict == Verdict::Unmatched {
                    verdict = Verdict::NonCausal;
                }
                return (None, true);
            }
            match entry.state {
                State::Repeated => {
                    repeated = true;
                    (None, true)
                }
                State::Matched => {
                    verdict = Verdict::Duplicate;
                    (None, false)
                }
                State::Open | State::NonCausal => {
                    verdict = Verdict::Match { ingress_ns: entry.time };
                    (Some(State::Matched), false)
                }
            }
        });
        if self.table.crowded(steps) {
            self.rebuild(time, true);
        }
        if repeated {
            return Verdict::Unmatched;
        }
        if verdict == Verdict::NonCausal {
            self.excuse(key, time);
        }
        verdict
    }

    /// Notes of the packets that were stamped at or after `time` that they are not lost.
    #[cold]
    fn excuse(&mut self, key: K, time: u64) {
        self.table.search(key, |_, entry| {
            let early = entry.time >= time && entry.time - time < self.window;
            let open = entry.state == State::Open;
            ((early && open).then_some(State::NonCausal), true)
        });
    }

    /// Brings the places of these keys into the processor's cache, ahead of their turn.
    pub fn warm_up(&self, keys: &[K]) {
        self.table.warm_up(keys);
    }

    /// Forgets packets that are out of reach and makes room for more.
    #[cold]
    fn rebuild(&mut self, frontier: u64, mixing: bool) {
        let window = self.window;
        let reachable = |entry| reachable(entry, window, frontier);
        let kept = self.table.entries().filter(|&(_, entry)| reachable(entry)).count();
        let size = slots_for(kept).max(self.table.slots() / 2);
        let old = std::mem::replace(&mut self.table, Table::new(size, mixing));
        for (key, entry) in old.entries() {
            if !reachable(entry) {
                self.settle(entry);
            } else if let (Some(at), _) = self.table.search(key, |_, _| (None, true)) {
                self.table.fill(at, key, entry);
            }
        }
    }

    fn settle(&mut self, entry: Entry) {
        match entry.state {
            State::Matched | State::NonCausal => {}
            _ if entry.time < self.trim_before => self.fates.trimmed += 1,
            State::Open => self.fates.lost += 1,
            State::Repeated => self.fates.repeated += 1,
        }
    }

    /// What became of all packets before the device.
    pub fn finish(mut self) -> Fates {
        let table = std::mem::replace(&mut self.table, Table::new(1, false));
        table.entries().for_each(|(_, entry)| self.settle(entry));
        self.fates
    }
}

/// Whether a packet before the device still bears on packets from the time `frontier` on.
#[inline]
fn reachable(entry: Entry, window: u64, frontier: u64) -> bool {
    entry.time.saturating_add(window) > frontier
}

/// Slots for `packets` packets and some more: a table is rebuilt when three quarters are in use.
fn slots_for(packets: usize) -> usize {
    (packets.saturating_add(packets / 2)).next_power_of_two().max(MIN_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 100;

    /// The rules once more, by comparing every packet with every other.
    fn by_brute_force(ingress: &[(u64, u64)], egress: &[(u64, u64)]) -> (Vec<Verdict>, Fates) {
        let repeated: Vec<bool> = (0..ingress.len())
            .map(|i| {
                (0..ingress.len()).any(|j| {
                    i != j
                        && ingress[i].0 == ingress[j].0
                        && ingress[i].1.abs_diff(ingress[j].1) < WINDOW
                })
            })
            .collect();
        let mut matched = vec![false; ingress.len()];
        let mut early = vec![false; ingress.len()];
        let mut verdicts = Vec::new();
        for &(key, time) in egress {
            let same = || (0..ingress.len()).filter(|&i| ingress[i].0 == key);
            let causal = || same().filter(|&i| ingress[i].1 < time && time - ingress[i].1 < WINDOW);
            let later = || same().filter(|&i| ingress[i].1 >= time && ingress[i].1 - time < WINDOW);
            verdicts.push(if let Some(i) = causal().find(|&i| !repeated[i]) {
                if std::mem::replace(&mut matched[i], true) {
                    Verdict::Duplicate
                } else {
                    Verdict::Match { ingress_ns: ingress[i].1 }
                }
            } else if causal().next().is_some() {
                Verdict::Unmatched
            } else if later().next().is_some() {
                later().for_each(|i| early[i] = true);
                Verdict::NonCausal
            } else {
                Verdict::Unmatched
            });
        }
        let lost = (0..ingress.len()).filter(|&i| !matched[i] && !early[i] && !repeated[i]).count();
        let repeated = repeated.iter().filter(|&&r| r).count();
        (verdicts, Fates { lost: lost as u64, repeated: repeated as u64, trimmed: 0 })
    }

    fn by_table(ingress: &[(u64, u64)], egress: &[(u64, u64)]) -> (Vec<Verdict>, Fates) {
        let mut matcher = Matcher::new(WINDOW, 0, 0);
        let mut ahead = ingress.iter().peekable();
        let mut verdicts = Vec::new();
        for &(key, time) in egress {
            while let Some(&(key, at)) = ahead.next_if(|packet| packet.1 < time + WINDOW) {
                matcher.insert(key, at, time);
            }
            verdicts.push(matcher.look_up(key, time));
        }
        ahead.for_each(|&(key, at)| matcher.insert(key, at, u64::MAX));
        (verdicts, matcher.finish())
    }

    /// So few keys over many windows that repeats, wraps, early, late and foreign packets occur.
    fn packets(keys: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
        proptest::collection::vec((0..keys, 0..1_000u64), 0..60).prop_map(|mut packets| {
            packets.sort_by_key(|packet| packet.1);
            packets
        })
    }

    proptest! {
        #[test]
        fn the_table_follows_the_rules(ingress in packets(12), egress in packets(12)) {
            prop_assert_eq!(by_table(&ingress, &egress), by_brute_force(&ingress, &egress));
        }

        #[test]
        fn the_table_follows_the_rules_for_long_repeats(
            ingress in packets(2),
            egress in packets(3),
        ) {
            prop_assert_eq!(by_table(&ingress, &egress), by_brute_force(&ingress, &egress));
        }
    }

    #[test]
    fn a_key_that_never_changes_takes_no_room() {
        let mut matcher = Matcher::<u64>::new(WINDOW, 0, 0);
        for time in 0..100_000 {
            matcher.insert(7, time, time);
            matcher.insert(8, time * WINDOW, time * WINDOW);
        }
        assert!(matcher.table.used() < 10, "{} slots in use", matcher.table.used());
        assert_eq!(matcher.finish(), Fates { lost: 100_000, repeated: 100_000, trimmed: 0 });
    }

    #[test]
    fn old_packets_are_forgotten_and_counted() {
        let mut matcher = Matcher::<u64>::new(WINDOW, 0, 0);
        for id in 0..100_000u64 {
            let time = id * 10;
            matcher.insert(id, time, time);
            if id % 2 == 0 {
                assert_eq!(matcher.look_up(id, time + 1), Verdict::Match { ingress_ns: time });
            }
        }
        assert!(matcher.table.slots() <= 2 * MIN_SLOTS, "{} slots", matcher.table.slots());
        assert_eq!(matcher.finish(), Fates { lost: 50_000, repeated: 0, trimmed: 0 });
    }

    #[test]
    fn keys_that_crowd_are_spread() {
        // High bits only; two counters that overlap in the low bits; keys that are not there.
        let high = (0..200_000u64).map(|id| id << 40).collect::<Vec<_>>();
        let twice = (0..200_000u64).map(|id| (id / 2) | (id % 2) << 40).collect::<Vec<_>>();
        for keys in [high, twice] {
            let mut matcher = Matcher::<u64>::new(u64::MAX, 0, 0);
            for (time, &key) in keys.iter().enumerate() {
                matcher.insert(key, time as u64, 0);
            }
            for (time, &key) in keys.iter().enumerate() {
                assert_eq!(matcher.look_up(key | 1 << 63, 1 << 40), Verdict::Unmatched);
                let verdict = matcher.look_up(key, 1 << 40);
                assert_eq!(verdict, Verdict::Match { ingress_ns: time as u64 });
            }
            assert!(matcher.table.mixing());
        }
    }
}
