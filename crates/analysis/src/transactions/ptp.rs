//! Delay requests of PTP (IEEE 1588-2008 and later), over Ethernet, IPv4 and IPv6.
//!
//! The response names the port that asked, and its sequence number. Both go to groups of hosts.

use tailtap_wire::link::Link;
use tailtap_wire::{ethernet, vlan};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::book::Books;
use super::packet::{Packet, be16};
use super::{Kind, Protocol};

const ETHERTYPE: u16 = 0x88f7;
const EVENT_PORT: u16 = 319;
const GENERAL_PORT: u16 = 320;
const DELAY_REQ: u8 = 1;
const DELAY_RESP: u8 = 9;
const VERSION: u8 = 2;
const DOMAIN: usize = 4;
/// The identity of a port: of the clock, and the port's number there.
const PORT_LEN: usize = 10;
const SOURCE: usize = 20;
const SEQUENCE: usize = 30;
const REQUESTING: usize = 44;

pub(super) struct Ptp;

impl Protocol for Ptp {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(message) = message(packet) else { return false };
        let Some([first, version]) = message.first_chunk() else { return false };
        let answers = match first & 15 {
            DELAY_REQ => false,
            DELAY_RESP => true,
            _ => return false,
        };
        if version & 15 != VERSION {
            return true;
        }
        let book = books.of(Kind::PtpDelay);
        let place = if answers { REQUESTING } else { SOURCE };
        let (Some(port), Some(sequence)) =
            (message.get(place..place + PORT_LEN), be16(message, SEQUENCE))
        else {
            book.counts.truncated += u64::from(packet.is_cut());
            return true;
        };
        let key = xxh3_64_with_seed(port, u64::from(message[DOMAIN]) << 16 | u64::from(sequence));
        if !answers && packet.may_ask() {
            book.request(packet, key, 0);
        } else if answers && packet.may_answer() {
            let name = || {
                let clock = port[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                format!("{clock}-{} seq {sequence}", u16::from_be_bytes([port[8], port[9]])).into()
            };
            book.answer(packet, key, name);
        }
        true
    }
}

/// The message of a packet that is of PTP.
fn message<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    if packet.inner.is_some() {
        let udp = packet.udp()?;
        let of_ptp = udp.destination == EVENT_PORT || udp.destination == GENERAL_PORT;
        return of_ptp.then_some(udp.payload);
    }
    if packet.link != Link::Ethernet {
        return None;
    }
    let mut at = ethernet::LEN;
    let mut ethertype = be16(packet.frame, at - 2)?;
    while vlan::is_tag(ethertype) {
        ethertype = vlan::Header::parse(packet.frame.get(at..)?)?.ethertype;
        at += vlan::LEN;
    }
    (ethertype == ETHERTYPE).then_some(packet.frame.get(at..)?)
}
