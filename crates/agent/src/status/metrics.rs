//! A status for Prometheus. Every number, flag, state and fault is a metric; texts of the head are
//! labels of the metric `…_info`.

use std::fmt;
use std::net::SocketAddr;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry;
use serde_json::Value;
use tollway_report::watch::metrics::{Metrics, ServeError};

use super::{Field, Kind, Product, Unit};

impl Product {
    /// Serves the status that `read` returns from a separate thread until the result is dropped.
    ///
    /// # Errors
    /// The address is in use, or not of this machine.
    pub(crate) fn serve_metrics(
        &self,
        address: SocketAddr,
        read: impl Fn() -> Option<Value> + Send + Sync + 'static,
    ) -> Result<Metrics, ServeError> {
        Metrics::of(Box::new(Gathered { product: *self, read: Box::new(read) }), address)
    }
}

struct Gathered {
    product: Product,
    read: Box<dyn Fn() -> Option<Value> + Send + Sync>,
}

impl fmt::Debug for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathered").field("product", &self.product.name).finish_non_exhaustive()
    }
}

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(status) = (self.read)() else { return Ok(()) };
        let prefix = format!("tollway_{}", self.product.name);
        write(&mut encoder, &prefix, self.product.fields, std::slice::from_ref(&status))
    }
}

/// Writes the metrics of `rows`, which have the names `prefix_…`. A row of a list has its name as a
/// label.
fn write(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    fields: &'static [Field],
    rows: &[Value],
) -> Result<(), fmt::Error> {
    let label = fields.iter().find(|field| matches!(field.form.kind, Kind::Label));
    let infos = || fields.iter().filter(|field| matches!(field.form.kind, Kind::Info));
    if infos().next().is_some() {
        let help = "1, with the texts of the status as labels";
        let name = format!("{prefix}_info");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for row in rows {
            let labels: Vec<_> = infos().map(|field| (field.key, word(&row[field.key]))).collect();
            ConstGauge::new(1).encode(metric.encode_family(&labels)?)?;
        }
    }
    for field in fields {
        let name = format!("{prefix}_{}", field.metric_name());
        match field.form.kind {
            Kind::Info | Kind::Label | Kind::Word | Kind::Json => {}
            Kind::Count | Kind::Gauge | Kind::Alert | Kind::Flag(..) | Kind::State(_) => {
                // A value that does not apply has no metric.
                if rows.iter().all(|row| field.value(&row[field.key]).is_none()) {
                    continue;
                }
                let unit = field.unit();
                let mut metric =
                    encoder.encode_descriptor(&name, field.help(), unit.as_ref(), field.kind())?;
                for row in rows {
                    let Some(value) = field.value(&row[field.key]) else { continue };
                    match label {
                        None => field.put(value, metric)?,
                        Some(label) => {
                            let labels = [(label.metric_name(), word(&row[label.key]))];
                            field.put(value, metric.encode_family(&labels)?)?;
                            continue;
                        }
                    }
                    // Without a label there is one row.
                    break;
                }
            }
            Kind::By(by) => {
                let unit = field.unit();
                let mut metric =
                    encoder.encode_descriptor(&name, field.help(), unit.as_ref(), field.kind())?;
                for row in rows {
                    for (cause, count) in row[field.key].as_object().into_iter().flatten() {
                        let row = label.map(|label| (label.metric_name(), word(&row[label.key])));
                        let labels: Vec<_> = row.into_iter().chain([(by, cause.clone())]).collect();
                        field.put(count.as_f64().unwrap_or_default(), metric.encode_family(&labels)?)?;
                    }
                }
            }
            Kind::Rows(table) => {
                let rows = rows.first().and_then(|row| row[field.key].as_array()).map_or(&[][..], |all| all);
                tallies(encoder, prefix, table.fields, rows)?;
                if let Some(more) = table.prefix {
                    let prefix = if more.is_empty() { prefix.to_owned() } else { format!("{prefix}_{more}") };
                    write(encoder, &prefix, table.fields, rows)?;
                }
            }
            Kind::Part(part) => {
                let objects: Vec<Value> =
                    rows.iter().map(|row| row[field.key].clone()).filter(Value::is_object).collect();
                if !objects.is_empty() {
                    write(encoder, &format!("{prefix}_{}", part.prefix), part.fields, &objects)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the numbers of rows with each word.
fn tallies(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    fields: &'static [Field],
    rows: &[Value],
) -> Result<(), fmt::Error> {
    for field in fields {
        let Some((by, words)) = field.form.tally else { continue };
        let name = format!("{prefix}_{}", field.metric_name());
        let unit = field.unit();
        let mut metric = encoder.encode_descriptor(&name, field.help(), unit.as_ref(), field.kind())?;
        for word in words {
            let those = rows.iter().filter(|row| row[field.key] == *word).count();
            ConstGauge::new(those as i64).encode(metric.encode_family(&[(by, *word)])?)?;
        }
    }
    Ok(())
}

impl Field {
    /// The name of its metric, or of the label of a row's metrics.
    fn metric_name(&self) -> &'static str {
        if self.form.metric.is_empty() { self.key } else { self.form.metric }
    }

    /// The metric's value; none if it does not apply.
    fn value(&self, value: &Value) -> Option<f64> {
        let one = |is: bool| Some(f64::from(u8::from(is)));
        match self.form.kind {
            _ if self.form.tally.is_some() => None,
            Kind::Alert => one(!value.is_null()),
            Kind::State(good) => one(value == good),
            Kind::Flag(..) => value.as_bool().and_then(one),
            _ => value.as_f64().map(|value| value * self.form.factor),
        }
    }

    fn unit(&self) -> Option<registry::Unit> {
        match self.form.unit {
            Unit::One => None,
            Unit::Bytes => Some(registry::Unit::Bytes),
            Unit::Seconds => Some(registry::Unit::Seconds),
            Unit::Ratio => Some(registry::Unit::Other("ratio".into())),
            Unit::BytesPerSecond => Some(registry::Unit::Other("bytes_per_second".into())),
        }
    }

    fn kind(&self) -> MetricType {
        match self.form.kind {
            Kind::Count | Kind::By(_) => MetricType::Counter,
            _ => MetricType::Gauge,
        }
    }

    fn help(&self) -> &'static str {
        self.says.trim().trim_end_matches('.')
    }

    fn put(&self, value: f64, metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self.form.kind {
            Kind::Count | Kind::By(_) => ConstCounter::new(value).encode(metric),
            _ => ConstGauge::new(value).encode(metric),
        }
    }
}

/// The text of a label.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(word).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
