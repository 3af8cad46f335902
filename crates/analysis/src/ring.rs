//! The memory of matching where ids count up: a slot for each id, in the order of the ids.
//!
//! Most generators number their packets. Then a key need not be stored, nor searched for: the slot
//! of an id is its number, and what is out of reach lies at the low end. Ids may be missing and
//! come in any order; ids that repeat, or lie too far apart, do not fit, and matching goes on with
//! a [`Table`](crate::table::Table).

use memmap2::MmapMut;

use crate::table::{Entry, State, zeroed};

/// The part of the slots that is cleared at a time when the ids move on.
const SWEEP: u64 = 16;
/// A ring with fewer than one slot in this many in use does not grow: its ids lie far apart.
const SPARSE: u64 = 4;

/// An id has no place in the ring.
#[derive(Debug)]
pub(crate) struct Unfit;

/// Slots for ids that count up.
pub(crate) struct Ring {
    memory: MmapMut,
    capacity: u64,
    /// The ids from here on have slots, `capacity` of them.
    low: u64,
    /// One more than the highest id so far.
    high: u64,
    started: bool,
}

impl Ring {
    /// An empty ring of `capacity` slots, a power of two.
    pub fn new(capacity: usize) -> Self {
        Self {
            memory: zeroed(capacity),
            capacity: capacity as u64,
            low: 0,
            high: 0,
            started: false,
        }
    }

    /// Number of slots.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    #[inline]
    fn slots(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }

    /// The slot of an id; none for ids that were never added or are out of reach.
    #[inline]
    fn slot(&mut self, id: u64) -> Option<&mut u64> {
        let (low, capacity) = (self.low, self.capacity);
        let slots = self.slots();
        let at = (id & (capacity - 1)) as usize;
        if id.wrapping_sub(low) < capacity { slots.get_mut(at) } else { None }
    }

    /// Adds a packet. What `retire` takes of the low end makes room.
    #[inline]
    pub fn insert(
        &mut self,
        id: u64,
        time: u64,
        retire: impl FnMut(u64, Entry) -> bool,
    ) -> Result<(), Unfit> {
        if id.wrapping_sub(self.low) >= self.capacity || !self.started || id == u64::MAX {
            self.make_room(id, retire)?;
        }
        self.high = self.high.max(id + 1);
        match self.slot(id) {
            Some(slot) if *slot == 0 => {
                *slot = Entry { time, state: State::Open }.pack();
                Ok(())
            }
            _ => Err(Unfit),
        }
    }

    /// The entry of an id.
    #[inline]
    pub fn get(&mut self, id: u64) -> Option<Entry> {
        Entry::unpack(*self.slot(id)?)
    }

    /// Changes the entry of an id that [`Self::get`] returned.
    #[inline]
    pub fn set(&mut self, id: u64, entry: Entry) {
        if let Some(slot) = self.slot(id) {
            *slot = entry.pack();
        }
    }

    /// All entries with their ids.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        let slots: &[u64] = bytemuck::cast_slice(&self.memory);
        let mask = self.capacity - 1;
        (self.low..self.high)
            .filter_map(move |id| Some((id, Entry::unpack(slots[(id & mask) as usize])?)))
    }

    /// Makes room for an id beyond the last slot.
    #[cold]
    fn make_room(
        &mut self,
        id: u64,
        mut retire: impl FnMut(u64, Entry) -> bool,
    ) -> Result<(), Unfit> {
        if id == u64::MAX {
            return Err(Unfit);
        }
        if !self.started {
            // Earlier ids may come later: a device or several queues change the order.
            self.low = id.saturating_sub(self.capacity / SWEEP);
            self.high = self.low;
            self.started = true;
            return Ok(());
        }
        if id < self.low {
            return Err(Unfit);
        }
        let wanted = (id + 1 - self.capacity).saturating_add(self.capacity / SWEEP);
        while self.low < wanted.min(self.high) {
            let low = self.low;
            if let Some(entry) = self.get(low) {
                if !retire(low, entry) {
                    return if id - low < self.capacity { Ok(()) } else { self.grow(id) };
                }
                if let Some(slot) = self.slot(low) {
                    *slot = 0;
                }
            }
            self.low += 1;
        }
        // Beyond the highest id all slots are empty.
        self.low = wanted;
        self.high = self.high.max(wanted);
        Ok(())
    }

    /// Makes the ring large enough for an id, if it is well filled.
    fn grow(&mut self, id: u64) -> Result<(), Unfit> {
        let used = self.entries().count() as u64;
        let range = (id - self.low).checked_next_power_of_two().ok_or(Unfit)?;
        let capacity = range.max(self.capacity) * 2;
        if used < capacity / SPARSE / 2 {
            return Err(Unfit);
        }
        let mut larger = Self { low: self.low, high: self.high, ..Self::new(capacity as usize) };
        larger.started = true;
        for (id, entry) in self.entries() {
            larger.set(id, entry);
        }
        *self = larger;
        Ok(())
    }
}
