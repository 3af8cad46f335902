//! All connections of TCP, of which so many are followed: what each segment is of them.

use std::borrow::Cow;
use std::collections::VecDeque;

use tailtap_wire::link::Link;
use tailtap_wire::tcp::{self, flags};

use super::Protocol;
use super::book::{Books, ByKey};
use super::connection::{Connection, Now, Segment, Talk};
use super::line::Asked;
use super::packet::{Packet, Part};

/// So many connections are followed; beyond that, those that began first are let go.
const MOST_CONNECTIONS: usize = 1 << 15;
/// So many bytes of all ends' segments are held.
const MOST_HELD_OF_ALL: usize = 1 << 26;
/// So many connections that have ended are remembered; what comes late is so near to their last bytes.
const MOST_ENDED: usize = 1 << 12;
const MOST_AGAIN: u32 = 1 << 20;

/// Whether two numbers may be of one end of a connection.
fn is_near(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32).unsigned_abs() < MOST_AGAIN
}

/// All connections.
#[derive(Default)]
pub(super) struct Streams {
    connections: ByKey<Box<Connection>>,
    order: VecDeque<u64>,
    /// Bytes that are held of all connections.
    held: usize,
    /// The numbers behind the last bytes of both ends of connections that have ended.
    ended: ByKey<[Option<u32>; 2]>,
    ended_order: VecDeque<u64>,
}

impl Streams {
    fn remove(&mut self, key: u64) -> Option<Box<Connection>> {
        let connection = self.connections.remove(&key)?;
        self.held -= connection.held();
        Some(connection)
    }

    /// A connection has ended.
    fn end(&mut self, key: u64) {
        let Some(connection) = self.remove(key) else { return };
        let ends = connection.halves.map(|half| half.next);
        if self.ended.insert(key, ends).is_none() {
            self.ended_order.push_back(key);
        }
        if self.ended_order.len() > MOST_ENDED
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    /// Whether a number is one of an end of a connection that has ended, and not of the one that is there.
    fn is_late(&self, key: u64, half: usize, from: u32) -> bool {
        let next = self.connections.get(&key).and_then(|there| there.halves[half].next);
        let end = self.ended.get(&key).and_then(|ends| ends[half]);
        end.is_some_and(|end| is_near(end, from)) && !next.is_some_and(|next| is_near(next, from))
    }

    fn let_go(&mut self, books: &mut Books) {
        while self.connections.len() >= MOST_CONNECTIONS {
            let Some(key) = self.order.pop_front() else { return };
            for Asked { kinds, key, .. } in self.connections.get(&key).iter().flat_map(|c| &c.asked)
            {
                kinds.iter().for_each(|kind| books.of(*kind).give_up(*key));
            }
            self.remove(key);
        }
        if self.order.len() > 2 * MOST_CONNECTIONS {
            self.order.retain(|key| self.connections.contains_key(key));
        }
    }
}

impl Protocol for Streams {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(inner) = packet.inner.filter(|inner| inner.protocol == tcp::PROTOCOL) else {
            return true;
        };
        if !inner.has_transport() {
            return true;
        }
        let Some(header) = tcp::Header::parse(packet.transport(&inner, 0)) else { return false };
        let begins = header.has(flags::SYN);
        let bytes = packet.transport(&inner, header.len);
        let begin = inner.transport + header.len;
        let there = packet.frame.len().max(packet.wire_len as usize);
        let whole = inner.end.min(there).saturating_sub(begin).max(bytes.len());
        let closes = header.has(flags::FIN) || header.has(flags::RST);
        if whole == 0 && !begins && !closes && self.connections.is_empty() {
            return true;
        }
        // Of one capture the ends take turns by their order; of two the first is who asks.
        let ends = packet.ends();
        let (sorted, low) = match packet.part {
            Part::Both => ends.sorted(),
            Part::Requests => (ends, true),
            Part::Answers => (ends.turned(), false),
        };
        let half = usize::from(!low);
        let key = sorted.hash(0);
        if begins
            && self.connections.get(&key).is_some_and(|there| {
                // The same SYN again changes nothing.
                let (own, from) = (&there.halves[half], header.sequence.wrapping_add(1));
                let answers = header.has(flags::ACK);
                own.next.is_some_and(|next| !answers || !is_near(next, from))
                    && own.begin != Some(from)
            })
        {
            self.end(key);
        }
        if !begins && self.is_late(key, half, header.sequence) {
            return true;
        }
        if !self.connections.contains_key(&key) {
            if !begins && whole == 0 {
                return true;
            }
            self.let_go(books);
            self.order.push_back(key);
            self.connections.insert(key, Box::new(Connection::new(sorted, packet.number)));
        }
        let Some(connection) = self.connections.get_mut(&key) else { return false };
        if packet.part != Part::Both {
            connection.asker = Some(0);
        }
        let mut from = header.sequence;
        if begins {
            from = from.wrapping_add(1);
            connection.whole = true;
            connection.halves[half].next.get_or_insert(from);
            connection.halves[half].begin = Some(from);
            if packet.part == Part::Both && matches!(connection.talk, Talk::Unknown) {
                connection.asker = Some(if header.has(flags::ACK) { 1 - half } else { half });
            }
        }
        if matches!(connection.talk, Talk::Other) {
            if header.has(flags::RST) {
                self.end(key);
                return true;
            }
            let next = connection.halves[half].next;
            let again = next.is_some_and(|next| {
                (from.wrapping_sub(next) as i32) < 0 || connection.greeted && is_near(next, from)
            });
            if again || !packet.may_ask() || !connection.begins_anew(bytes) {
                return true;
            }
            **connection = Connection::new(sorted, packet.number);
            (connection.whole, connection.asker) = (true, Some(half));
        }
        let held = connection.held();
        let before = [connection.halves[0].next, connection.halves[1].next];
        let now = Now { packet, before };
        let other = 1 - half;
        let mut acknowledged = header.has(flags::ACK).then_some(header.acknowledged);
        // What was said before the first number that is known may be an answer.
        if let Some(number) = acknowledged
            && whole > 0
            && before[other].is_none()
        {
            connection.doubt(number, books);
        }
        if let Some(number) = &mut acknowledged {
            let own = &mut connection.halves[other];
            if let Some(end) = own.end.filter(|end| number.wrapping_sub(*end) as i32 > 0) {
                *number = end;
            }
            let first = own.acknowledged.unwrap_or(*number);
            if own.acknowledged.is_none_or(|known| number.wrapping_sub(known) as i32 > 0) {
                (own.acknowledged, own.told_at) = (Some(*number), Some(from));
            }
            if whole > 0 || begins {
                own.next.get_or_insert(first);
            }
        }
        if whole > 0 {
            // What is missing in front of this segment and was acknowledged has arrived there.
            let own = &mut connection.halves[half];
            own.next.get_or_insert(from);
            let arrived =
                own.acknowledged.is_some_and(|number| number.wrapping_sub(from) as i32 >= 0);
            if arrived {
                connection.pass(half, from, true, &now, books);
            }
        }
        // The same of what this end acknowledges. Who speaks has heard all of it.
        if let Some(number) = acknowledged {
            connection.pass(other, number, whole > 0, &now, books);
        }
        if whole > 0 {
            let next = connection.halves[half].next.unwrap_or(from);
            let ahead = from.wrapping_sub(next) as i32;
            let until = from.wrapping_add(whole as u32);
            let mut segment = Segment {
                time_ns: packet.time_ns,
                number: packet.number,
                acknowledged,
                bytes: Cow::Borrowed(bytes),
                missing: whole - bytes.len(),
                dropped: false,
            };
            if ahead > 0 {
                let bytes = Cow::Owned(bytes.to_vec());
                connection.halves[half].hold(from, Segment { bytes, ..segment });
            } else {
                let known = ahead.unsigned_abs() as usize;
                // One byte that is known asks whether the other end is still there.
                if known > 0 && whole > 1 {
                    connection.again(half, from, until, packet, books);
                }
                if known < whole {
                    segment.skip(known);
                    connection.take(half, &segment, &now, books);
                    let claimed = from.wrapping_add(inner.end.saturating_sub(begin) as u32);
                    connection.halves[half].claimed = Some(claimed).filter(|_| inner.end > there);
                    connection.go_on(half, &now, books);
                }
            }
            while (connection.halves[half].is_full() || self.held > MOST_HELD_OF_ALL)
                && let Some((first, _)) = connection.halves[half].first()
            {
                connection.pass(half, first, false, &now, books);
            }
        }
        if closes {
            connection.halves[half].end = Some(from.wrapping_add(whole as u32));
            let gone =
                header.has(flags::RST) || connection.halves.iter().all(|half| half.end.is_some());
            if gone {
                connection.drain(&now, books);
            }
            if let Talk::Tls(tls) = &mut connection.talk {
                tls.end_flight(books);
            }
            if gone {
                self.held = self.held + connection.held() - held;
                self.end(key);
                return true;
            }
        }
        self.held = self.held + connection.held() - held;
        true
    }

    fn finish(&mut self, books: &mut Books) {
        let packet = Packet {
            time_ns: 0,
            number: u64::MAX,
            part: Part::Both,
            frame: &[],
            wire_len: 0,
            link: Link::Ethernet,
            inner: None,
            interface: 0,
            outgoing: None,
        };
        for key in std::mem::take(&mut self.order) {
            if let Some(mut connection) = self.connections.remove(&key) {
                let before = [connection.halves[0].next, connection.halves[1].next];
                connection.drain(&Now { packet: &packet, before }, books);
            }
        }
    }
}
