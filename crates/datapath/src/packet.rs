//! Packets in MoonSniff's layout: Ethernet, IP, UDP, and at the start of the UDP payload a
//! little-endian u32 id followed by a type byte.

/// A hardware address.
pub type Mac = [u8; 6];

/// The frame check sequence, which the interface adds. Sizes include it, as the field counts.
pub const FCS_LEN: usize = 4;
/// The smallest Ethernet frame with FCS.
pub const MIN_SIZE: usize = 64;
/// Length of the Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Length of a VLAN tag.
pub const VLAN_LEN: usize = 4;
/// Length of the UDP header.
pub const UDP_LEN: usize = 8;
/// Id and type byte.
pub const STAMP_LEN: usize = 5;

/// The type byte after the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Part of the measurement: taps stamp it.
    Measured = 0x55,
    /// Sent before the measurement: taps count it as other traffic.
    WarmUp = 0x00,
}

/// Where the UDP payload of a frame begins; `None` for any other frame. Follows what the eBPF tap
/// follows: VLAN tags, IPv4 with options, IPv6.
pub fn udp_payload(frame: &[u8]) -> Option<usize> {
    let u16_at = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = ETHERNET_LEN;
    let mut protocol = i32::from(u16_at(12)?);
    for _ in 0..3 {
        if protocol != libc::ETH_P_8021Q && protocol != libc::ETH_P_8021AD {
            break;
        }
        protocol = i32::from(u16_at(at + 2)?);
        at += VLAN_LEN;
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
    let payload = at + header + UDP_LEN;
    (i32::from(*next) == libc::IPPROTO_UDP && payload <= frame.len()).then_some(payload)
}

/// The id of a measured packet in MoonSniff's layout; `None` for any other frame.
pub fn moonsniff_id(frame: &[u8]) -> Option<u32> {
    match frame[udp_payload(frame)?..] {
        [a, b, c, d, kind, ..] if kind == Kind::Measured as u8 => {
            Some(u32::from_le_bytes([a, b, c, d]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{DESTINATION_MAC, Flows, Layout, SOURCE_MAC, Template};
    use proptest::prelude::*;

    fn template() -> Template {
        Template::new(&Layout {
            sizes: vec![64],
            flows: Flows::default(),
            vlan: None,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        })
    }

    #[test]
    fn only_measured_packets_have_an_id() {
        let mut template = template();
        assert_eq!(moonsniff_id(template.packet(7, Kind::Measured)), Some(7));
        assert_eq!(moonsniff_id(template.packet(7, Kind::WarmUp)), None);
    }

    /// The frame with `tag` bytes put in after the hardware addresses.
    fn tagged(frame: &[u8], tag: &[u8]) -> Vec<u8> {
        [&frame[..12], tag, &frame[12..]].concat()
    }

    #[test]
    fn ids_are_found_behind_tags_options_and_ipv6() {
        let mut template = template();
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
        fn no_bytes_upset_the_parser(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            moonsniff_id(&frame);
        }

        #[test]
        fn a_cut_frame_has_no_id(len in 0..47usize) {
            let mut template = template();
            prop_assert_eq!(moonsniff_id(&template.packet(1, Kind::Measured)[..len]), None);
        }
    }
}
