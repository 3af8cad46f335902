//! The generator's own packets: Ethernet, a VLAN tag if asked for, IPv4 or IPv6, UDP, and at the
//! start of the UDP payload MoonSniff's id and type byte.
//!
//! With IPv4 the IP id repeats the low 16 bits of the id, and the UDP checksum is 0, "not
//! computed": nothing but the id, the IP id and the IP checksum differs between two packets of a
//! flow. IPv6 has no IP id and demands the UDP checksum (RFC 8200, section 8.1), so it is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tailtap_wire::ethernet::{self, FCS_LEN, MIN_SIZE, Mac};
use tailtap_wire::moonsniff::Kind;
use tailtap_wire::{checksum, ipv4, ipv6, moonsniff, udp, vlan};

/// Default source hardware address, locally administered.
pub const SOURCE_MAC: Mac = [0x02, 0x74, 0x74, 0, 0, 0x01];
/// Default destination hardware address, locally administered.
pub const DESTINATION_MAC: Mac = [0x02, 0x74, 0x74, 0, 0, 0x02];
/// The time to live that Linux gives its own packets (IPDEFTTL of include/net/ip.h).
pub const TIME_TO_LIVE: u8 = 64;

/// Consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The first one.
    pub first: IpAddr,
    /// How many.
    pub count: u32,
}

/// Consecutive ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first one.
    pub first: u16,
    /// How many.
    pub count: u32,
}

/// All combinations of addresses and ports, each one a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Where packets come from; changes with every packet.
    pub source: Addresses,
    /// Where they go; changes after all sources had their turn, and so on.
    pub destination: Addresses,
    /// UDP ports where packets come from.
    pub source_ports: Ports,
    /// UDP ports where they go.
    pub destination_ports: Ports,
}

impl Default for Flows {
    /// One flow, with the ports of the traffic in "How Low Can You Go".
    fn default() -> Self {
        let address = |first| Addresses { first: IpAddr::V4(first), count: 1 };
        Self {
            source: address(Ipv4Addr::new(10, 0, 0, 1)),
            destination: address(Ipv4Addr::new(10, 1, 0, 1)),
            source_ports: Ports { first: 1024, count: 1 },
            destination_ports: Ports { first: 53, count: 1 },
        }
    }
}

/// What the packets look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the packets, FCS included: this sequence, again and again.
    pub sizes: Vec<usize>,
    /// Addresses and ports.
    pub flows: Flows,
    /// VLAN id (IEEE 802.1Q), 1 to [`vlan::MAX_ID`].
    pub vlan: Option<u16>,
    /// How many routers may pass a packet on, and one more: time to live, or hop limit.
    pub time_to_live: u8,
    /// Source hardware address.
    pub source: Mac,
    /// Destination hardware address.
    pub destination: Mac,
}

/// Packets cannot look like this.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LayoutError {
    /// There is no size.
    #[error("packets need a size: give --size at least one")]
    NoSize,
    /// Headers and id do not fit.
    #[error(
        "packets of {size} B are too small: headers, id and check sequence take {least} B (--size)"
    )]
    Small {
        /// The size asked for.
        size: usize,
        /// The least.
        least: usize,
    },
    /// Addresses of IPv4 and IPv6.
    #[error("source and destination addresses must be of one IP version (--src, --dst)")]
    Versions,
    /// A range is empty or goes too far.
    #[error("{count} values from {first} on are no range: change --{parameter}")]
    Range {
        /// The first value.
        first: String,
        /// How many.
        count: u32,
        /// What has the range.
        parameter: &'static str,
    },
    /// No such VLAN.
    #[error("there is no VLAN {vlan}: give --vlan a value from 1 to {}", vlan::MAX_ID)]
    Vlan {
        /// The VLAN asked for.
        vlan: u16,
    },
}

impl Layout {
    /// Bytes before the IP header.
    fn network_at(&self) -> usize {
        ethernet::LEN + self.vlan.map_or(0, |_| vlan::LEN)
    }

    /// Bytes of the IP header.
    fn network_len(&self) -> usize {
        if self.flows.source.first.is_ipv4() { ipv4::LEN } else { ipv6::LEN }
    }

    /// The smallest packet that holds headers and id, FCS included.
    pub fn least_size(&self) -> usize {
        let headers = self.network_at() + self.network_len() + udp::LEN;
        (headers + moonsniff::LEN + FCS_LEN).max(MIN_SIZE)
    }

    /// The largest of the sizes.
    pub fn largest_size(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Whether such packets can exist.
    pub fn check(&self) -> Result<(), LayoutError> {
        let Flows { source, destination, source_ports, destination_ports } = self.flows;
        if source.first.is_ipv4() != destination.first.is_ipv4() {
            return Err(LayoutError::Versions);
        }
        let least = self.least_size();
        match self.sizes.iter().min() {
            None => return Err(LayoutError::NoSize),
            Some(&size) if size < least => return Err(LayoutError::Small { size, least }),
            Some(_) => {}
        }
        for (addresses, parameter) in [(source, "src"), (destination, "dst")] {
            let most = if addresses.first.is_ipv4() { u128::from(u32::MAX) } else { u128::MAX };
            let room = most - bits(addresses.first);
            if addresses.count == 0 || u128::from(addresses.count - 1) > room {
                let first = addresses.first.to_string();
                return Err(LayoutError::Range { first, count: addresses.count, parameter });
            }
        }
        for (ports, parameter) in [(source_ports, "sport"), (destination_ports, "dport")] {
            let room = u32::from(u16::MAX - ports.first);
            if ports.count == 0 || ports.count - 1 > room {
                let first = ports.first.to_string();
                return Err(LayoutError::Range { first, count: ports.count, parameter });
            }
        }
        match self.vlan {
            Some(vlan) if !(1..=vlan::MAX_ID).contains(&vlan) => Err(LayoutError::Vlan { vlan }),
            _ => Ok(()),
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A frame that becomes each packet in turn.
#[derive(Clone, Debug)]
pub struct Template {
    frame: Vec<u8>,
    sizes: Vec<usize>,
    flows: Flows,
    time_to_live: u8,
    /// Packets after which sizes and flows would meet in the same way again, if they do so before
    /// each size met each flow; else 2^32. The sizes then move on by one.
    turn: u64,
    /// Where the IP header, the UDP header and the payload begin.
    network: usize,
    transport: usize,
    payload: usize,
}

impl Template {
    /// A template for packets of a layout that [`Layout::check`] found possible.
    pub fn new(layout: &Layout) -> Self {
        debug_assert_eq!(layout.check(), Ok(()));
        let network = layout.network_at();
        let transport = network + layout.network_len();
        let mut frame = vec![0; layout.largest_size() - FCS_LEN];
        let is_v4 = layout.flows.source.first.is_ipv4();
        let network_type = if is_v4 { ipv4::ETHERTYPE } else { ipv6::ETHERTYPE };
        let ethertype = layout.vlan.map_or(network_type, |_| vlan::ETHERTYPE);
        let Layout { destination, source, .. } = *layout;
        ethernet::Header { destination, source, ethertype }.emit(&mut frame);
        if let Some(control) = layout.vlan {
            let tag = vlan::Header { control, ethertype: network_type };
            tag.emit(&mut frame[ethernet::LEN..]);
        }
        Self {
            frame,
            turn: turn(layout),
            sizes: layout.sizes.clone(),
            flows: layout.flows,
            time_to_live: layout.time_to_live,
            network,
            transport,
            payload: transport + udp::LEN,
        }
    }

    /// The largest packet, FCS included.
    pub fn largest_size(&self) -> usize {
        self.frame.len() + FCS_LEN
    }

    /// The frame of packet `id`, without FCS. The flow is the id modulo the number of flows.
    #[inline]
    pub fn packet(&mut self, id: u32, kind: Kind) -> &[u8] {
        let mut position = id as usize;
        if self.sizes.len() > 1 {
            position += (u64::from(id) / self.turn) as usize;
        }
        let len = self.sizes[position % self.sizes.len()] - FCS_LEN;
        let frame = &mut self.frame[..len];

        let mut rest = id;
        let mut take = |count: u32| {
            let taken = if count == 1 { 0 } else { rest % count };
            rest /= count;
            taken
        };
        let source = bits(self.flows.source.first) + u128::from(take(self.flows.source.count));
        let destination = &self.flows.destination;
        let destination = bits(destination.first) + u128::from(take(destination.count));
        let ports = [self.flows.source_ports, self.flows.destination_ports]
            .map(|ports| ports.first + take(ports.count) as u16);

        let mut header = udp::Header {
            source: ports[0],
            destination: ports[1],
            len: (len - self.transport) as u16,
            checksum: 0,
        };
        moonsniff::Header { id, kind: kind as u8 }.emit(&mut frame[self.payload..]);
        if self.transport - self.network == ipv4::LEN {
            let network = ipv4::Header {
                len: ipv4::LEN,
                total_len: (len - self.network) as u16,
                id: id as u16,
                fragment_offset: 0,
                time_to_live: self.time_to_live,
                protocol: udp::PROTOCOL,
                source: Ipv4Addr::from_bits(source as u32),
                destination: Ipv4Addr::from_bits(destination as u32),
            };
            network.emit(&mut frame[self.network..]);
            header.emit(&mut frame[self.transport..]);
        } else {
            let network = ipv6::Header {
                payload_len: header.len,
                next_header: udp::PROTOCOL,
                hop_limit: self.time_to_live,
                source: Ipv6Addr::from_bits(source),
                destination: Ipv6Addr::from_bits(destination),
            };
            network.emit(&mut frame[self.network..]);
            header.emit(&mut frame[self.transport..]);
            // Addresses, UDP header and id follow each other; the rest of the payload is zero.
            let summed = self.network + ipv6::ADDRESSES.start..self.payload + moonsniff::LEN;
            header.checksum = udp::checksum(checksum::sum(&frame[summed]), header.len);
            header.emit(&mut frame[self.transport..]);
        }
        frame
    }
}

/// See [`Template::turn`].
fn turn(layout: &Layout) -> u64 {
    const NEVER: u64 = 1 << 32;
    let sizes = layout.sizes.len() as u64;
    let Flows { source, destination, source_ports, destination_ports } = layout.flows;
    let counts = [source.count, destination.count, source_ports.count, destination_ports.count];
    // Saturating: more flows than ids never meet twice.
    let flows = counts.into_iter().fold(1u64, |all, count| all.saturating_mul(count.into()));
    match gcd(flows, sizes) {
        1 => NEVER,
        common => (flows / common).saturating_mul(sizes).min(NEVER),
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn layout(size: usize) -> Layout {
        Layout {
            sizes: vec![size],
            flows: Flows::default(),
            vlan: None,
            time_to_live: TIME_TO_LIVE,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        }
    }

    #[test]
    fn the_frame_is_what_it_should_be_byte_for_byte() {
        let mut layout = layout(64);
        layout.flows.source.count = 10;
        let mut template = Template::new(&layout);
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

    /// A source or destination of a family, and how many of them.
    fn addresses(v6: bool) -> impl Strategy<Value = Addresses> {
        (any::<u64>(), 1..100_000u32).prop_map(move |(bits, count)| {
            let first = if v6 {
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits) << 32))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits((bits >> 33) as u32))
            };
            Addresses { first, count }
        })
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        let port = || (0..60_000u16, 1..5000u32).prop_map(|(first, count)| Ports { first, count });
        let flows = any::<bool>().prop_flat_map(move |v6| {
            (addresses(v6), addresses(v6), port(), port()).prop_map(
                |(source, destination, source_ports, destination_ports)| Flows {
                    source,
                    destination,
                    source_ports,
                    destination_ports,
                },
            )
        });
        let sizes = proptest::collection::vec(75..9001usize, 1..20);
        let vlan = proptest::option::of(1..=vlan::MAX_ID);
        (flows, sizes, vlan, 1..=u8::MAX).prop_map(|(flows, sizes, vlan, time_to_live)| Layout {
            sizes,
            flows,
            vlan,
            time_to_live,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        })
    }

    proptest! {
        #[test]
        fn every_packet_is_sound(layout in layouts(), ids in proptest::collection::vec(any::<u32>(), 1..50)) {
            prop_assert_eq!(layout.check(), Ok(()));
            let mut template = Template::new(&layout);
            for id in ids {
                let frame = template.packet(id, Kind::Measured).to_vec();
                prop_assert_eq!(moonsniff::id(&frame), Some(id));
                prop_assert!(layout.sizes.contains(&(frame.len() + FCS_LEN)));
                prop_assert_eq!(frame[12..14] == [0x81, 0], layout.vlan.is_some());
                let ip = &frame[layout.network_at()..];
                let (pseudo, udp) = if layout.network_len() == ipv4::LEN {
                    // A header with a right checksum sums to all ones.
                    prop_assert_eq!(checksum::fold(checksum::sum(&ip[..20])), 0xffff);
                    prop_assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                    prop_assert_eq!(&ip[4..6], &(id as u16).to_be_bytes()[..]);
                    prop_assert_eq!(&ip[26..28], &[0, 0]);
                    prop_assert_eq!(ip[8], layout.time_to_live);
                    (&ip[12..20], &ip[20..])
                } else {
                    prop_assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
                    prop_assert_ne!(&ip[46..48], &[0, 0]);
                    prop_assert_eq!(ip[7], layout.time_to_live);
                    let sum = checksum::sum(&ip[8..]) + (ip.len() - 40) as u32 + 17;
                    prop_assert_eq!(checksum::fold(sum), 0xffff);
                    (&ip[8..40], &ip[40..])
                };
                prop_assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
                // The digits of the flow's number.
                let flows = &layout.flows;
                let mut rest = id;
                let (one, two) = pseudo.split_at(pseudo.len() / 2);
                for (bytes, addresses) in [(one, flows.source), (two, flows.destination)] {
                    let value = bytes.iter().fold(0u128, |value, &byte| value << 8 | u128::from(byte));
                    let expected = bits(addresses.first) + u128::from(rest % addresses.count);
                    prop_assert_eq!(value, expected);
                    rest /= addresses.count;
                }
                for (at, ports) in [(0, flows.source_ports), (2, flows.destination_ports)] {
                    let port = u32::from(u16::from_be_bytes([udp[at], udp[at + 1]]));
                    prop_assert_eq!(port, u32::from(ports.first) + rest % ports.count);
                    rest /= ports.count;
                }
            }
        }

        /// Each flow gets each size, and each size is as frequent as the sequence says.
        #[test]
        fn sizes_and_flows_mix(flows in 1..13u32, sizes in 1..13usize) {
            let mut layout = layout(64);
            layout.flows.source.count = flows;
            layout.sizes = (0..sizes).map(|more| 64 + more).collect();
            let mut template = Template::new(&layout);
            let all = flows * sizes as u32;
            let met: HashSet<(u32, usize)> = (0..all)
                .map(|id| (id % flows, template.packet(id, Kind::Measured).len()))
                .collect();
            prop_assert_eq!(met.len(), all as usize);
        }
    }

    #[test]
    fn packets_that_cannot_exist_are_refused() {
        type Change = fn(&mut Layout);
        let v6 = |flows: &mut Flows| {
            flows.source.first = IpAddr::V6(Ipv6Addr::LOCALHOST);
            flows.destination.first = IpAddr::V6(Ipv6Addr::LOCALHOST);
        };
        let cases: [(Change, &str); 10] = [
            (|l| l.sizes.clear(), "size"),
            (|l| l.sizes.push(63), "63 B are too small"),
            (|l| l.flows.source.first = IpAddr::V6(Ipv6Addr::LOCALHOST), "one IP version"),
            (|l| l.flows.source.count = 0, "src"),
            (|l| l.flows.destination.count = u32::MAX, "dst"),
            (|l| l.flows.source_ports.count = 0, "sport"),
            (|l| l.flows.destination_ports.count = 65_536, "dport"),
            (|l| l.vlan = Some(0), "vlan"),
            (|l| l.vlan = Some(4095), "vlan"),
            (|l| l.flows.source_ports.count = u32::MAX, "sport"),
        ];
        for (change, expected) in cases {
            let mut layout = layout(64);
            change(&mut layout);
            let message = layout.check().expect_err("refused").to_string();
            assert!(message.contains(expected), "{message}");
        }
        let mut six = layout(70);
        v6(&mut six.flows);
        assert_eq!(six.check(), Err(LayoutError::Small { size: 70, least: 71 }));
        six.vlan = Some(1);
        assert_eq!(six.least_size(), 75);
    }
}
