//! Packets of a capture file, sent as they are or with ids of our own.

use std::path::{Path, PathBuf};

use tailtap_analysis::capture::{Capture, CaptureError, Content, Format, Unreadable};
use tailtap_wire::ethernet::{FCS_LEN, MIN_SIZE};
use tailtap_wire::link::Link;
use tailtap_wire::moonsniff::Kind;
use tailtap_wire::{checksum, frame, moonsniff, udp};

use crate::generate::schedule::Recorded;

/// Packets that are asked for at a time.
const CHUNK: usize = 4096;

/// A capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct ReplayError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Unplayable,
}

/// Why a capture cannot be replayed. Packets count from 1.
#[derive(Debug, thiserror::Error)]
pub enum Unplayable {
    /// The file cannot be read.
    #[error(transparent)]
    Capture(Unreadable),
    /// It is no capture.
    #[error("no pcap or pcapng file, which can be replayed (first bytes {magic})")]
    NoCapture {
        /// What it begins with.
        magic: String,
    },
    /// It is damaged.
    #[error("damaged after packet {packets}: {why} (a replay takes whole files)")]
    Damaged {
        /// Packets before the damage.
        packets: usize,
        /// What is wrong.
        why: String,
    },
    /// It holds ids, not packets.
    #[error("this holds stamps, not packets: only pcap and pcapng files can be replayed")]
    NoFrames,
    /// Packets were cut off.
    #[error(
        "packet {number} was cut off to {captured} of {len} B: a replay needs whole packets, so \
         capture without a snap length"
    )]
    Cut {
        /// The first such packet.
        number: usize,
        /// Bytes captured.
        captured: usize,
        /// Bytes on the wire.
        len: u32,
    },
    /// Packets were captured without their Ethernet header.
    #[error(
        "packet {number} was captured without its Ethernet header, which a replay needs: capture \
         on the Ethernet interface itself"
    )]
    NoEthernet {
        /// The first such packet.
        number: usize,
    },
    /// It is a file of ERF.
    #[error(
        "ERF does not say whether frames end in their check sequences, and cannot be replayed: \
         convert it to pcap (editcap -F pcap)"
    )]
    Erf,
    /// There is no packet.
    #[error("there is no packet in the capture")]
    Empty,
    /// Ids have no place.
    #[error(
        "no packet is UDP with 5 bytes of payload, where an id could be written: replay another \
         file, or one with ids as it is (in a file `ids: keep`; without --stamp-ids)"
    )]
    NoUdp,
    /// Ids would repeat, or warm-up packets would have some.
    #[error(
        "it has {packets} packets and {what} needs ids of its own: have them written (in a \
         file `ids: stamp`; --stamp-ids), or leave that out"
    )]
    Ids {
        /// How many packets it has.
        packets: u64,
        /// What cannot be done with the file's own ids.
        what: &'static str,
    },
}

impl From<CaptureError> for ReplayError {
    fn from(CaptureError { path, why }: CaptureError) -> Self {
        let why = match why {
            // Its remedies are those of other commands.
            Unreadable::UnknownFormat { magic } => Unplayable::NoCapture { magic },
            other => Unplayable::Capture(other),
        };
        Self { path, why }
    }
}

/// A capture in memory.
#[derive(Clone, Debug)]
pub struct Replay {
    frames: Vec<u8>,
    packets: Vec<Packet>,
    recorded: Recorded,
    stamp_ids: bool,
}

#[derive(Clone, Debug)]
struct Packet {
    begin: usize,
    len: usize,
    /// Where the UDP payload begins, if it has room for an id.
    payload: Option<usize>,
    /// Whether the packet had an id in the file.
    has_id: bool,
}

impl Replay {
    /// Reads a capture. With `stamp_ids`, ids are written where UDP payloads have room.
    pub fn read(path: &Path, stamp_ids: bool) -> Result<Self, ReplayError> {
        let refused = |why| Err(ReplayError { path: path.into(), why });
        let mut capture = Capture::open(path, None)?;
        if capture.format().holds_ids() {
            return refused(Unplayable::NoFrames);
        }
        if capture.format() == Format::Erf {
            return refused(Unplayable::Erf);
        }
        let (mut frames, mut packets, mut stamps) = (vec![], vec![], vec![]);
        let (mut cut, mut headless) = (None, None);
        while capture.read(CHUNK, |packet| {
            let Content::Frame { bytes, wire_len, link } = packet.content else { return };
            if link != Link::Ethernet {
                headless.get_or_insert(packets.len() + 1);
                return;
            }
            if bytes.len() < wire_len as usize && cut.is_none() {
                cut = Some((packets.len() + 1, bytes.len(), wire_len));
            }
            let payload = frame::udp_payload(bytes, link).filter(|&at| has_room(bytes, at));
            let begin = frames.len();
            frames.extend_from_slice(bytes);
            // Shorter ones were captured before the card filled them up.
            let len = bytes.len().max(MIN_SIZE - FCS_LEN);
            frames.resize(begin + len, 0);
            packets.push(Packet { begin, len, payload, has_id: moonsniff::id(bytes).is_some() });
            stamps.push(packet.time_ns);
        })? {}
        if let Some(number) = headless {
            return refused(Unplayable::NoEthernet { number });
        }
        if let Some((number, captured, len)) = cut {
            return refused(Unplayable::Cut { number, captured, len });
        }
        let notes = capture.notes();
        if let Some(damage) = notes.skipped.first.as_ref().or(notes.damage.as_ref()) {
            let why = damage.why.clone();
            return refused(Unplayable::Damaged { packets: packets.len(), why });
        }
        let Some(recorded) = Recorded::new(&stamps) else {
            return refused(Unplayable::Empty);
        };
        if stamp_ids && packets.iter().all(|packet| packet.payload.is_none()) {
            return refused(Unplayable::NoUdp);
        }
        Ok(Self { frames, packets, recorded, stamp_ids })
    }

    /// When the packets were captured.
    pub fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Whether ids are written.
    pub fn stamps_ids(&self) -> bool {
        self.stamp_ids
    }

    /// The largest frame in bytes, FCS included.
    pub fn largest_size(&self) -> usize {
        self.packets.iter().map(|packet| packet.len).max().unwrap_or(0) + FCS_LEN
    }

    /// How many packets of the capture have an id when they are sent.
    pub fn with_id(&self) -> u64 {
        (0..self.packets.len() as u32).filter(|&number| self.has_id(number)).count() as u64
    }

    /// Whether packet `number` has an id.
    pub fn has_id(&self, number: u32) -> bool {
        let packet = &self.packets[number as usize % self.packets.len()];
        if self.stamp_ids { packet.payload.is_some() } else { packet.has_id }
    }

    /// The frame of packet `number`, without FCS; after the last one the first comes again.
    pub fn packet(&mut self, number: u32, kind: Kind) -> &[u8] {
        let packet = &self.packets[number as usize % self.packets.len()];
        let frame = &mut self.frames[packet.begin..packet.begin + packet.len];
        if let (true, Some(payload)) = (self.stamp_ids, packet.payload) {
            stamp(frame, payload, number, kind);
        }
        frame
    }
}

/// Whether the UDP payload has room for id and type byte, as UDP's own length says: what follows
/// may be padding.
fn has_room(frame: &[u8], payload: usize) -> bool {
    let header = udp::Header::parse(&frame[payload - udp::LEN..]);
    header.is_some_and(|header| usize::from(header.len) >= udp::LEN + moonsniff::LEN)
        && payload + moonsniff::LEN <= frame.len()
}

/// Writes id and type byte, and changes the UDP checksum by what the payload changed: a right one
/// stays right, and one that was not computed stays so.
fn stamp(frame: &mut [u8], payload: usize, id: u32, kind: Kind) {
    // An odd length: the type byte counts as the high half of a word, whose low half stays.
    let sum = |frame: &[u8]| checksum::fold(checksum::sum(&frame[payload..][..moonsniff::LEN]));
    let before = sum(frame);
    moonsniff::Header { id, kind: kind as u8 }.emit(&mut frame[payload..]);
    let after = sum(frame);
    let at = payload - udp::LEN;
    if let Some(header) = udp::Header::parse(&frame[at..]) {
        let checksum = udp::update(header.checksum, before, after);
        udp::Header { checksum, ..header }.emit(&mut frame[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::template::{
        DESTINATION_MAC, Flows, Layout, SOURCE_MAC, TIME_TO_LIVE, Template,
    };
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv6Addr};

    proptest! {
        #[test]
        fn a_right_checksum_stays_right(
            payload in proptest::collection::vec(any::<u8>(), 5..40), ids: [u32; 3],
        ) {
            let mut flows = Flows::default();
            flows.source.first = IpAddr::V6(Ipv6Addr::LOCALHOST);
            flows.destination.first = IpAddr::V6(Ipv6Addr::LOCALHOST);
            let layout = Layout {
                sizes: vec![66 + payload.len()],
                flows,
                vlan: None,
                time_to_live: TIME_TO_LIVE,
                source: SOURCE_MAC,
                destination: DESTINATION_MAC,
            };
            let mut frame = Template::new(&layout).packet(1, Kind::Measured).to_vec();
            // Another payload and its checksum, worked out anew.
            frame[62..].copy_from_slice(&payload);
            frame[60..62].fill(0);
            let sum = |frame: &[u8]| checksum::sum(&frame[22..]) + (frame.len() - 54) as u32 + 17;
            let right = checksum::of_sum(sum(&frame));
            let right = if right == 0 { 0xffff } else { right };
            frame[60..62].copy_from_slice(&right.to_be_bytes());
            for id in ids {
                stamp(&mut frame, 62, id, Kind::Measured);
                prop_assert_eq!(checksum::fold(sum(&frame)), 0xffff);
                prop_assert_eq!(moonsniff::id(&frame), Some(id));
                prop_assert_eq!(&frame[67..], &payload[5..]);
            }
            frame[60..62].fill(0);
            stamp(&mut frame, 62, 7, Kind::WarmUp);
            prop_assert_eq!(&frame[60..62], &[0, 0]);
        }
    }
}
