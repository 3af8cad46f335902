//! `tailtap._core.Cores`: what the kernel did on some cores, for `tailtap.analysis.causes`.

use std::path::PathBuf;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tailtap_analysis::cause::claims::Window;
use tailtap_analysis::cause::egress::Egress;
use tailtap_analysis::cause::guest::Clock;
use tailtap_analysis::cause::join::{Join, Stay, Usual};
use tailtap_analysis::cause::{self, Row, Serving};
use tailtap_analysis::edges::Span;
use tailtap_analysis::evaluate;
use tailtap_analysis::trace::Trace;

use crate::errors::{of_capture, of_layout, of_trace};
use crate::evaluation::column;

/// The number in place of a core that nobody knows, and of a stall that there is not.
const NONE: i64 = -1;

/// Adds this file's class and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(flows_at, module)?)?;
    module.add_function(wrap_pyfunction!(leaving, module)?)?;
    module.add_class::<Cores>()
}

/// What stamps after a device say; see `tailtap._core.leaving` of the stub.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of a Python function are owned")]
fn leaving<'py>(
    py: Python<'py>,
    stamps: PathBuf,
    times: PyBuffer<i64>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let times: Vec<u64> = times.to_vec(py)?.into_iter().map(i64::cast_unsigned).collect();
    let found = py.detach(|| Egress::read(&stamps, &times));
    let found = found.map_err(|error| of_capture(&error))?;
    let cpus = found.cpus.into_iter().map(|cpu| cpu.map_or(NONE, i64::from).cast_unsigned());
    Ok((column(py, found.positions), column(py, cpus)))
}

/// The flows of packets of a capture; see `tailtap._core.flows_at` of the stub.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of a Python function are owned")]
fn flows_at(py: Python<'_>, capture: PathBuf, times: PyBuffer<i64>) -> PyResult<Vec<String>> {
    let times: Vec<u64> = times.to_vec(py)?.into_iter().map(i64::cast_unsigned).collect();
    py.detach(|| evaluate::flows_at(&capture, &times)).map_err(|error| of_capture(&error))
}

/// What the kernel did on some cores.
#[pyclass(frozen, module = "tailtap._core")]
struct Cores(cause::Cores);

/// Columns of the same length: ingress, egress, core, and packets that left meanwhile.
type Stays = (PyBuffer<i64>, PyBuffer<i64>, PyBuffer<i64>, PyBuffer<i64>);

/// Where softirqs serve: their vector, the cores on which they do, those on which threads do, and the
/// stamp files behind what serves.
type Softirqs = (u32, Vec<u16>, Vec<u16>, Vec<PathBuf>);

fn stays(py: Python<'_>, columns: &Stays) -> PyResult<Vec<Stay>> {
    let (ingress, egress, cpus, left) = columns;
    let ends = ingress.to_vec(py)?.into_iter().zip(egress.to_vec(py)?);
    let more = cpus.to_vec(py)?.into_iter().zip(left.to_vec(py)?);
    let stay = |((ingress, egress), (cpu, left)): ((i64, i64), (i64, i64))| Stay {
        ingress_ns: ingress.cast_unsigned(),
        egress_ns: egress.cast_unsigned(),
        cpu: u16::try_from(cpu).ok(),
        left: left.cast_unsigned(),
    };
    Ok(ends.zip(more).map(stay).collect())
}

fn read_clock(moments: Vec<(u64, u64)>) -> PyResult<Clock> {
    let wrong = || pyo3::exceptions::PyValueError::new_err("moments of a clock must ascend");
    Clock::new(moments).ok_or_else(wrong)
}

#[pymethods]
impl Cores {
    /// Reads a trace; see `tailtap._core.Cores.read` of the stub.
    #[staticmethod]
    #[pyo3(signature = (trace, cpus, ended_ns, *, serving=None))]
    fn read<'py>(
        py: Python<'py>,
        trace: PathBuf,
        cpus: Vec<u16>,
        ended_ns: u64,
        serving: Option<Softirqs>,
    ) -> PyResult<(Self, Bound<'py, PyDict>)> {
        let (cores, notes) = py.detach(|| {
            let trace = Trace::open(&trace, &cpus).map_err(|error| of_trace(&error))?;
            let serving = serving.as_ref().map(|(vector, softirq, threads, leaving)| Serving {
                vector: *vector,
                softirq,
                threads,
                leaving,
            });
            let cores = cause::Cores::lay_out(&trace, ended_ns, serving);
            Ok::<_, PyErr>((cores.map_err(|error| of_layout(&error))?, trace.notes))
        })?;
        let dict = PyDict::new(py);
        dict.set_item("records", notes.records)?;
        dict.set_item("rest", notes.rest)?;
        dict.set_item("damaged_at", notes.damaged_at)?;
        dict.set_item("lost", notes.lost)?;
        Ok((Self(cores), dict))
    }

    /// These cores at the times of another clock; see the stub.
    fn on_clock(&self, py: Python<'_>, clock: Vec<(u64, u64)>) -> PyResult<Self> {
        let clock = read_clock(clock)?;
        Ok(Self(py.detach(|| self.0.on_clock(&clock))))
    }

    /// These cores with what held their senders while nobody had told them; see the stub.
    fn with_senders(&self, py: Python<'_>, senders: &Self, told: Vec<u16>) -> Self {
        Self(py.detach(|| self.0.with_senders(&senders.0, &told)))
    }

    /// These cores with those of a guest below them; see the stub.
    fn with_guest(
        &self,
        py: Python<'_>,
        guest: &Self,
        seats: Vec<Option<u16>>,
        clock: Vec<(u64, u64)>,
    ) -> PyResult<Self> {
        let clock = read_clock(clock)?;
        if seats.len() != self.0.owners.list().len() {
            return Err(pyo3::exceptions::PyValueError::new_err("every owner needs a seat"));
        }
        Ok(Self(py.detach(|| self.0.with_guest(&guest.0, &seats, &clock))))
    }

    /// The owners by their numbers: kind, which of this kind, and more.
    #[getter]
    fn owners(&self) -> Vec<(u8, u64, u64)> {
        self.0.owners.list().iter().map(|owner| (owner.kind, owner.id, owner.more)).collect()
    }

    /// The stretches of a core between two times: from, until, and the owner's number.
    fn between(&self, cpu: u16, from_ns: u64, until_ns: u64) -> Vec<(u64, u64, u32)> {
        let timeline = self.0.timelines.get(&cpu);
        timeline.map_or_else(Vec::new, |found| found.between(from_ns, until_ns).collect())
    }

    /// When stretches of some owners start on a core, between two times; see the stub.
    fn starts<'py>(
        &self,
        py: Python<'py>,
        cpu: u16,
        owners: Vec<u32>,
        from_ns: u64,
        until_ns: u64,
    ) -> Bound<'py, PyBytes> {
        let timeline = self.0.timelines.get(&cpu);
        let all = timeline.into_iter().flat_map(|found| found.between(from_ns, until_ns));
        let wanted = all.filter(|stretch| owners.contains(&stretch.2));
        let starts: Vec<u64> = wanted.map(|stretch| stretch.0).collect();
        column(py, starts)
    }

    /// The time on all cores of each owner within a span.
    fn totals(&self, from_ns: u64, until_ns: u64) -> Vec<u64> {
        let mut totals = vec![0; self.0.owners.list().len()];
        for timeline in self.0.timelines.values() {
            timeline.add_totals(from_ns, until_ns, &mut totals);
        }
        totals
    }

    /// What usual packets see, and how late ones differ; see the stub.
    #[pyo3(signature = (rows, causes, usual, late, median_ns))]
    fn join<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<Row>,
        causes: Vec<u32>,
        usual: Stays,
        late: Stays,
        median_ns: u64,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.check(&rows)?;
        if rows.iter().any(|&row| row as usize >= causes.len()) {
            return Err(pyo3::exceptions::PyValueError::new_err("every row needs a cause"));
        }
        let (usual, late) = (stays(py, &usual)?, stays(py, &late)?);
        let (usual, joined) = py.detach(|| {
            let join = Join { cores: &self.0, rows: &rows };
            let usual = join.usual(&usual);
            let joined = join.join(&late, median_ns, &usual, &causes);
            (usual, joined)
        });
        let Usual { ns, left } = usual;
        let number = |stall: Option<usize>| stall.map_or(NONE, |at| at as i64).cast_unsigned();
        let stalls = &joined.stalls;
        let dict = PyDict::new(py);
        dict.set_item("usual_ns", ns)?;
        dict.set_item("usual_left", left)?;
        dict.set_item("state", column(py, joined.states.iter().map(|&state| state as u64)))?;
        dict.set_item("stall", column(py, joined.stalls_of.iter().copied().map(number)))?;
        dict.set_item("offset", column(py, joined.offsets.iter().map(|&at| at as u64)))?;
        dict.set_item("part_row", column(py, joined.parts.iter().map(|part| u64::from(part.0))))?;
        dict.set_item("part_ns", column(py, joined.parts.iter().map(|part| part.1)))?;
        dict.set_item("stall_cpu", column(py, stalls.iter().map(|s| u64::from(s.cpu))))?;
        dict.set_item("stall_start", column(py, stalls.iter().map(|stall| stall.start_ns)))?;
        dict.set_item("stall_end", column(py, stalls.iter().map(|stall| stall.end_ns)))?;
        dict.set_item("stall_row", column(py, stalls.iter().map(|s| u64::from(s.row))))?;
        dict.set_item("stall_worst", column(py, stalls.iter().map(|stall| stall.worst as u64)))?;
        Ok(dict)
    }

    /// Holds rows against chance; see the stub.
    #[pyo3(signature = (rows, tested, windows, span, *, longer_than_ns=0, shifts, seed))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn test(
        &self,
        py: Python<'_>,
        rows: Vec<Row>,
        tested: Vec<Row>,
        windows: Stays,
        span: (u64, u64),
        longer_than_ns: u64,
        shifts: u32,
        seed: u64,
    ) -> PyResult<Vec<(f64, f64, u32, f64)>> {
        self.check(&rows)?;
        // The last column holds the excess.
        let windows = stays(py, &windows)?.into_iter().filter_map(|stay| {
            Some(Window {
                cpu: stay.cpu?,
                from_ns: stay.ingress_ns,
                until_ns: stay.egress_ns,
                excess_ns: stay.left,
            })
        });
        let windows: Vec<Window> = windows.collect();
        let span = Span { from_ns: span.0, until_ns: span.1 };
        let claims = py.detach(|| {
            let join = Join { cores: &self.0, rows: &rows };
            join.test(&tested, &windows, span, longer_than_ns, shifts, seed)
        });
        Ok(claims.iter().map(|c| (c.observed, c.expected, c.shifts, c.p)).collect())
    }
}

impl Cores {
    fn check(&self, rows: &[Row]) -> PyResult<()> {
        if rows.len() == self.0.owners.list().len() {
            return Ok(());
        }
        Err(pyo3::exceptions::PyValueError::new_err("every owner needs a row"))
    }
}
