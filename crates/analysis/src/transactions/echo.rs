//! Echo requests of ICMP (RFC 792) and ICMPv6 (RFC 4443), by which ping asks.

use super::book::Books;
use super::packet::{Packet, be32};
use super::{Kind, Protocol};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

pub(super) struct Echo;

impl Protocol for Echo {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(inner) = packet.inner.filter(|inner| inner.has_transport()) else { return false };
        let message = packet.transport(&inner, 0);
        let answers = match (inner.protocol, message.first()) {
            (ICMP, Some(8)) | (ICMPV6, Some(128)) => false,
            (ICMP, Some(0)) | (ICMPV6, Some(129)) => true,
            _ => return false,
        };
        let book = books.of(Kind::IcmpEcho);
        // Identifier and sequence number.
        let Some(id) = be32(message, 4) else {
            book.counts.truncated += u64::from(packet.is_cut());
            return true;
        };
        let ends = packet.ends();
        if !answers && packet.may_ask() && !packet.is_multicast(&inner) {
            book.request(packet, ends.hash(u64::from(id)), 0);
        } else if answers && packet.may_answer() {
            let ends = ends.turned();
            let name = || format!("{ends} id {} seq {}", id >> 16, id & 0xffff).into();
            book.answer(packet, ends.hash(u64::from(id)), name);
        }
        true
    }
}
