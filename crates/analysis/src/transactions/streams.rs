//! The bytes of TCP connections in order, as far as what is spoken needs them.
//!
//! Segments that come early are held until those before them come, or until the other end acknowledges
//! what is missing: then the capture has a gap. Memory is bounded: so many connections are followed, so
//! many bytes of each are held, and of a connection that speaks nothing of interest nothing.

use std::collections::{BTreeMap, VecDeque};

use tailtap_wire::tcp::{self, flags};

use super::book::{Books, ByKey};
use super::http::Http;
use super::http2::Http2;
use super::named::DnsStream;
use super::packet::{Ends, Packet, Part};
use super::tls::Tls;
use super::{Kind, Protocol};

/// So many connections are followed; beyond that, those that began first are let go.
const MOST_CONNECTIONS: usize = 1 << 15;
/// So many bytes of an end's segments are held, so many segments, and so many bytes of all ends.
const MOST_HELD: usize = 1 << 18;
const MOST_SEGMENTS: usize = 256;
const MOST_HELD_OF_ALL: usize = 1 << 26;
/// So many requests of a connection are remembered while they wait, to tell retransmissions.
const MOST_ASKED: usize = 1 << 10;
/// What is spoken shows in no more bytes than this.
const MOST_START: usize = 24;

/// What an end has said so far.
#[derive(Default)]
struct Half {
    /// The number of the next byte.
    next: Option<u32>,
    /// Segments that came early, by how far behind `next` they were: bytes, and how many were not captured.
    held: BTreeMap<u32, (Vec<u8>, usize)>,
    held_bytes: usize,
    /// The first bytes, while they do not yet show what is spoken.
    start: Vec<u8>,
    closed: bool,
}

/// A request on a connection that waits for its answer.
struct Asked {
    kinds: &'static [Kind],
    key: u64,
    from: u32,
    until: u32,
}

/// What a protocol on a stream is given: where it tells of its requests and answers.
pub(super) struct Line<'a, 'b> {
    pub packet: &'a Packet<'b>,
    pub books: &'a mut Books,
    /// Both ends, the asking one first.
    pub ends: Ends,
    asked: &'a mut VecDeque<Asked>,
    /// The number behind the bytes that are told of.
    at: u32,
}

impl Line<'_, '_> {
    /// The number behind the bytes that a protocol is given.
    pub fn position(&self) -> u32 {
        self.at
    }

    /// A request whose bytes began at the number `from` is whole.
    pub fn request(&mut self, kinds: &'static [Kind], key: u64, from: u32) {
        for kind in kinds {
            self.books.of(*kind).request(self.packet, key, 0);
        }
        if self.asked.len() >= MOST_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(Asked { kinds, key, from, until: self.at });
    }

    /// The first answer of a request is here since `time_ns`. Nobody asked for others.
    pub fn answer(&mut self, kind: Kind, key: u64, time_ns: u64, name: impl Fn() -> Box<str>) {
        self.books.of(kind).answer_if_asked(self.packet, time_ns, key, name);
        self.forget(key);
    }

    /// A request need not be remembered any more.
    pub fn forget(&mut self, key: u64) {
        self.asked.retain(|asked| asked.key != key);
    }
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

/// What the first bytes of an end show.
pub(super) enum Shown {
    /// A request of this protocol.
    Yes,
    /// Nothing of it.
    No,
    /// More bytes are needed.
    More,
}

impl Talk {
    /// What these first bytes ask in; `None` while they do not show it.
    fn by(bytes: &[u8]) -> Option<Self> {
        let mut more = false;
        for (shown, make) in [
            (Http2::shown(bytes), (|| Self::Http2(Http2::default())) as fn() -> Self),
            (Http::shown(bytes), || Self::Http(Http::default())),
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
    halves: [Half; 2],
    /// Which half asks, once that is known.
    asker: Option<usize>,
    /// Whether its beginning was seen.
    whole: bool,
    talk: Talk,
    asked: VecDeque<Asked>,
}

impl Connection {
    fn new() -> Self {
        Self {
            halves: Default::default(),
            asker: None,
            whole: false,
            talk: Talk::Unknown,
            asked: VecDeque::new(),
        }
    }

    /// Takes bytes of an end, in order, and `missing` more that were not captured.
    fn take(
        &mut self,
        half: usize,
        bytes: &[u8],
        missing: usize,
        packet: &Packet<'_>,
        ends: Ends,
        books: &mut Books,
    ) {
        let next = self.halves[half].next.unwrap_or(0);
        self.halves[half].next = Some(next.wrapping_add((bytes.len() + missing) as u32));
        let mut begun;
        let mut bytes = bytes;
        if matches!(self.talk, Talk::Unknown) {
            if self.asker.is_some_and(|asker| asker != half) || bytes.is_empty() {
                return;
            }
            begun = std::mem::take(&mut self.halves[half].start);
            begun.extend_from_slice(bytes);
            match Talk::by(&begun) {
                None if missing == 0 => {
                    self.halves[half].start = begun;
                    return;
                }
                // Of a connection whose beginning was not seen, requests may yet come.
                Some(Talk::Other) | None if !self.whole => return,
                found => self.talk = found.unwrap_or(Talk::Other),
            }
            if matches!(self.talk, Talk::Other) {
                self.halves.iter_mut().for_each(Half::let_go);
                return;
            }
            self.asker = Some(half);
            if begun.len() > bytes.len() {
                bytes = &begun;
            }
        }
        let asks = self.asker == Some(half);
        let at = self.halves[half].next.unwrap_or(0).wrapping_sub(missing as u32);
        let mut line = Line { packet, books, ends, asked: &mut self.asked, at };
        let over = match &mut self.talk {
            Talk::Unknown | Talk::Other => return,
            Talk::Dns(dns) => dns.take(asks, bytes, missing, &mut line),
            Talk::Http(http) => http.take(asks, bytes, missing, &mut line),
            Talk::Http2(http) => http.take(asks, bytes, missing, &mut line),
            Talk::Tls(tls) => tls.take(asks, bytes, missing, &mut line),
        };
        match over {
            Over::GoesOn => {}
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
        }
    }

    /// An end says no more, or the connection is gone.
    fn close(&mut self, half: usize, packet: &Packet<'_>, ends: Ends, books: &mut Books) {
        let asks = self.asker == Some(half);
        let at = self.halves[half].next.unwrap_or(0);
        let mut line = Line { packet, books, ends, asked: &mut self.asked, at };
        match &mut self.talk {
            Talk::Tls(tls) => tls.close(&mut line),
            Talk::Http(http) => http.close(asks),
            _ => {}
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

/// How a connection goes on.
pub(super) enum Over {
    /// As before.
    GoesOn,
    /// In nothing that is known.
    Elsewhere,
    /// In something else, which begins here.
    Anew,
}

/// All connections.
#[derive(Default)]
pub(super) struct Streams {
    connections: ByKey<Box<Connection>>,
    order: VecDeque<u64>,
    /// Bytes that are held of all connections.
    held: usize,
}

impl Streams {
    fn remove(&mut self, key: u64) {
        if let Some(connection) = self.connections.remove(&key) {
            self.held -= connection.held();
        }
    }

    fn let_go(&mut self) {
        while self.connections.len() >= MOST_CONNECTIONS {
            let Some(key) = self.order.pop_front() else { return };
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
        let whole = inner.end.saturating_sub(inner.transport + header.len).max(bytes.len());
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
            && !header.has(flags::ACK)
            && self.connections.get(&key).is_some_and(|there| {
                // The same SYN again changes nothing.
                there.halves[half].next.is_some_and(|next| next != header.sequence.wrapping_add(1))
            })
        {
            self.remove(key);
        }
        if !self.connections.contains_key(&key) {
            if whole == 0 && !begins {
                return true;
            }
            self.let_go();
            self.order.push_back(key);
            self.connections.insert(key, Box::new(Connection::new()));
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
            if !matches!(connection.talk, Talk::Unknown) {
            } else if header.has(flags::ACK) {
                connection.asker = Some(1 - half);
            } else {
                connection.asker = Some(half);
            }
        }
        let asking = match connection.asker {
            Some(1) => sorted.turned(),
            Some(_) => sorted,
            None => ends,
        };
        if matches!(connection.talk, Talk::Other) {
            if header.has(flags::RST) {
                self.remove(key);
            }
            return true;
        }
        let held = connection.held();
        // What this end acknowledges has arrived there: if it is missing here, it was not captured.
        if header.has(flags::ACK) {
            let other = 1 - half;
            while let Some(gap) = connection.halves[other].gap(Some(header.acknowledged)) {
                connection.take(other, &[], gap as usize, packet, asking, books);
                connection.go_on(other, packet, asking, books);
            }
        }
        if whole > 0 {
            let next = *connection.halves[half].next.get_or_insert(from);
            let ahead = from.wrapping_sub(next) as i32;
            let until = from.wrapping_add(whole as u32);
            if ahead > 0 {
                connection.halves[half].hold(from, bytes, whole - bytes.len());
            } else {
                let known = ahead.unsigned_abs() as usize;
                // One byte that is known asks whether the other end is still there.
                if known > 0 && whole > 1 {
                    connection.again(half, from, until, packet, books);
                }
                if known < whole {
                    let fresh = bytes.get(known..).unwrap_or_default();
                    let missing = whole - known - fresh.len();
                    connection.take(half, fresh, missing, packet, asking, books);
                    connection.go_on(half, packet, asking, books);
                }
            }
            while (connection.halves[half].is_full() || self.held > MOST_HELD_OF_ALL)
                && let Some(gap) = connection.halves[half].gap(None)
            {
                connection.take(half, &[], gap as usize, packet, asking, books);
                connection.go_on(half, packet, asking, books);
            }
        }
        self.held = self.held + connection.held() - held;
        if closes {
            connection.close(half, packet, asking, books);
            connection.halves[half].closed = true;
            if header.has(flags::RST) || connection.halves.iter().all(|half| half.closed) {
                connection.close(1 - half, packet, asking, books);
                self.remove(key);
            }
        }
        true
    }
}

impl Connection {
    /// Bytes that are held.
    fn held(&self) -> usize {
        self.halves.iter().map(|half| half.held_bytes).sum()
    }

    /// Takes held segments whose turn it is.
    fn go_on(&mut self, half: usize, packet: &Packet<'_>, ends: Ends, books: &mut Books) {
        while let Some((skip, bytes, missing)) = self.halves[half].ready() {
            let fresh = bytes.get(skip..).unwrap_or_default();
            let missing = (bytes.len() + missing).saturating_sub(skip + fresh.len());
            if fresh.len() + missing > 0 {
                self.take(half, fresh, missing, packet, ends, books);
            }
        }
    }
}

impl Half {
    /// Keeps a segment that came early.
    fn hold(&mut self, from: u32, bytes: &[u8], missing: usize) {
        let there = self.held.get(&from).map_or(0, |(bytes, missing)| bytes.len() + missing);
        if there < bytes.len() + missing {
            self.held_bytes += bytes.len();
            if let Some((old, _)) = self.held.insert(from, (bytes.to_vec(), missing)) {
                self.held_bytes -= old.len();
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

    /// How many bytes are missing in front of what is held, where all of them lie before `acknowledged`.
    fn gap(&self, acknowledged: Option<u32>) -> Option<u32> {
        let (from, ahead) = self.first().filter(|(_, ahead)| *ahead > 0)?;
        let arrived = acknowledged.is_none_or(|number| number.wrapping_sub(from) as i32 >= 0);
        arrived.then_some(ahead as u32)
    }

    /// The next segment whose turn it is: how much of it is known, its bytes, and what was not captured.
    fn ready(&mut self) -> Option<(usize, Vec<u8>, usize)> {
        let (from, ahead) = self.first().filter(|(_, ahead)| *ahead <= 0)?;
        let (bytes, missing) = self.held.remove(&from)?;
        self.held_bytes -= bytes.len();
        Some((ahead.unsigned_abs() as usize, bytes, missing))
    }
}
