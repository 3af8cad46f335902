//! One flow while it is sent: its packets, the device that takes them, and what became of them.

use std::time::Duration;

use tailtap_analysis::distribution::Distribution;
use tailtap_wire::moonsniff::Kind;

use super::Report;
use super::merge::{Packet, Packets};
use super::replay::Replay;
use super::schedule::{Length, Schedule, Times};
use super::slip::{Counter, summarise};
use super::template::Template;
use crate::clock::Clock;
use crate::device::Device;

/// Which packets of a flow one of several threads sends: each `of`-th one, from number `first` on. Their
/// schedule is one, so that the packets of all threads are those that a single thread would send, when
/// it would send them; and a number is one thread's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) first: u32,
    pub(super) of: u32,
}

impl Share {
    /// All packets.
    #[cfg(test)]
    pub(super) const WHOLE: Self = Self { first: 0, of: 1 };

    /// Of all numbers, or what belongs to each, those that are sent.
    fn of<T>(self, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        all.skip(self.first as usize).step_by(self.of as usize)
    }
}

/// Where packets come from.
#[derive(Clone)]
pub(super) enum Source {
    Made(Template),
    Replay(Replay),
}

impl Source {
    fn packet(&mut self, id: u32, kind: Kind) -> &[u8] {
        match self {
            Self::Made(template) => template.packet(id, kind),
            Self::Replay(replay) => replay.packet(id, kind),
        }
    }

    fn has_id(&self, id: u32) -> bool {
        match self {
            Self::Made(_) => true,
            Self::Replay(replay) => replay.has_id(id),
        }
    }

    pub(super) fn largest_size(&self) -> usize {
        match self {
            Self::Made(template) => template.largest_size(),
            Self::Replay(replay) => replay.largest_size(),
        }
    }
}

/// What is sent, and when.
#[derive(Clone)]
pub(super) struct Traffic {
    /// When packets are due.
    pub(super) schedule: Schedule,
    /// How much is measured.
    pub(super) length: Length,
    /// How much is sent before.
    pub(super) warm_up: Length,
    /// Silence in between.
    pub(super) pause_ns: u64,
    /// How much later than others it begins.
    pub(super) phase_ns: u64,
    /// Which of these packets.
    pub(super) share: Share,
}

impl Traffic {
    /// From the beginning of the warm-up to that of the measurement.
    fn before_ns(&self) -> u64 {
        // A warm-up of n packets ends when the next one would be due.
        let warm_up = match self.warm_up {
            Length::Duration(ns) => ns,
            Length::Count(count) => self.schedule.before().times().nth(count as usize).unwrap_or(0),
        };
        warm_up + self.pause_ns
    }

    /// All packets, those of the warm-up first, of a flow that begins at `start`.
    fn packets(&self, start: u64) -> Packets {
        let of = |start: u64, kind, times| {
            // The id wraps only in a warm-up, where nobody reads it.
            let ids = self.share.of(0u64..);
            ids.zip(times).map(move |(id, time): (u64, u64)| Packet {
                due: start + time,
                id: id as u32,
                kind,
            })
        };
        let before = self.share.of(self.schedule.before().times_of(self.warm_up));
        let before: Times = Box::new(before);
        let measured = self.measured();
        let begin = start + self.before_ns();
        Box::new(of(start, Kind::WarmUp, before).chain(of(begin, Kind::Measured, measured)))
    }

    /// When measured packets are due, after the first of all.
    fn measured(&self) -> Times {
        Box::new(self.share.of(self.schedule.times_of(self.length)))
    }
}

/// The device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// A flow and what became of its packets, of one thread's share.
pub(super) struct Flow<D: ?Sized = dyn Device + Send> {
    device: Box<D>,
    source: Source,
    traffic: Traffic,
    /// When it begins.
    start: u64,
    /// When the packets in the device's queue are due; they have the same kind.
    batch: Vec<u64>,
    /// The first of them.
    first: u32,
    kind: Kind,
    warm_up_sent: u64,
    sent: u64,
    with_id: u64,
    failed: u64,
    bunched: u64,
    slip: Counter,
    /// When the first and the last measured packet were due.
    first_due: Option<u64>,
    last_due: u64,
    last_ns: u64,
    /// Whether packets that were to be sent are left.
    pub(super) has_more: bool,
}

impl<D: Device + ?Sized> Flow<D> {
    pub(super) fn new(device: Box<D>, source: Source, traffic: Traffic) -> Self {
        Self {
            batch: Vec::with_capacity(device.room()),
            device,
            source,
            traffic,
            start: 0,
            first: 0,
            kind: Kind::WarmUp,
            warm_up_sent: 0,
            sent: 0,
            with_id: 0,
            failed: 0,
            bunched: 0,
            slip: Counter::new(),
            first_due: None,
            last_due: 0,
            last_ns: 0,
            has_more: true,
        }
    }

    /// Its packets, when the first of all flows begins at `start`.
    pub(super) fn begin(&mut self, start: u64) -> Packets {
        self.start = start + self.traffic.phase_ns;
        self.traffic.packets(self.start)
    }

    /// Whether the device's queue has room for a packet beside those that are in it.
    #[inline]
    pub(super) fn takes(&self, packet: Packet) -> bool {
        self.batch.is_empty() || self.batch.len() < self.device.room() && packet.kind == self.kind
    }

    /// Puts a packet that it takes into the device's queue; returns whether it is the first there.
    #[inline]
    pub(super) fn push(&mut self, Packet { due, id, kind }: Packet) -> bool {
        let is_first = self.batch.is_empty();
        if is_first {
            (self.first, self.kind) = (id, kind);
        }
        self.device.push(self.source.packet(id, kind));
        self.batch.push(due);
        is_first
    }

    /// Hands over what is in the device's queue. It is `now` by the clock.
    pub(super) fn hand_over(&mut self, now: u64, clock: &impl Clock) -> Result<(), Gone> {
        let failed = self.device.flush();
        let taken = (self.batch.len() - failed.min(self.batch.len())) as u64;
        let sent = match self.kind {
            Kind::WarmUp => &mut self.warm_up_sent,
            Kind::Measured => &mut self.sent,
        };
        *sent += taken;
        self.failed += failed as u64;
        if self.kind == Kind::Measured {
            self.record(if self.batch.len() == 1 { now } else { clock.now() });
        }
        self.batch.clear();
        // A full or a sleeping device may recover; one that is gone does not.
        if failed > 0 && self.device.is_gone() {
            return Err(Gone);
        }
        Ok(())
    }

    /// Records that the packets in the queue left at `left`.
    fn record(&mut self, left: u64) {
        let (first, last) = (self.batch[0], self.batch[self.batch.len() - 1]);
        let share = self.traffic.share;
        self.slip.add(self.first / share.of, &self.batch, left);
        self.bunched += self.batch.iter().filter(|&&due| due > first).count() as u64;
        let ids = (0..self.batch.len() as u32).map(|number| self.first + number * share.of);
        self.with_id += ids.filter(|&id| self.source.has_id(id)).count() as u64;
        self.first_due.get_or_insert(first);
        (self.last_due, self.last_ns) = (last, left);
    }

    /// How many packets of the warm-up, or of the measurement once that has begun, its device took.
    pub(super) fn taken(&self) -> u64 {
        match self.kind {
            Kind::WarmUp => self.warm_up_sent,
            Kind::Measured => self.sent,
        }
    }

    /// What was sent of a flow in all shares, at least one.
    pub(super) fn report(mut shares: Vec<Self>) -> Report {
        let phase_ns = shares[0].traffic.phase_ns;
        let (mut report, mut slip) =
            (Report { phase_ns, ..Report::default() }, Distribution::new());
        let (mut first_due, mut last_due): (Option<u64>, u64) = (None, 0);
        // Those that were handed over last. A device that is closed may take others with it.
        let unsent: Vec<_> = shares.iter_mut().map(|share| share.device.finish() as u64).collect();
        for (share, unsent) in shares.into_iter().zip(unsent) {
            let measured = unsent.min(share.sent);
            report.warm_up.sent += share.warm_up_sent.saturating_sub(unsent - measured);
            report.warm_up.first_ns = share.start;
            report.sent += share.sent - measured;
            report.failed += share.failed + unsent;
            report.with_id += share.with_id;
            report.bunched += share.bunched;
            report.interrupted |= share.has_more || !share.batch.is_empty();
            report.mode = share.device.mode();
            report.last_ns = report.last_ns.max(share.last_ns);
            first_due = first_due.into_iter().chain(share.first_due).min();
            last_due = last_due.max(share.last_due);
            let start = share.start + share.traffic.before_ns();
            slip.merge(&share.slip.finish(start, share.traffic.measured()));
        }
        let first_ns = first_due.unwrap_or(0);
        report.first_ns = first_ns;
        report.scheduled_rate = rate(slip.count(), last_due.saturating_sub(first_ns));
        report.achieved_rate = rate(report.sent, report.last_ns.saturating_sub(first_ns));
        report.slip = summarise(&slip);
        report
    }
}

/// Packets a second from the first to the last of `packets`: n have n - 1 intervals between them.
fn rate(packets: u64, elapsed_ns: u64) -> f64 {
    if packets < 2 || elapsed_ns == 0 {
        return 0.0;
    }
    (packets - 1) as f64 / Duration::from_nanos(elapsed_ns).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_intervals() {
        assert_eq!(rate(3, 1_000_000_000), 2.0);
        assert_eq!(rate(1, 1_000_000_000), 0.0);
        assert_eq!(rate(2, 0), 0.0);
    }
}
