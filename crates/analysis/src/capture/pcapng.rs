//! pcapng, through the pcap-parser library.

use std::path::Path;

use pcap_parser::pcapng::{Block, parse_block_be, parse_block_le};
use pcap_parser::traits::PcapNGPacketBlock;

use super::error::HeaderError;
use super::format::{Progress, Reader};
use super::{
    Content, LATEST_NS, LINKTYPE_ETHERNET, MAX_FRAME, Notes, Packet, Sink, TOO_LATE, le_u32,
};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// No block is longer: a frame, its options, or a block of name resolutions or secrets.
const MAX_BLOCK: usize = 64 * MAX_FRAME;
/// No machine has more interfaces.
const MAX_INTERFACES: usize = 1 << 16;

struct Interface {
    linktype: u32,
    resolution: Resolution,
    offset_s: i64,
}

/// Units of an interface's times.
enum Resolution {
    PerSecond(u64),
    /// 2 to the power of this many units a second.
    Binary(u32),
}

impl Resolution {
    /// The option if_tsresol: a negative power of 10, or of 2 with the highest bit set.
    fn from_option(value: u8) -> Option<Self> {
        if value & 0x80 != 0 {
            Some(Self::Binary(u32::from(value & 0x7f)))
        } else {
            10u64.checked_pow(u32::from(value)).map(Self::PerSecond)
        }
    }

    fn to_ns(&self, units: u64) -> u128 {
        let scaled = u128::from(units) * 1_000_000_000;
        match self {
            Self::PerSecond(per_second) => scaled / u128::from(*per_second),
            Self::Binary(power) => scaled >> power,
        }
    }
}

#[derive(Default)]
pub(super) struct Decoder {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Whether an Ethernet interface was described so far, in any section.
    ethernet: bool,
    /// The link type of a packet that is not Ethernet, if one was met.
    foreign_linktype: Option<u32>,
}

impl Reader for Decoder {
    fn recognises(head: &[u8], _: &Path) -> bool {
        is_pcapng(head)
    }

    fn open(head: &[u8], _: &mut Notes) -> Result<(Self, usize), HeaderError> {
        is_pcapng(head).then(|| (Self::default(), 0)).ok_or(HeaderError::Unknown)
    }

    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        let mut at = 0;
        let mut left = limit;
        while left > 0 {
            let rest = &bytes[at..];
            if rest.len() < 12 {
                return Progress::More(at);
            }
            if le_u32(rest) == SECTION_HEADER {
                self.big_endian = le_u32(&rest[8..]) != BYTE_ORDER_MAGIC;
                self.interfaces.clear();
            }
            let length = le_u32(&rest[4..]);
            let length = if self.big_endian { length.swap_bytes() } else { length } as usize;
            if !(12..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
                return Progress::Damaged(at, format!("a block of {length} bytes is absurd"));
            }
            let Some(block) = rest.get(..length) else {
                return Progress::More(at);
            };
            let parse = if self.big_endian { parse_block_be } else { parse_block_le };
            match parse(block) {
                Ok((_, block)) => match self.take(&block) {
                    Ok(Some(packet)) => {
                        sink.take(packet);
                        left -= 1;
                    }
                    Ok(None) => {}
                    Err(why) => return Progress::Damaged(at, why),
                },
                Err(_) => return Progress::Damaged(at, "a block that cannot be read".into()),
            }
            at += length;
            if self.is_foreign() {
                return Progress::More(at);
            }
        }
        Progress::Full(at)
    }

    fn foreign_linktype(&self, ended: bool) -> Option<u32> {
        self.foreign_linktype.filter(|_| ended || self.is_foreign())
    }
}

fn is_pcapng(head: &[u8]) -> bool {
    head.len() >= 12
        && le_u32(head) == SECTION_HEADER
        && [BYTE_ORDER_MAGIC, BYTE_ORDER_MAGIC.swap_bytes()].contains(&le_u32(&head[8..]))
}

impl Decoder {
    /// Whether there was a packet, but no Ethernet interface before it: that will not change.
    fn is_foreign(&self) -> bool {
        self.foreign_linktype.is_some() && !self.ethernet
    }

    /// What a block means: a packet, or something to remember, or nothing.
    fn take<'a>(&mut self, block: &'a Block<'a>) -> Result<Option<Packet<'a>>, String> {
        match block {
            Block::InterfaceDescription(interface) => {
                if self.interfaces.len() == MAX_INTERFACES {
                    return Err(format!("more than {MAX_INTERFACES} interfaces are absurd"));
                }
                let linktype = interface.linktype.0.cast_unsigned();
                self.ethernet |= linktype == LINKTYPE_ETHERNET;
                self.interfaces.push(Interface {
                    linktype,
                    resolution: Resolution::from_option(interface.if_tsresol)
                        .ok_or("an interface with an impossible time resolution")?,
                    offset_s: interface.if_tsoffset,
                });
                Ok(None)
            }
            Block::EnhancedPacket(packet) => {
                let interface = self
                    .interfaces
                    .get(packet.if_id as usize)
                    .ok_or("a packet of an interface that the file does not describe")?;
                if interface.linktype != LINKTYPE_ETHERNET {
                    self.foreign_linktype = Some(interface.linktype);
                    return Ok(None);
                }
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let offset = i128::from(interface.offset_s) * 1_000_000_000;
                let time = interface.resolution.to_ns(units).cast_signed() + offset;
                let time = u64::try_from(time).ok().filter(|&time| time <= LATEST_NS);
                Ok(Some(Packet {
                    time_ns: time.ok_or(TOO_LATE)?,
                    content: Content::Frame {
                        bytes: packet.packet_data(),
                        wire_len: packet.orig_len(),
                    },
                }))
            }
            Block::SimplePacket(_) => Err("a packet without a time (Simple Packet Block)".into()),
            _ => Ok(None),
        }
    }
}
