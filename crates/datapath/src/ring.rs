//! The consumer's side of a ring that eBPF programs fill; bpf/ring.h has the producers' and the
//! protocol. That of the kernel's ring buffers is in Documentation/bpf/ringbuf.rst.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What every slot begins with.
pub(crate) type Record = [u64; 2];

/// Slots are handed back to the producers in portions of this many.
const PORTION: u64 = 4096;
/// The ring is drained when this part of it is used.
const PARTS: u64 = 2;
/// What the kernel's header of a record says until that is submitted (BPF_RINGBUF_BUSY_BIT).
const BUSY: u64 = 1 << 31;

/// A ring, seen by its only consumer.
#[derive(Debug)]
pub(crate) struct Ring<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    /// None where the kernel keeps the ring.
    bell_at: Option<&'a AtomicU64>,
    words: &'a [AtomicU64],
    /// Words from one slot to the next one.
    slot_words: usize,
    /// What `head` and `tail` count for each slot.
    step: u64,
    slots: u64,
    emptied: u64,
    /// The word that the next slot begins at, and the one from which on the words come again.
    at: usize,
    end: usize,
}

impl<'a> Ring<'a> {
    /// The ring in `words`: slots of `slot_words` words, at least two, whose number must be a power
    /// of two. The producers move `head`, and ring when they take the slot `bell_at`.
    pub(crate) fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        bell_at: &'a AtomicU64,
        words: &'a [AtomicU64],
        slot_words: usize,
    ) -> Self {
        let slots = words.len() / slot_words;
        assert!(slots.is_power_of_two() && slot_words >= 2);
        let emptied = tail.load(Ordering::Relaxed);
        let at = (emptied % slots as u64) as usize * slot_words;
        let (step, slots, end) = (1, slots as u64, words.len());
        let bell_at = Some(bell_at);
        let ring = Self { head, tail, bell_at, words, slot_words, step, slots, emptied, at, end };
        ring.set_bell();
        ring
    }

    /// A ring buffer of the kernel, which has at least so many slots. Its bytes, in `words`, stand there
    /// twice; `head` and `tail` count them.
    pub(crate) fn of_kernel(
        [head, tail]: [&'a AtomicU64; 2],
        words: &'a [AtomicU64],
        slot_words: usize,
        slots: usize,
    ) -> Self {
        let slot_words = slot_words + 1;
        let step = (slot_words * size_of::<u64>()) as u64;
        let (slots, end) = (slots as u64, words.len() / 2);
        let emptied = tail.load(Ordering::Relaxed) / step;
        let at = (emptied * slot_words as u64 % end as u64) as usize;
        Self { head, tail, bell_at: None, words, slot_words, step, slots, emptied, at, end }
    }

    /// Has the producers ring when the ring should be drained. Whoever asks afterwards whether it should
    /// be misses nothing.
    fn set_bell(&self) {
        if let Some(bell_at) = self.bell_at {
            bell_at.store(self.emptied + self.slots / PARTS, Ordering::Relaxed);
        }
        // Whatever was taken before the producers saw this is seen by `should_drain`.
        fence(Ordering::SeqCst);
    }

    /// Slots taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.head.load(Ordering::Acquire) / self.step
    }

    /// Records that wait in the ring.
    pub(crate) fn waiting(&self) -> u64 {
        self.taken() - self.emptied
    }

    /// Whether so much of the ring is used that it should be drained.
    pub(crate) fn should_drain(&self) -> bool {
        self.waiting() > self.slots / PARTS
    }

    /// Takes complete records out, at most `limit`, and returns how many. `take` gets the first two
    /// words of each slot and the words behind them.
    pub(crate) fn drain(&mut self, limit: u64, mut take: impl FnMut(Record, &[AtomicU64])) -> u64 {
        let before = self.emptied;
        let by_kernel = self.bell_at.is_none();
        while self.emptied - before < limit {
            let mut slot = &self.words[self.at..self.at + self.slot_words];
            if by_kernel {
                if self.waiting() == 0 || slot[0].load(Ordering::Acquire) & BUSY != 0 {
                    break;
                }
                slot = &slot[1..];
            }
            let record = [slot[0].load(Ordering::Acquire), slot[1].load(Ordering::Acquire)];
            if record.contains(&0) {
                break;
            }
            take(record, &slot[2..]);
            if !by_kernel {
                slot[0].store(0, Ordering::Relaxed);
                slot[1].store(0, Ordering::Relaxed);
            }
            self.emptied += 1;
            self.at += self.slot_words;
            if self.at >= self.end {
                self.at -= self.end;
            }
            if self.emptied.is_multiple_of(PORTION) {
                self.tail.store(self.emptied * self.step, Ordering::Release);
            }
        }
        self.tail.store(self.emptied * self.step, Ordering::Release);
        self.set_bell();
        self.emptied - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the producers and the consumer share.
    #[derive(Default)]
    struct State {
        head: AtomicU64,
        lost: AtomicU64,
        tail: AtomicU64,
        bell_at: AtomicU64,
    }

    impl State {
        fn ring<'a>(&'a self, words: &'a [AtomicU64], slot_words: usize) -> Ring<'a> {
            Ring::new(&self.head, &self.tail, &self.bell_at, words, slot_words)
        }

        fn counts(&self) -> [u64; 2] {
            [&self.head, &self.lost].map(|count| count.load(Ordering::SeqCst))
        }
    }

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
            let used = head.wrapping_sub(state.tail.load(Ordering::SeqCst)).cast_signed();
            if used >= slots.len() as i64 / 2 {
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
    fn the_bell_rings_at_the_slot_from_which_on_the_ring_should_be_drained() {
        for count in [1, 2, 64] {
            let (state, slots) = (State::default(), slots(count));
            let mut ring = state.ring(&slots, 2);
            let mut rang = 0;
            for time in 1..=5 * count as u64 {
                let rings =
                    state.head.load(Ordering::SeqCst) == state.bell_at.load(Ordering::SeqCst);
                produce(&state, &slots, [time, 60 << 32]);
                assert_eq!(rings, ring.should_drain());
                if rings {
                    rang += 1;
                    drain(&mut ring, u64::MAX, &mut Vec::new());
                }
            }
            assert!(rang >= 5 && state.counts()[1] == 0);
        }
    }

    #[test]
    fn a_full_ring_loses_and_says_so() {
        let (state, slots) = (State::default(), slots(4));
        let mut ring = state.ring(&slots, 2);
        for time in 1..=6 {
            produce(&state, &slots, [time, 60 << 32]);
        }
        assert!(ring.should_drain());
        assert_eq!(state.counts(), [4, 2]);
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
        let mut ring = state.ring(&slots, 2);
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
        let mut ring = state.ring(&words, 4);
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
            let mut ring = state.ring(&slots, 2);
            while producers.iter().any(|p| !p.is_finished()) {
                drain(&mut ring, 300, &mut out);
            }
            while drain(&mut ring, 300, &mut out) > 0 {}
            let [head, lost] = state.counts();
            assert_eq!(out.len() as u64, head);
            assert_eq!(head + lost, 2 * EACH);
        });
        for producer in 1..=2 {
            let times: Vec<u64> = out.iter().filter(|r| r[1] == producer).map(|r| r[0]).collect();
            assert!(times.is_sorted_by(|a, b| a < b));
        }
    }
}
