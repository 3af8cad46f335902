//! In which direction packets go, by what their headers say: a table that is learned from packets of
//! which it is known.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use tailtap_wire::ethernet::{self, Mac};
use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;
use tailtap_wire::{ipv4, ipv6};

/// What goes both ways goes by chance in one of them at most once in so many packets.
const BY_CHANCE: u64 = 100;

/// Who sends a packet, or to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum End {
    /// By the address of the innermost IP.
    Ip(IpAddr),
    /// By the hardware address, of a frame without IP.
    Hardware(Mac),
}

/// Something that packets of one direction may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Sign {
    FromHardware(Mac),
    ToHardware(Mac),
    Between([End; 2]),
    From(End),
    To(End),
}

/// What tells the direction of packets: signs with how often they were of packets there and back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways(Vec<(Sign, bool)>);

/// The source and the destination of a frame by their hardware addresses.
pub fn macs(frame: &[u8], link: Link) -> Option<[Mac; 2]> {
    let header = ethernet::Header::parse(frame).filter(|_| link == Link::Ethernet)?;
    Some([header.source, header.destination])
}

/// From whom to whom a frame goes.
pub fn ends(frame: &[u8], link: Link) -> Option<[End; 2]> {
    let Some(inner) = Inner::of(frame, link) else {
        return macs(frame, link).map(|macs| macs.map(End::Hardware));
    };
    let ip = &frame[inner.network..];
    let address = |at: usize| -> Option<IpAddr> {
        match inner.v6 {
            true => ip.get(at..)?.first_chunk::<16>().map(|&octets| Ipv6Addr::from(octets).into()),
            false => ip.get(at..)?.first_chunk::<4>().map(|&octets| Ipv4Addr::from(octets).into()),
        }
    };
    let (start, len) =
        if inner.v6 { (ipv6::ADDRESSES.start, 16) } else { (ipv4::ADDRESSES.start, 4) };
    Some([End::Ip(address(start)?), End::Ip(address(start + len)?)])
}

/// What a packet says of its direction, the surest first.
fn signs(macs: Option<[Mac; 2]>, ends: Option<[End; 2]>) -> impl Iterator<Item = Sign> {
    let hardware = macs.map(|[from, to]| [Sign::FromHardware(from), Sign::ToHardware(to)]);
    let ends = ends.map(|[from, to]| [Sign::Between([from, to]), Sign::From(from), Sign::To(to)]);
    hardware.into_iter().flatten().chain(ends.into_iter().flatten())
}

/// How often signs were of packets there, and of packets back.
#[derive(Default)]
pub(crate) struct Learned(HashMap<Sign, [u64; 2]>);

impl Learned {
    pub fn add(&mut self, macs: Option<[Mac; 2]>, ends: Option<[End; 2]>, back: bool) {
        for sign in signs(macs, ends) {
            self.0.entry(sign).or_default()[usize::from(back)] += 1;
        }
    }

    /// The direction of a packet, as far as it is known by now.
    pub fn is_back(&self, macs: Option<[Mac; 2]>, ends: Option<[End; 2]>) -> Option<bool> {
        signs(macs, ends).find_map(|sign| self.0.get(&sign).copied().and_then(settled))
    }

    /// What tells directions for sure.
    pub fn ways(&self) -> Ways {
        let known = |(&sign, &counts): (&Sign, &[u64; 2])| Some((sign, settled(counts)?));
        let mut found: Vec<_> = self.0.iter().filter_map(known).collect();
        found.sort();
        Ways(found)
    }
}

fn settled([there, back]: [u64; 2]) -> Option<bool> {
    (there.min(back) * BY_CHANCE < there.max(back)).then_some(back > there)
}

/// The same, to look signs up in.
pub(super) struct Table(HashMap<Sign, bool>);

impl Table {
    pub fn of(ways: &Ways) -> Self {
        Self(ways.0.iter().copied().collect())
    }

    /// Whether a frame goes back; nothing where that is not known.
    pub fn is_back(&self, frame: &[u8], link: Link) -> Option<bool> {
        // Most are known by their hardware addresses, and what is inside need not be looked at.
        let look = |sign: Sign| self.0.get(&sign).copied();
        signs(macs(frame, link), None)
            .find_map(look)
            .or_else(|| signs(None, ends(frame, link)).find_map(look))
    }
}

impl Ways {
    /// The value as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes any table")
    }

    /// The value of bytes that [`Self::to_bytes`] made; `None` for any others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
