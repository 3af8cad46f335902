//! Where programs put their records: the rings of bpf/ring.h, as their consumer makes them.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use memmap2::{MmapOptions, MmapRaw};

use super::{BpfError, Loaded, Opened, map_options};
use crate::ring::Ring;

/// The map of the rings.
const RING: &str = "ring";
/// Bytes of the largest one that the kernel keeps; its number of bytes is a power of two.
const MOST_BYTES: u64 = 1 << 31;

/// Rings of equal size.
#[derive(Debug)]
pub(crate) struct Rings {
    count: usize,
    slots: usize,
    /// Words of a slot.
    slot_words: usize,
    kept: Kept,
}

/// Who takes their slots.
#[derive(Debug)]
enum Kept {
    /// The programs: all rings stand one behind the other.
    Programs(Option<MmapRaw>),
    /// The kernel.
    Kernel(Vec<Buffer>),
}

/// A ring buffer of the kernel (Documentation/bpf/ringbuf.rst).
#[derive(Debug)]
struct Buffer {
    map: MapHandle,
    /// A page that begins with the consumer's place.
    consumed: MmapRaw,
    /// A page that begins with the producers', and the records, twice one behind the other.
    produced: MmapRaw,
}

fn page() -> usize {
    // SAFETY: takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

impl Buffer {
    fn make(open: &Opened, bytes: u64) -> Result<Self, BpfError> {
        if bytes > MOST_BYTES {
            return Err(BpfError::Memory { what: open.compiled.what });
        }
        let (len, options) = (bytes as usize, map_options());
        let map = MapHandle::create(MapType::RingBuf, None::<&str>, 0, 0, bytes as u32, &options)
            .map_err(|error| open.compiled.refused(error))?;
        let file = map.as_fd().as_raw_fd();
        let consumed = MmapOptions::new().len(page()).map_raw(file);
        let mut options = MmapOptions::new();
        let produced = options.offset(page() as u64).len(page() + 2 * len).map_raw_read_only(file);
        let refused = |error| open.compiled.refused(error);
        Ok(Self { map, consumed: consumed.map_err(refused)?, produced: produced.map_err(refused)? })
    }
}

impl Opened {
    /// Has the programs put their records into so many rings of so many slots, a power of two.
    pub(crate) fn size_rings(
        &mut self,
        count: usize,
        slots: usize,
        slot_words: usize,
    ) -> Result<Rings, BpfError> {
        let kept = if self.reserving {
            let bytes = (slots * (slot_words + 1) * size_of::<u64>()).max(page());
            let bytes = (bytes as u64).next_power_of_two();
            let buffers: Result<Vec<_>, _> =
                (0..count).map(|_| Buffer::make(self, bytes)).collect();
            let buffers = buffers?;
            self.size_map(RING, count as u32, None)?;
            let mut maps = self.object.maps_mut();
            let mut map = maps.find(|map| map.name() == RING).expect("the object has rings");
            let like = map.set_inner_map_fd(buffers[0].map.as_fd());
            like.map_err(|error| self.compiled.refused(error))?;
            Kept::Kernel(buffers)
        } else {
            let size = (slot_words * size_of::<u64>()) as u32;
            self.size_map(RING, (count * slots) as u32, Some(size))?;
            Kept::Programs(None)
        };
        Ok(Rings { count, slots, slot_words, kept })
    }
}

impl Rings {
    /// Shares them with the programs, which are loaded by now.
    pub(crate) fn share(mut self, loaded: &Loaded) -> Result<Self, BpfError> {
        match &mut self.kept {
            Kept::Programs(memory) => {
                let len = self.count * self.slots * self.slot_words * size_of::<u64>();
                *memory = Some(loaded.map_memory(RING, len)?);
            }
            Kept::Kernel(buffers) => {
                let map = loaded.map(RING);
                for (place, buffer) in buffers.iter().enumerate() {
                    let fd = buffer.map.as_fd().as_raw_fd().to_ne_bytes();
                    map.update(&(place as u32).to_ne_bytes(), &fd, MapFlags::ANY)
                        .map_err(|error| loaded.refused(error))?;
                }
            }
        }
        Ok(self)
    }

    /// Where the ring at this place begins for the programs: `first` of `take_slot` in bpf/ring.h.
    pub(crate) fn first(&self, place: usize) -> usize {
        match self.kept {
            Kept::Programs(_) => place * self.slots,
            Kept::Kernel(_) => place,
        }
    }

    /// The ring at this place; there must be one consumer at a time.
    pub(crate) fn ring<'a>(
        &'a self,
        place: usize,
        [head, tail, bell_at]: [&'a AtomicU64; 3],
    ) -> Ring<'a> {
        // SAFETY: the mappings are memory of these sizes, aligned to a page, shared with the kernel and
        // accessed through atomics alone, of which nobody stores into what is read-only, and live as
        // long as `self`.
        let words = |memory: &'a MmapRaw, first: usize, count: usize| unsafe {
            let start = memory.as_ptr().cast::<AtomicU64>().add(first);
            std::slice::from_raw_parts(start, count)
        };
        match &self.kept {
            Kept::Programs(memory) => {
                let memory = memory.as_ref().expect("the rings are shared");
                let count = self.slots * self.slot_words;
                let words = words(memory, place * count, count);
                Ring::new(head, tail, bell_at, words, self.slot_words)
            }
            Kept::Kernel(buffers) => {
                let Buffer { consumed, produced, .. } = &buffers[place];
                let page = page() / size_of::<u64>();
                let all = produced.len() / size_of::<u64>() - page;
                let places = [words(produced, 0, 1), words(consumed, 0, 1)].map(|word| &word[0]);
                Ring::of_kernel(places, words(produced, page, all), self.slot_words, self.slots)
            }
        }
    }
}
