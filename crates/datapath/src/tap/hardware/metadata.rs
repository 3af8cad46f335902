//! Stamps from the metadata that a driver has for XDP programs: no packet is copied, no socket is
//! in the way.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use tailtap_analysis::stamps::Clock;

use super::{Received, Source, Stamper};
use crate::bpf::{Attachment, BpfError, HARDWARE, Loaded, Place};
use crate::cpu::synchronize_rcu;
use crate::interface::Interface;

/// The program of bpf/hardware.bpf.c.
const PROGRAM: &str = "stamp";
/// Room for packets that wait for us: half a million of 128 bytes.
const RING: u32 = 1 << 26;
/// Records that are taken at once.
const BATCH: usize = 4096;
/// A record of bpf/hardware.bpf.c: time, length, captured bytes, and these.
const RECORD_LEN: usize = 120;
const BYTES_AT: usize = 16;

/// Records that were taken out of the ring, one after the other.
type Taken = Rc<RefCell<Vec<u8>>>;

/// A program on an interface, with its ring.
pub struct Metadata {
    attachment: Option<Attachment>,
    // Before the object that it belongs to: dropped first.
    ring: RingBuffer<'static>,
    loaded: Loaded,
    taken: Taken,
}

impl Metadata {
    /// Loads the program for this interface and attaches it.
    pub fn open(interface: &Interface, stamper: Stamper, absorb: bool) -> Result<Self, BpfError> {
        let mut open = HARDWARE.open()?;
        open.size_map("ring", RING, None)?;
        open.set_constants(&[u32::from(absorb), u32::from(stamper == Stamper::Kernel)]);
        open.bind(interface);
        let loaded = open.load()?;
        let taken = Taken::default();
        let ring = {
            let taken = Rc::clone(&taken);
            let map = loaded.map("ring");
            let mut builder = RingBufferBuilder::new();
            let keep = move |record: &[u8]| {
                taken.borrow_mut().extend_from_slice(&record[..RECORD_LEN]);
                0
            };
            let added = builder.add(&map, keep).map(drop);
            let built = added.and_then(|()| builder.build());
            built.map_err(|error| loaded.refused(error))?
        };
        let attachment = loaded.attach(PROGRAM, interface, Place::Xdp(None))?;
        Ok(Self { attachment: Some(attachment), ring, loaded, taken })
    }
}

impl Source for Metadata {
    fn take(&mut self, each: &mut dyn FnMut(Received<'_>)) -> io::Result<bool> {
        // Bounded, so that a flood does not keep us from stopping.
        let count = self.ring.consume_raw_n(BATCH);
        if count < 0 {
            return Err(io::Error::from_raw_os_error(-count));
        }
        for record in self.taken.borrow().chunks_exact(RECORD_LEN) {
            let word = |at: usize| {
                u32::from_ne_bytes(record[at..at + 4].try_into().expect("four bytes")) as usize
            };
            let time = u64::from_ne_bytes(record[..8].try_into().expect("eight bytes"));
            let end = (BYTES_AT + word(12)).min(RECORD_LEN);
            each(Received {
                bytes: &record[BYTES_AT..end],
                len: word(8),
                time_ns: (time != 0).then_some(time),
            });
        }
        self.taken.borrow_mut().clear();
        Ok(count as usize == BATCH)
    }

    fn dropped(&mut self) -> io::Result<u64> {
        let counter = self.loaded.map(".bss");
        let value = counter.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
        let bytes = value.as_deref().and_then(|bytes| bytes.first_chunk());
        Ok(u64::from_ne_bytes(*bytes.expect("the counter has eight bytes")))
    }

    fn close(&mut self) -> io::Result<()> {
        self.attachment = None;
        synchronize_rcu();
        Ok(())
    }

    fn clock(&self, stamper: Stamper) -> Clock {
        match stamper {
            Stamper::Card => Clock::Hardware,
            Stamper::Kernel => Clock::Monotonic,
        }
    }
}
