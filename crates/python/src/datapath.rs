//! Taps, generator and forwarder for Python. Each runs on a thread of its own: its priority and
//! its CPU are not those of Python's thread, which waits without the GIL.

use std::collections::HashSet;
use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use tailtap_analysis::key::KeyKind;
use tailtap_datapath::OnReady;
use tailtap_datapath::audit;
use tailtap_datapath::bpf::{self, BpfError, Classic};
use tailtap_datapath::device::af_xdp::AfXdpError;
use tailtap_datapath::device::registry::{BackEnd, DeviceError};
use tailtap_datapath::forward::fault::{self, ForwardError};
use tailtap_datapath::forward::redirect::{RedirectError, XdpMode, redirect as run_redirect};
use tailtap_datapath::forward::{Limit, PortsError};
use tailtap_datapath::generate::replay::Replay;
use tailtap_datapath::generate::schedule::{Length, Pattern};
use tailtap_datapath::generate::template::{Addresses, Flows, Layout, Ports};
use tailtap_datapath::generate::{self, Content, GenerateError};
use tailtap_datapath::interface::InterfaceError;
use tailtap_datapath::load::{LoadError, Share, Work, load as run_load};
use tailtap_datapath::namespace::NamespaceError;
use tailtap_datapath::noise::{NoiseError, watch};
use tailtap_datapath::tap::file::TapClock;
use tailtap_datapath::tap::writer::Rotation;
use tailtap_datapath::tap::{Forward, Kind, Link, Measured, Point, TapError, TapKey};
use tailtap_wire::ethernet::Mac;

use crate::errors::{not_written, of_replay, of_system, raise};
use crate::records::plain;

/// Adds this file's functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(takes_programs, module)?)?;
    module.add_function(wrap_pyfunction!(audit_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(tap, module)?)?;
    module.add_function(wrap_pyfunction!(check_tap_key, module)?)?;
    module.add_function(wrap_pyfunction!(check_key, module)?)?;
    module.add_function(wrap_pyfunction!(send, module)?)?;
    module.add_function(wrap_pyfunction!(most_packets, module)?)?;
    module.add_function(wrap_pyfunction!(recording, module)?)?;
    module.add_function(wrap_pyfunction!(forward, module)?)?;
    module.add_function(wrap_pyfunction!(redirect, module)?)?;
    module.add_function(wrap_pyfunction!(load, module)?)?;
    module.add_function(wrap_pyfunction!(noise, module)?)?;
    Ok(())
}

/// Whether this kernel takes the programs of tap and tracer, as far as this process may ask it.
#[pyfunction]
fn takes_programs() -> bool {
    bpf::takes_programs()
}

/// What the kernel says of reports of system calls; see the stub.
#[pyfunction]
fn audit_enabled() -> PyResult<u32> {
    audit::enabled().map_err(|error| of_system(&error))
}

/// `tailtap.lab.instruments.taps.links.TapLink`.
#[derive(FromPyObject)]
pub struct TapLink {
    pub name: String,
    namespace: Option<String>,
    pub interface: String,
    at: String,
    onward: Option<String>,
    pub absorb: bool,
    records: Option<u64>,
    hash: Option<String>,
    behind: Option<bool>,
}

impl TapLink {
    fn point(&self) -> PyResult<Point> {
        let forward = match (&self.onward, self.absorb) {
            (None, false) => Forward::Pass,
            (None, true) => Forward::Drop,
            (Some(onward), _) => Forward::To(onward.clone()),
        };
        match (self.at.as_str(), forward) {
            ("ingress", forward) => Ok(Point::Arriving(forward)),
            ("arrival", forward) => Ok(Point::HandedOver(forward)),
            ("egress", forward) => Ok(Point::Leaving(forward)),
            ("receipt", Forward::Pass) => Ok(Point::Received),
            (at, forward) => {
                Err(raise("InputError", format!("there is no tap point {at:?} with {forward:?}")))
            }
        }
    }
}

/// One of a filter of libpcap's: code, jump where true, jump where false, number.
type Instruction = (u16, u8, u8, u32);

#[pyfunction]
#[pyo3(signature = (links, on_ready, *, snap=None, marks=false, key, clock, rotate, records=None, flush_ns=None, duration_ns=None, count=None, cpu=None, measure_cost=false, filter=None, filter_of_ip=None, level=0, budget=None, tell_ns=None, on_tell=None))]
#[expect(clippy::too_many_arguments, reason = "the parameters of the Python function")]
fn tap<'py>(
    py: Python<'py>,
    links: Vec<(TapLink, PathBuf)>,
    on_ready: Py<PyAny>,
    snap: Option<u32>,
    marks: bool,
    key: &str,
    clock: &str,
    rotate: (Option<u64>, Option<u64>),
    records: Option<u64>,
    flush_ns: Option<u64>,
    duration_ns: Option<u64>,
    count: Option<u64>,
    cpu: Option<usize>,
    measure_cost: bool,
    filter: Option<Vec<Instruction>>,
    filter_of_ip: Option<Vec<Instruction>>,
    level: u8,
    budget: Option<f64>,
    tell_ns: Option<u64>,
    on_tell: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let links = links.into_iter().map(|(link, path)| {
        let point = link.point()?;
        let TapLink { name, namespace, interface, records, hash, behind, .. } = link;
        let hash = hash.as_deref().map(parse).transpose()?;
        Ok(Link { name, namespace, interface, point, path, records, hash, behind })
    });
    let classic =
        |(code, if_true, if_false, k): Instruction| Classic { code, if_true, if_false, k };
    let classics =
        |filter: Option<Vec<_>>| filter.map(|filter| filter.into_iter().map(classic).collect());
    let TapClock(clock) = parse(clock)?;
    let (bytes, time_ns) = rotate;
    let options = tailtap_datapath::tap::Options {
        links: links.collect::<PyResult<_>>()?,
        kind: match snap {
            None => Kind::Stamps,
            Some(snap) if marks => Kind::Marks(snap),
            Some(snap) => Kind::Pcap(snap),
        },
        key: parse(key)?,
        clock,
        rotation: Rotation { bytes, time_ns },
        records,
        flush_ns,
        duration_ns,
        count,
        cpu,
        measure_cost,
        filter: classics(filter),
        filter_of_ip: classics(filter_of_ip),
        level,
        budget,
        tell_ns,
    };
    let mut told = |measured: &Measured<'_>| match &on_tell {
        None => Ok(()),
        Some(function) => Python::attach(|py| {
            function.call1(py, (plain(py, measured)?,)).map(drop).map_err(Into::into)
        }),
    };
    let reports = on_own_thread(py, "tt-tap", || {
        tailtap_datapath::tap::tap(&options, ready(on_ready), &mut told)
    })?
    .map_err(|error| {
        let input = match &error {
            TapError::Interface(error) => is_input(error),
            TapError::Namespace(error) => matches!(error, NamespaceError::Missing { .. }),
            TapError::Bpf(BpfError::Busy { .. }) => return raise("Tapped", error),
            TapError::Bpf(error) => error.is_input(),
            TapError::Ready(error) => return raised(py, error.as_ref()),
            TapError::Create(error) => return not_written(&error.path, &error.source, ""),
            TapError::Write { error, kept } => {
                return not_written(&error.path, &error.source, kept);
            }
            TapError::Records { .. }
            | TapError::Snap { .. }
            | TapError::KeyOfPackets
            | TapError::NoFrame { .. }
            | TapError::FilterOfFrames { .. }
            | TapError::NoHash { .. }
            | TapError::NoMarks { .. }
            | TapError::NoSample { .. }
            | TapError::Sample { .. }
            | TapError::Budget
            | TapError::Cpu(_) => true,
            _ => false,
        };
        refused(input, &error)
    })?;
    let result = PyDict::new(py);
    for report in reports {
        let link = PyDict::new(py);
        link.set_item("file", &report.files[0])?;
        link.set_item("files", report.files)?;
        link.set_item("format", options.kind.name())?;
        link.set_item("clock", options.clock.name())?;
        let counts = report.counts.tap;
        link.set_item("seen", counts.seen)?;
        link.set_item("stored", counts.stored)?;
        link.set_item("lost", counts.lost)?;
        link.set_item("other", counts.other)?;
        link.set_item("filtered", report.counts.filtered)?;
        link.set_item("unsampled", report.counts.unsampled)?;
        let samples = report.samples.iter().map(|one| (one.since_ns, 1u64 << one.level));
        link.set_item("samples", samples.collect::<Vec<_>>())?;
        link.set_item("hash", report.link.hash.map(|key| key.to_string()))?;
        link.set_item("hook", report.hook)?;
        link.set_item("late", report.late)?;
        link.set_item("dropped", report.dropped)?;
        link.set_item("namespace", report.link.namespace)?;
        link.set_item("interface", report.link.interface)?;
        link.set_item("warnings", report.warnings)?;
        if let Some(cost) = report.cost {
            link.set_item("cost_ns", cost.tap_ns)?;
            link.set_item("cost_floor_ns", cost.floor_ns)?;
            link.set_item("cost_clock_ns", cost.clock_ns)?;
        }
        result.set_item(report.link.name, link)?;
    }
    Ok(result)
}

/// Raises InputError for a key whose ids a tap cannot stamp.
#[pyfunction]
fn check_tap_key(key: &str) -> PyResult<()> {
    parse::<TapKey>(key).map(drop)
}

/// Raises InputError for a key that packets of captures cannot be matched by.
#[pyfunction]
fn check_key(key: &str) -> PyResult<()> {
    parse::<KeyKind>(key).map(drop)
}

/// What an option says; InputError when it says nothing that is known.
pub(crate) fn parse<T: FromStr<Err: Error>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|error: T::Err| refused(true, &error))
}

/// A flow as Python has it, a mapping with these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Sending {
    interface: String,
    rate: Option<u64>,
    pattern: (String, Vec<u64>),
    sizes: Vec<usize>,
    source: (IpAddr, u32),
    destination: (IpAddr, u32),
    source_ports: (u16, u32),
    destination_ports: (u16, u32),
    vlan: Option<u16>,
    time_to_live: u8,
    source_mac: Mac,
    destination_mac: Mac,
    replay: Option<(PathBuf, bool)>,
    length: Option<(String, u64)>,
    warm_up: (String, u64),
    pause_ns: u64,
    back_end: String,
    bypass: bool,
}

impl Sending {
    fn options(self) -> PyResult<generate::Options> {
        let addresses = |(first, count)| Addresses { first, count };
        let ports = |(first, count)| Ports { first, count };
        let length_of = |(unit, value): (String, u64)| match unit.as_str() {
            "packets" => Length::Count(value),
            _ => Length::Duration(value),
        };
        let (name, values) = self.pattern;
        let pattern = Pattern::from_parts(&name, &values).map_err(|e| refused(true, &e))?;
        let layout = Layout {
            sizes: self.sizes,
            flows: Flows {
                source: addresses(self.source),
                destination: addresses(self.destination),
                source_ports: ports(self.source_ports),
                destination_ports: ports(self.destination_ports),
            },
            vlan: self.vlan,
            time_to_live: self.time_to_live,
            source: self.source_mac,
            destination: self.destination_mac,
        };
        Ok(generate::Options {
            interface: self.interface,
            pace: self.rate.map(|rate| (pattern, rate)),
            content: match self.replay {
                Some((path, stamp_ids)) => Content::Replay { path, stamp_ids },
                None => Content::Made(layout),
            },
            length: self.length.map(length_of),
            warm_up: length_of(self.warm_up),
            pause_ns: self.pause_ns,
            back_end: match self.back_end.as_str() {
                "af_xdp" => BackEnd::AfXdp,
                "af_packet" => BackEnd::AfPacket { bypass: self.bypass },
                name => return Err(raise("InputError", format!("there is no back end {name:?}"))),
            },
        })
    }
}

#[pyfunction]
#[pyo3(signature = (flows, *, cpus=vec![]), name = "generate")]
fn send(py: Python<'_>, flows: Vec<Sending>, cpus: Vec<usize>) -> PyResult<Bound<'_, PyAny>> {
    let flows: Vec<_> = flows.into_iter().map(Sending::options).collect::<PyResult<_>>()?;
    let reports = on_own_thread(py, "tt-generate", || generate::generate(&flows, &cpus))?.map_err(
        |error| {
            let input = match &error {
                GenerateError::Interface(error) => is_input(error),
                GenerateError::Replay(error) => return of_replay(error),
                GenerateError::Device(DeviceError::AfXdp(
                    AfXdpError::Large { .. } | AfXdpError::Busy { .. },
                )) => true,
                GenerateError::Device(_)
                | GenerateError::Vanished { .. }
                | GenerateError::System { .. } => false,
                _ => true,
            };
            refused(input, &error)
        },
    )?;
    let sent = flows.into_iter().zip(reports).map(|(flow, report)| Sent {
        schema: "tailtap.generator/1",
        interface: flow.interface,
        rate: flow.pace.map(|(_, rate)| rate),
        cpu: cpus.first().copied(),
        threads: cpus.len().max(1),
        report,
    });
    plain(py, &sent.collect::<Vec<_>>())
}

/// A flow's `generator.json`.
#[derive(Serialize)]
struct Sent {
    schema: &'static str,
    interface: String,
    rate: Option<u64>,
    cpu: Option<usize>,
    threads: usize,
    #[serde(flatten)]
    report: generate::Report,
}

#[pyfunction]
#[pyo3(signature = (kind, on_ready, *, cpu, name, nice=0, amount=0, at_once=1, busy_ns=0, period_ns=0))]
#[expect(clippy::too_many_arguments, reason = "the parameters of the Python function")]
fn load<'py>(
    py: Python<'py>,
    kind: &str,
    on_ready: Py<PyAny>,
    cpu: usize,
    name: &str,
    nice: i32,
    amount: u64,
    at_once: u64,
    busy_ns: u64,
    period_ns: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let share = Share { busy_ns, period_ns };
    let work = match kind {
        "cpu" => Work::Cpu(share),
        "cache" => Work::Cache { bytes: amount as usize, share },
        "memory" => Work::Memory { bytes_per_s: amount },
        "interrupts" => Work::Interrupts { per_s: amount },
        "packets" => Work::Packets { per_s: amount, at_once },
        other => return Err(raise("InputError", format!("there is no load {other:?}"))),
    };
    let report = on_own_thread(py, "tt-load", || run_load(work, cpu, nice, name, ready(on_ready)))?
        .map_err(|error| match &error {
            LoadError::Ready(error) => raised(py, error.as_ref()),
            _ => refused(matches!(error, LoadError::Cpu(_)), &error),
        })?;
    plain(py, &report)
}

#[pyfunction]
fn noise<'py>(
    py: Python<'py>,
    cpus: Vec<usize>,
    lasts_ns: u64,
    above_ns: u64,
    room: usize,
    on_threads: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let call = move |threads: &[i32]| {
        Python::attach(|py| on_threads.call1(py, (threads,))).map(drop).map_err(Into::into)
    };
    let found =
        on_own_thread(py, "tt-noise", || watch(&cpus, lasts_ns, above_ns, room, Box::new(call)))?
            .map_err(|error| match &error {
            NoiseError::Ready(error) => raised(py, error.as_ref()),
            _ => refused(matches!(error, NoiseError::Cpu(_)), &error),
        })?;
    plain(py, &found)
}

#[pyfunction]
fn most_packets(pattern: (String, Vec<u64>), rate: u64, duration_ns: u64) -> PyResult<u64> {
    let pattern = Pattern::from_parts(&pattern.0, &pattern.1).map_err(|e| refused(true, &e))?;
    pattern.check(rate).map_err(|e| refused(true, &e))?;
    Ok(pattern.most_packets_in(duration_ns, rate))
}

#[pyfunction]
fn recording(py: Python<'_>, path: PathBuf, stamp_ids: bool) -> PyResult<(u64, u64, u64, usize)> {
    let replay = py.detach(|| Replay::read(&path, stamp_ids)).map_err(|e| of_replay(&e))?;
    let recorded = replay.recorded();
    Ok((recorded.packets(), replay.with_id(), recorded.period_ns(), replay.largest_size()))
}

#[pyfunction]
#[pyo3(signature = (input, output, on_ready, *, hold, hold_for_ns, drop, duplicate, limit=None, cpu=None))]
#[expect(clippy::too_many_arguments, reason = "the parameters of the Python function")]
fn forward<'py>(
    py: Python<'py>,
    input: String,
    output: String,
    on_ready: Py<PyAny>,
    hold: HashSet<u32>,
    hold_for_ns: u64,
    drop: HashSet<u32>,
    duplicate: HashSet<u32>,
    limit: Option<(u64, u64)>,
    cpu: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = fault::Options {
        input,
        output,
        hold,
        hold_for_ns,
        drop,
        duplicate,
        limit: limit.map(|(rate, queue)| Limit { rate, queue }),
        cpu,
    };
    let report = on_own_thread(py, "tt-forward", || fault::forward(&options, ready(on_ready)))?
        .map_err(|error| {
            let input = match &error {
                ForwardError::Ports(error) => ports_are_input(error),
                ForwardError::Ready(error) => return raised(py, error.as_ref()),
                ForwardError::Cpu(_) => true,
                _ => false,
            };
            refused(input, &error)
        })?;
    plain(py, &report)
}

#[pyfunction]
#[pyo3(signature = (input, output, on_ready, *, mode, both_ways))]
fn redirect(
    py: Python<'_>,
    input: String,
    output: String,
    on_ready: Py<PyAny>,
    mode: String,
    both_ways: bool,
) -> PyResult<()> {
    let Some(mode) = XdpMode::from_name(&mode) else {
        let message = format!("there is no XDP mode {mode:?}: choose native or generic");
        return Err(raise("InputError", message));
    };
    on_own_thread(py, "tt-forward", || {
        run_redirect(&input, &output, both_ways, mode, ready(on_ready))
    })?
    .map_err(|error| {
        let input = match &error {
            RedirectError::Ports(error) => ports_are_input(error),
            RedirectError::Bpf(error) => error.is_input(),
            RedirectError::Ready(error) => return raised(py, error.as_ref()),
            _ => false,
        };
        refused(input, &error)
    })
}

/// Runs `work` on a new thread and waits for it without the GIL.
pub(crate) fn on_own_thread<T: Send>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    py.detach(|| {
        thread::scope(|scope| {
            let worker = thread::Builder::new().name(name.into());
            let worker = worker.spawn_scoped(scope, work)?;
            Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}

/// The Python function as the function that Rust calls when all is ready.
pub(crate) fn ready(function: Py<PyAny>) -> Box<OnReady<'static>> {
    Box::new(move || Python::attach(|py| function.call0(py)).map(drop).map_err(Into::into))
}

/// The exception that the Python function of [`ready`] raised.
pub(crate) fn raised(py: Python<'_>, error: &(dyn Error + Send + Sync + 'static)) -> PyErr {
    match error.downcast_ref::<PyErr>() {
        Some(exception) => exception.clone_ref(py),
        None => refused(false, error),
    }
}

/// Whether another option would mend it, and not another machine.
pub(crate) fn is_input(error: &InterfaceError) -> bool {
    !matches!(error, InterfaceError::System { .. })
}

fn ports_are_input(error: &PortsError) -> bool {
    match error {
        PortsError::Interface(error) => is_input(error),
        PortsError::Same { .. } => true,
        PortsError::Vanished { .. } => false,
    }
}

/// InputError (exit status 2) or MachineError (3) for an error.
pub(crate) fn refused<E: Error + ?Sized>(input: bool, error: &E) -> PyErr {
    raise(if input { "InputError" } else { "MachineError" }, error)
}
