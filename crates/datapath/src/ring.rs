//! The consumer's side of the ring that the eBPF tap fills; see bpf/tap.bpf.c for the protocol.

use std::sync::atomic::{AtomicU64, Ordering};

/// A stamp as it stands in the ring and, byte for byte, in the stamp file.
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
    padding0: [u64; 5],
    tail: AtomicU64,
    padding1: [u64; 7],
}

/// What the program has counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Slots taken: stamps stored in the ring since the beginning.
    pub head: u64,
    /// Packets with an id for which the ring had no room.
    pub lost: u64,
    /// Packets without an id.
    pub other: u64,
}

/// The ring, seen by its only consumer.
#[derive(Debug)]
pub struct Ring<'a> {
    state: &'a State,
    slots: &'a [[AtomicU64; 2]],
    tail: u64,
}

impl<'a> Ring<'a> {
    /// The ring in `slots`, whose number must be a power of two.
    pub fn new(state: &'a State, slots: &'a [[AtomicU64; 2]]) -> Self {
        assert!(slots.len().is_power_of_two());
        Self { state, slots, tail: state.tail.load(Ordering::Relaxed) }
    }

    /// The program's counters.
    pub fn counters(&self) -> Counters {
        Counters {
            head: self.state.head.load(Ordering::Acquire),
            lost: self.state.lost.load(Ordering::Acquire),
            other: self.state.other.load(Ordering::Acquire),
        }
    }

    /// Stamps that wait in the ring.
    pub fn waiting(&self) -> u64 {
        self.counters().head - self.tail
    }

    /// Whether so much of the ring is used that it should be drained.
    pub fn should_drain(&self) -> bool {
        self.waiting() > self.slots.len() as u64 / 4
    }

    /// Moves complete records to `into`, at most `limit`, and returns how many.
    pub fn drain(&mut self, limit: usize, into: &mut Vec<Record>) -> usize {
        let before = into.len();
        let mask = self.slots.len() as u64 - 1;
        while into.len() - before < limit {
            let slot = &self.slots[(self.tail & mask) as usize];
            let record = [slot[0].load(Ordering::Acquire), slot[1].load(Ordering::Acquire)];
            if record.contains(&0) {
                break;
            }
            slot[0].store(0, Ordering::Relaxed);
            slot[1].store(0, Ordering::Relaxed);
            into.push(record);
            self.tail += 1;
            if self.tail.is_multiple_of(PORTION) {
                self.state.tail.store(self.tail, Ordering::Release);
            }
        }
        self.state.tail.store(self.tail, Ordering::Release);
        into.len() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: usize) -> Vec<[AtomicU64; 2]> {
        (0..count).map(|_| Default::default()).collect()
    }

    /// What the eBPF program does with one packet.
    fn produce(state: &State, slots: &[[AtomicU64; 2]], record: Record) {
        loop {
            let head = state.head.load(Ordering::SeqCst);
            if head - state.tail.load(Ordering::SeqCst) >= slots.len() as u64 {
                state.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            let taken =
                state.head.compare_exchange(head, head + 1, Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_ok() {
                let slot = &slots[head as usize % slots.len()];
                slot[1].store(record[1], Ordering::Relaxed);
                slot[0].store(record[0], Ordering::Relaxed);
                return;
            }
        }
    }

    #[test]
    fn state_has_the_layout_of_the_program() {
        use std::mem::{offset_of, size_of};
        assert_eq!(size_of::<State>(), 128);
        let offsets = [offset_of!(State, head), offset_of!(State, lost), offset_of!(State, other)];
        assert_eq!(offsets, [0, 8, 16]);
        assert_eq!(offset_of!(State, tail), 64);
    }

    #[test]
    fn a_full_ring_loses_and_says_so() {
        let (state, slots) = (State::default(), slots(4));
        let mut ring = Ring::new(&state, &slots);
        for time in 1..=6 {
            produce(&state, &slots, [time, 60 << 32]);
        }
        assert!(ring.should_drain());
        assert_eq!(ring.counters(), Counters { head: 4, lost: 2, other: 0 });
        let mut out = Vec::new();
        assert_eq!(ring.drain(3, &mut out), 3);
        produce(&state, &slots, [7, 60 << 32]);
        assert_eq!(ring.drain(10, &mut out), 2);
        assert_eq!(out.iter().map(|r| r[0]).collect::<Vec<_>>(), [1, 2, 3, 4, 7]);
        assert_eq!(ring.waiting(), 0);
    }

    #[test]
    fn an_incomplete_record_holds_the_later_ones_back() {
        let (state, slots) = (State::default(), slots(4));
        let mut ring = Ring::new(&state, &slots);
        state.head.store(2, Ordering::SeqCst);
        slots[0][0].store(5, Ordering::SeqCst); // time without packet
        slots[1][0].store(6, Ordering::SeqCst);
        slots[1][1].store(1, Ordering::SeqCst);
        let mut out = Vec::new();
        assert_eq!(ring.drain(10, &mut out), 0);
        slots[0][1].store(1, Ordering::SeqCst);
        assert_eq!(ring.drain(10, &mut out), 2);
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
            let mut ring = Ring::new(&state, &slots);
            while producers.iter().any(|p| !p.is_finished()) {
                ring.drain(300, &mut out);
            }
            while ring.drain(300, &mut out) > 0 {}
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
