//! One flow while it is sent: its packets, the device that takes them, and what became of them.

use std::time::Duration;

use tailtap_wire::moonsniff::Kind;

use super::merge::{Packet, Packets};
use super::replay::Replay;
use super::schedule::{Length, Schedule};
use super::slip::Counter;
use super::template::Template;
use super::{Report, WarmUp};
use crate::clock::Clock;
use crate::device::Device;

/// Where packets come from.
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
            let ids = (0..=u32::MAX).cycle();
            ids.zip(times).map(move |(id, time): (u32, u64)| Packet { due: start + time, id, kind })
        };
        let before = self.schedule.before().times_of(self.warm_up);
        let measured = self.schedule.times_of(self.length);
        let begin = start + self.before_ns();
        Box::new(of(start, Kind::WarmUp, before).chain(of(begin, Kind::Measured, measured)))
    }
}

/// The device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    /// Packets of the warm-up, or of the measurement, that it took before.
    pub(super) sent: u64,
}

/// A flow and what became of its packets.
pub(super) struct Flow {
    device: Box<dyn Device>,
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
}

impl Flow {
    pub(super) fn new(device: Box<dyn Device>, source: Source, traffic: Traffic) -> Self {
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
        let sent = *sent;
        self.failed += failed as u64;
        if self.kind == Kind::Measured {
            self.record(if self.batch.len() == 1 { now } else { clock.now() });
        }
        self.batch.clear();
        // A full or a sleeping device may recover; one that is gone does not.
        if failed > 0 && self.device.is_gone() {
            return Err(Gone { sent });
        }
        Ok(())
    }

    /// Records that the packets in the queue left at `left`.
    fn record(&mut self, left: u64) {
        let (first, last) = (self.batch[0], self.batch[self.batch.len() - 1]);
        self.slip.add(self.first, &self.batch, left);
        self.bunched += self.batch.iter().filter(|&&due| due > first).count() as u64;
        let ids = (0..self.batch.len()).map(|number| self.first.wrapping_add(number as u32));
        self.with_id += ids.filter(|&id| self.source.has_id(id)).count() as u64;
        self.first_due.get_or_insert(first);
        (self.last_due, self.last_ns) = (last, left);
    }

    /// What was sent; `has_more` says whether packets that were to be sent are left.
    pub(super) fn report(mut self, has_more: bool) -> Report {
        // Those that were handed over last.
        let unsent = self.device.finish() as u64;
        let measured = unsent.min(self.sent);
        self.sent -= measured;
        self.warm_up_sent = self.warm_up_sent.saturating_sub(unsent - measured);
        self.failed += unsent;
        let count = self.slip.packets();
        let first_ns = self.first_due.unwrap_or(0);
        let times = self.traffic.schedule.times_of(self.traffic.length);
        Report {
            phase_ns: self.traffic.phase_ns,
            warm_up: WarmUp { sent: self.warm_up_sent, first_ns: self.start },
            sent: self.sent,
            failed: self.failed,
            with_id: self.with_id,
            first_ns,
            last_ns: self.last_ns,
            scheduled_rate: rate(count, self.last_due.saturating_sub(first_ns)),
            achieved_rate: rate(self.sent, self.last_ns.saturating_sub(first_ns)),
            slip: self.slip.finish(self.start + self.traffic.before_ns(), times),
            bunched: self.bunched,
            mode: self.device.mode(),
            interrupted: has_more || !self.batch.is_empty(),
        }
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
