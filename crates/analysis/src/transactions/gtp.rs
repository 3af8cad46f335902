//! Echo requests of GTP-U (3GPP TS 29.281, section 7.2), by which 5G's nodes watch their paths.

use super::book::Books;
use super::packet::{Packet, be16};
use super::{Kind, Protocol};

const PORT: u16 = 2152;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const SEQUENCE: usize = 8;

pub(super) struct GtpU;

impl Protocol for GtpU {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(udp) = packet.udp().filter(|udp| udp.is_of(PORT)) else { return false };
        let Some([first, kind @ (REQUEST | RESPONSE)]) = udp.payload.first_chunk() else {
            return false;
        };
        // Version 1, GTP, with a sequence number.
        if first & 0xf2 != 0x32 {
            return true;
        }
        let book = books.of(Kind::GtpUEcho);
        let Some(sequence) = be16(udp.payload, SEQUENCE) else {
            book.counts.truncated += u64::from(packet.is_cut());
            return true;
        };
        let ends = packet.ends();
        if *kind == REQUEST && packet.may_ask() {
            book.request(packet, ends.hash(u64::from(sequence)), 0);
        } else if *kind == RESPONSE && packet.may_answer() {
            let ends = ends.turned();
            let name = || format!("{ends} seq {sequence}").into();
            book.answer(packet, ends.hash(u64::from(sequence)), name);
        }
        true
    }
}
