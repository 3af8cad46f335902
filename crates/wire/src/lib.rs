//! The bytes of a packet: Ethernet, VLAN, IPv4 and IPv6, UDP, and MoonSniff's identification in the
//! UDP payload. Everything in tailtap that reads or writes headers does it here, but for the eBPF
//! tap, which is C (`bpf/tap.bpf.c`).
//!
//! One protocol is one file, and all files look alike: the number by which the layer below names
//! the protocol, `LEN` of the header, `CHECKSUM` for the place of a checksum, and `Header` with
//! `parse` and `emit`. `parse` takes the bytes from the header on and fails if the header is cut
//! off or impossible; `emit` panics if there is no room. [`frame`] goes through all layers of a
//! frame, and [`inner`] through tunnels, too. Nothing here allocates, asks the system or knows a clock.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ethernet;
pub mod frame;
pub mod inner;
pub mod ipv4;
pub mod ipv6;
pub mod link;
pub mod moonsniff;
pub mod tag;
pub mod tcp;
pub mod udp;
pub mod vlan;

/// The big-endian number at a place of a header.
#[inline]
fn u16_at(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}
