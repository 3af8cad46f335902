//! What stands between the streams of TCP and what is spoken on them.

use std::collections::VecDeque;

use super::Kind;
use super::book::Books;
use super::packet::{Ends, Packet};

/// So many requests of a connection are remembered while they wait, to tell retransmissions.
const MOST_ASKED: usize = 1 << 10;

/// A request on a connection that waits for its answer.
pub(super) struct Asked {
    pub kinds: &'static [Kind],
    pub key: u64,
    pub from: u32,
    pub until: u32,
}

/// What a protocol on a stream is given: where it tells of its requests and answers.
pub(super) struct Line<'a, 'b> {
    pub packet: &'a Packet<'b>,
    pub books: &'a mut Books,
    /// Both ends, the asking one first.
    pub ends: Ends,
    pub asked: &'a mut VecDeque<Asked>,
    /// The place of the connection's first packet among all: other connections may have the same ends.
    pub first: u64,
    /// The number behind the bytes that are told of.
    pub at: u32,
    /// What the end that speaks has acknowledged.
    pub acknowledged: Option<u32>,
    /// The number of the other end's next byte, before the packet at hand.
    pub heard: Option<u32>,
    /// The same when the other end acknowledged bytes that were not captured, if that is known.
    pub said: Option<u32>,
    /// Whether missing bytes are of packets that were not captured, so that nobody knows when they came.
    pub dropped: bool,
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

    /// A request is refused or withdrawn.
    pub fn refuse(&mut self, kinds: &[Kind], key: u64) {
        for kind in kinds {
            self.books.of(*kind).refuse(self.packet.time_ns, key);
        }
        self.forget(key);
    }

    /// Nobody can tell the answer of a request.
    pub fn give_up(&mut self, kinds: &[Kind], key: u64) {
        for kind in kinds {
            self.books.of(*kind).give_up(key);
        }
        self.forget(key);
    }

    /// A request need not be remembered any more.
    pub fn forget(&mut self, key: u64) {
        self.asked.retain(|asked| asked.key != key);
    }
}

/// How a connection goes on.
pub(super) enum Over {
    /// As before.
    GoesOn,
    /// Where its next message begins is to be found; what was asked may have been answered.
    Astray,
    /// In HTTP/2, from so many bytes before the end on.
    Upgraded(usize),
    /// In nothing that is known.
    Elsewhere,
    /// In something else, which begins here.
    Anew,
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
