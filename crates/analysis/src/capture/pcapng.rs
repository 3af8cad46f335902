//! pcapng, <https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcapng/>, through the pcap-parser library,
//! and the obsolete packet block by hand.

use std::path::Path;

use pcap_parser::pcapng::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, InterfaceStatisticsBlock, OptionCode,
    PcapNGOption, UnknownBlock, parse_block_be, parse_block_le,
};

use super::error::{HeaderError, Unreadable};
use super::link::LinkType;
use super::mistaken::Mistaken;
use super::notes::{self, Reason};
use super::opened::Opened;
use super::reader::{Progress, Reader, Recovery};
use super::{
    Content, LATEST_NS, LOOK_AHEAD, MAX_FRAME, Notes, Packet, Sink, Unread, le_u32, without_fcs,
};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// No block is longer: a frame, its options, or a block of name resolutions or secrets.
const MAX_BLOCK: usize = 64 * MAX_FRAME;
/// No block that is believed behind damage is longer.
const MAX_BELIEVED: usize = LOOK_AHEAD / 4;
/// No machine has more interfaces.
const MAX_INTERFACES: usize = 1 << 16;

/// Block types; the packet block is obsolete, and old programs still write it.
const PACKET_BLOCK: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Types of blocks that begin with damage is not taken for: sections, interfaces, packets, names,
/// statistics, journal entries, secrets and those of programs.
const BELIEVED: [u32; 11] = [
    SECTION_HEADER,
    1,
    PACKET_BLOCK,
    SIMPLE_PACKET,
    4,
    5,
    ENHANCED_PACKET,
    9,
    10,
    0xbad,
    0x4000_0bad,
];
/// Blocks without packets that the library does not tell apart from others: IRIG times and ARINC 429.
const WITHOUT_PACKETS: [u32; 2] = [7, 8];
/// Bytes of a packet block before the frame.
const PACKET_BLOCK_HEADER: usize = 20;
/// What a packet block says where it does not know how many packets were dropped.
const DROPS_UNKNOWN: u16 = u16::MAX;

/// Options that the library has no names for.
const IF_NAME: OptionCode = OptionCode(2);
const IF_FCSLEN: OptionCode = OptionCode(13);
const EPB_FLAGS: OptionCode = OptionCode(2);
const EPB_DROPCOUNT: OptionCode = OptionCode(4);
/// Where the flags of a packet tell whether it came in or went out.
const FLAGS_DIRECTION: u32 = 0x3;
const FLAGS_INBOUND: u32 = 1;
const FLAGS_OUTBOUND: u32 = 2;
/// Where the flags of a packet tell the length of its frame check sequence.
const FLAGS_FCS_SHIFT: u32 = 5;
const FLAGS_FCS_MASK: u32 = 0xf;

struct Interface {
    name: Option<String>,
    linktype: u32,
    /// The same, if it is read.
    link: Option<LinkType>,
    resolution: Resolution,
    /// Whether the file states the resolution.
    stated: bool,
    offset_s: i64,
    fcs_len: Option<usize>,
    /// Packets dropped, as its packets say, and as its statistics do.
    dropped_between: u64,
    dropped_in_all: u64,
    read: bool,
}

/// Units of an interface's times.
#[derive(Clone, Copy)]
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

    fn to_ns(self, units: u64) -> u128 {
        let scaled = u128::from(units) * 1_000_000_000;
        match self {
            Self::PerSecond(per_second) => scaled / u128::from(per_second),
            Self::Binary(power) => scaled >> power,
        }
    }

    /// A unit in nanoseconds, rounded up.
    fn unit_ns(self) -> u64 {
        match self {
            Self::PerSecond(per_second) => 1_000_000_000_u64.div_ceil(per_second),
            Self::Binary(power) => 1_000_000_000_u64.div_ceil(1 << power.min(30)),
        }
    }
}

/// A packet as its block has it.
struct Found<'a> {
    interface: usize,
    units: u64,
    bytes: &'a [u8],
    wire_len: u32,
    dropped: u64,
    fcs_len: Option<usize>,
    outgoing: Option<bool>,
}

#[derive(Default)]
pub(super) struct Decoder {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Whether an interface that is read was described so far, in any section.
    readable: bool,
    /// The link type of a packet that is not read, if one was met.
    foreign_linktype: Option<u32>,
    /// Packets that were read, and those with a stamp that cannot be true.
    packets: u64,
    timed: u64,
    mistaken: Mistaken,
    take_for_nanoseconds: bool,
    /// What is taken off frames of which the file does not say it.
    fcs_len: usize,
    most_fcs_len: usize,
    unit_ns: u64,
    unread: Unread,
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
            let section = le_u32(rest) == SECTION_HEADER;
            let big_endian = match section {
                true => le_u32(&rest[8..]) != BYTE_ORDER_MAGIC,
                false => self.big_endian,
            };
            let length = word(&rest[4..], big_endian) as usize;
            if !(12..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
                return Progress::Damaged(at, format!("a block of {length} bytes is absurd"));
            }
            let Some(block) = rest.get(..length) else {
                return Progress::More(at);
            };
            if word(&block[length - 4..], big_endian) as usize != length {
                return Progress::Damaged(at, "a block whose two lengths differ".into());
            }
            if section {
                self.big_endian = big_endian;
                self.settle_drops();
                self.interfaces.clear();
            }
            let parse = if big_endian { parse_block_be } else { parse_block_le };
            let packet = match parse(block) {
                Ok((_, block)) => match self.take(&block) {
                    Ok(packet) => packet,
                    Err(why) => return Progress::Damaged(at, why),
                },
                // Its length makes sense, so that the next one is known.
                Err(_) => {
                    self.unread.add(Reason::Damaged, 1);
                    None
                }
            };
            if let Some(packet) = packet {
                sink.take(packet);
                left -= 1;
            }
            at += length;
            if self.is_foreign() {
                return Progress::More(at);
            }
        }
        Progress::Full(at)
    }

    fn recover(&mut self, bytes: &[u8], ended: bool) -> Recovery {
        let end = if ended { bytes.len() } else { bytes.len() - LOOK_AHEAD / 2 };
        let begins = |start: &usize| {
            let Some(next) = self.believed(&bytes[*start..]) else { return false };
            let behind = &bytes[*start + next..];
            behind.is_empty() || self.believed(behind).is_some() || (ended && behind.len() < 12)
        };
        match (1..end).find(begins) {
            Some(start) => Recovery::Record(start),
            None => Recovery::Nothing(end),
        }
    }

    fn refusal(&self, ended: bool) -> Option<Unreadable> {
        let foreign = self.foreign_linktype.filter(|_| ended || self.is_foreign());
        if self.packets == 0
            && let Some(linktype) = foreign
        {
            return Some(Unreadable::LinkType { linktype });
        }
        self.mistaken.is_sure(self.timed, ended).then_some(Unreadable::Nanoseconds {
            says: "without the option if_tsresol they count as microseconds, of a time thousands of \
                   years ahead",
            mend: "or have the program that wrote it state if_tsresol 9",
        })
    }

    fn take_for_nanoseconds(&mut self) {
        self.take_for_nanoseconds = true;
    }

    fn take_off(&mut self, fcs_len: usize) {
        self.fcs_len = fcs_len;
    }

    fn note(&self, notes: &mut Notes) {
        notes.unread = self.unread;
        notes.unread.add(Reason::Dropped, self.dropped());
        notes.foreign_linktype = self.foreign_linktype;
        notes.unit_ns = self.unit_ns;
        let known = |one: &Interface| notes::Interface {
            name: one.name.clone(),
            unit_ns: one.read_at(self.take_for_nanoseconds).unit_ns(),
        };
        notes.interfaces = self.interfaces.iter().map(known).collect();
        notes.fcs_len = self.most_fcs_len as u64;
    }
}

fn is_pcapng(head: &[u8]) -> bool {
    head.len() >= 12
        && le_u32(head) == SECTION_HEADER
        && [BYTE_ORDER_MAGIC, BYTE_ORDER_MAGIC.swap_bytes()].contains(&le_u32(&head[8..]))
}

/// A word at the start of `bytes`, which must hold four.
#[inline]
fn word(bytes: &[u8], big_endian: bool) -> u32 {
    let word = le_u32(bytes);
    if big_endian { word.swap_bytes() } else { word }
}

impl Decoder {
    /// Whether there was a packet, but no interface before it that is read: that will not change.
    fn is_foreign(&self) -> bool {
        self.foreign_linktype.is_some() && !self.readable
    }

    /// The length of a block that is believed behind damage, if one begins here and is whole.
    fn believed(&self, bytes: &[u8]) -> Option<usize> {
        let head = bytes.get(..12)?;
        let section = is_pcapng(head);
        let big_endian = match section {
            true => le_u32(&head[8..]) != BYTE_ORDER_MAGIC,
            false => self.big_endian,
        };
        let kind = if section { SECTION_HEADER } else { word(head, big_endian) };
        let length = word(&head[4..], big_endian) as usize;
        let sane = (12..=MAX_BELIEVED).contains(&length) && length.is_multiple_of(4);
        let known = BELIEVED.contains(&kind) && (kind != SECTION_HEADER || section);
        let twice = sane && known && {
            let last = bytes.get(length - 4..length)?;
            word(last, big_endian) as usize == length
        };
        twice.then_some(length)
    }

    /// Packets that were dropped while interfaces of any section captured.
    fn dropped(&self) -> u64 {
        self.interfaces.iter().map(Interface::dropped).fold(0, u64::saturating_add)
    }

    /// Keeps the count of dropped packets before the interfaces of a section are forgotten.
    fn settle_drops(&mut self) {
        let dropped = self.dropped();
        self.unread.add(Reason::Dropped, dropped);
    }

    /// What a block means: a packet, or something to remember, or nothing.
    fn take<'a>(&mut self, block: &Block<'a>) -> Result<Option<Packet<'a>>, String> {
        let found = match block {
            Block::EnhancedPacket(packet) => self.of_enhanced(packet),
            Block::Unknown(block) if self.kind(block) == PACKET_BLOCK => {
                let Some(found) = self.of_packet_block(block) else {
                    self.unread.add(Reason::Damaged, 1);
                    return Ok(None);
                };
                found
            }
            Block::InterfaceDescription(interface) => {
                self.describe(interface)?;
                return Ok(None);
            }
            Block::InterfaceStatistics(statistics) => {
                self.take_statistics(statistics);
                return Ok(None);
            }
            Block::SimplePacket(_) => {
                self.unread.add(Reason::NoTime, 1);
                return Ok(None);
            }
            Block::Unknown(block) if !WITHOUT_PACKETS.contains(&self.kind(block)) => {
                self.unread.add(Reason::UnknownBlock, 1);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        Ok(self.packet(found))
    }

    /// The type of a block that the library does not know, which it reads as little-endian.
    fn kind(&self, block: &UnknownBlock<'_>) -> u32 {
        if self.big_endian { block.block_type.swap_bytes() } else { block.block_type }
    }

    fn describe(&mut self, interface: &InterfaceDescriptionBlock<'_>) -> Result<(), String> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(format!("more than {MAX_INTERFACES} interfaces are absurd"));
        }
        let linktype = interface.linktype.0.cast_unsigned();
        let option = |code| option(&interface.options, code);
        let fcs_len =
            option(IF_FCSLEN).and_then(|value| value.first()).map(|&length| match length {
                // Early versions of the format had it in bits.
                16.. => usize::from(length) / 8,
                length => usize::from(length),
            });
        let link = LinkType::of(linktype);
        self.readable |= link.is_some();
        let name = option(IF_NAME).map(|name| String::from_utf8_lossy(name).into_owned());
        self.interfaces.push(Interface {
            name: name.filter(|name| !name.is_empty()),
            linktype,
            link,
            resolution: Resolution::from_option(interface.if_tsresol)
                .ok_or("an interface with an impossible time resolution")?,
            stated: option(OptionCode::IfTsresol).is_some(),
            offset_s: interface.if_tsoffset,
            fcs_len,
            dropped_between: 0,
            dropped_in_all: 0,
            read: false,
        });
        Ok(())
    }

    fn take_statistics(&mut self, statistics: &InterfaceStatisticsBlock<'_>) {
        let Some(interface) = self.interfaces.get_mut(statistics.if_id as usize) else { return };
        let count = |code| {
            let value = option(&statistics.options, code).and_then(|value| value.first_chunk());
            let value = value.copied().unwrap_or_default();
            if self.big_endian { u64::from_be_bytes(value) } else { u64::from_le_bytes(value) }
        };
        // They count from the start of the capture on.
        let dropped = count(OptionCode::IsbIfDrop).saturating_add(count(OptionCode::IsbOsDrop));
        interface.dropped_in_all = interface.dropped_in_all.max(dropped);
    }

    fn of_enhanced<'a>(&self, packet: &EnhancedPacketBlock<'a>) -> Found<'a> {
        let number = |code| option(&packet.options, code);
        let dropped =
            number(EPB_DROPCOUNT).and_then(|value| value.first_chunk()).map_or(0, |value| {
                if self.big_endian {
                    u64::from_be_bytes(*value)
                } else {
                    u64::from_le_bytes(*value)
                }
            });
        let flags = number(EPB_FLAGS).and_then(|value| value.get(..4));
        let flags = flags.map(|value| word(value, self.big_endian));
        Found {
            interface: packet.if_id as usize,
            units: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
            bytes: packet.data.get(..packet.caplen as usize).unwrap_or(packet.data),
            wire_len: packet.origlen,
            dropped,
            fcs_len: flags.and_then(fcs_of),
            outgoing: flags.and_then(outgoing_of),
        }
    }

    /// A packet of the obsolete block, if all of it is there.
    fn of_packet_block<'a>(&self, block: &UnknownBlock<'a>) -> Option<Found<'a>> {
        let data = block.data;
        let head = data.get(..PACKET_BLOCK_HEADER)?;
        let at = |place: usize| word(&head[place..], self.big_endian);
        let half = |place: usize| {
            let half = [head[place], head[place + 1]];
            if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) }
        };
        let captured = at(12) as usize;
        let end = PACKET_BLOCK_HEADER.checked_add(captured).filter(|_| captured <= MAX_FRAME)?;
        let dropped = half(2);
        Some(Found {
            interface: usize::from(half(0)),
            units: u64::from(at(4)) << 32 | u64::from(at(8)),
            bytes: data.get(PACKET_BLOCK_HEADER..end)?,
            wire_len: at(16),
            dropped: if dropped == DROPS_UNKNOWN { 0 } else { u64::from(dropped) },
            fcs_len: None,
            outgoing: None,
        })
    }

    /// The packet, unless it cannot be read, which is counted.
    fn packet<'a>(&mut self, found: Found<'a>) -> Option<Packet<'a>> {
        let Some(interface) = self.interfaces.get_mut(found.interface) else {
            self.unread.add(Reason::NoInterface, 1);
            return None;
        };
        interface.dropped_between = interface.dropped_between.saturating_add(found.dropped);
        let Some(link) = interface.link else {
            self.foreign_linktype = Some(interface.linktype);
            self.unread.add(Reason::LinkType, 1);
            return None;
        };
        let resolution = interface.read_at(self.take_for_nanoseconds);
        self.timed += 1;
        let offset = i128::from(interface.offset_s) * 1_000_000_000;
        let time = resolution.to_ns(found.units).cast_signed() + offset;
        let time = u64::try_from(time).ok().filter(|&time| time <= LATEST_NS);
        let Some(time_ns) = time else {
            if !interface.stated && found.units <= LATEST_NS {
                self.mistaken.add(self.timed - 1);
            }
            self.unread.add(Reason::BadTime, 1);
            return None;
        };
        if !interface.read {
            interface.read = true;
            self.unit_ns = self.unit_ns.max(resolution.unit_ns());
        }
        let unstated = if link == LinkType::Ethernet { self.fcs_len } else { 0 };
        let fcs_len = found.fcs_len.or(interface.fcs_len).unwrap_or(unstated);
        let (bytes, wire_len) = without_fcs(found.bytes, found.wire_len, fcs_len);
        let Some(opened) = link.open(bytes, wire_len) else {
            self.unread.add(Reason::LinkHeader, 1);
            return None;
        };
        self.packets += 1;
        self.most_fcs_len = self.most_fcs_len.max(fcs_len);
        let Opened { bytes, wire_len, link, interface, outgoing } = opened;
        Some(Packet {
            time_ns,
            interface: interface.unwrap_or(found.interface as u32),
            outgoing: outgoing.or(found.outgoing),
            content: Content::Frame { bytes, wire_len, link },
        })
    }
}

/// The length of the frame check sequence in a packet's flags, if they tell it.
fn fcs_of(flags: u32) -> Option<usize> {
    let length = flags >> FLAGS_FCS_SHIFT & FLAGS_FCS_MASK;
    (length > 0).then_some(length as usize)
}

/// Whether a packet went out, if its flags tell it.
fn outgoing_of(flags: u32) -> Option<bool> {
    match flags & FLAGS_DIRECTION {
        FLAGS_INBOUND => Some(false),
        FLAGS_OUTBOUND => Some(true),
        _ => None,
    }
}

impl Interface {
    /// The units of its times, which may be meant for nanoseconds where they are microseconds.
    fn read_at(&self, for_nanoseconds: bool) -> Resolution {
        match self.resolution {
            Resolution::PerSecond(1_000_000) if for_nanoseconds => {
                Resolution::PerSecond(1_000_000_000)
            }
            resolution => resolution,
        }
    }

    /// Packets that were dropped: both counts are of the same ones, and either may be missing.
    fn dropped(&self) -> u64 {
        self.dropped_between.max(self.dropped_in_all)
    }
}

/// The value of an option.
fn option<'a>(options: &'a [PcapNGOption<'_>], code: OptionCode) -> Option<&'a [u8]> {
    let found = options.iter().find(|option| option.code == code)?;
    found.value.get(..usize::from(found.len))
}
