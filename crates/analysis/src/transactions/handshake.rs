//! The opening of TCP connections (RFC 9293, section 3.5): SYN, and the SYN with ACK that answers it.

use std::collections::VecDeque;

use tailtap_wire::tcp::{self, flags};

use super::book::{Books, ByKey};
use super::packet::Packet;
use super::{Kind, Protocol};

/// So many answered handshakes are watched for the client's ACK.
const MOST_WATCHED: usize = 1 << 16;
/// So many SYNs with data are remembered.
const MOST_FAST: usize = 1 << 12;

/// Handshakes, and those that the client has not yet completed.
pub(super) struct Handshake {
    window_ns: u64,
    watched: ByKey<u64>,
    order: VecDeque<(u64, u64)>,
    /// Keys of SYNs with data (RFC 7413), by that of the number behind their data.
    fast: ByKey<u64>,
    fast_order: VecDeque<u64>,
}

impl Handshake {
    pub fn new(window_ns: u64) -> Self {
        Self {
            window_ns,
            watched: ByKey::default(),
            order: VecDeque::new(),
            fast: ByKey::default(),
            fast_order: VecDeque::new(),
        }
    }

    /// Remembers a SYN whose data the answer may acknowledge as well.
    fn open_fast(&mut self, behind: u64, key: u64) {
        if self.fast.insert(behind, key).is_none() {
            self.fast_order.push_back(behind);
        }
        if self.fast_order.len() > MOST_FAST
            && let Some(oldest) = self.fast_order.pop_front()
        {
            self.fast.remove(&oldest);
        }
    }

    fn watch(&mut self, now_ns: u64, key: u64) {
        self.watched.insert(key, now_ns);
        self.order.push_back((now_ns, key));
    }

    /// Counts those that nobody completed within the window.
    fn expire(&mut self, now_ns: u64, books: &mut Books) {
        while let Some(&(time_ns, key)) = self.order.front()
            && (now_ns - time_ns.min(now_ns) >= self.window_ns || self.order.len() > MOST_WATCHED)
        {
            self.order.pop_front();
            if self.watched.get(&key) == Some(&time_ns) {
                self.watched.remove(&key);
                books.of(Kind::TcpHandshake).counts.half_open += 1;
            }
        }
    }
}

impl Protocol for Handshake {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(inner) = packet.inner.filter(|inner| inner.protocol == tcp::PROTOCOL) else {
            return true;
        };
        if !inner.has_transport() {
            return true;
        }
        let Some(header) = tcp::Header::parse(packet.transport(&inner, 0)) else {
            books.of(Kind::TcpHandshake).counts.truncated += u64::from(packet.is_cut());
            return true;
        };
        let begins = header.has(flags::SYN);
        let idle = self.watched.is_empty() && books.of(Kind::TcpHandshake).is_idle();
        if !begins && !header.has(flags::RST) && idle {
            return true;
        }
        self.expire(packet.time_ns, books);
        let book = books.of(Kind::TcpHandshake);
        let ends = packet.ends();
        // The number of the client's SYN, as its server acknowledges it, with its data or without.
        let asked = || {
            let last = ends.turned().hash(u64::from(header.acknowledged.wrapping_sub(1)));
            self.fast.get(&last).copied().unwrap_or(last)
        };
        match (begins, header.has(flags::ACK)) {
            _ if header.has(flags::RST) && packet.may_answer() => {
                book.refuse(packet.time_ns, asked());
            }
            (true, false) if packet.may_ask() => {
                let key = ends.hash(u64::from(header.sequence));
                book.request(packet, key, 0);
                let data = inner.end.saturating_sub(inner.transport + header.len) as u32;
                if data > 0 {
                    let last = header.sequence.wrapping_add(data);
                    self.open_fast(ends.hash(u64::from(last)), key);
                }
            }
            (true, true) if packet.may_answer() => {
                let client = ends.turned();
                if book.answer(packet, asked(), || client.to_string().into()) {
                    let complete = u64::from(header.sequence.wrapping_add(1));
                    self.watch(packet.time_ns, client.hash(complete));
                }
            }
            (false, true) => {
                // The client answers a SYN with ACK that was not captured.
                book.give_up(ends.hash(u64::from(header.sequence.wrapping_sub(1))));
                self.watched.remove(&ends.hash(u64::from(header.acknowledged)));
            }
            _ => {}
        }
        true
    }

    fn finish(&mut self, books: &mut Books) {
        self.expire(u64::MAX, books);
    }
}
