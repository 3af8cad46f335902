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
use crate::key::Key;

/// A search longer than this raises the question whether the keys crowd.
const LONG: usize = 32;
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

/// Slots for keys of one kind.
pub(crate) struct Table<K> {
    memory: MmapMut,
    slots: usize,
    used: usize,
    mixing: bool,
    /// Searches since the table was made, and the steps that they took.
    searches: u64,
    steps: u64,
    key: std::marker::PhantomData<K>,
}

impl<K: Key> Table<K> {
    const STRIDE: usize = 1 + K::WORDS;

    /// An empty table of `slots` slots, a power of two.
    pub fn new(slots: usize, mixing: bool) -> Self {
        let memory = zeroed(slots * Self::STRIDE);
        let key = std::marker::PhantomData;
        Self { memory, slots, used: 0, mixing, searches: 0, steps: 0, key }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Slots in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Whether keys are spread by a mixing hash.
    pub fn mixing(&self) -> bool {
        self.mixing
    }

    /// Whether searches have become long although keys are not spread yet.
    #[inline]
    pub fn crowded(&self, steps: usize) -> bool {
        steps > LONG && !self.mixing && self.steps > CROWDED * self.searches
    }

    #[inline]
    fn home(&self, key: K) -> usize {
        let number = key.number();
        (if self.mixing { mix(number) } else { number }) as usize & (self.slots - 1)
    }

    /// Visits the entries of a key, with their slots, until `visit` breaks off or an empty slot
    /// ends the search; `visit` returns a new state for the entry, if it wants one, and whether to
    /// go on. Returns the empty slot, if the search got there, and the steps taken.
    #[inline]
    pub fn search(
        &mut self,
        key: K,
        mut visit: impl FnMut(usize, Entry) -> (Option<State>, bool),
    ) -> (Option<usize>, usize) {
        let mask = self.slots - 1;
        let mut at = self.home(key);
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        let mut steps = 0;
        let empty = loop {
            let slot = &mut words[at * Self::STRIDE..][..Self::STRIDE];
            let Some(entry) = Entry::unpack(slot[0]) else {
                break Some(at);
            };
            if K::load(&slot[1..]) == key {
                let (state, go_on) = visit(at, entry);
                if let Some(state) = state {
                    slot[0] = Entry { state, ..entry }.pack();
                }
                if !go_on {
                    break None;
                }
            }
            at = (at + 1) & mask;
            steps += 1;
        };
        self.searches += 1;
        self.steps += steps as u64;
        (empty, steps)
    }

    /// Fills an empty slot that [`Self::search`] found.
    #[inline]
    pub fn fill(&mut self, at: usize, key: K, entry: Entry) {
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        let slot = &mut words[at * Self::STRIDE..][..Self::STRIDE];
        slot[0] = entry.pack();
        key.store(&mut slot[1..]);
        self.used += 1;
    }

    /// Puts another packet of the same key into the slot of an entry.
    #[inline]
    pub fn replace(&mut self, at: usize, entry: Entry) {
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        words[at * Self::STRIDE] = entry.pack();
    }

    /// All entries with their keys.
    pub fn entries(&self) -> impl Iterator<Item = (K, Entry)> + '_ {
        let words: &[u64] = bytemuck::cast_slice(&self.memory);
        words
            .chunks_exact(Self::STRIDE)
            .filter_map(|slot| Some((K::load(&slot[1..]), Entry::unpack(slot[0])?)))
    }

    /// Brings the places of these keys into the processor's cache, ahead of their turn.
    ///
    /// Keys that are spread over the table miss the cache one by one, each search waiting for
    /// the one before; read here without depending on each other, the misses overlap.
    pub fn warm_up(&self, keys: &[K]) {
        let words: &[u64] = bytemuck::cast_slice(&self.memory);
        let touch = |sum, &key: &K| {
            let slot = &words[self.home(key) * Self::STRIDE..][..Self::STRIDE];
            sum | slot[0] | slot[Self::STRIDE - 1]
        };
        std::hint::black_box(keys.iter().fold(0, touch));
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
