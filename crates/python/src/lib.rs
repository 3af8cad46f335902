//! The Python module `tailtap._core`: converts values, releases the GIL, maps errors. No logic.

mod datapath;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_core")]
fn tailtap_core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    datapath::register(module)?;
    Ok(())
}
