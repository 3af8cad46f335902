//! What wakes the consumer of a ring: the map `bell` of bpf/ring.h.

use std::os::fd::BorrowedFd;

use libbpf_rs::{RingBuffer, RingBufferBuilder};

use super::{BpfError, Loaded};

/// Rings when a ring is used up to the slot that its consumer named.
#[derive(Debug)]
pub(crate) struct Bell(RingBuffer<'static>);

impl Bell {
    /// Readable when it rang.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring buffer's, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.0.epoll_fd()) }
    }

    /// Hears it, so that it is silent until it rings again.
    pub(crate) fn hear(&self) {
        // It says nothing but that it rang, and takes no wrong turn that anybody could mend.
        let _ = self.0.consume();
    }
}

impl Loaded {
    /// The bell of the object's ring.
    pub(crate) fn bell(&self) -> Result<Bell, BpfError> {
        let map = self.map("bell");
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, |_| 0).map_err(|error| self.refused(error))?;
        Ok(Bell(builder.build().map_err(|error| self.refused(error))?))
    }
}
