//! Stamps from the metadata that a driver has for XDP programs: no packet is copied, no socket is
//! in the way.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use libbpf_rs::{
    ErrorKind, Link as Attachment, MapCore, MapFlags, Object, ObjectBuilder, RingBuffer,
    RingBufferBuilder,
};
use tailtap_analysis::stamps::Clock;

use super::{Received, Source, Stamper};
use crate::cpu::synchronize_rcu;
use crate::interface::Interface;

/// libelf wants whole words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/hardware.bpf.o")));

/// Room for packets that wait for us: half a million of 128 bytes.
const RING: u32 = 1 << 26;
/// Records that are taken at once.
const BATCH: usize = 4096;
/// A record of bpf/hardware.bpf.c: time, length, captured bytes, and these.
const RECORD_LEN: usize = 120;
const BYTES_AT: usize = 16;

/// The XDP program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The privilege is missing.
    #[error(
        "the kernel does not permit loading XDP programs: run as root; if this is root, a sandbox \
         or the kernel's verifier is in the way"
    )]
    NotPermitted,
    /// Another program is attached.
    #[error(
        "interface {name} has an XDP program already: `ip link set dev {name} xdp off` ends it"
    )]
    Busy {
        /// The interface.
        name: String,
    },
    /// The kernel refused the program.
    #[error(
        "the kernel refused the XDP program that reads stamps of interface {name} (it needs Linux \
         6.3 and a driver with XDP): {reason}"
    )]
    Refused {
        /// The interface.
        name: String,
        /// What the kernel said.
        reason: String,
    },
}

/// Records that were taken out of the ring, one after the other.
type Taken = Rc<RefCell<Vec<u8>>>;

/// A program on an interface, with its ring.
pub struct Metadata {
    attachment: Option<Attachment>,
    // Before the object that it belongs to: dropped first.
    ring: RingBuffer<'static>,
    object: Object,
    taken: Taken,
}

impl Metadata {
    /// Loads the program for this interface and attaches it.
    pub fn open(
        interface: &Interface,
        stamper: Stamper,
        absorb: bool,
    ) -> Result<Self, MetadataError> {
        let name = || interface.name.clone();
        let refused = |error: libbpf_rs::Error| match error.kind() {
            ErrorKind::PermissionDenied => MetadataError::NotPermitted,
            _ => MetadataError::Refused { name: name(), reason: error.to_string() },
        };
        if is_busy(interface) {
            return Err(MetadataError::Busy { name: name() });
        }
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(refused)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == "ring" {
                map.set_max_entries(RING).map_err(refused)?;
            } else if name.ends_with(".rodata") {
                let config = map.initial_value_mut().expect("the program has constants");
                let words = [u32::from(absorb), u32::from(stamper == Stamper::Kernel)];
                for (bytes, word) in config.chunks_exact_mut(4).zip(words) {
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
            }
        }
        for mut program in open.progs_mut() {
            program.set_ifindex(interface.index as u32);
            program.set_flags(libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY);
        }
        let object = open.load().map_err(refused)?;
        let taken = Taken::default();
        let ring = {
            let taken = Rc::clone(&taken);
            let map = object.maps().find(|map| map.name() == "ring").expect("there is a ring");
            let mut builder = RingBufferBuilder::new();
            let keep = move |record: &[u8]| {
                taken.borrow_mut().extend_from_slice(&record[..RECORD_LEN]);
                0
            };
            builder.add(&map, keep).map_err(refused)?;
            builder.build().map_err(refused)?
        };
        let program = object.progs_mut().next().expect("the object has a program");
        let attachment = program.attach_xdp(interface.index).map_err(refused)?;
        Ok(Self { attachment: Some(attachment), ring, object, taken })
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
        let map = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let map = map.expect("the program has a counter");
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
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

/// Whether an XDP program is attached to the interface.
fn is_busy(interface: &Interface) -> bool {
    let mut id = 0;
    // SAFETY: the pointer is valid; the call only asks.
    let failed = unsafe { libbpf_sys::bpf_xdp_query_id(interface.index, 0, &raw mut id) };
    failed == 0 && id != 0
}
