//! The bytes of TCP connections in order, as far as what is spoken needs them.
//!
//! Segments that come early are held until those before them come, or until the other end acknowledges
//! what is missing: then the capture has a gap. What was held behind it keeps the time at which it came.
//! Memory is bounded: so many connections are followed, so many bytes of each are held, and of a
//! connection that speaks nothing of interest nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use tailtap_wire::link::Link;
use tailtap_wire::tcp::{self, flags};

use super::Protocol;
use super::before;
use super::book::{Books, ByKey};
use super::http::Http;
use super::http2::Http2;
use super::line::{Asked, Line, Over, Shown};
use super::named::DnsStream;
use super::packet::{Ends, Packet, Part};
use super::tls::Tls;

/// So many connections are followed; beyond that, those that began first are let go.
const MOST_CONNECTIONS: usize = 1 << 15;
/// So many bytes of an end's segments are held, so many segments, and so many bytes of all ends.
const MOST_HELD: usize = 1 << 18;
const MOST_SEGMENTS: usize = 256;
const MOST_HELD_OF_ALL: usize = 1 << 26;
/// So many connections that have ended are remembered; what comes late is so near to their last bytes.
const MOST_ENDED: usize = 1 << 12;
const MOST_AGAIN: u32 = 1 << 20;
/// What is spoken shows in no more bytes than this.
const MOST_START: usize = 1 << 13;

/// Bytes of an end, and how many behind them are missing.
struct Segment<'a> {
    time_ns: u64,
    number: u64,
    acknowledged: Option<u32>,
    bytes: Cow<'a, [u8]>,
    missing: usize,
    /// Whether packets are missing, and not the ends of packets.
    dropped: bool,
}

impl Segment<'_> {
    fn len(&self) -> usize {
        self.bytes.len() + self.missing
    }

    /// Leaves out bytes that are known.
    fn skip(&mut self, known: usize) {
        let whole = self.len().saturating_sub(known);
        let skipped = known.min(self.bytes.len());
        match &mut self.bytes {
            Cow::Borrowed(bytes) => *bytes = &bytes[skipped..],
            Cow::Owned(bytes) => drop(bytes.drain(..skipped)),
        }
        self.missing = whole - self.bytes.len();
    }
}

/// The packet at hand, and the next bytes of both ends before it.
struct Now<'a, 'b> {
    packet: &'a Packet<'b>,
    before: [Option<u32>; 2],
}

/// What an end has said so far.
#[derive(Default)]
struct Half {
    /// The number of the first byte, where its SYN was seen.
    begin: Option<u32>,
    /// The number of the next byte.
    next: Option<u32>,
    /// The number up to which the other end has acknowledged.
    acknowledged: Option<u32>,
    /// The number behind the last byte, once it is known.
    end: Option<u32>,
    /// The number up to which the last segment reached by its header of IP, where that is beyond the frame.
    claimed: Option<u32>,
    /// When the bytes before the next one were here.
    latest_ns: u64,
    /// Segments that came early, by the numbers of their first bytes.
    held: BTreeMap<u32, Segment<'static>>,
    held_bytes: usize,
    /// The first bytes, while they do not yet show what is spoken.
    start: Vec<u8>,
}

/// What is spoken on a connection.
enum Talk {
    Unknown,
    Dns(DnsStream),
    Http(Http),
    Http2(Http2),
    Tls(Tls),
    /// Nothing of interest.
    Other,
}

impl Talk {
    /// What these first bytes ask in; `None` while they do not show it. More may have been cut off.
    fn by(bytes: &[u8], cut: bool) -> Option<Self> {
        let mut more = false;
        for (shown, make) in [
            (Http2::shown(bytes), (|| Self::Http2(Http2::default())) as fn() -> Self),
            (Http2::asks(bytes), || Self::Http2(Http2::joined())),
            (Http::shown(bytes, cut), || Self::Http(Http::default())),
            (Tls::shown(bytes), || Self::Tls(Tls::default())),
            (DnsStream::shown(bytes), || Self::Dns(DnsStream::default())),
        ] {
            match shown {
                Shown::Yes => return Some(make()),
                Shown::More => more = true,
                Shown::No => {}
            }
        }
        (!more || bytes.len() >= MOST_START).then_some(Self::Other)
    }
}

/// A connection.
struct Connection {
    /// Both ends, the first half's first.
    ends: Ends,
    /// The place of its first packet among all.
    first: u64,
    halves: [Half; 2],
    /// Which half asks, once that is known.
    asker: Option<usize>,
    /// Whether its beginning was seen.
    whole: bool,
    /// Where what who answers says was known to end, when first bytes were missed.
    missed: Option<u32>,
    /// Whether a proxy was asked for it by SOCKS.
    tunnel: bool,
    talk: Talk,
    asked: VecDeque<Asked>,
}

impl Connection {
    fn new(ends: Ends, first: u64) -> Self {
        Self {
            ends,
            first,
            halves: Default::default(),
            asker: None,
            whole: false,
            missed: None,
            tunnel: false,
            talk: Talk::Unknown,
            asked: VecDeque::new(),
        }
    }

    /// Both ends, the asking one first.
    fn asking(&self) -> Ends {
        if self.asker == Some(1) { self.ends.turned() } else { self.ends }
    }

    /// Takes bytes of an end, in order.
    fn take(&mut self, half: usize, turn: &Segment<'_>, now: &Now<'_, '_>, books: &mut Books) {
        let (mut bytes, missing) = (turn.bytes.as_ref(), turn.missing);
        let heard = now.before[1 - half].or(self.halves[1 - half].next);
        let own = &mut self.halves[half];
        let at = own.next.unwrap_or(0).wrapping_add(bytes.len() as u32);
        own.next = Some(at.wrapping_add(missing as u32));
        own.latest_ns = own.latest_ns.max(turn.time_ns);
        let packet = &Packet { time_ns: own.latest_ns, number: turn.number, ..*now.packet };
        let mut begun;
        if matches!(self.talk, Talk::Unknown) {
            if self.asker.is_some_and(|asker| asker != half) {
                self.missed = self.missed.or(turn.dropped.then_some(at));
                return;
            }
            if turn.dropped {
                // The beginning is lost; requests may yet come.
                self.whole = false;
                self.missed = self.missed.or(heard);
                own.start.clear();
            }
            if bytes.is_empty() {
                return;
            }
            let cut = missing > 0;
            begun = std::mem::take(&mut own.start);
            begun.extend_from_slice(bytes);
            let Some(head) = before::header(&begun).or_else(|| cut.then_some(0)) else {
                own.start = begun;
                return;
            };
            let mut found = Talk::by(&begun[head..], cut);
            if (!self.whole || before::is_hello(bytes) || before::is_socks(&begun))
                && begun.len() > bytes.len()
                && matches!(found, Some(Talk::Other))
            {
                // What came first was the rest of something, or asked whether the end is still there, for
                // encryption, or for a connection.
                begun = bytes.to_vec();
                found = Talk::by(bytes, cut);
            }
            match found {
                None if !cut => {
                    own.start = begun;
                    return;
                }
                // Of a connection whose beginning was not seen, requests may yet come.
                Some(Talk::Other) | None if !self.whole => return,
                found => self.talk = found.unwrap_or(Talk::Other),
            }
            if matches!(self.talk, Talk::Other) {
                self.tunnel = before::is_socks(&begun);
                self.halves.iter_mut().for_each(Half::let_go);
                return;
            }
            self.asker = Some(half);
            if let (Talk::Http(http), Some(number)) = (&mut self.talk, self.missed) {
                http.missed(number);
            }
            if begun.len() > bytes.len() || head > 0 {
                bytes = begun.get(head..).unwrap_or_default();
            }
        }
        let asks = self.asker == Some(half);
        loop {
            let mut line = Line {
                packet,
                books,
                ends: self.asking(),
                asked: &mut self.asked,
                first: self.first,
                at,
                acknowledged: turn.acknowledged,
                heard: now.before[1 - half],
                dropped: turn.dropped,
            };
            let over = match &mut self.talk {
                Talk::Unknown | Talk::Other => return,
                Talk::Dns(dns) => dns.take(asks, bytes, missing, &mut line),
                Talk::Http(http) => http.take(asks, bytes, missing, &mut line),
                Talk::Http2(http) => http.take(asks, bytes, missing, &mut line),
                Talk::Tls(tls) => tls.take(asks, bytes, missing, &mut line),
            };
            match over {
                Over::GoesOn => {}
                Over::Astray => {
                    for Asked { kinds, key, .. } in self.asked.iter().filter(|_| !asks) {
                        kinds.iter().for_each(|kind| books.of(*kind).doubt(*key));
                    }
                }
                Over::Elsewhere => {
                    self.talk = Talk::Other;
                    self.halves.iter_mut().for_each(Half::let_go);
                    for Asked { kinds, key, .. } in self.asked.drain(..) {
                        kinds.iter().for_each(|kind| books.of(*kind).give_up(key));
                    }
                }
                Over::Anew => {
                    self.talk = Talk::Unknown;
                    self.halves.iter_mut().for_each(|half| half.start.clear());
                }
                Over::Upgraded(rest) => {
                    self.talk = Talk::Http2(Http2::upgraded());
                    bytes = &bytes[bytes.len() - rest..];
                    continue;
                }
            }
            return;
        }
    }

    /// Passes over what is missing of an end before a number, and takes what is held in between: all of
    /// it, or only what is missing in front of held bytes.
    fn pass(&mut self, half: usize, until: u32, all: bool, now: &Now<'_, '_>, books: &mut Books) {
        loop {
            let own = &self.halves[half];
            let Some(next) = own.next else { return };
            let left = until.wrapping_sub(next) as i32;
            let gap = match own.first() {
                _ if left <= 0 => return,
                Some((_, ahead)) if ahead <= left => ahead,
                _ if all => left,
                _ => return,
            };
            // A frame that is shorter than its packet was cut before it was captured.
            let dropped = own.claimed != Some(next.wrapping_add(gap as u32));
            let turn = Segment {
                time_ns: 0,
                number: now.packet.number,
                acknowledged: None,
                bytes: Cow::Borrowed(&[]),
                missing: gap as usize,
                dropped,
            };
            self.take(half, &turn, now, books);
            self.go_on(half, now, books);
        }
    }

    /// Takes all that is held of both ends: nothing more comes.
    fn drain(&mut self, now: &Now<'_, '_>, books: &mut Books) {
        for half in [self.asker.unwrap_or(0), 1 - self.asker.unwrap_or(0)] {
            while let Some((from, _)) = self.halves[half].first() {
                self.pass(half, from, false, now, books);
            }
        }
    }

    /// Bytes of an end that were here before.
    fn again(
        &mut self,
        half: usize,
        from: u32,
        until: u32,
        packet: &Packet<'_>,
        books: &mut Books,
    ) {
        if self.asker != Some(half) {
            return;
        }
        for asked in &self.asked {
            let before = asked.until.wrapping_sub(from) as i32 <= 0;
            let behind = until.wrapping_sub(asked.from) as i32 <= 0;
            if !before && !behind {
                for kind in asked.kinds {
                    books.of(*kind).again(packet, asked.key);
                }
            }
        }
    }
}

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
            let again = next.is_some_and(|next| (from.wrapping_sub(next) as i32) < 0);
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
        if let Some(number) = &mut acknowledged {
            let own = &mut connection.halves[other];
            if let Some(end) = own.end.filter(|end| number.wrapping_sub(*end) as i32 > 0) {
                *number = end;
            }
            let known = own.acknowledged.unwrap_or(*number);
            own.acknowledged =
                Some(if number.wrapping_sub(known) as i32 > 0 { *number } else { known });
            if whole > 0 || begins {
                own.next.get_or_insert(*number);
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

impl Connection {
    /// Whether a segment begins a request, of a connection that began with something else.
    fn begins_anew(&self, bytes: &[u8]) -> bool {
        let request = || !matches!(Talk::by(bytes, false), None | Some(Talk::Other));
        before::is_hello(bytes) || self.tunnel && request()
    }

    /// Bytes that are held.
    fn held(&self) -> usize {
        self.halves.iter().map(|half| half.held_bytes + half.start.len()).sum()
    }

    /// Takes held segments whose turn it is.
    fn go_on(&mut self, half: usize, now: &Now<'_, '_>, books: &mut Books) {
        while let Some(segment) = self.halves[half].ready() {
            if segment.len() > 0 {
                self.take(half, &segment, now, books);
            }
        }
    }
}

impl Half {
    /// Keeps a segment that came early.
    fn hold(&mut self, from: u32, segment: Segment<'static>) {
        let there = self.held.get(&from).map_or(0, Segment::len);
        if there < segment.len() {
            self.held_bytes += segment.bytes.len();
            if let Some(old) = self.held.insert(from, segment) {
                self.held_bytes -= old.bytes.len();
            }
        }
    }

    /// Holds nothing any more.
    fn let_go(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
        self.start = Vec::new();
    }

    fn is_full(&self) -> bool {
        self.held_bytes > MOST_HELD || self.held.len() > MOST_SEGMENTS
    }

    /// The held segment that comes first, and how far ahead it is.
    fn first(&self) -> Option<(u32, i32)> {
        let next = self.next?;
        let ahead = |from: &u32| from.wrapping_sub(next) as i32;
        self.held.keys().map(|from| (*from, ahead(from))).min_by_key(|(_, ahead)| *ahead)
    }

    /// The next segment whose turn it is, without what is known of it.
    fn ready(&mut self) -> Option<Segment<'static>> {
        let (from, ahead) = self.first().filter(|(_, ahead)| *ahead <= 0)?;
        let mut segment = self.held.remove(&from)?;
        self.held_bytes -= segment.bytes.len();
        segment.skip(ahead.unsigned_abs() as usize);
        Some(segment)
    }
}
