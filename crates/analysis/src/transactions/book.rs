//! The open transactions of a kind, and the statistics of those that were answered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::packet::Packet;
use super::{Counts, Kind, Options};
use crate::blocks::Blocks;
use crate::distribution::Distribution;
use crate::exceedances::Exceedances;
use crate::key::Name;
use crate::series::Series;
use crate::tick::Tick;
use crate::worst::{Worst, WorstPacket};

/// So many requests are remembered while they wait; of more, the oldest are given up.
const MOST_OPEN: usize = 1 << 20;
/// So many answered requests are remembered within the window, so that a second answer is told from one
/// without a request.
const MOST_ANSWERED: usize = 1 << 14;
/// So many ends of windows may be of requests that nobody remembers any more.
const MOST_STALE: usize = 1 << 20;
/// So many requests, and so many answers, are sorted by their times while earlier ones may yet be found.
const MOST_SORTED: usize = 1 << 20;
/// So many answered requests are gathered before they are added to the statistics.
const BATCH: usize = 1 << 10;

/// Keys are hashes already.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are of 64 bits");
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// A map by keys that are hashes.
pub(super) type ByKey<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;

/// A request, while it waits and for a while afterwards.
#[derive(Clone, Copy)]
struct Entry {
    /// What the wait counts from.
    start_ns: u64,
    /// A word of the protocol's own.
    tag: u32,
    answered: bool,
    /// Whether its answer may have passed without being seen.
    doubtful: bool,
    /// The end so far of an answer that may go on; 0 where there is none.
    until_ns: u64,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The word that the request came with.
    pub tag: u32,
    /// Whether it has its answer.
    pub answered: bool,
}

/// Further keys of requests, for as long as their windows are.
#[derive(Default)]
struct Aliases {
    /// When the request was sent, and its key.
    keys: ByKey<(u64, u64)>,
    due: VecDeque<(u64, u64)>,
}

impl Aliases {
    fn add(&mut self, now_ns: u64, window_ns: u64, alias: u64, key: u64) {
        while let Some(&(time_ns, old)) = self.due.front()
            && (now_ns - time_ns.min(now_ns) >= window_ns || self.due.len() >= MOST_OPEN)
        {
            self.due.pop_front();
            if self.keys.get(&old).is_some_and(|(since_ns, _)| *since_ns == time_ns) {
                self.keys.remove(&old);
            }
        }
        self.keys.insert(alias, (now_ns, key));
        self.due.push_back((now_ns, alias));
    }
}

/// The transactions of one kind.
pub(super) struct Book {
    kind: Kind,
    window_ns: u64,
    from_last: bool,
    /// Requests before this time are left out.
    cut_ns: u64,
    entries: ByKey<Entry>,
    open: usize,
    /// Start and key of requests, in the order in which their windows end; some are gone already.
    due: VecDeque<(u64, u64)>,
    /// Answered requests, in the order of their answers.
    answered: VecDeque<(u64, u64)>,
    /// Times of requests, and of answers with the start of their requests, until it is their turn.
    asked_late: BinaryHeap<Reverse<u64>>,
    late: BinaryHeap<Reverse<(u64, u64)>>,
    names: ByKey<Box<str>>,
    aliases: Aliases,
    pub counts: Counts,
    last_answer: u64,
    latest_start_ns: u64,
    latest_asked_ns: u64,
    latest_answer_ns: u64,
    pub latencies: Distribution,
    pub worst: Worst<Name>,
    pub exceedances: Exceedances,
    pub blocks: Blocks,
    pub asked: Series,
    pub asked_tick: Tick,
    pub answers: Series,
    pub answers_tick: Tick,
    /// Times of requests, and of answered requests start, answer and wait, on their way to the statistics.
    asked_ns: Vec<u64>,
    starts_ns: Vec<u64>,
    answers_ns: Vec<u64>,
    waits_ns: Vec<u64>,
}

impl Book {
    pub fn new(kind: Kind, options: &Options) -> Self {
        Self {
            kind,
            window_ns: options.matching.window_ns,
            from_last: options.from_last,
            cut_ns: 0,
            entries: ByKey::default(),
            open: 0,
            due: VecDeque::new(),
            answered: VecDeque::new(),
            asked_late: BinaryHeap::new(),
            late: BinaryHeap::new(),
            names: ByKey::default(),
            aliases: Aliases::default(),
            counts: Counts::default(),
            last_answer: u64::MAX,
            latest_start_ns: 0,
            latest_asked_ns: 0,
            latest_answer_ns: 0,
            latencies: Distribution::new(),
            worst: Worst::new(options.matching.worst),
            exceedances: Exceedances::new(None),
            blocks: Blocks::default(),
            asked: Series::default(),
            asked_tick: Tick::default(),
            answers: Series::default(),
            answers_tick: Tick::default(),
            asked_ns: Vec::new(),
            starts_ns: Vec::new(),
            answers_ns: Vec::new(),
            waits_ns: Vec::new(),
        }
    }

    /// Leaves out requests before a time.
    pub fn trim(&mut self, cut_ns: u64) {
        self.cut_ns = cut_ns;
    }

    /// What is known of a key now.
    pub fn known(&mut self, now_ns: u64, key: u64) -> Option<Known> {
        self.expire(now_ns);
        let Entry { tag, answered, .. } = *self.entries.get(&key)?;
        Some(Known { tag, answered })
    }

    /// Takes a request. The same one again is a retransmission while it waits; afterwards too, where
    /// the kind does not use its keys again.
    pub fn request(&mut self, packet: &Packet<'_>, key: u64, tag: u32) {
        let now_ns = packet.time_ns;
        self.expire(now_ns);
        match self.entries.get(&key) {
            Some(entry) if !entry.answered || !self.kind.uses_keys_again() => {
                self.again(packet, key);
                return;
            }
            Some(_) => {
                self.entries.remove(&key);
            }
            None => {}
        }
        let entry = Entry { start_ns: now_ns, tag, answered: false, doubtful: false, until_ns: 0 };
        self.entries.insert(key, entry);
        self.open += 1;
        self.due.push_back((now_ns, key));
        self.counts.requests += 1;
        if self.kind.is_late() {
            self.asked_late.push(Reverse(now_ns));
            while self.asked_late.len() > MOST_SORTED {
                self.next_asked();
            }
        } else {
            self.ask(now_ns);
        }
        if self.open > MOST_OPEN {
            self.give_up_oldest();
        }
    }

    /// Takes another key by which the request of `key` may be answered. Of several requests with the
    /// same one, the latest has it.
    pub fn alias(&mut self, packet: &Packet<'_>, alias: u64, key: u64) {
        self.aliases.add(packet.time_ns, self.window_ns, alias, key);
    }

    /// The key of the request that may be answered by `alias`.
    pub fn aliased(&self, alias: u64) -> Option<u64> {
        self.aliases.keys.get(&alias).map(|(_, key)| *key)
    }

    /// Takes a request that was sent again.
    pub fn again(&mut self, packet: &Packet<'_>, key: u64) {
        self.expire(packet.time_ns);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        self.counts.retransmitted += 1;
        if self.from_last && !entry.answered && entry.until_ns == 0 {
            entry.start_ns = packet.time_ns;
            self.due.push_back((packet.time_ns, key));
        }
    }

    /// Takes an answer: whether it is the first one of a request, which counts.
    #[inline]
    pub fn answer(&mut self, packet: &Packet<'_>, key: u64, name: impl Fn() -> Box<str>) -> bool {
        let found = self.answer_if_asked(packet, packet.time_ns, key, name);
        self.counts.repeated_answers += u64::from(found == Some(false));
        self.counts.unmatched_answers += u64::from(found.is_none());
        found == Some(true)
    }

    /// Takes an answer that came at `time_ns`: whether it is the first one, and `None` where nothing was
    /// asked. Neither of the others is counted.
    #[inline]
    pub fn answer_if_asked(
        &mut self,
        packet: &Packet<'_>,
        time_ns: u64,
        key: u64,
        name: impl Fn() -> Box<str>,
    ) -> Option<bool> {
        self.expire(packet.time_ns);
        let entry = self.entries.get_mut(&key)?;
        if entry.answered {
            return Some(false);
        }
        let start_ns = entry.start_ns;
        let time_ns = time_ns.max(start_ns);
        if time_ns - start_ns >= self.window_ns {
            // What came early in its stream is looked at late.
            self.expire_one(start_ns, key);
            return None;
        }
        entry.answered = true;
        if self.last_answer == packet.number {
            self.counts.coalesced += 1;
        }
        self.last_answer = packet.number;
        self.close(key, time_ns);
        self.record(start_ns, time_ns, name);
        Some(true)
    }

    /// The answer goes on until now, or further.
    pub fn extend(&mut self, packet: &Packet<'_>, key: u64, name: impl Fn() -> Box<str>) {
        self.expire(packet.time_ns);
        if let Some(entry) = self.entries.get_mut(&key)
            && !entry.answered
        {
            entry.until_ns = packet.time_ns;
            self.names.entry(key).or_insert_with(name);
        }
    }

    /// The answer is whole, if there is one.
    pub fn settle(&mut self, key: u64) {
        if let Some(entry) = self.entries.get_mut(&key)
            && !entry.answered
            && entry.until_ns > 0
        {
            entry.answered = true;
            let (start_ns, until_ns) = (entry.start_ns, entry.until_ns);
            self.close(key, until_ns);
            let name = self.names.remove(&key).unwrap_or_default();
            self.record(start_ns, until_ns, || name.clone());
        }
    }

    /// Whether no request waits.
    pub fn is_idle(&self) -> bool {
        self.open == 0
    }

    /// The answer of a request may have passed without being seen: if none comes, nobody can tell.
    pub fn doubt(&mut self, key: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.doubtful = true;
        }
    }

    /// The request was refused: there will be no answer.
    pub fn refuse(&mut self, now_ns: u64, key: u64) {
        self.expire(now_ns);
        if self.remove_open(key) {
            self.counts.refused += 1;
        }
    }

    /// Nobody can tell any more which answer is that of the request.
    pub fn give_up(&mut self, key: u64) {
        if self.remove_open(key) {
            self.counts.given_up += 1;
        }
    }

    fn remove_open(&mut self, key: u64) -> bool {
        let waits = self.entries.get(&key).is_some_and(|entry| !entry.answered);
        if waits {
            self.entries.remove(&key);
            self.names.remove(&key);
            self.open -= 1;
        }
        waits
    }

    /// A request has its answer.
    #[inline]
    fn close(&mut self, key: u64, time_ns: u64) {
        self.open -= 1;
        self.answered.push_back((time_ns, key));
        if self.answered.len() > MOST_ANSWERED
            && let Some((_, key)) = self.answered.pop_front()
            && self.entries.get(&key).is_some_and(|entry| entry.answered)
        {
            self.entries.remove(&key);
        }
    }

    #[cold]
    fn give_up_oldest(&mut self) {
        while let Some((start_ns, key)) = self.due.pop_front() {
            if self.entries.get(&key).is_some_and(|entry| entry.start_ns == start_ns)
                && self.remove_open(key)
            {
                self.counts.given_up += 1;
                return;
            }
        }
    }

    /// Ends the windows that are over.
    #[inline]
    fn expire(&mut self, now_ns: u64) {
        while let Some(&(start_ns, key)) = self.due.front()
            && now_ns - start_ns.min(now_ns) >= self.window_ns
        {
            self.due.pop_front();
            self.expire_one(start_ns, key);
        }
        if self.due.len() > 2 * self.entries.len() + MOST_STALE {
            let entries = &self.entries;
            self.due.retain(|(start_ns, key)| {
                entries.get(key).is_some_and(|entry| entry.start_ns == *start_ns)
            });
        }
        while let Some(Reverse(time_ns)) = self.asked_late.peek()
            && now_ns - (*time_ns).min(now_ns) >= self.window_ns
        {
            self.next_asked();
        }
        while let Some(Reverse((time_ns, _))) = self.late.peek()
            && now_ns - (*time_ns).min(now_ns) >= self.window_ns
        {
            self.next_answer();
        }
    }

    fn expire_one(&mut self, start_ns: u64, key: u64) {
        let Some(entry) = self.entries.get(&key).filter(|entry| entry.start_ns == start_ns) else {
            return;
        };
        if !entry.answered && entry.until_ns > 0 {
            self.settle(key);
        } else if !entry.answered {
            self.open -= 1;
            *match entry {
                _ if start_ns < self.cut_ns => &mut self.counts.trimmed,
                Entry { doubtful: true, .. } => &mut self.counts.given_up,
                _ => &mut self.counts.unanswered,
            } += 1;
        }
        self.entries.remove(&key);
    }

    fn next_asked(&mut self) {
        if let Some(Reverse(time_ns)) = self.asked_late.pop() {
            self.ask(time_ns);
        }
    }

    fn next_answer(&mut self) {
        if let Some(Reverse((time_ns, start_ns))) = self.late.pop() {
            self.tell(start_ns, time_ns);
        }
    }

    /// Adds the time of a request to the statistics. They come in the order of their times.
    fn ask(&mut self, time_ns: u64) {
        self.latest_asked_ns = self.latest_asked_ns.max(time_ns);
        self.asked_ns.push(self.latest_asked_ns);
        if self.asked_ns.len() >= BATCH {
            self.flush();
        }
    }

    /// A request is answered.
    #[inline]
    fn record(&mut self, start_ns: u64, time_ns: u64, name: impl Fn() -> Box<str>) {
        if start_ns < self.cut_ns {
            self.counts.trimmed += 1;
            return;
        }
        let wait_ns = time_ns - start_ns;
        self.worst.offer_all(&[start_ns], &[time_ns], &[wait_ns], |_| Name::Text(name()));
        if self.kind.is_late() {
            self.late.push(Reverse((time_ns, start_ns)));
            while self.late.len() > MOST_SORTED {
                self.next_answer();
            }
        } else {
            self.tell(start_ns, time_ns);
        }
    }

    /// Adds an answered request to the statistics. They come in the order of the answers.
    #[inline]
    fn tell(&mut self, start_ns: u64, time_ns: u64) {
        if start_ns < self.latest_start_ns {
            self.counts.reordered += 1;
        }
        self.latest_start_ns = self.latest_start_ns.max(start_ns);
        self.latest_answer_ns = self.latest_answer_ns.max(time_ns);
        self.starts_ns.push(start_ns);
        self.answers_ns.push(self.latest_answer_ns);
        self.waits_ns.push(time_ns - start_ns);
        if self.waits_ns.len() >= BATCH {
            self.flush();
        }
    }

    /// Adds what was gathered to the statistics.
    fn flush(&mut self) {
        self.asked.record_all(&self.asked_ns);
        self.asked_tick.record_all(&self.asked_ns);
        self.latencies.record_all(self.waits_ns.iter().copied());
        self.exceedances.record_all(&self.starts_ns, &self.waits_ns);
        if self.exceedances.is_full() {
            self.exceedances.shrink(&self.latencies);
        }
        self.blocks.record_all(&self.answers_ns, &self.waits_ns);
        self.answers.record_all(&self.answers_ns);
        self.answers_tick.record_all(&self.answers_ns);
        for times in
            [&mut self.asked_ns, &mut self.starts_ns, &mut self.answers_ns, &mut self.waits_ns]
        {
            times.clear();
        }
    }

    /// Ends all windows, with the last packet at `end_ns`.
    pub fn finish(&mut self, end_ns: u64) {
        self.expire(end_ns);
        for (start_ns, key) in std::mem::take(&mut self.due) {
            let before = self.counts.unanswered;
            self.expire_one(start_ns, key);
            if end_ns - start_ns.min(end_ns) < self.window_ns {
                self.counts.open_at_end += self.counts.unanswered - before;
                self.counts.unanswered = before;
            }
        }
        while !self.asked_late.is_empty() {
            self.next_asked();
        }
        while !self.late.is_empty() {
            self.next_answer();
        }
        self.flush();
        self.counts.answered = self.latencies.count();
        self.exceedances.shrink(&self.latencies);
    }

    /// The worst transactions, worst first.
    pub fn take_worst(&mut self) -> Vec<WorstPacket<Name>> {
        std::mem::replace(&mut self.worst, Worst::new(0)).into_sorted()
    }
}

/// The books of all kinds.
pub(super) struct Books(Vec<Book>);

impl Books {
    pub fn new(options: &Options) -> Self {
        Self(Kind::ALL.iter().map(|kind| Book::new(*kind, options)).collect())
    }

    /// The book of a kind.
    #[inline]
    pub fn of(&mut self, kind: Kind) -> &mut Book {
        &mut self.0[kind as usize]
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Kind, &mut Book)> {
        Kind::ALL.into_iter().zip(&mut self.0)
    }
}
