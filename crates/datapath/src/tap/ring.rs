//! The ring that the eBPF tap fills, and the counters beside it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bpf::Rings;
use crate::ring;

/// What every slot begins with. Of a stamp that is all, byte for byte as in the stamp file.
pub type Record = ring::Record;

/// The counters that the program and the consumer share: `state` in bpf/tap.bpf.c.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct State {
    head: AtomicU64,
    lost: AtomicU64,
    other: AtomicU64,
    late: AtomicU64,
    filtered: AtomicU64,
    unsampled: AtomicU64,
    padding0: [u64; 2],
    tail: AtomicU64,
    ahead: AtomicU64,
    bell_at: AtomicU64,
    sample: AtomicU64,
    padding1: [u64; 4],
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
    /// Packets that the filter left out.
    pub filtered: u64,
    /// Packets that were not in the sample.
    pub unsampled: u64,
    /// XDP frames that were handed over to the interface.
    pub handed: u64,
    /// XDP frames that the interface received.
    pub taken: u64,
}

/// The ring, seen by its only consumer.
#[derive(Debug)]
pub struct Ring<'a> {
    state: &'a State,
    slots: ring::Ring<'a>,
}

impl<'a> Ring<'a> {
    /// The only one of these rings.
    pub(crate) fn new(state: &'a State, rings: &'a Rings) -> Self {
        let State { head, tail, bell_at, .. } = state;
        Self { state, slots: rings.ring(0, [head, tail, bell_at]) }
    }

    /// The program's counters.
    pub fn counters(&self) -> Counters {
        Counters {
            head: self.slots.taken(),
            lost: self.state.lost.load(Ordering::Acquire),
            other: self.state.other.load(Ordering::Acquire),
            late: self.state.late.load(Ordering::Acquire),
            filtered: self.state.filtered.load(Ordering::Acquire),
            unsampled: self.state.unsampled.load(Ordering::Acquire),
            handed: self.state.handed.load(Ordering::Acquire),
            taken: self.state.taken.load(Ordering::Acquire),
        }
    }

    /// Tells the program what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, in ns.
    pub fn set_ahead(&self, ahead: u64) {
        self.state.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Has the program stamp one packet of `2^level` from now on.
    pub fn set_level(&self, level: u8) {
        self.state.sample.store((1 << level) - 1, Ordering::SeqCst);
    }

    /// Has packets stamped whose hash has none of these bits.
    #[cfg(test)]
    pub fn set_bits(&self, bits: u64) {
        self.state.sample.store(bits, Ordering::SeqCst);
    }

    /// Records that wait in the ring.
    pub fn waiting(&self) -> u64 {
        self.slots.waiting()
    }

    /// Whether so much of the ring is used that it should be drained. The program says when it is.
    pub fn should_drain(&self) -> bool {
        self.slots.should_drain()
    }

    /// Takes complete records out, at most `limit`, and returns how many. `take` gets the first two
    /// words of each slot and the words behind them.
    pub fn drain(&mut self, limit: u64, take: impl FnMut(Record, &[AtomicU64])) -> u64 {
        self.slots.drain(limit, take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_has_the_layout_of_the_program() {
        use std::mem::{offset_of, size_of};
        assert_eq!(size_of::<State>(), 256);
        let offsets = [offset_of!(State, head), offset_of!(State, lost), offset_of!(State, other)];
        assert_eq!(offsets, [0, 8, 16]);
        assert_eq!([offset_of!(State, late), offset_of!(State, tail)], [24, 64]);
        assert_eq!([offset_of!(State, filtered), offset_of!(State, unsampled)], [32, 40]);
        assert_eq!([offset_of!(State, ahead), offset_of!(State, bell_at)], [72, 80]);
        assert_eq!(offset_of!(State, sample), 88);
        assert_eq!(offset_of!(State, handed), 128);
        assert_eq!(offset_of!(State, taken), 192);
    }
}
