//! Tags of Ethernet: what stands behind both addresses, and in front of what the frame carries.

use crate::{u16_at, vlan};

/// A header in front of the innermost IP packet, or its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ethernet, of the frame or in a tunnel.
    Ethernet,
    /// A VLAN tag, behind its ethertype.
    Vlan,
    /// A header that has no number to be told.
    Named(&'static str),
    /// A label of MPLS.
    Mpls,
    /// PPPoE with PPP.
    Pppoe,
    /// IPv4 or IPv6.
    Ip,
    /// GRE.
    Gre,
    /// The authentication header of IPsec.
    Authentication,
    /// VXLAN, behind UDP.
    Vxlan,
    /// Geneve, behind UDP.
    Geneve,
    /// GTP-U, behind UDP.
    GtpU,
}

/// The tag that an ethertype names, and how long it is behind that. It ends in the ethertype of what
/// follows. Those of VLANs (IEEE 802.1Q, 802.1ad), of seamless redundancy (IEEE 802.1CB, IEC 62439-3), of
/// bridge port extension (IEEE 802.1BR; Cisco's VN-Tag), and of Cisco's security groups.
#[inline]
pub fn of(ethertype: u16) -> Option<(Kind, usize)> {
    match ethertype {
        _ if vlan::is_tag(ethertype) => Some((Kind::Vlan, vlan::LEN)),
        0xf1c1 => Some((Kind::Named("R-TAG"), 6)),
        0x892f => Some((Kind::Named("HSR"), 6)),
        0x893f => Some((Kind::Named("E-TAG"), 8)),
        0x8926 => Some((Kind::Named("VN-Tag"), 6)),
        0x8909 => Some((Kind::Named("CMD"), 8)),
        _ => None,
    }
}

/// The ethertype that a tag ends in.
#[inline]
pub fn next(tag: &[u8]) -> u16 {
    u16_at(tag, tag.len() - 2)
}
