//! Which packet after the device is which packet before it.
//!
//! The table holds the packets seen before the device. It is filled one window ahead of the
//! packet after the device that is being looked up, so that everything that bears on a packet is
//! known when its turn comes: whether its key repeats before the device, and whether the copy
//! before the device carries a later stamp than the one after it. One pass, and nothing has to be
//! taken back.
//!
//! Open addressing with linear probing in one flat array. Ids mostly count up, so a key's place is
//! simply its number: consecutive ids lie side by side, and the walk through the table is a walk
//! through memory. Where that makes keys crowd, they are spread by a mixing hash instead.

use crate::key::Key;

/// Tables start with this many slots.
const MIN_SLOTS: usize = 1 << 12;
/// A search longer than this raises the question whether the keys crowd.
const LONG: usize = 32;
/// They do when the searches took more steps than this on average.
const CROWDED: u64 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum State {
    #[default]
    Empty,
    /// Seen before the device only.
    Open,
    /// Its first copy after the device has been found.
    Matched,
    /// Its only copies after the device carry earlier stamps than itself.
    NonCausal,
    /// The same key occurs again within the window before the device.
    Repeated,
}

#[derive(Clone, Copy, Default)]
struct Slot<K> {
    time: u64,
    key: K,
    state: State,
}

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
    slots: Vec<Slot<K>>,
    used: usize,
    window: u64,
    /// Lost packets with an earlier stamp than this count as trimmed.
    trim_before: u64,
    mixing: bool,
    /// Searches since the last rebuild, and the steps that they took.
    searches: u64,
    steps: u64,
    fates: Fates,
}

impl<K: Key> Matcher<K> {
    /// An empty table for a matching window in nanoseconds. Packets before the device that are
    /// stamped earlier than `trim_before` and end without a match are counted as trimmed.
    pub fn new(window: u64, trim_before: u64) -> Self {
        Self {
            slots: vec![Slot::default(); MIN_SLOTS],
            used: 0,
            window,
            trim_before,
            mixing: false,
            searches: 0,
            steps: 0,
            fates: Fates::default(),
        }
    }

    #[inline]
    fn home(&self, key: K) -> usize {
        let number = key.number();
        let mask = self.slots.len() - 1;
        let hash = if self.mixing { mix(number) } else { number };
        hash as usize & mask
    }

    /// Adds a packet before the device. `frontier` is the time that the packets after the device
    /// have reached: what is older than one window by then is out of reach and may be forgotten.
    #[inline]
    pub fn insert(&mut self, key: K, time: u64, frontier: u64) {
        // A packet that comes later than the frontier may still repeat a key within the window.
        let frontier = frontier.min(time);
        if self.used * 4 >= self.slots.len() * 3 {
            self.rebuild(frontier);
        }
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        let mut state = State::Open;
        let start = at;
        loop {
            let slot = &mut self.slots[at];
            if slot.state == State::Empty {
                *slot = Slot { time, key, state };
                break;
            }
            if slot.key == key && time.abs_diff(slot.time) < self.window {
                slot.state = State::Repeated;
                state = State::Repeated;
            }
            at = (at + 1) & mask;
        }
        self.used += 1;
        self.note_search(at.wrapping_sub(start) & mask, frontier);
    }

    /// Brings the places of these keys into the processor's cache, ahead of their turn.
    ///
    /// Keys that are spread over the table miss the cache one by one, each look-up waiting for
    /// the one before; read here without depending on each other, the misses overlap.
    pub fn warm_up(&self, keys: &[K]) {
        let touched = keys
            .iter()
            .fold(0, |sum, &key| sum + self.slots[self.home(key)].time % 2);
        std::hint::black_box(touched);
    }

    /// Finds what a packet after the device is.
    #[inline]
    pub fn look_up(&mut self, key: K, time: u64) -> Verdict {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        let start = at;
        let mut noncausal = None;
        let mut repeated = false;
        loop {
            let slot = &mut self.slots[at];
            if slot.state == State::Empty {
                break;
            }
            if slot.key == key {
                if slot.time < time {
                    if time - slot.time < self.window {
                        match slot.state {
                            State::Matched => return Verdict::Duplicate,
                            State::Repeated => repeated = true,
                            State::Open | State::NonCausal | State::Empty => {
                                slot.state = State::Matched;
                                return Verdict::Match {
                                    ingress_ns: slot.time,
                                };
                            }
                        }
                    }
                } else if slot.time - time < self.window {
                    noncausal = Some(at);
                }
            }
            at = (at + 1) & mask;
        }
        let verdict = match noncausal {
            _ if repeated => Verdict::Unmatched,
            Some(at) => {
                if self.slots[at].state == State::Open {
                    self.slots[at].state = State::NonCausal;
                }
                Verdict::NonCausal
            }
            None => Verdict::Unmatched,
        };
        self.note_search(at.wrapping_sub(start) & mask, time);
        verdict
    }

    /// Keeps account of how long searches are, and spreads the keys once they crowd.
    #[inline]
    fn note_search(&mut self, steps: usize, frontier: u64) {
        self.searches += 1;
        self.steps += steps as u64;
        if steps > LONG && !self.mixing && self.steps > CROWDED * self.searches {
            self.mixing = true;
            self.rebuild(frontier);
        }
    }

    /// Forgets packets that are out of reach and makes room for more.
    fn rebuild(&mut self, frontier: u64) {
        self.searches = 0;
        self.steps = 0;
        let reachable = |slot: &Slot<K>| {
            slot.time
                .checked_add(self.window)
                .is_none_or(|end| end > frontier)
        };
        let occupied = |slot: &&Slot<K>| slot.state != State::Empty;
        let kept = self
            .slots
            .iter()
            .filter(occupied)
            .filter(|slot| reachable(slot))
            .count();
        let size = (kept * 2).next_power_of_two().max(MIN_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size]);
        self.used = kept;
        let mask = size - 1;
        for slot in old.iter().filter(occupied) {
            if slot
                .time
                .checked_add(self.window)
                .is_some_and(|end| end <= frontier)
            {
                self.settle(slot);
                continue;
            }
            let mut at = self.home(slot.key);
            while self.slots[at].state != State::Empty {
                at = (at + 1) & mask;
            }
            self.slots[at] = *slot;
        }
    }

    fn settle(&mut self, slot: &Slot<K>) {
        let trimmed = slot.time < self.trim_before;
        match slot.state {
            State::Open if trimmed => self.fates.trimmed += 1,
            State::Repeated if trimmed => self.fates.trimmed += 1,
            State::Open => self.fates.lost += 1,
            State::Repeated => self.fates.repeated += 1,
            State::Empty | State::Matched | State::NonCausal => {}
        }
    }

    /// What became of all packets before the device.
    pub fn finish(mut self) -> Fates {
        let slots = std::mem::take(&mut self.slots);
        slots.iter().for_each(|slot| self.settle(slot));
        self.fates
    }
}

/// Spreads every bit over all others: the finaliser of SplitMix64 (Steele, Lea and Flood, Fast
/// splittable pseudorandom number generators, 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 100;

    /// The rules once more, by comparing every packet with every other.
    fn by_brute_force(ingress: &[(u32, u64)], egress: &[(u32, u64)]) -> (Vec<Verdict>, Fates) {
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
                    Verdict::Match {
                        ingress_ns: ingress[i].1,
                    }
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
        let lost = (0..ingress.len())
            .filter(|&i| !matched[i] && !early[i] && !repeated[i])
            .count();
        let repeated = repeated.iter().filter(|&&r| r).count();
        (
            verdicts,
            Fates {
                lost: lost as u64,
                repeated: repeated as u64,
                trimmed: 0,
            },
        )
    }

    fn by_table(ingress: &[(u32, u64)], egress: &[(u32, u64)]) -> (Vec<Verdict>, Fates) {
        let mut matcher = Matcher::new(WINDOW, 0);
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

    /// Few keys over many windows: repeats, wraps, early, late and foreign packets all occur.
    fn packets() -> impl Strategy<Value = Vec<(u32, u64)>> {
        proptest::collection::vec((0..12u32, 0..1_000u64), 0..60).prop_map(|mut packets| {
            packets.sort_by_key(|packet| packet.1);
            packets
        })
    }

    proptest! {
        #[test]
        fn the_table_follows_the_rules(ingress in packets(), egress in packets()) {
            prop_assert_eq!(by_table(&ingress, &egress), by_brute_force(&ingress, &egress));
        }
    }

    #[test]
    fn old_packets_are_forgotten_and_counted() {
        let mut matcher = Matcher::<u32>::new(WINDOW, 0);
        for id in 0..100_000 {
            let time = u64::from(id) * 10;
            matcher.insert(id, time, time);
            if id % 2 == 0 {
                assert_eq!(
                    matcher.look_up(id, time + 1),
                    Verdict::Match { ingress_ns: time }
                );
            }
        }
        assert!(
            matcher.slots.len() <= 2 * MIN_SLOTS,
            "{} slots",
            matcher.slots.len()
        );
        assert_eq!(
            matcher.finish(),
            Fates {
                lost: 50_000,
                repeated: 0,
                trimmed: 0
            }
        );
    }

    #[test]
    fn keys_that_crowd_are_spread() {
        // High bits only; two counters that overlap in the low bits; keys that are not there.
        let high = (0..200_000u64).map(|id| id << 40).collect::<Vec<_>>();
        let twice = (0..200_000u64)
            .map(|id| (id / 2) | (id % 2) << 40)
            .collect::<Vec<_>>();
        for keys in [high, twice] {
            let mut matcher = Matcher::<u64>::new(u64::MAX, 0);
            for (time, &key) in keys.iter().enumerate() {
                matcher.insert(key, time as u64, 0);
            }
            for (time, &key) in keys.iter().enumerate() {
                assert_eq!(matcher.look_up(key | 1 << 63, 1 << 40), Verdict::Unmatched);
                let verdict = matcher.look_up(key, 1 << 40);
                assert_eq!(
                    verdict,
                    Verdict::Match {
                        ingress_ns: time as u64
                    }
                );
            }
            assert!(matcher.steps <= CROWDED * matcher.searches);
        }
    }
}
