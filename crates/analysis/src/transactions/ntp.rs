//! Time asked of NTP servers (RFC 5905): the answer repeats the transmit timestamp as its origin.
//!
//! In interleaved mode it repeats the receive timestamp (RFC 9769). Simple clients send a transmit
//! timestamp of 0: each of their packets is a request of its own, and an answer is of the latest.

use super::book::Books;
use super::packet::{Packet, be64};
use super::{Kind, Protocol};

const PORT: u16 = 123;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
const ORIGIN: usize = 24;
const RECEIVE: usize = 32;
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
            let received = be64(udp.payload, RECEIVE).unwrap_or_default();
            let key = ends.hash(if time == 0 { !packet.number } else { time });
            book.request(packet, key, 0);
            if time == 0 || received != 0 {
                let other = if time == 0 { 0 } else { received };
                book.alias(packet, ends.hash(other), key);
            }
        } else if answers && packet.may_answer() {
            let ends = ends.turned();
            let name = || format!("{ends} origin {time:016x}").into();
            let key = ends.hash(time);
            let known = book.known(packet.time_ns, key).map(|_| key);
            book.answer(packet, known.or_else(|| book.aliased(key)).unwrap_or(key), name);
        }
        true
    }
}
