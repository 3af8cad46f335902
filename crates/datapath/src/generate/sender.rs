//! The loop that sends packets when they are due.
//!
//! It goes in rounds. A round waits for the packet that is due next, whichever flow it is of. If
//! others are due by then, they are part of the round, as far as the devices have room. Each device
//! is then handed its packets in one call.

use super::flow::{Flow, Gone};
use super::merge::Merge;
use crate::clock::Clock;
use crate::device::Device;

/// The device of the flow with this number is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowGone(pub(super) usize);

/// Sends the packets of all flows, of which the first may begin at `start`. `stop` says whether to
/// end early.
pub(super) fn send<D: Device + ?Sized>(
    flows: &mut [Flow<D>],
    start: u64,
    clock: &impl Clock,
    stop: impl Fn() -> bool,
) -> Result<(), FlowGone> {
    let mut merge = Merge::new(flows.iter_mut().map(|flow| flow.begin(start)).collect());
    // The flows of a round, in the order of their first packets.
    let mut round = Vec::with_capacity(flows.len());
    while let Some((flow, packet)) = merge.take() {
        flows[flow].push(packet);
        round.push(flow);
        let mut now = clock.wait_until(packet.due, || !stop());
        if stop() {
            break;
        }
        while let Some((flow, packet)) = merge.peek()
            && packet.due <= now
            && flows[flow].takes(packet)
        {
            if flows[flow].push(packet) {
                round.push(flow);
            }
            merge.take();
        }
        for (place, flow) in round.drain(..).enumerate() {
            if place > 0 {
                now = clock.now();
            }
            flows[flow].hand_over(now, clock).map_err(|Gone| FlowGone(flow))?;
        }
    }
    for (number, flow) in flows.iter_mut().enumerate() {
        flow.has_more = merge.has_more_of(number);
    }
    Ok(())
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
    use crate::generate::Report;
    use crate::generate::WarmUp;
    use crate::generate::flow::{Share, Source, Traffic};
    use crate::generate::schedule::{Length, Pattern, Schedule};
    use crate::generate::template::{
        DESTINATION_MAC, Flows, Layout, SOURCE_MAC, TIME_TO_LIVE, Template,
    };

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
        Traffic { schedule, length, warm_up, pause_ns: 0, phase_ns: 0, share: Share::WHOLE }
    }

    type AnyFlow = Flow<dyn Device>;

    /// Sends flows and reports each; else which of them lost its device after how many packets.
    fn send(
        mut flows: Vec<AnyFlow>,
        start: u64,
        clock: &Simulated,
        stop: impl Fn() -> bool,
    ) -> Result<Vec<Report>, (usize, u64)> {
        super::send(&mut flows, start, clock, stop)
            .map_err(|FlowGone(flow)| (flow, flows[flow].taken()))?;
        Ok(flows.into_iter().map(|flow| Flow::report(vec![flow])).collect())
    }

    /// Sends one flow.
    fn send_one(
        device: impl Device + 'static,
        clock: &Simulated,
        source: Source,
        traffic: Traffic,
        stop: impl Fn() -> bool,
    ) -> Result<Report, (usize, u64)> {
        let flow = AnyFlow::new(Box::new(device), source, traffic);
        send(vec![flow], START, clock, stop).map(|mut reports| reports.remove(0))
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
        let length = Length::Duration(5 * MILLISECOND);
        let traffic = traffic(Pattern::Constant, 1000, length);
        let report = send_one(device, &clock, source(&[64, 128]), traffic, || false).expect("sent");
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
        let mut traffic = traffic(Pattern::Burst { packets: 2 }, 1000, Length::Count(4));
        (traffic.warm_up, traffic.pause_ns) = (Length::Count(2), 3 * MILLISECOND);
        let report = send_one(device, &clock, source(&[64]), traffic, || false).expect("sent");
        // Bursts of two every two milliseconds; the measured ones begin a burst and a pause later.
        let at = |ms: u64| START + ms * MILLISECOND;
        let expected =
            [(0, None), (0, None), (5, Some(0)), (5, Some(1)), (7, Some(2)), (7, Some(3))];
        assert_eq!(ids(&arrivals), expected.map(|(ms, id)| (at(ms), id)));
        assert_eq!((report.warm_up, report.sent), (WarmUp { sent: 2, first_ns: START }, 4));
        assert_eq!((report.with_id, report.first_ns), (4, at(5)));
    }

    #[test]
    fn a_slow_device_makes_packets_late_by_what_is_reported() {
        let clock = Simulated::default();
        // A packet each microsecond to a device that takes two for each.
        let (device, arrivals) = device(&clock, 2000);
        let traffic = traffic(Pattern::Constant, 1_000_000, Length::Count(100));
        let report = send_one(device, &clock, source(&[64]), traffic, || false).expect("sent");
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
        let traffic = traffic(Pattern::Constant, 1000, Length::Count(100));
        let report = send_one(device, &clock, source(&[64]), traffic, stop).expect("sent");
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
        let device = Unplugged { left: 6, queued: 0 };
        let traffic = traffic(Pattern::Burst { packets: 4 }, 1000, Length::Count(100));
        let sent = send_one(device, &Simulated::default(), source(&[64]), traffic, || false);
        assert_eq!(sent, Err((0, 6)));
    }

    /// A device that takes all frames, and keeps the last of them for ever.
    struct Keeping(usize);

    impl Device for Keeping {
        fn room(&self) -> usize {
            4
        }

        fn push(&mut self, _: &[u8]) {}

        fn flush(&mut self) -> usize {
            0
        }

        fn finish(&mut self) -> usize {
            self.0
        }
    }

    #[test]
    fn frames_that_never_leave_have_failed() {
        for (kept, sent, warm_up_sent) in [(3, 1, 2), (5, 0, 1)] {
            let mut traffic = traffic(Pattern::Constant, 1000, Length::Count(4));
            traffic.warm_up = Length::Count(2);
            let clock = Simulated::default();
            let told = send_one(Keeping(kept), &clock, source(&[64]), traffic, || false);
            let told = told.expect("sent");
            let found = (told.sent, told.warm_up.sent, told.failed);
            assert_eq!(found, (sent, warm_up_sent, kept as u64));
        }
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
            let traffic = traffic(Pattern::Burst { packets: burst }, rate, Length::Count(count));
            let times: Vec<u64> = traffic.schedule.times_of(traffic.length).collect();
            let report = send_one(device, &clock, source(&[64]), traffic, || false).expect("sent");
            prop_assert_eq!(report.sent + report.failed, count);
            prop_assert_eq!(report.with_id, count);
            prop_assert!(arrivals.borrow().len() as u64 <= report.sent);
            for (time, id) in ids(&arrivals) {
                let due = START + times[id.expect("measured") as usize];
                prop_assert!(time >= due, "a packet leaves before it is due");
            }
        }
    }

    /// The flow and the frame of each arrival, and when that was.
    type Together = Rc<RefCell<Vec<(usize, u64, Option<u32>)>>>;

    /// A flow whose device takes `takes_ns` for each frame.
    fn flow(
        number: usize,
        traffic: Traffic,
        clock: &Simulated,
        takes_ns: u64,
        arrivals: &Together,
    ) -> AnyFlow {
        let (clock, list) = (clock.clone(), Rc::clone(arrivals));
        let sink = move |frame: &[u8]| {
            clock.advance(takes_ns);
            list.borrow_mut().push((number, clock.now(), moonsniff::id(frame)));
        };
        AnyFlow::new(Box::new(Loopback::new(4, sink)), source(&[64]), traffic)
    }

    proptest! {
        /// Threads send together what one would send, when it would, and report the same; each has its
        /// ids in order.
        #[test]
        fn threads_share_one_schedule(
            of in 1..6u32, rate in 1000..1_000_000u64, count in 0..100u64, warm_up in 1..20u64,
            pattern in prop_oneof![
                Just(Pattern::Constant),
                (1..9u64).prop_map(|packets| Pattern::Burst { packets }),
                any::<u64>().prop_map(|seed| Pattern::Poisson { seed }),
            ],
        ) {
            let run = |shares: &[Share]| {
                let arrivals = Together::default();
                let sent = shares.iter().zip(0..).map(|(&share, number)| {
                    let clock = Simulated::default();
                    let mut traffic = traffic(pattern, rate, Length::Count(count));
                    (traffic.share, traffic.warm_up) = (share, Length::Count(warm_up));
                    let mut flows = [flow(number, traffic, &clock, 0, &arrivals)];
                    super::send(&mut flows, START, &clock, || false).expect("sent");
                    let [flow] = flows;
                    flow
                });
                let report = Flow::report(sent.collect());
                (arrivals.take(), report)
            };
            let (whole, expected) = run(&[Share::WHOLE]);
            let shares: Vec<_> = (0..of).map(|first| Share { first, of }).collect();
            let (parts, report) = run(&shares);
            for number in 0..of as usize {
                let own = parts.iter().filter(|row| row.0 == number);
                prop_assert!(own.filter_map(|row| row.2).is_sorted());
            }
            let sorted = |rows: &[(usize, u64, Option<u32>)]| {
                let mut rows: Vec<_> = rows.iter().map(|&(_, time, id)| (time, id)).collect();
                rows.sort_unstable();
                rows
            };
            prop_assert_eq!(sorted(&parts), sorted(&whole));
            prop_assert_eq!(report, expected);
        }
    }

    #[test]
    fn each_flow_has_its_own_rate_ids_and_report() {
        let clock = Simulated::default();
        let arrivals = Together::default();
        let mut fast = traffic(Pattern::Constant, 2000, Length::Count(4));
        fast.warm_up = Length::Count(2);
        let mut slow = traffic(Pattern::Constant, 1000, Length::Count(2));
        slow.phase_ns = MILLISECOND / 4;
        let flows = vec![flow(0, fast, &clock, 0, &arrivals), flow(1, slow, &clock, 0, &arrivals)];
        let reports = send(flows, START, &clock, || false).expect("sent");
        let at = |quarters: u64| START + quarters * MILLISECOND / 4;
        let expected = [
            (0, at(0), None),
            (1, at(1), Some(0)),
            (0, at(2), None),
            (0, at(4), Some(0)),
            (1, at(5), Some(1)),
            (0, at(6), Some(1)),
            (0, at(8), Some(2)),
            (0, at(10), Some(3)),
        ];
        assert_eq!(*arrivals.borrow(), expected);
        let sent =
            reports.iter().map(|one| (one.warm_up.sent, one.sent, one.first_ns, one.phase_ns));
        let expected = [(2, 4, at(4), 0), (0, 2, at(1), MILLISECOND / 4)];
        assert!(sent.eq(expected));
        assert_eq!((reports[0].achieved_rate, reports[1].achieved_rate), (2000.0, 1000.0));
    }

    #[test]
    fn a_flow_that_waits_for_another_one_says_how_long() {
        let clock = Simulated::default();
        let arrivals = Together::default();
        let same = || traffic(Pattern::Constant, 1000, Length::Count(3));
        let flows =
            vec![flow(0, same(), &clock, 2000, &arrivals), flow(1, same(), &clock, 10, &arrivals)];
        let reports = send(flows, START, &clock, || false).expect("sent");
        // Both are due in the same nanosecond: the second one leaves when the first was taken.
        let slips = reports.iter().map(|one| one.slip.clone().expect("packets left"));
        assert!(slips.map(|slip| (slip.min, slip.max)).eq([(0, 0), (2000, 2000)]));
    }

    #[test]
    fn a_stop_tells_finished_flows_from_others() {
        let clock = Simulated::default();
        let arrivals = Together::default();
        let flows = vec![
            flow(0, traffic(Pattern::Constant, 1000, Length::Count(2)), &clock, 0, &arrivals),
            flow(1, traffic(Pattern::Constant, 1000, Length::Count(9)), &clock, 0, &arrivals),
        ];
        let stop = || arrivals.borrow().len() >= 6;
        let reports = send(flows, START, &clock, stop).expect("sent");
        let told = reports.iter().map(|one| (one.sent, one.interrupted));
        assert!(told.eq([(2, false), (4, true)]));
    }

    #[test]
    fn the_flow_whose_device_is_gone_is_named() {
        let clock = Simulated::default();
        let arrivals = Together::default();
        let well =
            flow(0, traffic(Pattern::Constant, 1000, Length::Count(9)), &clock, 0, &arrivals);
        let gone = Unplugged { left: 3, queued: 0 };
        let lost = traffic(Pattern::Constant, 1000, Length::Count(9));
        let flows = vec![well, AnyFlow::new(Box::new(gone), source(&[64]), lost)];
        assert_eq!(send(flows, START, &clock, || false), Err((1, 3)));
    }

    proptest! {
        /// Whatever the flows and their devices do, each packet of each flow is counted once, and
        /// flows on time have their packets in the order of the union of their schedules.
        #[test]
        fn flows_do_not_mix(
            shapes in prop::collection::vec((1..5u64, 1000..1_000_000u64, 0..60u64, 0..5000u64), 1..5),
            takes_ns in prop_oneof![Just(0), 0..5000u64],
        ) {
            let clock = Simulated::default();
            let arrivals = Together::default();
            let mut expected = Vec::new();
            let mut flows = Vec::new();
            for (number, &(burst, rate, count, phase_ns)) in shapes.iter().enumerate() {
                let pattern = Pattern::Burst { packets: burst };
                let sent = Traffic { phase_ns, ..traffic(pattern, rate, Length::Count(count)) };
                let times = sent.schedule.times_of(sent.length).enumerate();
                expected.extend(times.map(|(id, time)| (START + phase_ns + time, number, id as u32)));
                flows.push(flow(number, sent, &clock, takes_ns, &arrivals));
            }
            expected.sort_unstable();
            let reports = send(flows, START, &clock, || false).expect("sent");
            for (number, (report, &(_, _, count, _))) in reports.iter().zip(&shapes).enumerate() {
                prop_assert_eq!((report.sent, report.with_id), (count, count));
                let found = arrivals.borrow();
                let own = found.iter().filter(|row| row.0 == number).filter_map(|row| row.2);
                prop_assert!(own.eq(0..count as u32));
            }
            if takes_ns == 0 {
                let found: Vec<_> = arrivals.borrow().iter()
                    .map(|&(number, time, id)| (time, number, id.expect("measured"))).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
