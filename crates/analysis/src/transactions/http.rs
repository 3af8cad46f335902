//! HTTP/1.1 (RFC 9112) without encryption: from a request's header to the first byte of its response.
//!
//! Responses come in the order of the requests, so that bodies have to be passed over on both sides.
//! Interim responses (1xx) are no answers. Where bytes are missing that would say how long a body is,
//! waiting requests are given up, and the next header that begins a segment is looked for.

use std::collections::VecDeque;

use super::Kind;
use super::streams::{Line, Over, Shown};

const METHODS: [&[u8]; 9] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"TRACE ",
    b"CONNECT ",
];
const VERSION: &[u8] = b"HTTP/1.";
/// The longest header that is read.
const MOST_HEADER: usize = 1 << 15;
/// The longest line with the length of a chunk.
const MOST_LINE: usize = 256;
/// So much of a request's target is shown.
const MOST_TARGET: usize = 80;
/// So many requests of a connection wait at most.
const MOST_WAITING: usize = 1 << 12;

/// Both directions of a connection.
#[derive(Default)]
pub(super) struct Http {
    requests: Half,
    responses: Half,
    waiting: VecDeque<Waiting>,
    /// Whether several have waited at once.
    pipelined: bool,
}

/// A request without its response.
struct Waiting {
    key: u64,
    method: Method,
    shown: Box<str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

#[derive(Default)]
struct Half {
    state: State,
    /// What was read of a header, or of a chunk's line.
    text: Vec<u8>,
    /// When its first byte came.
    began_ns: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Header,
    /// So many bytes of a body or a chunk are left; behind a chunk comes another.
    Body { left: u64, chunked: bool },
    /// The line in front of a chunk.
    Chunk,
    /// Lines behind the last chunk, until an empty one.
    Trailer,
    /// A body that ends with the connection.
    UntilClose,
    /// Nobody knows where the next message begins.
    Lost,
}

/// What a half came to.
enum Step {
    More,
    /// A header is whole.
    Header(Vec<u8>),
    Lost,
}

/// The key of a request whose bytes begin at a number of the asking end, or of a stream.
pub(super) fn key(line: &Line<'_, '_>, number: u32) -> u64 {
    line.ends.hash(1 << 32 | u64::from(number))
}

impl Http {
    /// Whether the first bytes are a request's.
    pub fn shown(bytes: &[u8]) -> Shown {
        let mut found = Shown::No;
        for method in METHODS {
            let len = bytes.len().min(method.len());
            match (bytes[..len] == method[..len], len == method.len()) {
                (true, true) => return Shown::Yes,
                (true, false) => found = Shown::More,
                _ => {}
            }
        }
        found
    }

    pub fn take(
        &mut self,
        asks: bool,
        mut bytes: &[u8],
        missing: usize,
        line: &mut Line<'_, '_>,
    ) -> Over {
        let awaited = asks || !self.waiting.is_empty();
        let half = if asks { &mut self.requests } else { &mut self.responses };
        if half.state == State::Lost && awaited && may_begin(asks, bytes) {
            half.state = State::Header;
        }
        let mut over = Over::GoesOn;
        while !bytes.is_empty() {
            let half = if asks { &mut self.requests } else { &mut self.responses };
            let step = half.read(asks, &mut bytes, line.packet.time_ns);
            match step {
                Step::More => {}
                Step::Header(header) if asks => over = self.request(&header, bytes.len(), line),
                Step::Header(header) => over = self.response(&header, line),
                Step::Lost => over = self.lose(line),
            }
            if !matches!(over, Over::GoesOn) {
                return over;
            }
        }
        let half = if asks { &mut self.requests } else { &mut self.responses };
        if missing > 0 && !half.pass(missing as u64) {
            return self.lose(line);
        }
        over
    }

    /// An end says no more.
    pub fn close(&mut self, asks: bool) {
        let half = if asks { &mut self.requests } else { &mut self.responses };
        half.state = State::Lost;
    }

    /// Which response answers which request cannot be told any more. Where no request is sent before the
    /// one in front of it is answered, it can be told of the next.
    fn lose(&mut self, line: &mut Line<'_, '_>) -> Over {
        for waiting in self.waiting.drain(..) {
            line.books.of(Kind::Http).give_up(waiting.key);
            line.forget(waiting.key);
        }
        for half in [&mut self.requests, &mut self.responses] {
            half.text.clear();
            half.state = State::Lost;
        }
        if self.pipelined { Over::Elsewhere } else { Over::GoesOn }
    }

    /// The header of a request is whole; `behind` bytes are behind it.
    fn request(&mut self, header: &[u8], behind: usize, line: &mut Line<'_, '_>) -> Over {
        let first = header.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = first.split(|byte| *byte == b' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let from = line.position().wrapping_sub((behind + header.len()) as u32);
        let key = key(line, from);
        let target = &target[..target.len().min(MOST_TARGET)];
        let shown = format!("{} {} {}", line.ends, method.escape_ascii(), target.escape_ascii());
        line.request(&[Kind::Http], key, from);
        let method = match method {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        };
        self.waiting.push_back(Waiting { key, method, shown: shown.into() });
        self.pipelined |= self.waiting.len() > 1;
        if self.waiting.len() > MOST_WAITING {
            return self.lose(line);
        }
        self.requests.state = match length(header) {
            Length::Chunked => State::Chunk,
            Length::Bytes(left) => State::Body { left, chunked: false },
            Length::Unsaid => State::Header,
            Length::Wrong => State::Lost,
        };
        self.requests.state.skip_empty();
        Over::GoesOn
    }

    /// The header of a response is whole.
    fn response(&mut self, header: &[u8], line: &mut Line<'_, '_>) -> Over {
        let status = header.get(VERSION.len() + 2..VERSION.len() + 5).unwrap_or_default();
        let interim = status.first() == Some(&b'1') && status != b"101";
        if !header.starts_with(VERSION) {
            return self.lose(line);
        }
        if interim {
            return Over::GoesOn;
        }
        let Some(waiting) = self.waiting.pop_front() else {
            line.books.of(Kind::Http).counts.unmatched_answers += 1;
            self.responses.state = body(header, status);
            return Over::GoesOn;
        };
        let name = || waiting.shown.clone();
        line.answer(Kind::Http, waiting.key, self.responses.began_ns, name);
        if status == b"101" {
            return Over::Elsewhere;
        }
        if waiting.method == Method::Connect && status.first() == Some(&b'2') {
            return Over::Anew;
        }
        if waiting.method != Method::Head {
            self.responses.state = body(header, status);
        }
        Over::GoesOn
    }
}

/// What follows the header of a response.
fn body(header: &[u8], status: &[u8]) -> State {
    if status == b"204" || status == b"304" {
        return State::Header;
    }
    let mut state = match length(header) {
        Length::Chunked => State::Chunk,
        Length::Bytes(left) => State::Body { left, chunked: false },
        Length::Unsaid => State::UntilClose,
        Length::Wrong => State::Lost,
    };
    state.skip_empty();
    state
}

impl State {
    /// A body of no bytes is over.
    fn skip_empty(&mut self) {
        if *self == (Self::Body { left: 0, chunked: false }) {
            *self = Self::Header;
        }
    }
}

/// How long a body is, by its header.
enum Length {
    Chunked,
    Bytes(u64),
    Unsaid,
    Wrong,
}

fn length(header: &[u8]) -> Length {
    let mut found = Length::Unsaid;
    for line in header.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding")
            && value.to_ascii_lowercase().ends_with(b"chunked")
        {
            return Length::Chunked;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            found = number.map_or(Length::Wrong, Length::Bytes);
        }
    }
    found
}

impl Half {
    /// Reads on to the next thing to be done.
    fn read(&mut self, asks: bool, bytes: &mut &[u8], now_ns: u64) -> Step {
        match self.state {
            State::Header => return self.read_header(asks, bytes, now_ns),
            State::Body { left, .. } => {
                let passed = left.min(bytes.len() as u64);
                self.pass(passed);
                *bytes = &bytes[passed as usize..];
            }
            State::Chunk | State::Trailer => return self.read_line(bytes),
            State::UntilClose | State::Lost => *bytes = &[],
        }
        Step::More
    }

    /// Passes over bytes that are of no interest; `false` where they are.
    fn pass(&mut self, count: u64) -> bool {
        match &mut self.state {
            State::Body { left, chunked } if *left >= count => {
                *left -= count;
                if *left == 0 {
                    self.state = if *chunked { State::Chunk } else { State::Header };
                }
                true
            }
            State::UntilClose | State::Lost => true,
            _ => false,
        }
    }

    fn read_header(&mut self, asks: bool, bytes: &mut &[u8], now_ns: u64) -> Step {
        if self.text.is_empty() {
            // Empty lines in front of a message are passed over (RFC 9112, section 2.2).
            let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            *bytes = &bytes[blank..];
            self.began_ns = now_ns;
        }
        let known = self.text.len().saturating_sub(3);
        let before = self.text.len();
        let room = MOST_HEADER - before;
        self.text.extend_from_slice(&bytes[..room.min(bytes.len())]);
        let start = &self.text[..self.text.len().min(VERSION.len())];
        let fits = match asks {
            true => start.first().is_none_or(u8::is_ascii_uppercase),
            false => VERSION.starts_with(start),
        };
        if !fits {
            return Step::Lost;
        }
        let Some(end) = end_of_header(&self.text[known..]).map(|end| known + end) else {
            *bytes = &[];
            return if self.text.len() == MOST_HEADER { Step::Lost } else { Step::More };
        };
        *bytes = &bytes[end - before..];
        self.text.truncate(end);
        Step::Header(std::mem::take(&mut self.text))
    }

    /// The line in front of a chunk, or one behind the last.
    fn read_line(&mut self, bytes: &mut &[u8]) -> Step {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (now, later) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        *bytes = later;
        self.text.extend_from_slice(now);
        if self.text.len() > MOST_LINE && self.state == State::Chunk {
            return Step::Lost;
        }
        if end.is_none() {
            self.text.truncate(MOST_LINE);
            return Step::More;
        }
        let line = std::mem::take(&mut self.text);
        let line = line.trim_ascii();
        if self.state == State::Trailer {
            if line.is_empty() {
                self.state = State::Header;
            }
            return Step::More;
        }
        if line.is_empty() {
            return Step::More; // behind the chunk before
        }
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = std::str::from_utf8(digits).ok();
        match size.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(0) => self.state = State::Trailer,
            Some(left) => self.state = State::Body { left, chunked: true },
            None => return Step::Lost,
        }
        Step::More
    }
}

/// Whether a message may begin with these bytes.
fn may_begin(asks: bool, bytes: &[u8]) -> bool {
    if asks { matches!(Http::shown(bytes), Shown::Yes) } else { bytes.starts_with(VERSION) }
}

/// Where a header ends, behind its empty line.
fn end_of_header(text: &[u8]) -> Option<usize> {
    text.windows(2).enumerate().find_map(|(at, pair)| match pair {
        b"\n\n" => Some(at + 2),
        b"\n\r" if text.get(at + 2) == Some(&b'\n') => Some(at + 3),
        _ => None,
    })
}
