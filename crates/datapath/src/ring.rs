//! The consumer's side of the ring that the eBPF tap fills; see bpf/tap.bpf.c for the protocol.

use std::sync::atomic::{AtomicU64, Ordering};

/// What every slot begins with. Of a stamp that is all, byte for byte as in the stamp file.
pub type Record = [u64; 2];

/// Slots are handed back to the producers in portions of this many.
const PORTION: u64 = 4096;

/// The counters that the program and the consumer share: `state` in bpf/tap.bpf.c.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct State {
    head: AtomicU64,
    lost: AtomicU64,
    other: AtomicU64,
    late: AtomicU64,
    padding0: [u64; 4],
    tail: AtomicU64,
    ahead: AtomicU64,
    padding1: [u64; 6],
    handed: AtomicU64,
    /// The program's own.
    notes: [AtomicU64; 2],
    padding2: [u64; 5],
    taken: AtomicU64,
    /// The program's own.
    note: AtomicU64,
    padding3: [u64; 6],
}

/// What the program has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Slots taken: stamps stored in the ring since the beginning.
    pub head: u64,
    /// Packets with an id for which the ring had no room.
    pub lost: u64,
    /// Packets without an id.
    pub other: u64,
    /// Packets that were stamped on receipt, as nobody had stamped them when they were handed over.
    pub late: u64,
    /// XDP frames that were handed over to the interface.
    pub handed: u64,
    /// XDP frames that the interface received.
    pub taken: u64,
}

/// The ring, seen by its only consumer.
#[derive(Debug)]
pub struct Ring<'a> {
    state: &'a State,
    words: &'a [AtomicU64],
    slot_words: usize,
    slots: u64,
    tail: u64,
}

impl<'a> Ring<'a> {
    /// The ring in `words`: slots of `slot_words` words, at least two, whose number must be a power
    /// of two.
    pub fn new(state: &'a State, words: &'a [AtomicU64], slot_words: usize) -> Self {
        let slots = words.len() / slot_words;
        assert!(slots.is_power_of_two() && slot_words >= 2);
        let tail = state.tail.load(Ordering::Relaxed);
        Self { state, words, slot_words, slots: slots as u64, tail }
    }

    /// The program's counters.
    pub fn counters(&self) -> Counters {
        Counters {
            head: self.state.head.load(Ordering::Acquire),
            lost: self.state.lost.load(Ordering::Acquire),
            other: self.state.other.load(Ordering::Acquire),
            late: self.state.late.load(Ordering::Acquire),
            handed: self.state.handed.load(Ordering::Acquire),
            taken: self.state.taken.load(Ordering::Acquire),
        }
    }

    /// Tells the program what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, in ns.
    pub fn set_ahead(&self, ahead: u64) {
        self.state.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Records that wait in the ring.
    pub fn waiting(&self) -> u64 {
        self.counters().head - self.tail
    }

    /// Whether so much of the ring is used that it should be drained.
    pub fn should_drain(&self) -> bool {
        self.waiting() > self.slots / 4
    }

    /// Takes complete records out, at most `limit`, and returns how many. `take` gets the first two
    /// words of each slot and the words behind them.
    pub fn drain(&mut self, limit: u64, mut take: impl FnMut(Record, &[AtomicU64])) -> u64 {
        let before = self.tail;
        let mask = self.slots - 1;
        while self.tail - before < limit {
            let start = (self.tail & mask) as usize * self.slot_words;
            let slot = &self.words[start..start + self.slot_words];
            let record = [slot[0].load(Ordering::Acquire), slot[1].load(Ordering::Acquire)];
            if record.contains(&0) {
                break;
            }
            take(record, &slot[2..]);
            slot[0].store(0, Ordering::Relaxed);
            slot[1].store(0, Ordering::Relaxed);
            self.tail += 1;
            if self.tail.is_multiple_of(PORTION) {
                self.state.tail.store(self.tail, Ordering::Release);
            }
        }
        self.state.tail.store(self.tail, Ordering::Release);
        self.tail - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: usize) -> Vec<AtomicU64> {
        (0..2 * count).map(|_| Default::default()).collect()
    }

    fn drain(ring: &mut Ring<'_>, limit: u64, into: &mut Vec<Record>) -> u64 {
        ring.drain(limit, |record, _| into.push(record))
    }

    /// What the eBPF program does with one packet.
    fn produce(state: &State, slots: &[AtomicU64], record: Record) {
        loop {
            let head = state.head.load(Ordering::SeqCst);
            if head - state.tail.load(Ordering::SeqCst) >= slots.len() as u64 / 2 {
                state.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            let taken =
                state.head.compare_exchange(head, head + 1, Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_ok() {
                let at = 2 * head as usize % slots.len();
                slots[at + 1].store(record[1], Ordering::Relaxed);
                slots[at].store(record[0], Ordering::Relaxed);
                return;
            }
        }
    }

    #[test]
    fn state_has_the_layout_of_the_program() {
        use std::mem::{offset_of, size_of};
        assert_eq!(size_of::<State>(), 256);
        let offsets = [offset_of!(State, head), offset_of!(State, lost), offset_of!(State, other)];
        assert_eq!(offsets, [0, 8, 16]);
        assert_eq!([offset_of!(State, late), offset_of!(State, tail)], [24, 64]);
        assert_eq!([offset_of!(State, ahead), offset_of!(State, handed)], [72, 128]);
        assert_eq!(offset_of!(State, taken), 192);
    }

    #[test]
    fn a_full_ring_loses_and_says_so() {
        let (state, slots) = (State::default(), slots(4));
        let mut ring = Ring::new(&state, &slots, 2);
        for time in 1..=6 {
            produce(&state, &slots, [time, 60 << 32]);
        }
        assert!(ring.should_drain());
        assert_eq!(ring.counters(), Counters { head: 4, lost: 2, ..Default::default() });
        let mut out = Vec::new();
        assert_eq!(drain(&mut ring, 3, &mut out), 3);
        produce(&state, &slots, [7, 60 << 32]);
        assert_eq!(drain(&mut ring, 10, &mut out), 2);
        assert_eq!(out.iter().map(|r| r[0]).collect::<Vec<_>>(), [1, 2, 3, 4, 7]);
        assert_eq!(ring.waiting(), 0);
    }

    #[test]
    fn an_incomplete_record_holds_the_later_ones_back() {
        let (state, slots) = (State::default(), slots(4));
        let mut ring = Ring::new(&state, &slots, 2);
        state.head.store(2, Ordering::SeqCst);
        slots[0].store(5, Ordering::SeqCst); // time without packet
        slots[2].store(6, Ordering::SeqCst);
        slots[3].store(1, Ordering::SeqCst);
        let mut out = Vec::new();
        assert_eq!(drain(&mut ring, 10, &mut out), 0);
        slots[1].store(1, Ordering::SeqCst);
        assert_eq!(drain(&mut ring, 10, &mut out), 2);
    }

    #[test]
    fn what_follows_the_first_words_is_handed_over() {
        let state = State::default();
        let words: Vec<AtomicU64> = [7, 1, 40, 41, 8, 1, 42, 43].map(AtomicU64::new).into();
        let mut ring = Ring::new(&state, &words, 4);
        let mut rest = Vec::new();
        let taken = ring.drain(9, |record, more| {
            rest.push((record[0], more.iter().map(|w| w.load(Ordering::Relaxed)).sum()));
        });
        assert_eq!((taken, rest), (2, vec![(7, 81), (8, 85)]));
        assert!(words[0].load(Ordering::Relaxed) == 0 && words[2].load(Ordering::Relaxed) == 40);
    }

    #[test]
    fn nothing_vanishes_between_threads() {
        const EACH: u64 = 200_000;
        let (state, slots) = (State::default(), slots(1024));
        let mut out: Vec<Record> = Vec::new();
        std::thread::scope(|scope| {
            let producers: Vec<_> = (0..2u64)
                .map(|producer| {
                    let (state, slots) = (&state, &slots);
                    scope.spawn(move || {
                        (1..=EACH).for_each(|n| produce(state, slots, [n, producer + 1]));
                    })
                })
                .collect();
            let mut ring = Ring::new(&state, &slots, 2);
            while producers.iter().any(|p| !p.is_finished()) {
                drain(&mut ring, 300, &mut out);
            }
            while drain(&mut ring, 300, &mut out) > 0 {}
            let counters = ring.counters();
            assert_eq!(out.len() as u64, counters.head);
            assert_eq!(counters.head + counters.lost, 2 * EACH);
        });
        for producer in 1..=2 {
            let times: Vec<u64> = out.iter().filter(|r| r[1] == producer).map(|r| r[0]).collect();
            assert!(times.is_sorted_by(|a, b| a < b));
        }
    }
}
