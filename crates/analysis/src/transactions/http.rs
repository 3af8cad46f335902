//! HTTP/1.1 (RFC 9112) without encryption: from a request's header to the first byte of its response.
//!
//! Responses come in the order of the requests, so that bodies have to be passed over on both sides.
//! Interim responses (1xx) are no answers. Where bytes are missing that would say how long a body is, the
//! next header that begins a segment is looked for. Behind that, order tells nothing. But a client that
//! sends no request before the one in front of it is answered has acknowledged all responses before: its
//! response begins at the number that the request acknowledges. Others are given up.

use std::collections::VecDeque;

use super::Kind;
use super::line::{Line, Over, Shown};

const VERSION: &[u8] = b"HTTP/1.";
/// The longest method, as they are registered.
const MOST_METHOD: usize = 24;
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
    /// Whether messages may have been missed.
    unsure: bool,
    /// Where the server's bytes ended when requests were missed: later ones acknowledge more, unless they
    /// were sent before those were answered.
    floor: Option<u32>,
    /// Where responses were missed since the last request, and what that acknowledged.
    gap: Option<u32>,
    latest: Option<u32>,
    /// What the client acknowledged when it said what is no begin of a message, while one is looked for.
    within: Option<u32>,
}

/// A request without its response.
struct Waiting {
    key: u64,
    method: Method,
    shown: Box<str>,
    /// The number that it acknowledges.
    acknowledged: Option<u32>,
    /// Whether the next response is that of the first such request.
    sure: bool,
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
    /// When its first byte came, and the number of that.
    began_ns: u64,
    began_at: u32,
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

/// The key of a request whose bytes begin at a number of the asking end.
fn key(line: &Line<'_, '_>, number: u32) -> u64 {
    line.ends.hash(1 << 32 | u64::from(number))
}

impl Http {
    /// Whether the first bytes are a request's: methods are many (RFC 9110, section 16.1), and so the
    /// version tells. Where the line was `cut`, the target does.
    pub fn shown(bytes: &[u8], cut: bool) -> Shown {
        let letter = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
        let method = bytes.iter().take_while(|byte| letter(byte)).count();
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let target = bytes.get(method + 1..).unwrap_or_default();
        match (bytes.get(method), end) {
            _ if method > MOST_METHOD => Shown::No,
            (None, _) if !cut => Shown::More,
            (Some(b' '), _) if method == 0 => Shown::No,
            (Some(b' '), Some(end)) => {
                let mut words = bytes[..end].rsplit(|byte| *byte == b' ');
                let right = words.next().is_some_and(|version| version.starts_with(VERSION));
                if right { Shown::Yes } else { Shown::No }
            }
            (Some(b' '), None) if !cut => Shown::More,
            (Some(b' '), None) if target.starts_with(b"/") || target.starts_with(b"http") => {
                Shown::Yes
            }
            _ => Shown::No,
        }
    }

    /// Requests or responses were missed in front of what is there now, when the server's bytes ended here.
    pub fn missed(&mut self, floor: u32) {
        self.unsure = true;
        self.floor = Some(floor);
        self.waiting.iter_mut().for_each(|waiting| waiting.sure = false);
    }

    fn half(&mut self, asks: bool) -> &mut Half {
        if asks { &mut self.requests } else { &mut self.responses }
    }

    pub fn take(
        &mut self,
        asks: bool,
        mut bytes: &[u8],
        missing: usize,
        line: &mut Line<'_, '_>,
    ) -> Over {
        if self.half(asks).state == State::Lost {
            if self.begins(asks, bytes, missing > 0, line) {
                self.half(asks).state = State::Header;
            } else if asks {
                self.within = line.acknowledged;
            }
        }
        while !bytes.is_empty() {
            match self.half(asks).read(asks, &mut bytes, line) {
                Step::More => {}
                Step::Header(header) if asks => self.request(&header, line),
                Step::Header(header) => match self.response(&header, line) {
                    Over::GoesOn => {}
                    Over::Upgraded(_) => return Over::Upgraded(bytes.len()),
                    over => return over,
                },
                Step::Lost => {
                    self.lose(asks, line);
                    bytes = &[];
                }
            }
        }
        if missing > 0 && !self.half(asks).pass(missing as u64) {
            return self.hole(asks, line);
        }
        Over::GoesOn
    }

    /// Whether a message begins with these bytes, where one is looked for. What looks like a request is
    /// part of one if other bytes of it were sent since the last response.
    fn begins(&self, asks: bool, bytes: &[u8], cut: bool, line: &Line<'_, '_>) -> bool {
        if asks {
            let goes_on = line.acknowledged.is_some() && self.within == line.acknowledged;
            return !goes_on
                && match Self::shown(bytes, cut) {
                    Shown::Yes => true,
                    Shown::More => bytes.windows(2).any(|pair| pair == b" /"),
                    Shown::No => false,
                };
        }
        let at = line.position().wrapping_sub(bytes.len() as u32);
        let awaited = self.waiting.iter().any(|one| one.acknowledged == Some(at));
        awaited && bytes.starts_with(VERSION)
    }

    /// Bytes are missing where a message may begin. What is here of a header may do: all but the status of
    /// a response, and of a request if it is known when it ended.
    fn hole(&mut self, asks: bool, line: &mut Line<'_, '_>) -> Over {
        let half = self.half(asks);
        let header = half.state == State::Header;
        let text = std::mem::take(&mut half.text);
        if asks && header && line.dropped {
            // The server had that before it said a word to the one that waits.
            let first = self.waiting.front().and_then(|waiting| waiting.acknowledged);
            let said = first.zip(line.said);
            self.pipelined |= said.is_some_and(|(own, said)| said.wrapping_sub(own) as i32 <= 0);
        }
        let mut over = Over::GoesOn;
        let tells = if asks {
            matches!(Self::shown(&text, true), Shown::Yes)
        } else {
            status(&text).is_some()
        };
        if header && tells {
            line.books.of(Kind::Http).counts.cut += u64::from(!line.dropped);
            if !asks {
                over = self.response(&text, line);
            } else {
                let key = key(line, self.requests.began_at);
                self.request(&text, line);
                if line.dropped {
                    self.waiting.retain(|waiting| waiting.key != key);
                    line.give_up(&[Kind::Http], key);
                }
            }
        }
        if let Over::GoesOn = over {
            self.lose(asks, line);
        }
        over
    }

    /// Nobody knows where the next message of an end begins.
    fn lose(&mut self, asks: bool, line: &mut Line<'_, '_>) {
        let half = self.half(asks);
        half.text.clear();
        half.state = State::Lost;
        self.unsure = true;
        if asks {
            self.floor = line.said.or(self.gap).or(line.heard);
            return;
        }
        self.gap.get_or_insert(line.position());
        for waiting in &mut self.waiting {
            waiting.sure = false;
            line.books.of(Kind::Http).doubt(waiting.key);
        }
        if self.pipelined {
            self.give_up(line);
        }
    }

    /// Gives up those whose response is not the next one for sure.
    fn give_up(&mut self, line: &mut Line<'_, '_>) {
        while self.waiting.back().is_some_and(|waiting| !waiting.sure)
            && let Some(waiting) = self.waiting.pop_back()
        {
            line.give_up(&[Kind::Http], waiting.key);
        }
    }

    /// The header of a request is whole, or as much of it as there is.
    fn request(&mut self, header: &[u8], line: &mut Line<'_, '_>) {
        let first = header.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = first.split(|byte| *byte == b' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let from = self.requests.began_at;
        let key = key(line, from);
        let target = &target[..target.len().min(MOST_TARGET)];
        let shown = format!("{} {} {}", line.ends, method.escape_ascii(), target.escape_ascii());
        line.request(&[Kind::Http], key, from);
        self.gap = None;
        let method = match method {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        };
        let (acknowledged, sure) = (line.acknowledged, !self.unsure);
        self.pipelined |= acknowledged.is_some() && self.latest == acknowledged;
        self.latest = acknowledged;
        self.pipelined |= sure && !self.waiting.is_empty();
        if !sure {
            self.give_up(line);
            line.books.of(Kind::Http).doubt(key);
        }
        if !sure && self.waiting.is_empty() {
            self.responses.text.clear();
            self.responses.state = State::Lost;
        }
        self.waiting.push_back(Waiting { key, method, shown: shown.into(), acknowledged, sure });
        let number = acknowledged.unwrap_or(0);
        let old = self.floor.is_some_and(|floor| number.wrapping_sub(floor) as i32 <= 0);
        self.pipelined |= !sure && old;
        if !sure && (self.pipelined || self.waiting.len() > 1) {
            self.give_up(line);
        }
        if self.waiting.len() > MOST_WAITING {
            self.lose(false, line);
        }
        self.requests.state = match length(header) {
            Length::Chunked => State::Chunk,
            Length::Bytes(left) => State::Body { left, chunked: false },
            Length::Unsaid => State::Header,
            Length::Wrong => State::Lost,
        };
        self.requests.state.skip_empty();
    }

    /// The request that a response at a number answers.
    fn asked(&mut self, at: u32, line: &mut Line<'_, '_>) -> Option<Waiting> {
        while let Some(front) = self.waiting.front() {
            let ahead = front.acknowledged.map_or(1, |number| at.wrapping_sub(number) as i32);
            if front.sure {
                return self.waiting.pop_front();
            }
            if ahead < 0 {
                return None;
            }
            let waiting = self.waiting.pop_front()?;
            if ahead == 0 {
                self.unsure = self.requests.state == State::Lost;
                self.floor = self.floor.filter(|_| self.unsure);
                return Some(waiting);
            }
            // Its response came before, and was missed.
            line.give_up(&[Kind::Http], waiting.key);
        }
        None
    }

    /// The header of a response is whole, or at least its status.
    fn response(&mut self, header: &[u8], line: &mut Line<'_, '_>) -> Over {
        let Some(status) = status(header) else {
            self.lose(false, line);
            return Over::GoesOn;
        };
        let at = self.responses.began_at;
        if status[0] == b'1' && status != b"101" {
            if let Some(front) = self.waiting.front_mut() {
                front.sure |= front.acknowledged == Some(at);
            }
            return Over::GoesOn;
        }
        let waiting = self.asked(at, line);
        if let Some(waiting) = &waiting {
            let name = || waiting.shown.clone();
            line.answer(Kind::Http, waiting.key, self.responses.began_ns, name);
        } else {
            line.books.of(Kind::Http).counts.unmatched_answers += 1;
        }
        if status == b"101" {
            let upgraded = value(header, b"upgrade").is_some_and(|to| to.starts_with(b"h2c"));
            return if upgraded { Over::Upgraded(0) } else { Over::Elsewhere };
        }
        let Some(waiting) = waiting else {
            self.responses.state = body(header, status);
            return Over::GoesOn;
        };
        if waiting.method == Method::Connect && status[0] == b'2' {
            return Over::Anew;
        }
        if waiting.method != Method::Head {
            self.responses.state = body(header, status);
        }
        Over::GoesOn
    }
}

/// The status of a response; `None` where it is none.
fn status(header: &[u8]) -> Option<&[u8]> {
    let digits = header.get(VERSION.len() + 2..VERSION.len() + 5)?;
    (header.starts_with(VERSION) && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
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
    let chunked = |value: &[u8]| value.to_ascii_lowercase().ends_with(b"chunked");
    if value(header, b"transfer-encoding").is_some_and(chunked) {
        return Length::Chunked;
    }
    let number = |value| std::str::from_utf8(value).ok()?.parse().ok();
    value(header, b"content-length")
        .map_or(Length::Unsaid, |value| number(value).map_or(Length::Wrong, Length::Bytes))
}

/// The last value that a header has of a name, which is of small letters.
fn value<'a>(header: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let lines = header.split(|byte| *byte == b'\n').skip(1);
    let named = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        name.eq_ignore_ascii_case(wanted).then_some(value)
    });
    named.last()
}

impl Half {
    /// Reads on to the next thing to be done.
    fn read(&mut self, asks: bool, bytes: &mut &[u8], line: &Line<'_, '_>) -> Step {
        match self.state {
            State::Header => return self.read_header(asks, bytes, line),
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
            State::UntilClose => true,
            _ => false,
        }
    }

    fn read_header(&mut self, asks: bool, bytes: &mut &[u8], line: &Line<'_, '_>) -> Step {
        if self.text.is_empty() {
            // Empty lines in front of a message are passed over (RFC 9112, section 2.2).
            let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            *bytes = &bytes[blank..];
            self.began_ns = line.packet.time_ns;
            self.began_at = line.position().wrapping_sub(bytes.len() as u32);
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
        if asks && !matches!(Http::shown(&self.text, false), Shown::Yes) {
            return Step::Lost;
        }
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

/// Where a header ends, behind its empty line.
fn end_of_header(text: &[u8]) -> Option<usize> {
    text.windows(2).enumerate().find_map(|(at, pair)| match pair {
        b"\n\n" => Some(at + 2),
        b"\n\r" if text.get(at + 2) == Some(&b'\n') => Some(at + 3),
        _ => None,
    })
}
