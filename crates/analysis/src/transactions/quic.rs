//! The first packets of QUIC connections (RFC 9000, 9369): the client's Initial, and the server's first
//! Initial or Handshake packet.
//!
//! The server sends to the connection id that the client chose for itself. Both ids stand in the clear.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::book::Books;
use super::packet::{Packet, be32};
use super::{Kind, Protocol};

const VERSION_1: u32 = 1;
const VERSION_2: u32 = 0x6b33_43cf;
/// The longest connection id.
const MOST_ID: usize = 20;
/// A client's Initial fills a datagram of at least this size.
const LEAST_INITIAL: u32 = 1200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Initial,
    Handshake,
}

struct Header<'a> {
    kind: Type,
    /// The id of who is to receive the packet.
    to: &'a [u8],
    /// The id that the sender has chosen.
    from: &'a [u8],
}

/// A long header of the kinds that matter; `None` for others, and `Some(None)` for one that is cut off.
#[expect(clippy::option_option, reason = "cut off is not the same as foreign")]
fn header(bytes: &[u8]) -> Option<Option<Header<'_>>> {
    let first = *bytes.first()?;
    // A long header, with the fixed bit.
    if first & 0xc0 != 0xc0 {
        return None;
    }
    let kind = match (be32(bytes, 1)?, first >> 4 & 3) {
        (VERSION_1, 0) | (VERSION_2, 1) => Type::Initial,
        (VERSION_1, 2) | (VERSION_2, 3) => Type::Handshake,
        _ => return None,
    };
    let id = |at: usize| -> Option<&[u8]> {
        let len = usize::from(*bytes.get(at)?);
        bytes.get(at + 1..at + 1 + len).filter(|_| len <= MOST_ID)
    };
    let both = id(5).and_then(|to| Some((to, id(6 + to.len())?)));
    Some(both.map(|(to, from)| Header { kind, to, from }))
}

pub(super) struct Quic;

impl Protocol for Quic {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(udp) = packet.udp() else { return false };
        let Some(header) = header(udp.payload) else { return false };
        let book = books.of(Kind::QuicInitial);
        let Some(Header { kind, to, from }) = header else {
            book.counts.truncated += u64::from(packet.is_cut());
            return true;
        };
        let ends = packet.ends();
        if packet.may_answer() {
            let key = xxh3_64_with_seed(to, ends.turned().hash(0));
            let ends = ends.turned();
            let name = || format!("{ends} to {}", hex(to)).into();
            // What follows the server's first packet is no further answer.
            let found = book.answer_if_asked(packet, packet.time_ns, key, name);
            if found.is_some() {
                return true;
            }
            if !packet.may_ask() {
                book.counts.unmatched_answers += u64::from(kind == Type::Initial);
            }
        }
        if !packet.may_ask() || kind != Type::Initial || packet.wire_len < LEAST_INITIAL {
            return true;
        }
        // Further Initials of the client go to the id that the server chose.
        let key = xxh3_64_with_seed(from, ends.hash(0));
        let first_id = xxh3_64(to) as u32;
        match book.known(packet.time_ns, key) {
            None => book.request(packet, key, first_id),
            Some(known) if known.tag == first_id && !known.answered => book.again(packet, key),
            Some(_) => {}
        }
        true
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
