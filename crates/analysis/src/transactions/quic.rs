//! The first packets of QUIC connections (RFC 9000, 9369): the client's Initial, and the server's first
//! Initial or Handshake packet.
//!
//! The server sends to the connection id that the client chose for itself. Both ids stand in the clear.
//! A client without an id of its own may begin connection after connection from one port: these are told
//! by the id that it made up for the server. What it sends to an id that the server chose goes on.

use std::collections::VecDeque;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::book::{Books, ByKey};
use super::packet::{Packet, be32};
use super::{Kind, Protocol};

const VERSION_1: u32 = 1;
const VERSION_2: u32 = 0x6b33_43cf;
/// The longest connection id.
const MOST_ID: usize = 20;
/// The shortest id that a client makes up for a server.
const LEAST_FIRST_ID: usize = 8;
/// The port of most servers, which tells them where a client's Initial was not captured.
const PORT: u16 = 443;
/// So many ids are remembered that ends chose.
const MOST_CHOSEN: usize = 1 << 16;
/// A client's Initial fills a datagram of at least this size.
const LEAST_INITIAL: u32 = 1200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Initial,
    Handshake,
    Retry,
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
        (VERSION_1, 3) | (VERSION_2, 0) => Type::Retry,
        _ => return None,
    };
    let id = |at: usize| -> Option<&[u8]> {
        let len = usize::from(*bytes.get(at)?);
        bytes.get(at + 1..at + 1 + len).filter(|_| len <= MOST_ID)
    };
    let both = id(5).and_then(|to| Some((to, id(6 + to.len())?)));
    Some(both.map(|(to, from)| Header { kind, to, from }))
}

/// Connections, and the ids that their ends chose.
#[derive(Default)]
pub(super) struct Quic {
    chosen: ByKey<()>,
    order: VecDeque<u64>,
}

impl Quic {
    /// Remembers an id that an end chose for itself; an empty one tells nothing.
    fn choose(&mut self, id: &[u8], key: u64) {
        if id.is_empty() {
            return;
        }
        if self.chosen.insert(key, ()).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MOST_CHOSEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.chosen.remove(&oldest);
        }
    }
}

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
        let client = ends.turned();
        // The ids that these ends would have chosen as servers.
        let of_sender = xxh3_64_with_seed(from, client.hash(1));
        let of_receiver = xxh3_64_with_seed(to, ends.hash(1));
        // Those that they have chosen as clients.
        let [of_asker, of_asked] =
            [(from, client), (to, ends)].map(|(id, ends)| xxh3_64_with_seed(id, ends.hash(2)));
        if packet.may_answer() {
            let key = xxh3_64_with_seed(to, client.hash(0));
            let known = book.known(packet.time_ns, key);
            // The server's first packet was taken for a request, as nobody saw one: here is the client.
            let turned = known.is_some_and(|known| known.tag == short(from) && !known.answered);
            if turned && udp.source > udp.destination {
                book.give_up(key);
                self.choose(to, of_receiver);
                return true;
            }
            if known.is_some() || kind == Type::Retry {
                // What follows the server's first packet is no further answer.
                let name = || format!("{client} to {}", hex(to)).into();
                if kind != Type::Retry {
                    book.answer_if_asked(packet, packet.time_ns, key, name);
                }
                self.choose(from, of_sender);
                return true;
            }
        }
        if kind == Type::Handshake {
            // What it answers was not captured.
            self.choose(from, of_sender);
        }
        if kind != Type::Initial || packet.wire_len < LEAST_INITIAL {
            return true;
        }
        // Further Initials of the client go to the id that the server chose.
        if self.chosen.contains_key(&of_receiver) || self.chosen.contains_key(&of_sender) {
            return true;
        }
        let answers = self.chosen.contains_key(&of_asked) || udp.source == PORT;
        if answers || !packet.may_ask() || to.len() < LEAST_FIRST_ID {
            self.choose(from, of_sender);
            book.counts.unmatched_answers += 1;
            return true;
        }
        let key = xxh3_64_with_seed(from, ends.hash(0));
        match book.known(packet.time_ns, key) {
            Some(known) if known.tag == short(to) && known.answered => {}
            Some(known) if known.tag == short(to) => book.again(packet, key),
            Some(known) if !known.answered => {
                // An answer was not captured. Who has no id of his own may have begun anew.
                book.give_up(key);
                if from.is_empty() {
                    book.request(packet, key, short(to));
                } else {
                    self.choose(to, of_receiver);
                }
            }
            _ => {
                book.request(packet, key, short(to));
                self.choose(from, of_asker);
            }
        }
        true
    }
}

fn short(id: &[u8]) -> u32 {
    xxh3_64(id) as u32
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
