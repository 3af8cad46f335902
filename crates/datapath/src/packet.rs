//! Packets in MoonSniff's layout: Ethernet, IPv4, UDP, and at the start of the UDP payload a
//! little-endian u32 id followed by a type byte. The IP id repeats the low 16 bits of the id.
//!
//! The UDP checksum is 0, "not computed", which IPv4 allows: nothing but the id, the IP id and the
//! IP checksum then differs between two packets of a flow.

use std::net::Ipv4Addr;

/// A hardware address.
pub type Mac = [u8; 6];

/// The frame check sequence, which the interface adds. Sizes include it, as the field counts.
pub const FCS_LEN: usize = 4;
/// The smallest Ethernet frame with FCS.
pub const MIN_SIZE: usize = 64;
/// Length of the Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Most flows: their source addresses fill 10.0.0.0/16 but for its first and last address.
pub const MAX_FLOWS: u32 = (1 << 16) - 2;
/// Default source hardware address, locally administered.
pub const SOURCE_MAC: Mac = [0x02, 0x74, 0x74, 0, 0, 0x01];
/// Default destination hardware address, locally administered.
pub const DESTINATION_MAC: Mac = [0x02, 0x74, 0x74, 0, 0, 0x02];
/// Source address of the first flow; those of the others follow.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Destination address of every packet.
pub const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// UDP ports, those of the traffic in "How Low Can You Go".
pub const PORTS: (u16, u16) = (1024, 53);

const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const IP_ID_AT: usize = ETHERNET_LEN + 4;
const IP_CHECKSUM_AT: usize = ETHERNET_LEN + 10;
const IP_SOURCE_AT: usize = ETHERNET_LEN + 12;
const ID_AT: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
const TYPE_AT: usize = ID_AT + 4;

/// The type byte after the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Part of the measurement: taps stamp it.
    Measured = 0x55,
    /// Sent before the measurement: taps count it as other traffic.
    WarmUp = 0x00,
}

/// A frame that becomes each packet in turn.
#[derive(Clone, Debug)]
pub struct Template {
    frame: Vec<u8>,
    flows: u32,
    /// One's complement sum of the IP header without id, checksum and the flow's share.
    base_sum: u32,
}

impl Template {
    /// A template for packets of `size` bytes, FCS included (at least [`MIN_SIZE`], at most the
    /// largest IP packet), of `flows` flows (1 to [`MAX_FLOWS`]).
    pub fn new(size: usize, flows: u32, source: Mac, destination: Mac) -> Self {
        debug_assert!(size >= MIN_SIZE && (1..=MAX_FLOWS).contains(&flows));
        let mut frame = vec![0; size - FCS_LEN];
        let ip_len = (frame.len() - ETHERNET_LEN) as u16;
        frame[..6].copy_from_slice(&destination);
        frame[6..12].copy_from_slice(&source);
        frame[12..14].copy_from_slice(&(libc::ETH_P_IP as u16).to_be_bytes());
        let ip = &mut frame[ETHERNET_LEN..];
        ip[0] = 0x45; // version 4, five words of header
        ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
        ip[8] = 64; // time to live
        ip[9] = libc::IPPROTO_UDP as u8;
        ip[12..16].copy_from_slice(&SOURCE.octets());
        ip[16..20].copy_from_slice(&DESTINATION.octets());
        let udp = &mut ip[IPV4_LEN..];
        udp[0..2].copy_from_slice(&PORTS.0.to_be_bytes());
        udp[2..4].copy_from_slice(&PORTS.1.to_be_bytes());
        udp[4..6].copy_from_slice(&(ip_len - IPV4_LEN as u16).to_be_bytes());
        let base_sum = sum_words(&frame[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN]);
        Self { frame, flows, base_sum }
    }

    /// The frame of packet `id`, without FCS. The flow is the id modulo the number of flows.
    #[inline]
    pub fn packet(&mut self, id: u32, kind: Kind) -> &[u8] {
        let ip_id = id as u16;
        let flow = id % self.flows;
        let source = SOURCE.to_bits() + flow;
        // Flows differ in the low half of the source address alone, by less than 2^16.
        let checksum = !fold(self.base_sum + flow + u32::from(ip_id));
        let frame = self.frame.as_mut_slice();
        frame[IP_ID_AT..IP_ID_AT + 2].copy_from_slice(&ip_id.to_be_bytes());
        frame[IP_CHECKSUM_AT..IP_CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        frame[IP_SOURCE_AT..IP_SOURCE_AT + 4].copy_from_slice(&source.to_be_bytes());
        frame[ID_AT..ID_AT + 4].copy_from_slice(&id.to_le_bytes());
        frame[TYPE_AT] = kind as u8;
        frame
    }
}

/// Sum of the big-endian 16-bit words of an even number of bytes.
fn sum_words(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

/// Folds the carries of a one's complement sum (RFC 1071).
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The id of a measured packet in MoonSniff's layout; `None` for any other frame. Reads what the
/// eBPF tap reads: VLAN tags, IPv4 with options, IPv6, UDP.
pub fn moonsniff_id(frame: &[u8]) -> Option<u32> {
    let u16_at = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = ETHERNET_LEN;
    let mut protocol = i32::from(u16_at(12)?);
    for _ in 0..3 {
        if protocol != libc::ETH_P_8021Q && protocol != libc::ETH_P_8021AD {
            break;
        }
        protocol = i32::from(u16_at(at + 2)?);
        at += 4;
    }
    let (next, header) = match protocol {
        libc::ETH_P_IP => {
            let words = usize::from(frame.get(at)? & 0x0f);
            let later_fragment = u16_at(at + 6)? & 0x1fff != 0;
            if words < 5 || later_fragment {
                return None;
            }
            (frame.get(at + 9)?, words * 4)
        }
        libc::ETH_P_IPV6 => (frame.get(at + 6)?, 40),
        _ => return None,
    };
    if i32::from(*next) != libc::IPPROTO_UDP {
        return None;
    }
    let payload = frame.get(at + header + UDP_LEN..)?;
    match payload {
        [a, b, c, d, kind, ..] if *kind == Kind::Measured as u8 => {
            Some(u32::from_le_bytes([*a, *b, *c, *d]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn template(size: usize, flows: u32) -> Template {
        Template::new(size, flows, SOURCE_MAC, DESTINATION_MAC)
    }

    #[test]
    fn the_frame_is_what_it_should_be_byte_for_byte() {
        let mut template = template(64, 10);
        #[rustfmt::skip]
        let expected = [
            0x02, 0x74, 0x74, 0x00, 0x00, 0x02, 0x02, 0x74, 0x74, 0x00, 0x00, 0x01, 0x08, 0x00,
            0x45, 0x00, 0x00, 0x2e, 0x03, 0x0a, 0x00, 0x00, 0x40, 0x11,
            // Checksum, worked out by hand: 4500 + 002e + 030a + 4011 + 0a00 + 0007 + 0a01 + 0001
            // = 9c52, complement 63ad.
            0x63, 0xad, 0x0a, 0x00, 0x00, 0x07, 0x0a, 0x01, 0x00, 0x01,
            0x04, 0x00, 0x00, 0x35, 0x00, 0x1a, 0x00, 0x00,
            0x0a, 0x03, 0x02, 0x01, 0x55, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(0x0102_030a % 10, 6);
        assert_eq!(template.packet(0x0102_030a, Kind::Measured), expected);
    }

    #[test]
    fn only_measured_packets_have_an_id() {
        let mut template = template(64, 1);
        assert_eq!(moonsniff_id(template.packet(7, Kind::Measured)), Some(7));
        assert_eq!(moonsniff_id(template.packet(7, Kind::WarmUp)), None);
    }

    /// The frame with `tag` bytes put in after the hardware addresses.
    fn tagged(frame: &[u8], tag: &[u8]) -> Vec<u8> {
        [&frame[..12], tag, &frame[12..]].concat()
    }

    #[test]
    fn ids_are_found_behind_tags_options_and_ipv6() {
        let mut template = template(64, 1);
        let frame = template.packet(9, Kind::Measured).to_vec();
        let one = tagged(&frame, &[0x81, 0x00, 0, 5]);
        let two = tagged(&one, &[0x88, 0xa8, 0, 6]);
        assert_eq!(moonsniff_id(&one), Some(9));
        assert_eq!(moonsniff_id(&two), Some(9));

        let mut options = frame.clone();
        options[14] = 0x46;
        options.splice(34..34, [1, 1, 1, 0]);
        assert_eq!(moonsniff_id(&options), Some(9));

        let mut ipv6 = frame[..12].to_vec();
        ipv6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
        ipv6.extend([0; 32]);
        ipv6.extend(&frame[34..]);
        assert_eq!(moonsniff_id(&ipv6), Some(9));

        let mut fragment = frame.clone();
        fragment[21] = 1;
        assert_eq!(moonsniff_id(&fragment), None);
        let mut tcp = frame.clone();
        tcp[23] = 6;
        assert_eq!(moonsniff_id(&tcp), None);
        let mut short_header = frame;
        short_header[14] = 0x44;
        assert_eq!(moonsniff_id(&short_header), None);
    }

    proptest! {
        #[test]
        fn every_packet_is_sound(id: u32, size in MIN_SIZE..1518, flows in 1..=MAX_FLOWS) {
            let mut template = template(size, flows);
            let frame = template.packet(id, Kind::Measured);
            prop_assert_eq!(frame.len() + FCS_LEN, size);
            // A header with a right checksum sums to all ones.
            prop_assert_eq!(fold(sum_words(&frame[14..34])), 0xffff);
            prop_assert_eq!(&frame[18..20], &(id as u16).to_be_bytes()[..]);
            let source = u32::from_be_bytes(frame[26..30].try_into().unwrap());
            prop_assert_eq!(source, 0x0a00_0001 + id % flows);
            prop_assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), size - 18);
            prop_assert_eq!(usize::from(u16::from_be_bytes([frame[38], frame[39]])), size - 38);
            prop_assert_eq!(moonsniff_id(frame), Some(id));
        }

        #[test]
        fn no_bytes_upset_the_parser(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            moonsniff_id(&frame);
        }

        #[test]
        fn a_cut_frame_has_no_id(len in 0..47usize) {
            let mut template = template(64, 1);
            prop_assert_eq!(moonsniff_id(&template.packet(1, Kind::Measured)[..len]), None);
        }
    }
}
