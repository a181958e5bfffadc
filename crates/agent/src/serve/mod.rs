//! The HTTP servers of an agent: metrics for Prometheus, and a page for browsers of this machine.

#[cfg(feature = "view")]
mod page;

use std::net::SocketAddr;

use serde_json::Value;

#[cfg(feature = "view")]
use page::Page;

use crate::events::Events;
use crate::status::Product;

/// The servers, each with its own thread, until this is dropped.
#[derive(Debug, Default)]
pub struct Served {
    #[cfg(feature = "metrics")]
    _metrics: Option<tollway_report::watch::metrics::Metrics>,
    #[cfg(feature = "view")]
    _page: Option<Page>,
}

/// The reason why a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ServeError {
    /// The mistake.
    pub message: String,
    /// The remedy.
    pub help: &'static str,
}

impl Product {
    /// Serves the status that `read` returns: to Prometheus at the address `metrics`, and to
    /// browsers at the loopback address `view`. Logs where.
    ///
    /// # Errors
    /// An address is in use, or not of this machine, or that of the view is not a loopback address.
    pub fn serve(
        &self,
        metrics: Option<SocketAddr>,
        view: Option<SocketAddr>,
        read: impl Fn() -> Option<Value> + Clone + Send + Sync + 'static,
        events: &Events,
    ) -> Result<Served, ServeError> {
        // A build without a feature ignores its address: the command refuses the option.
        let _ = (metrics, view, &read, events);
        Ok(Served {
            #[cfg(feature = "metrics")]
            _metrics: match metrics {
                None => None,
                Some(address) => {
                    let served = self.serve_metrics(address, read.clone());
                    let served =
                        served.map_err(|error| ServeError { message: error.to_string(), help: ADDRESS })?;
                    events.info("serve", format_args!("metrics at http://{}/metrics", served.address()));
                    Some(served)
                }
            },
            #[cfg(feature = "view")]
            _page: match view {
                None => None,
                Some(address) => {
                    let page = self.serve_page(address, read.clone())?;
                    events.info("serve", format_args!("view at {}", page.url()));
                    Some(page)
                }
            },
        })
    }
}

/// The remedy if metrics cannot be served.
#[cfg(feature = "metrics")]
const ADDRESS: &str = "give an address of this machine and a free port, 1024 or above unless you are root; port 0 takes any \
    free port";
