//! A device that makes mistakes by chance, in front of any other device. What it did is counted
//! exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{Device, Mode};
use crate::clock::Clock;

/// How probable each fault is for a frame, from 0 to 1. They are looked at in this order, and of
/// refusal, loss, delay and reordering a frame has one at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chances {
    /// The device does not take the frame, and says so.
    pub refuse: f64,
    /// The device takes the frame and it never arrives.
    pub lose: f64,
    /// The frame arrives twice.
    pub duplicate: f64,
    /// The frame is sent later, by [`delay_ns`](Self::delay_ns).
    pub delay: f64,
    /// How much later. It then leaves when the queue is next handed over.
    pub delay_ns: u64,
    /// The frame changes places with the next one.
    pub reorder: f64,
}

/// How many frames had which fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Refused.
    pub refused: usize,
    /// Lost.
    pub lost: usize,
    /// Sent twice.
    pub duplicated: usize,
    /// Delayed.
    pub delayed: usize,
    /// Sent behind the next one.
    pub reordered: usize,
}

/// A frame that is sent later: when, its place among those of the same time, and itself.
type Delayed = (u64, usize, Vec<u8>);

/// A device with faults.
pub struct Faults<D, C> {
    device: D,
    clock: C,
    chances: Chances,
    random: Xoshiro256PlusPlus,
    queue: Vec<Vec<u8>>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// The frames that let the next one pass.
    passed: Vec<Vec<u8>>,
    /// Frames in the device's own queue.
    queued: usize,
    count: Count,
}

impl<D: Device, C: Clock> Faults<D, C> {
    /// Puts faults in front of a device. The same `seed` gives the same ones.
    pub fn new(device: D, clock: C, chances: Chances, seed: u64) -> Self {
        Self {
            device,
            clock,
            chances,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            queue: Vec::new(),
            delayed: BinaryHeap::new(),
            passed: Vec::new(),
            queued: 0,
            count: Count::default(),
        }
    }

    /// What was done so far.
    pub fn count(&self) -> Count {
        self.count
    }

    /// Sends all frames that are delayed or wait for the next one. Returns how many of them the
    /// device did not take.
    pub fn send_rest(&mut self) -> usize {
        let mut failed = self.send_delayed(u64::MAX);
        for frame in std::mem::take(&mut self.passed) {
            failed += self.send(&frame);
        }
        failed + self.hand_over()
    }

    /// Whether something of this probability happens.
    fn happens(&mut self, probability: f64) -> bool {
        // 53 random bits are a number from 0 to below 1.
        let number = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        number < probability
    }

    /// Sends a frame, or keeps it. Returns how many were not taken, as do the following.
    fn take(&mut self, frame: Vec<u8>, now: u64) -> usize {
        let Chances { refuse, lose, duplicate, delay, delay_ns, reorder } = self.chances;
        if self.happens(refuse) {
            self.count.refused += 1;
            return 1;
        }
        if self.happens(lose) {
            self.count.lost += 1;
            return 0;
        }
        let twice = self.happens(duplicate);
        self.count.duplicated += usize::from(twice);
        let frames = std::iter::repeat_n(frame, 1 + usize::from(twice));
        if self.happens(delay) {
            for frame in frames {
                let place = self.count.delayed + self.count.duplicated;
                self.delayed.push(Reverse((now.saturating_add(delay_ns), place, frame)));
            }
            self.count.delayed += 1;
            return 0;
        }
        if self.passed.is_empty() && self.happens(reorder) {
            self.count.reordered += 1;
            self.passed.extend(frames);
            return 0;
        }
        let passed = std::mem::take(&mut self.passed);
        frames.chain(passed).map(|frame| self.send(&frame)).sum()
    }

    fn send_delayed(&mut self, now: u64) -> usize {
        let mut failed = 0;
        while self.delayed.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
            if let Some(Reverse((_, _, frame))) = self.delayed.pop() {
                failed += self.send(&frame);
            }
        }
        failed
    }

    fn send(&mut self, frame: &[u8]) -> usize {
        let failed = if self.queued == self.device.room() { self.hand_over() } else { 0 };
        self.device.push(frame);
        self.queued += 1;
        failed
    }

    fn hand_over(&mut self) -> usize {
        self.queued = 0;
        self.device.flush()
    }
}

impl<D: Device, C: Clock> Device for Faults<D, C> {
    fn room(&self) -> usize {
        self.device.room()
    }

    fn push(&mut self, frame: &[u8]) {
        self.queue.push(frame.into());
    }

    fn flush(&mut self) -> usize {
        let now = self.clock.now();
        let mut failed = self.send_delayed(now);
        for frame in std::mem::take(&mut self.queue) {
            failed += self.take(frame, now);
        }
        failed + self.hand_over()
    }

    fn finish(&mut self) -> usize {
        self.device.finish()
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone()
    }

    fn mode(&self) -> Option<Mode> {
        self.device.mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Simulated;
    use crate::device::loopback;

    const FRAMES: u32 = 10_000;

    /// The numbers of the frames that arrive when `FRAMES` are sent, one each microsecond.
    fn sent(chances: Chances, seed: u64) -> (Vec<u32>, usize, Count) {
        let clock = Simulated::default();
        let (device, received) = loopback::pair(3);
        let mut faults = Faults::new(device, clock.clone(), chances, seed);
        let mut failed = 0;
        for number in 0..FRAMES {
            faults.push(&number.to_be_bytes());
            if number % 3 == 2 {
                failed += faults.flush();
            }
            clock.advance(1000);
        }
        failed += faults.flush() + faults.send_rest();
        let frames = std::iter::from_fn(|| received.take());
        let numbers = frames.map(|f| u32::from_be_bytes(f.try_into().expect("four bytes")));
        (numbers.collect(), failed, faults.count())
    }

    #[test]
    fn without_chances_there_are_no_faults() {
        let (arrived, failed, count) = sent(Chances::default(), 1);
        assert!(arrived.into_iter().eq(0..FRAMES));
        assert_eq!((failed, count), (0, Count::default()));
    }

    #[test]
    fn every_fault_is_made_as_often_as_asked_and_counted() {
        let ten_percent = 800..1200;
        let (arrived, failed, count) = sent(Chances { refuse: 0.1, ..Chances::default() }, 2);
        assert!(ten_percent.contains(&failed) && arrived.is_sorted());
        assert_eq!((count.refused, arrived.len()), (failed, FRAMES as usize - failed));

        let (arrived, failed, count) = sent(Chances { lose: 0.1, ..Chances::default() }, 3);
        assert!(ten_percent.contains(&count.lost) && arrived.is_sorted());
        assert_eq!((failed, arrived.len()), (0, FRAMES as usize - count.lost));

        let (arrived, _, count) = sent(Chances { duplicate: 0.1, ..Chances::default() }, 4);
        assert!(ten_percent.contains(&count.duplicated) && arrived.is_sorted());
        let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!((twice, arrived.len()), (count.duplicated, FRAMES as usize + twice));

        let (mut arrived, _, count) = sent(Chances { reorder: 0.1, ..Chances::default() }, 5);
        assert!(ten_percent.contains(&count.reordered));
        let falls = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
        // The last one has no next.
        assert!([falls, falls + 1].contains(&count.reordered));
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..FRAMES));

        let chances = Chances { delay: 0.1, delay_ns: 50_000, ..Chances::default() };
        let (mut arrived, _, count) = sent(chances, 6);
        assert!(ten_percent.contains(&count.delayed));
        let mut latest = 0;
        let mut late = 0;
        for &number in &arrived {
            late += usize::from(number < latest);
            latest = latest.max(number);
            // At the end nobody is left behind whom a frame could be.
            assert!(latest - number <= 52, "{number} comes behind {latest}");
        }
        assert!(late <= count.delayed && count.delayed - late < 10);
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..FRAMES));
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let chances = Chances {
            refuse: 0.05,
            lose: 0.05,
            duplicate: 0.05,
            delay: 0.05,
            delay_ns: 10_000,
            reorder: 0.05,
        };
        assert_eq!(sent(chances, 7), sent(chances, 7));
        assert_ne!(sent(chances, 7), sent(chances, 8));
        let (arrived, failed, count) = sent(chances, 9);
        assert_eq!(failed, count.refused);
        let all = FRAMES as usize - count.refused - count.lost + count.duplicated;
        assert_eq!(arrived.len(), all);
    }
}
