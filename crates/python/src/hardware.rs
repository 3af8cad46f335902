//! Stamps by network cards, for Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailtap_datapath::tap::hardware::{
    HardwareError, Link, Method, Options, Stamper, stamp as run,
};

use crate::datapath::{TapLink, is_input, on_own_thread, raised, ready, refused};
use crate::errors::{not_written, raise};

/// Adds this file's function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(stamp, module)?)?;
    Ok(())
}

#[pyfunction]
#[pyo3(signature = (links, stamper, on_ready, *, duration_ns=None, count=None, cpu=None))]
fn stamp<'py>(
    py: Python<'py>,
    links: Vec<(TapLink, PathBuf, String)>,
    stamper: &str,
    on_ready: Py<PyAny>,
    duration_ns: Option<u64>,
    count: Option<u64>,
    cpu: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let unknown = |what: &str, name: &str| {
        raise("InputError", format!("there is no {what} {name:?} of stamping"))
    };
    let links = links.into_iter().map(|(link, path, method)| {
        let TapLink { name, interface, absorb, .. } = link;
        let method = match method.as_str() {
            "metadata" => Method::Metadata,
            "messages" => Method::Messages,
            other => return Err(unknown("method", other)),
        };
        Ok(Link { name, interface, method, absorb, path })
    });
    let options = Options {
        links: links.collect::<PyResult<_>>()?,
        stamper: match stamper {
            "hardware" => Stamper::Card,
            "software" => Stamper::Kernel,
            other => return Err(unknown("clock", other)),
        },
        duration_ns,
        count,
        cpu,
    };
    let reports =
        on_own_thread(py, "tt-tap", || run(&options, ready(on_ready)))?.map_err(|error| {
            let input = match &error {
                HardwareError::Interface(error) => is_input(error),
                HardwareError::Bpf(error) => error.is_input(),
                HardwareError::Ready(error) => return raised(py, error.as_ref()),
                HardwareError::Write(error) => return not_written(&error.path, &error.source, ""),
                HardwareError::Cpu(_) | HardwareError::Absorb { .. } => true,
                _ => false,
            };
            refused(input, &error)
        })?;
    let result = PyDict::new(py);
    for report in reports {
        let link = PyDict::new(py);
        link.set_item("file", report.link.path)?;
        link.set_item("clock", report.clock.name())?;
        link.set_item("seen", report.counts.seen)?;
        link.set_item("stored", report.counts.stored)?;
        link.set_item("lost", report.counts.lost)?;
        link.set_item("other", report.counts.other)?;
        link.set_item("unstamped", report.unstamped)?;
        link.set_item("interface", report.link.interface)?;
        link.set_item("warnings", report.warnings)?;
        result.set_item(report.link.name, link)?;
    }
    Ok(result)
}
