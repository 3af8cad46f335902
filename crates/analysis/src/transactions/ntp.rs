//! Time asked of NTP servers (RFC 5905): the answer repeats the transmit timestamp as its origin.

use super::book::Books;
use super::packet::{Packet, be64};
use super::{Kind, Protocol};

const PORT: u16 = 123;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
const ORIGIN: usize = 24;
const TRANSMIT: usize = 40;

pub(super) struct Ntp;

impl Protocol for Ntp {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(udp) = packet.udp().filter(|udp| udp.is_of(PORT)) else { return false };
        let Some(first) = udp.payload.first() else { return false };
        let book = books.of(Kind::Ntp);
        let answers = match first & 7 {
            CLIENT => false,
            SERVER => true,
            _ => return false,
        };
        let Some(time) = be64(udp.payload, if answers { ORIGIN } else { TRANSMIT }) else {
            book.counts.truncated += u64::from(packet.is_cut());
            return true;
        };
        let ends = packet.ends();
        if !answers && packet.may_ask() && !packet.is_multicast(&udp.inner) {
            book.request(packet, ends.hash(time), 0);
        } else if answers && packet.may_answer() {
            let ends = ends.turned();
            let name = || format!("{ends} origin {time:016x}").into();
            book.answer(packet, ends.hash(time), name);
        }
        true
    }
}
