//! Nanoseconds in a file that says that they are microseconds.
//!
//! Programs write the wrong magic number, or leave an option out. A stamp that cannot be true where
//! stamps are microseconds is damage if it is alone, and the file's mistake if most are so.

/// So many packets are looked at before the file is called mistaken, if it does not end before.
const ENOUGH: u64 = 32;
/// Fewer stamps than this may be damage at the end of a file.
const FEW: u64 = 3;

/// The stamps of a file that cannot be true as it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mistaken {
    /// Place of the first such packet, counted from 0.
    first: u64,
    /// How many there are.
    count: u64,
    /// Whether they are most of those looked at.
    sure: bool,
}

impl Mistaken {
    /// Counts a packet at this place whose stamp makes sense as nanoseconds alone.
    #[cold]
    pub fn add(&mut self, place: u64) {
        if self.count == 0 {
            self.first = place;
        }
        self.count += 1;
        let seen = place - self.first + 1;
        self.sure |= seen >= ENOUGH && 2 * self.count > seen;
    }

    /// Whether the file is mistaken; `packets` were looked at so far, and when it `ended`, no more are
    /// to come.
    pub fn is_sure(&self, packets: u64, ended: bool) -> bool {
        let few = self.count < FEW && self.first > 0;
        let most = self.count > 0 && 2 * self.count > packets.saturating_sub(self.first);
        self.sure || (ended && most && !few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_alone_is_damage_and_most_of_them_are_the_files_mistake() {
        let mut one = Mistaken::default();
        one.add(7);
        assert!(!one.is_sure(8, true) && !one.is_sure(1000, true));
        let mut all = Mistaken::default();
        (20..52).for_each(|place| all.add(place));
        assert!(all.is_sure(52, false));
        let mut short = Mistaken::default();
        (0..3).for_each(|place| short.add(place));
        assert!(!short.is_sure(3, false) && short.is_sure(3, true));
        assert!(!Mistaken::default().is_sure(0, true));
    }
}
