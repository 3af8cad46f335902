//! The loop that sends packets when they are due.

use std::time::Duration;

use tailtap_wire::moonsniff::Kind;

use super::Report;
use super::replay::Replay;
use super::schedule::{Length, Schedule, Times};
use super::slip::Counter;
use super::template::Template;
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
    /// When the first packet, of the warm-up or measured, may be due.
    pub(super) start_ns: u64,
    /// When packets are due.
    pub(super) schedule: Schedule,
    /// How much is measured.
    pub(super) length: Length,
    /// How much is sent before.
    pub(super) warm_up: Length,
    /// Silence in between.
    pub(super) pause_ns: u64,
}

/// The device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    /// Packets of the warm-up, or of the measurement, that it took before.
    pub(super) sent: u64,
}

/// The sending thread's state. `S` says whether to stop.
pub(super) struct Sender<C, S> {
    device: Box<dyn Device>,
    clock: C,
    stop: S,
    source: Source,
    with_id: u64,
    failed: u64,
    bunched: u64,
    slip: Counter,
    /// When the first and the last measured packet were due.
    first_due: Option<u64>,
    last_due: u64,
    last_ns: u64,
}

impl<C: Clock, S: Fn() -> bool> Sender<C, S> {
    pub(super) fn new(device: Box<dyn Device>, clock: C, stop: S, source: Source) -> Self {
        Self {
            device,
            clock,
            stop,
            source,
            with_id: 0,
            failed: 0,
            bunched: 0,
            slip: Counter::new(),
            first_due: None,
            last_due: 0,
            last_ns: 0,
        }
    }

    /// Sends the warm-up and the measured packets.
    pub(super) fn run(mut self, traffic: &Traffic) -> Result<Report, Gone> {
        let Traffic { start_ns, schedule, length, warm_up, pause_ns } = traffic;
        let before = schedule.before();
        // A warm-up of n packets ends when the next one would be due.
        let warm_up_takes = match *warm_up {
            Length::Duration(ns) => ns,
            Length::Count(count) => before.times().nth(count as usize).unwrap_or(0),
        };
        let warm_up_sent = self.send(*start_ns, before.times_of(*warm_up), Kind::WarmUp)?;
        let start = start_ns + warm_up_takes + pause_ns;
        let sent = self.send(start, schedule.times_of(*length), Kind::Measured)?;
        let report = self.report(sent, start, schedule.times_of(*length));
        Ok(Report { warm_up_sent, warm_up_ns: *start_ns, ..report })
    }

    /// Sends a packet at each of the times after `start`; returns how many the device took.
    fn send(&mut self, start: u64, times: Times, kind: Kind) -> Result<u64, Gone> {
        let mut sent = 0;
        // The id wraps only in a warm-up, where nobody reads it.
        let ids = (0..=u32::MAX).cycle();
        let mut packets = ids.zip(times.map(|time| start + time)).peekable();
        let mut batch = Vec::with_capacity(self.device.room());
        while let Some((id, due)) = packets.next() {
            self.device.push(self.source.packet(id, kind));
            batch.push(due);
            let first = id;
            let now = self.clock.wait_until(due, || !(self.stop)());
            if (self.stop)() {
                break;
            }
            while batch.len() < self.device.room()
                && let Some((id, due)) = packets.next_if(|&(_, due)| due <= now)
            {
                self.device.push(self.source.packet(id, kind));
                batch.push(due);
            }
            let failed = self.device.flush();
            if kind == Kind::Measured {
                self.record(first, &batch, now);
                let ids = (0..batch.len()).map(|number| first.wrapping_add(number as u32));
                self.with_id += ids.filter(|&id| self.source.has_id(id)).count() as u64;
            }
            sent += (batch.len() - failed.min(batch.len())) as u64;
            self.failed += failed as u64;
            // A full or a sleeping device may recover; one that is gone does not.
            if failed > 0 && self.device.is_gone() {
                return Err(Gone { sent });
            }
            batch.clear();
        }
        Ok(sent)
    }

    /// Records that packets from `number` on, due at these times, were handed over from `now` on.
    fn record(&mut self, number: u32, batch: &[u64], now: u64) {
        let (first, last) = (batch[0], batch[batch.len() - 1]);
        let left = if batch.len() == 1 { now } else { self.clock.now() };
        self.slip.add(number, batch, left);
        self.bunched += batch.iter().filter(|&&due| due > first).count() as u64;
        self.first_due.get_or_insert(first);
        (self.last_due, self.last_ns) = (last, left);
    }

    /// What was sent, where packets were due at `times` after `start`.
    fn report(self, sent: u64, start: u64, times: Times) -> Report {
        let count = self.slip.packets();
        let first_ns = self.first_due.unwrap_or(0);
        Report {
            warm_up_sent: 0,
            warm_up_ns: 0,
            sent,
            failed: self.failed,
            with_id: self.with_id,
            first_ns,
            last_ns: self.last_ns,
            scheduled_rate: rate(count, self.last_due.saturating_sub(first_ns)),
            achieved_rate: rate(sent, self.last_ns.saturating_sub(first_ns)),
            slip: self.slip.finish(start, times),
            bunched: self.bunched,
            mode: self.device.mode(),
            interrupted: (self.stop)(),
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
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use proptest::prelude::*;
    use tailtap_wire::moonsniff;

    use super::*;
    use crate::clock::Simulated;
    use crate::device::faults::{Chances, Faults};
    use crate::device::loopback::Loopback;
    use crate::generate::schedule::Pattern;
    use crate::generate::template::{DESTINATION_MAC, Flows, Layout, SOURCE_MAC, TIME_TO_LIVE};

    const START: u64 = 1_000_000;
    const MILLISECOND: u64 = 1_000_000;

    fn source(sizes: &[usize]) -> Source {
        let mut flows = Flows::default();
        flows.source.count = 3;
        let layout = Layout {
            sizes: sizes.into(),
            flows,
            vlan: Some(7),
            time_to_live: TIME_TO_LIVE,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        };
        Source::Made(Template::new(&layout))
    }

    fn traffic(pattern: Pattern, rate: u64, length: Length) -> Traffic {
        let schedule = Schedule::Pattern(pattern, rate);
        let warm_up = Length::Count(0);
        Traffic { start_ns: START, schedule, length, warm_up, pause_ns: 0 }
    }

    /// When a frame arrived, by the clock, and the frame.
    type Arrivals = Rc<RefCell<Vec<(u64, Vec<u8>)>>>;

    /// A device that takes `takes_ns` for each frame.
    fn device(clock: &Simulated, takes_ns: u64) -> (Loopback<impl FnMut(&[u8]) + use<>>, Arrivals) {
        let arrivals = Arrivals::default();
        let (clock, list) = (clock.clone(), Rc::clone(&arrivals));
        let sink = move |frame: &[u8]| {
            clock.advance(takes_ns);
            list.borrow_mut().push((clock.now(), frame.into()));
        };
        (Loopback::new(4, sink), arrivals)
    }

    fn ids(arrivals: &Arrivals) -> Vec<(u64, Option<u32>)> {
        arrivals.borrow().iter().map(|(time, frame)| (*time, moonsniff::id(frame))).collect()
    }

    #[test]
    fn packets_leave_when_they_are_due() {
        let clock = Simulated::default();
        let (device, arrivals) = device(&clock, 0);
        let sender = Sender::new(Box::new(device), clock, || false, source(&[64, 128]));
        let length = Length::Duration(5 * MILLISECOND);
        let report = sender.run(&traffic(Pattern::Constant, 1000, length)).expect("sent");
        let due = (0..5u64).map(|number| START + number * MILLISECOND);
        let expected: Vec<_> = due.clone().zip((0..5).map(Some)).collect();
        assert_eq!(ids(&arrivals), expected);
        let sizes: Vec<usize> = arrivals.borrow().iter().map(|(_, f)| f.len() + 4).collect();
        assert_eq!(sizes, [64, 128, 64, 128, 64]);
        assert_eq!((report.sent, report.failed, report.with_id, report.bunched), (5, 0, 5, 0));
        assert_eq!((report.first_ns, report.last_ns), (START, START + 4 * MILLISECOND));
        assert_eq!((report.scheduled_rate, report.achieved_rate), (1000.0, 1000.0));
        assert_eq!(report.slip.expect("packets left").max, 0);
    }

    #[test]
    fn the_warm_up_comes_first_without_ids_and_a_pause_follows() {
        let clock = Simulated::default();
        let (device, arrivals) = device(&clock, 0);
        let sender = Sender::new(Box::new(device), clock, || false, source(&[64]));
        let mut traffic = traffic(Pattern::Burst { packets: 2 }, 1000, Length::Count(4));
        (traffic.warm_up, traffic.pause_ns) = (Length::Count(2), 3 * MILLISECOND);
        let report = sender.run(&traffic).expect("sent");
        // Bursts of two every two milliseconds; the measured ones begin a burst and a pause later.
        let at = |ms: u64| START + ms * MILLISECOND;
        let expected =
            [(0, None), (0, None), (5, Some(0)), (5, Some(1)), (7, Some(2)), (7, Some(3))];
        assert_eq!(ids(&arrivals), expected.map(|(ms, id)| (at(ms), id)));
        assert_eq!((report.warm_up_sent, report.warm_up_ns, report.sent), (2, START, 4));
        assert_eq!((report.with_id, report.first_ns), (4, at(5)));
    }

    #[test]
    fn a_slow_device_makes_packets_late_by_what_is_reported() {
        let clock = Simulated::default();
        // A packet each microsecond to a device that takes two for each.
        let (device, arrivals) = device(&clock, 2000);
        let sender = Sender::new(Box::new(device), clock, || false, source(&[64]));
        let length = Length::Count(100);
        let report = sender.run(&traffic(Pattern::Constant, 1_000_000, length)).expect("sent");
        // Packet 0 leaves alone, then 1 and 2, then four at a time (the room), and 99 alone: when
        // the device has had its time for all others. The first packet of the last four is the
        // latest: its slip counts until the call for all four is over.
        assert_eq!((report.sent, report.bunched), (100, 1 + 24 * 3));
        assert_eq!(report.last_ns, START + 99 * 2000);
        assert_eq!(report.slip.expect("packets left").max, 99 * 2000 - 95 * 1000);
        let ids: Vec<_> = ids(&arrivals).into_iter().filter_map(|(_, id)| id).collect();
        assert!(ids.into_iter().eq(0..100), "no packet is left out, none is sent twice");
    }

    #[test]
    fn a_stop_ends_the_traffic_and_says_so() {
        let clock = Simulated::default();
        let (device, arrivals) = device(&clock, 0);
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > 20
        };
        let sender = Sender::new(Box::new(device), clock, stop, source(&[64]));
        let report = sender.run(&traffic(Pattern::Constant, 1000, Length::Count(100)));
        let report = report.expect("sent");
        assert!(report.interrupted);
        assert_eq!(report.sent, arrivals.borrow().len() as u64);
        assert!((1..100).contains(&report.sent));
    }

    /// A device that is unplugged after some frames.
    struct Unplugged {
        left: usize,
        queued: usize,
    }

    impl Device for Unplugged {
        fn room(&self) -> usize {
            4
        }

        fn push(&mut self, _: &[u8]) {
            self.queued += 1;
        }

        fn flush(&mut self) -> usize {
            let taken = self.queued.min(self.left);
            self.left -= taken;
            std::mem::take(&mut self.queued) - taken
        }

        fn is_gone(&self) -> bool {
            self.left == 0
        }
    }

    #[test]
    fn a_device_that_is_gone_ends_the_traffic() {
        let device = Box::new(Unplugged { left: 6, queued: 0 });
        let sender = Sender::new(device, Simulated::default(), || false, source(&[64]));
        let traffic = traffic(Pattern::Burst { packets: 4 }, 1000, Length::Count(100));
        assert_eq!(sender.run(&traffic), Err(Gone { sent: 6 }));
    }

    proptest! {
        /// Whatever the pattern and the device do, every packet is counted once.
        #[test]
        fn every_packet_is_sent_or_not_taken(
            burst in 1..10u64, rate in 1000..1_000_000u64, count in 1..400u64, takes_ns in 0..5000u64,
            refuse in 0.0..0.5, lose in 0.0..0.5, seed: u64,
        ) {
            let clock = Simulated::default();
            let (device, arrivals) = device(&clock, takes_ns);
            let chances = Chances { refuse, lose, ..Chances::default() };
            let device = Faults::new(device, clock.clone(), chances, seed);
            let sender = Sender::new(Box::new(device), clock, || false, source(&[64]));
            let traffic = traffic(Pattern::Burst { packets: burst }, rate, Length::Count(count));
            let times: Vec<u64> = traffic.schedule.times_of(traffic.length).collect();
            let report = sender.run(&traffic).expect("sent");
            prop_assert_eq!(report.sent + report.failed, count);
            prop_assert_eq!(report.with_id, count);
            prop_assert!(arrivals.borrow().len() as u64 <= report.sent);
            for (time, id) in ids(&arrivals) {
                let due = START + times[id.expect("measured") as usize];
                prop_assert!(time >= due, "a packet leaves before it is due");
            }
        }
    }

    #[test]
    fn rates_count_intervals() {
        assert_eq!(rate(3, 1_000_000_000), 2.0);
        assert_eq!(rate(1, 1_000_000_000), 0.0);
        assert_eq!(rate(2, 0), 0.0);
    }
}
