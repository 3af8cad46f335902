//! The packets that were lost, one by one.
//!
//! Which packets these are is known when no more can come of them: a window later, in no order. Their
//! rows are made at the end, of the capture before the device, where everything about them stands.

use serde::{Deserialize, Serialize};

/// So many of the lost packets are kept at most, the first ones.
pub const MOST: usize = 1 << 18;

/// Stamps and keys of lost packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// So many are kept, the first ones.
    most: usize,
    /// The stamp before the device, and the key; in no order, and more than will be kept.
    packets: Vec<(u64, u64)>,
}

impl Losses {
    /// None so far; the first `most` of them will be kept.
    pub fn new(most: usize) -> Self {
        Self { most, packets: Vec::new() }
    }

    /// Adds a packet by its stamp before the device and its key.
    #[cold]
    pub fn push(&mut self, time_ns: u64, key: u64) {
        if self.most > 0 {
            self.packets.push((time_ns, key));
            if self.packets.len() >= self.most.saturating_mul(2) {
                self.cut();
            }
        }
    }

    /// Adds those of another part of the captures.
    pub fn merge(&mut self, mut next: Self) {
        self.packets.append(&mut next.packets);
        self.cut();
    }

    /// The first ones in the order of time: those that an evaluation in parts keeps as well.
    pub fn sorted(mut self) -> Self {
        self.cut();
        self
    }

    /// Stamps and keys; in the order of time after [`Self::sorted`].
    pub fn packets(&self) -> &[(u64, u64)] {
        &self.packets
    }

    fn cut(&mut self) {
        self.packets.sort_unstable();
        self.packets.truncate(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_kept_in_whatever_order_they_come() {
        let mut all = Losses::new(MOST);
        let (mut early, mut late) = (Losses::new(MOST), Losses::new(MOST));
        for time in (0..3 * MOST as u64).rev() {
            let part = if time % 3 == 0 { &mut early } else { &mut late };
            part.push(time, 7);
            all.push(time, 7);
        }
        early.merge(late);
        assert_eq!(early, all.sorted());
        assert_eq!(early.packets().len(), MOST);
        assert_eq!(early.packets()[MOST - 1], (MOST as u64 - 1, 7));
    }

    #[test]
    fn nothing_is_kept_that_nobody_wants() {
        let mut losses = Losses::new(0);
        losses.push(1, 2);
        assert!(losses.packets().is_empty());
    }
}
