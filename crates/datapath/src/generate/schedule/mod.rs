//! When packets are due: one file for each kind, one row in [`Pattern`].
//!
//! A schedule is an iterator of offsets from the first moment, in whole nanoseconds, never
//! falling. It looks at no clock: the same pattern gives the same times on every machine. Each
//! time is worked out from the packet's number in integers, rounded down, so that nothing drifts.

mod burst;
mod constant;
mod on_off;
mod poisson;
mod ramp;
mod recorded;

pub use recorded::Recorded;

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// The longest time that schedules are made for, a year: sums then stay far from overflow.
pub const MAX_NS: u64 = 366 * 86_400 * SECOND;
/// The longest ramp, a day.
pub const MAX_RAMP_NS: u64 = 86_400 * SECOND;
/// The highest rate: a packet each nanosecond.
pub const MAX_RATE: u64 = SECOND;

/// Offsets of packets from the start, in nanoseconds.
pub type Times = Box<dyn Iterator<Item = u64> + Send>;

/// How packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Equal gaps.
    Constant,
    /// So many packets at once, at the same mean rate.
    Burst {
        /// Packets of a burst.
        packets: u64,
    },
    /// Gaps of an exponential distribution, independent of each other.
    Poisson {
        /// What the gaps follow from.
        seed: u64,
    },
    /// Equal gaps during `on`, silence during `off`, in turn. The rate is that of the first.
    OnOff {
        /// Nanoseconds with packets.
        on_ns: u64,
        /// Nanoseconds without.
        off_ns: u64,
    },
    /// A rate that grows or falls evenly with time and stays where it arrived.
    Ramp {
        /// The rate at the end.
        to: u64,
        /// How long it takes to get there.
        over_ns: u64,
    },
}

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// For so many nanoseconds.
    Duration(u64),
    /// So many packets.
    Count(u64),
}

/// A pattern that cannot be sent.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PatternError {
    /// Zero, or more than one packet a nanosecond.
    #[error("{rate} pkt/s cannot be scheduled: give --rate a value from 1 pkt/s to 1000 Mpkt/s")]
    Rate {
        /// The rate asked for.
        rate: u64,
    },
    /// The pattern's own numbers.
    #[error("a pattern cannot have {what}")]
    Values {
        /// What is wrong with them.
        what: &'static str,
    },
    /// No pattern of this name has this many values.
    #[error("there is no pattern {name:?} with {count} values")]
    Unknown {
        /// The name asked for.
        name: String,
        /// How many values came with it.
        count: usize,
    },
    /// Longer than a year.
    #[error("a time of {ns} ns is too long to be scheduled: give at most a year")]
    Long {
        /// The time asked for.
        ns: u64,
    },
}

impl Pattern {
    /// A pattern by its name and its values, in the order of the fields above.
    pub fn from_parts(name: &str, values: &[u64]) -> Result<Self, PatternError> {
        Ok(match (name, values) {
            ("constant", []) => Self::Constant,
            ("burst", &[packets]) => Self::Burst { packets },
            ("poisson", &[seed]) => Self::Poisson { seed },
            ("on-off", &[on_ns, off_ns]) => Self::OnOff { on_ns, off_ns },
            ("ramp", &[to, over_ns]) => Self::Ramp { to, over_ns },
            _ => {
                return Err(PatternError::Unknown { name: name.into(), count: values.len() });
            }
        })
    }

    /// Whether this pattern can be sent at `rate`, in packets a second.
    pub fn check(&self, rate: u64) -> Result<(), PatternError> {
        if !(1..=MAX_RATE).contains(&rate) {
            return Err(PatternError::Rate { rate });
        }
        let values = |what| Err(PatternError::Values { what });
        match *self {
            Self::Burst { packets: 0 } => values("bursts of no packets"),
            Self::Burst { packets } if packets > 1 << 32 => values("bursts of over 2^32 packets"),
            Self::OnOff { on_ns: 0, .. } => values("no time with packets"),
            Self::OnOff { on_ns: ns, .. } | Self::OnOff { off_ns: ns, .. } if ns > MAX_NS => {
                Err(PatternError::Long { ns })
            }
            Self::Ramp { to, .. } if !(1..=MAX_RATE).contains(&to) => {
                Err(PatternError::Rate { rate: to })
            }
            Self::Ramp { over_ns: 0, .. } => values("a ramp of no length"),
            Self::Ramp { over_ns, .. } if over_ns > MAX_RAMP_NS => values("a ramp over a day long"),
            _ => Ok(()),
        }
    }

    /// The times of all packets, without end, at `rate` packets a second (1 to [`MAX_RATE`]).
    pub fn times(&self, rate: u64) -> Times {
        match *self {
            Self::Constant => Box::new(constant::times(rate)),
            Self::Burst { packets } => Box::new(burst::times(rate, packets)),
            Self::Poisson { seed } => Box::new(poisson::times(rate, seed)),
            Self::OnOff { on_ns, off_ns } => Box::new(on_off::times(rate, on_ns, off_ns)),
            Self::Ramp { to, over_ns } => Box::new(ramp::Ramp::new(rate, to, over_ns)),
        }
    }

    /// How many packets belong to the first `duration_ns`; `None` where that is left to chance.
    pub fn packets_in(&self, duration_ns: u64, rate: u64) -> Option<u64> {
        match *self {
            Self::Constant => Some(constant::packets_in(duration_ns, rate)),
            Self::Burst { packets } => {
                Some(constant::packets_in(duration_ns, rate) / packets * packets)
            }
            Self::Poisson { .. } => None,
            Self::OnOff { on_ns, off_ns } => {
                let on = on_off::time_on(duration_ns, on_ns, off_ns);
                Some(constant::packets_in(on, rate))
            }
            Self::Ramp { to, over_ns } => {
                Some(ramp::Ramp::new(rate, to, over_ns).packets_in(duration_ns))
            }
        }
    }

    /// At least as many packets as the first `duration_ns` hold. Where chance decides, ten
    /// standard deviations are added.
    pub fn most_packets_in(&self, duration_ns: u64, rate: u64) -> u64 {
        self.packets_in(duration_ns, rate).unwrap_or_else(|| {
            let mean = constant::packets_in(duration_ns, rate);
            mean.saturating_add(10 * mean.isqrt() + 10)
        })
    }

    /// The pattern of the packets before the measurement: a ramp has not begun then, and chance
    /// takes other turns.
    pub fn before(&self) -> Self {
        match *self {
            Self::Ramp { .. } => Self::Constant,
            Self::Poisson { seed } => Self::Poisson { seed: !seed },
            other => other,
        }
    }
}

/// When packets are due: by a pattern at a rate, or as they were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// By a pattern, at a rate in packets a second.
    Pattern(Pattern, u64),
    /// As they were recorded.
    Recorded(Recorded),
}

impl Schedule {
    /// Whether packets can be sent so.
    pub fn check(&self) -> Result<(), PatternError> {
        match self {
            Self::Pattern(pattern, rate) => pattern.check(*rate),
            Self::Recorded(_) => Ok(()),
        }
    }

    /// The times of all packets, without end.
    pub fn times(&self) -> Times {
        match self {
            Self::Pattern(pattern, rate) => pattern.times(*rate),
            Self::Recorded(recorded) => Box::new(recorded.times()),
        }
    }

    /// The times of so many packets, or of those that belong to so much time.
    pub fn times_of(&self, length: Length) -> Times {
        let known = match (self, length) {
            (_, Length::Count(count)) => Ok(count),
            (Self::Recorded(recorded), Length::Duration(ns)) => Ok(recorded.packets_in(ns)),
            (Self::Pattern(pattern, rate), Length::Duration(ns)) => {
                pattern.packets_in(ns, *rate).ok_or(ns)
            }
        };
        match known {
            Ok(count) => Box::new((0..count).zip(self.times()).map(|(_, time)| time)),
            Err(ns) => Box::new(self.times().take_while(move |&time| time < ns)),
        }
    }

    /// At least as many packets as belong to a length.
    pub fn most_packets(&self, length: Length) -> u64 {
        match (self, length) {
            (_, Length::Count(count)) => count,
            (Self::Pattern(pattern, rate), Length::Duration(ns)) => {
                pattern.most_packets_in(ns, *rate)
            }
            (Self::Recorded(recorded), Length::Duration(ns)) => recorded.packets_in(ns),
        }
    }

    /// The mean gap between packets in nanoseconds, rounded down; at the beginning where the rate
    /// changes.
    pub fn gap_ns(&self) -> u64 {
        match self {
            Self::Pattern(_, rate) => SECOND / rate,
            Self::Recorded(recorded) => recorded.period_ns() / recorded.packets(),
        }
    }

    /// The schedule of the packets before the measurement.
    pub fn before(&self) -> Self {
        match self {
            Self::Pattern(pattern, rate) => Self::Pattern(pattern.before(), *rate),
            Self::Recorded(recorded) => Self::Recorded(recorded.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            Just(Pattern::Constant),
            (1..100u64).prop_map(|packets| Pattern::Burst { packets }),
            any::<u64>().prop_map(|seed| Pattern::Poisson { seed }),
            (1..10 * SECOND, 0..10 * SECOND)
                .prop_map(|(on_ns, off_ns)| Pattern::OnOff { on_ns, off_ns }),
            (1..20_000_000u64, 1..10 * SECOND)
                .prop_map(|(to, over_ns)| Pattern::Ramp { to, over_ns }),
        ]
    }

    proptest! {
        #[test]
        fn times_never_fall_and_belong_to_the_duration(
            pattern in any_pattern(), rate in 1..20_000_000u64, duration in 0..SECOND / 1000,
        ) {
            let schedule = Schedule::Pattern(pattern, rate);
            let times: Vec<u64> = schedule.times_of(Length::Duration(duration)).collect();
            prop_assert!(times.is_sorted());
            prop_assert!(times.last().is_none_or(|&last| last < duration));
            prop_assert!(times.len() as u64 <= pattern.most_packets_in(duration, rate));
            if let Some(count) = pattern.packets_in(duration, rate) {
                prop_assert_eq!(times.len() as u64, count);
            }
            let counted = Length::Count(times.len() as u64);
            prop_assert!(schedule.times_of(counted).eq(times));
        }

        #[test]
        fn the_same_pattern_gives_the_same_times(pattern in any_pattern(), rate in 1..MAX_RATE) {
            let times = |pattern: Pattern| pattern.times(rate).take(200).collect::<Vec<_>>();
            prop_assert_eq!(times(pattern), times(pattern));
        }
    }

    #[test]
    fn numbers_that_make_no_pattern_are_refused() {
        let cases = [
            (Pattern::Constant, 0, "give --rate"),
            (Pattern::Constant, MAX_RATE + 1, "give --rate"),
            (Pattern::Burst { packets: 0 }, 1, "bursts of no packets"),
            (Pattern::Burst { packets: u64::MAX }, 1, "2^32"),
            (Pattern::OnOff { on_ns: 0, off_ns: 1 }, 1, "no time with packets"),
            (Pattern::OnOff { on_ns: 1, off_ns: u64::MAX }, 1, "a year"),
            (Pattern::Ramp { to: 0, over_ns: 1 }, 1, "0 pkt/s"),
            (Pattern::Ramp { to: 1, over_ns: 0 }, 1, "no length"),
            (Pattern::Ramp { to: 1, over_ns: u64::MAX }, 1, "a day"),
        ];
        for (pattern, rate, expected) in cases {
            let message = pattern.check(rate).expect_err("refused").to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!(Pattern::Poisson { seed: 0 }.check(MAX_RATE), Ok(()));
    }

    #[test]
    fn names_and_values_make_patterns() {
        assert_eq!(Pattern::from_parts("burst", &[3]), Ok(Pattern::Burst { packets: 3 }));
        assert_eq!(Pattern::from_parts("ramp", &[5, 6]), Ok(Pattern::Ramp { to: 5, over_ns: 6 }));
        for (name, values) in [("burst", &[][..]), ("bursts", &[3]), ("constant", &[1])] {
            assert!(Pattern::from_parts(name, values).is_err());
        }
    }
}
