//! The opening of TLS connections (RFC 8446, 5246): ClientHello, and what the server says to it.
//!
//! Three waits begin with the first ClientHello: to the ServerHello, to the end of the server's first
//! flight (what it says until the client speaks again), and to its first application data. A request to
//! say hello again (HelloRetryRequest) is no answer yet.
//!
//! TLS 1.3 sends the rest of the handshake as application data, too. There the client's first record of
//! it ends the handshake, and the server's data count from then on. Of a client that sent early data, the
//! first record does that which acknowledges all that the server has said. Session tickets look like data,
//! and count as such: nothing that is not encrypted tells them apart.

use super::Kind;
use super::book::Books;
use super::line::{Line, Over, Shown};
use super::packet::{be16, be32};

const HEAD: usize = 5;
const ALERT: u8 = 21;
const FATAL: u8 = 2;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// The longest record, with what encryption adds.
const MOST_RECORD: u16 = (1 << 14) + 2048;
/// As much of a record as is read: a ServerHello has no more.
const NEEDED: usize = 512;
/// The random of a HelloRetryRequest (RFC 8446, section 4.1.3).
const RETRY: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];
const SUPPORTED_VERSIONS: u16 = 43;
const TLS_1_3: u16 = 0x0304;

const WAITS: &[Kind] = &[Kind::TlsServerHello, Kind::TlsFlight, Kind::TlsFirstData];

/// A connection.
#[derive(Default)]
pub(super) struct Tls {
    client: Half,
    server: Half,
    /// The first ClientHello's key.
    key: Option<u64>,
    /// Whether there was a ServerHello, and whether it was of version 1.3.
    hello: Option<bool>,
    flight_over: bool,
    /// Whether the client sent application data in front of the ServerHello.
    early: bool,
    /// Whether the server sent application data.
    server_data: bool,
    /// Whether the client sent application data behind the ServerHello.
    client_data: bool,
    /// Whether the flight goes on in packets that were not captured.
    torn: bool,
}

#[derive(Default)]
struct Half {
    head: Vec<u8>,
    /// The first bytes of the record, up to the first that is missing, and whether one is.
    body: Vec<u8>,
    torn: bool,
    left: usize,
    /// The first bytes of the first message of the handshake, which may be in several records.
    hello: Vec<u8>,
    /// How many bytes of messages these records have.
    told: usize,
    /// The number of the first byte of the first record.
    from: u32,
}

/// A record.
struct Seen {
    kind: u8,
    len: usize,
    /// Its first bytes.
    body: Vec<u8>,
}

impl Tls {
    /// Whether the first bytes are a ClientHello.
    pub fn shown(bytes: &[u8]) -> Shown {
        let right = |at: usize, wanted: fn(u8) -> bool| bytes.get(at).is_none_or(|b| wanted(*b));
        let fits = right(0, |byte| byte == HANDSHAKE)
            && right(1, |byte| byte == 3)
            && right(2, |byte| byte <= 4)
            && right(HEAD, |byte| byte == CLIENT_HELLO);
        match (fits, bytes.len() > HEAD) {
            (false, _) => Shown::No,
            (true, false) => Shown::More,
            (true, true) => Shown::Yes,
        }
    }

    pub fn take(
        &mut self,
        asks: bool,
        mut bytes: &[u8],
        missing: usize,
        line: &mut Line<'_, '_>,
    ) -> Over {
        if line.dropped && self.key.is_some() {
            let half = if asks { &self.client } else { &self.server };
            if half.left < missing || half.head.len() < HEAD {
                return Over::Elsewhere;
            }
            self.torn |= !self.flight_over;
        }
        if asks && self.hello.is_some() && !self.flight_over && self.speaks(line) {
            self.end_flight(line.books);
        }
        let torn = line.dropped;
        let mut missing = missing;
        while !bytes.is_empty() || missing > 0 {
            let half = if asks { &mut self.client } else { &mut self.server };
            let Ok(seen) = half.read(&mut bytes, &mut missing) else {
                self.end_flight(line.books);
                return Over::Elsewhere;
            };
            if let Some(seen) = seen {
                // When a record was whole that was not captured to its end, nobody knows.
                if torn && (self.hello.is_none() || self.flight_over) {
                    return Over::Elsewhere;
                }
                if asks {
                    self.asked(&seen, bytes.len(), line);
                } else if self.said(&seen, line) {
                    return Over::Elsewhere;
                }
            }
        }
        if let Some(key) = self.key
            && !asks
            && self.hello.is_some()
            && !self.flight_over
        {
            let ends = line.ends;
            let book = line.books.of(Kind::TlsFlight);
            if !torn {
                book.extend(line.packet, key, || ends.to_string().into());
                self.torn = false;
            }
        }
        Over::GoesOn
    }

    /// Whether what the client sends now ends the server's flight: early data do not.
    fn speaks(&self, line: &Line<'_, '_>) -> bool {
        let heard = || {
            let (told, said) = (line.acknowledged, line.heard);
            told.zip(said).is_some_and(|(told, said)| told.wrapping_sub(said) as i32 >= 0)
        };
        !self.early || self.server_data && heard()
    }

    /// The server's flight is over: the client speaks, or the connection ends.
    pub fn end_flight(&mut self, books: &mut Books) {
        self.flight_over = true;
        if let Some(key) = self.key {
            let book = books.of(Kind::TlsFlight);
            if self.torn { book.give_up(key) } else { book.settle(key) }
        }
    }

    /// The client has sent a record.
    fn asked(&mut self, seen: &Seen, behind: usize, line: &mut Line<'_, '_>) {
        let place = line.position().wrapping_sub((HEAD + seen.len + behind) as u32);
        if self.key.is_none() && self.client.hello(seen, CLIENT_HELLO, place) {
            let from = self.client.from;
            let key = line.ends.hash(2 << 32 | u64::from(from));
            self.key = Some(key);
            line.request(WAITS, key, from);
        }
        let data = seen.kind == APPLICATION_DATA;
        self.early |= data && self.hello.is_none();
        self.client_data |= data && self.hello.is_some() && self.speaks(line);
    }

    /// The server has sent a record: whether all is known.
    fn said(&mut self, seen: &Seen, line: &mut Line<'_, '_>) -> bool {
        let Some(key) = self.key else { return false };
        let now_ns = line.packet.time_ns;
        let ends = line.ends;
        let name = || ends.to_string().into();
        if self.hello.is_none() && seen.kind == ALERT && seen.body.first() == Some(&FATAL) {
            line.refuse(WAITS, key);
            return true;
        }
        if self.hello.is_none() && self.server.hello(seen, SERVER_HELLO, 0) {
            let hello = std::mem::take(&mut self.server.hello);
            self.server.told = 0;
            // Of one that lacks bytes nobody may know what it says.
            let Some(random) = hello.get(6..6 + RETRY.len()) else { return true };
            if random != RETRY {
                let version = is_1_3(&hello);
                self.hello = Some(version == Some(true));
                let book = line.books.of(Kind::TlsServerHello);
                book.answer_if_asked(line.packet, now_ns, key, name);
                if version.is_none() {
                    line.books.of(Kind::TlsFirstData).give_up(key);
                }
            }
        }
        self.server_data |= seen.kind == APPLICATION_DATA;
        if let Some(is_1_3) = self.hello
            && seen.kind == APPLICATION_DATA
            && (!is_1_3 || self.client_data)
        {
            line.answer(Kind::TlsFirstData, key, now_ns, name);
            return self.flight_over;
        }
        false
    }
}

/// Whether a ServerHello chooses version 1.3, by its extensions; `None` where it lacks bytes.
fn is_1_3(hello: &[u8]) -> Option<bool> {
    let whole = 4 + (be32(hello, 0)? & 0xff_ffff) as usize;
    // Header, version and random; then the session id, the cipher and the compression.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(*hello.get(at)?) + 2 + 1 + 2;
    while at + 4 <= whole {
        let (kind, len) = (be16(hello, at)?, be16(hello, at + 2)?);
        if kind == SUPPORTED_VERSIONS {
            return Some(be16(hello, at + 4)? == TLS_1_3);
        }
        at += 4 + usize::from(len);
    }
    Some(false)
}

impl Half {
    /// Takes a record: whether the first message of the handshake, of this kind, is whole with it.
    fn hello(&mut self, seen: &Seen, wanted: u8, from: u32) -> bool {
        if seen.kind != HANDSHAKE || self.told == 0 && seen.body.first() != Some(&wanted) {
            return false;
        }
        if self.told == 0 {
            self.from = from;
        }
        if self.hello.len() == self.told {
            let room = NEEDED.saturating_sub(self.hello.len()).min(seen.body.len());
            self.hello.extend_from_slice(&seen.body[..room]);
        }
        self.told += seen.len;
        be32(&self.hello, 0).is_some_and(|head| self.told >= 4 + (head & 0xff_ffff) as usize)
    }

    /// Reads on to the end of a record; `Err` for what is none.
    fn read(&mut self, bytes: &mut &[u8], missing: &mut usize) -> Result<Option<Seen>, ()> {
        if self.left == 0 {
            let more = bytes.len().min(HEAD - self.head.len());
            self.head.extend_from_slice(&bytes[..more]);
            *bytes = &bytes[more..];
            let Some(len) = be16(&self.head, 3) else {
                // A header of which a part is missing.
                return if *missing > 0 { Err(()) } else { Ok(None) };
            };
            let known = (20..=24).contains(&self.head[0]) && self.head[1] == 3;
            if !known || len == 0 || len > MOST_RECORD {
                return Err(());
            }
            self.left = usize::from(len);
            self.body.clear();
            self.torn = false;
        }
        let here = self.left.min(bytes.len());
        if !self.torn {
            let room = NEEDED.saturating_sub(self.body.len()).min(here);
            self.body.extend_from_slice(&bytes[..room]);
        }
        *bytes = &bytes[here..];
        let gone = (self.left - here).min(*missing);
        self.torn |= gone > 0;
        *missing -= gone;
        self.left -= here + gone;
        if self.left > 0 {
            return Ok(None);
        }
        let len = be16(&self.head, 3).map_or(0, usize::from);
        let seen = Seen { kind: self.head[0], len, body: std::mem::take(&mut self.body) };
        self.head.clear();
        Ok(Some(seen))
    }
}
