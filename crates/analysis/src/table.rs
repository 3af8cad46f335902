//! The memory of the matching table: slots that each hold a time, a state and a key.
//!
//! Open addressing with linear probing. Ids mostly count up, so a key's place is simply its
//! number: consecutive ids lie side by side, and the walk through the table is a walk through
//! memory. Where that makes keys crowd, they are spread by a mixing hash instead.
//!
//! The memory comes from the system as zeroed pages, huge ones if it has them: a table is as
//! large as its most crowded moment, and keys that are spread over it would otherwise miss the
//! processor's address cache at every step.

use memmap2::{Advice, MmapMut};

use crate::capture::LATEST_NS;

/// A search longer than this raises the question whether the keys crowd.
const LONG: usize = 32;
/// Slots to a cache line.
const LINE: usize = 64 / size_of::<Slot>();
/// They do when the searches took more steps than this on average.
const CROWDED: u64 = 8;

/// What is known of a packet before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Seen before the device only.
    Open,
    /// Its first copy after the device has been found.
    Matched,
    /// Its only copies after the device carry earlier stamps than itself.
    NonCausal,
    /// The same key occurs again within the window before the device.
    Repeated,
}

/// Time and state of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub time: u64,
    pub state: State,
}

impl Entry {
    /// One word, never zero: an empty slot is zero. It has 62 bits for the time.
    #[inline]
    pub fn pack(self) -> u64 {
        (self.time.min(LATEST_NS) + 1) << 2 | self.state as u64
    }

    #[inline]
    pub fn unpack(word: u64) -> Option<Self> {
        let state = match word & 3 {
            0 => State::Open,
            1 => State::Matched,
            2 => State::NonCausal,
            _ => State::Repeated,
        };
        (word != 0).then(|| Self { time: (word >> 2) - 1, state })
    }
}

/// Memory for so many words of 64 bits, all zero.
pub(crate) fn zeroed(words: usize) -> MmapMut {
    let memory = MmapMut::map_anon(words * size_of::<u64>())
        .expect("the system has no memory for matching packets");
    // A hint: without huge pages everything still works.
    let _ = memory.advise(Advice::HugePage);
    memory
}

/// How keys find their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// Numbers that mostly count up: in their order. The number of slots is a power of two.
    InOrder,
    /// Numbers that would crowd: spread by a mixing hash.
    Mixed,
    /// Hashes: spread as they are.
    Spread,
}

/// Slots for keys, each a word for the entry and one for the key.
pub(crate) struct Table {
    memory: MmapMut,
    slots: usize,
    used: usize,
    placing: Placing,
    /// Searches since the table was made, and the steps that they took.
    searches: u64,
    steps: u64,
}

type Slot = [u64; 2];

impl Table {
    /// An empty table of at least `slots` slots.
    pub fn new(slots: usize, placing: Placing) -> Self {
        let slots = if placing == Placing::InOrder { slots.next_power_of_two() } else { slots };
        let memory = zeroed(slots * size_of::<Slot>() / size_of::<u64>());
        Self { memory, slots, used: 0, placing, searches: 0, steps: 0 }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Slots in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// How keys find their places.
    pub fn placing(&self) -> Placing {
        self.placing
    }

    /// Whether searches have become long although keys could be spread.
    #[inline]
    pub fn crowded(&self, steps: usize) -> bool {
        steps > LONG && self.placing == Placing::InOrder && self.steps > CROWDED * self.searches
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        // Searches begin with a cache line, so that most need no other.
        let spread = |hash: u64| {
            let at = (u128::from(hash) * self.slots as u128) >> 64;
            at as usize / LINE * LINE
        };
        match self.placing {
            Placing::InOrder => key as usize & (self.slots - 1),
            Placing::Mixed => spread(mix(key)),
            Placing::Spread => spread(key),
        }
    }

    /// Visits the entries of a key, with their slots, until `visit` breaks off or an empty slot
    /// ends the search; `visit` returns a new state for the entry, if it wants one, and whether to
    /// go on. Returns the empty slot, if the search got there, and the steps taken.
    #[inline]
    pub fn search(
        &mut self,
        key: u64,
        mut visit: impl FnMut(usize, Entry) -> (Option<State>, bool),
    ) -> (Option<usize>, usize) {
        let mut at = self.home(key);
        let slots: &mut [Slot] = bytemuck::cast_slice_mut(&mut self.memory);
        let mut steps = 0;
        if self.placing != Placing::InOrder
            && let Some(line) = slots[at..].first_chunk()
        {
            steps = of_others(line, key);
            at += steps;
            if at == slots.len() {
                at = 0;
            }
        }
        let empty = loop {
            let [word, of] = &mut slots[at];
            let Some(entry) = Entry::unpack(*word) else {
                break Some(at);
            };
            if *of == key {
                let (state, go_on) = visit(at, entry);
                if let Some(state) = state {
                    *word = Entry { state, ..entry }.pack();
                }
                if !go_on {
                    break None;
                }
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
            steps += 1;
        };
        self.searches += 1;
        self.steps += steps as u64;
        (empty, steps)
    }

    /// Adds an entry, for which [`Self::search`] found an empty slot: in the place of the first one on
    /// the way there that is `spent`, whatever its key, or else in the empty slot. Returns whom it took
    /// the place of, with its key.
    #[inline]
    pub fn put(
        &mut self,
        key: u64,
        empty: usize,
        entry: Entry,
        spent: impl Fn(Entry) -> bool,
    ) -> Option<(u64, Entry)> {
        let home = self.home(key);
        let slots: &mut [Slot] = bytemuck::cast_slice_mut(&mut self.memory);
        // Few ways go over the end of the table.
        let way = slots.get_mut(home..empty).unwrap_or_default();
        match way.iter_mut().find(|[word, _]| Entry::unpack(*word).is_some_and(&spent)) {
            Some(slot) => {
                let [word, of] = std::mem::replace(slot, [entry.pack(), key]);
                Entry::unpack(word).map(|before| (of, before))
            }
            None => {
                self.fill(empty, key, entry);
                None
            }
        }
    }

    /// Fills an empty slot that [`Self::search`] found.
    #[inline]
    pub fn fill(&mut self, at: usize, key: u64, entry: Entry) {
        let slots: &mut [Slot] = bytemuck::cast_slice_mut(&mut self.memory);
        slots[at] = [entry.pack(), key];
        self.used += 1;
    }

    /// Puts another packet of the same key into the slot of an entry.
    #[inline]
    pub fn replace(&mut self, at: usize, entry: Entry) {
        let slots: &mut [Slot] = bytemuck::cast_slice_mut(&mut self.memory);
        slots[at][0] = entry.pack();
    }

    /// All entries with their keys.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        let slots: &[Slot] = bytemuck::cast_slice(&self.memory);
        slots.iter().filter_map(|&[word, key]| Some((key, Entry::unpack(word)?)))
    }

    /// Brings the places of these keys into the processor's cache, ahead of their turn.
    ///
    /// Keys that are spread over the table miss the cache one by one, each search waiting for
    /// the one before; read here without depending on each other, the misses overlap.
    pub fn warm_up(&self, keys: &[u64]) {
        let slots: &[Slot] = bytemuck::cast_slice(&self.memory);
        // Where a line is full, a search goes on in the next one.
        let touch = |sum, &key: &u64| {
            let home = self.home(key);
            sum | slots[home][0] | slots.get(home + LINE).map_or(0, |slot| slot[0])
        };
        std::hint::black_box(keys.iter().fold(0, touch));
    }
}

/// How many slots of a cache line are of other keys, before one of this key or an empty one. Where in
/// its line a key is cannot be foreseen, so that a branch for each slot would often be mispredicted.
#[inline]
fn of_others(line: &[Slot; LINE], key: u64) -> usize {
    let mut ends = 1 << LINE;
    for (place, [word, of]) in line.iter().enumerate() {
        ends |= u32::from((*of == key) | (*word == 0)) << place;
    }
    ends.trailing_zeros() as usize
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

    #[test]
    fn entries_survive_packing() {
        for state in [State::Open, State::Matched, State::NonCausal, State::Repeated] {
            for time in [0, 1, 1 << 40, LATEST_NS] {
                let entry = Entry::unpack(Entry { time, state }.pack()).unwrap();
                assert_eq!((entry.time, entry.state), (time, state));
            }
        }
        assert!(Entry::unpack(0).is_none());
        let clipped = Entry::unpack(Entry { time: u64::MAX, state: State::Open }.pack());
        assert_eq!(clipped.unwrap().time, LATEST_NS);
    }
}
