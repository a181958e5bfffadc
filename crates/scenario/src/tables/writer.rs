//! The writer of result tables.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::writer::{DictionaryHandling, FileWriter, IpcWriteOptions};
use arrow_schema::ArrowError;

use super::columns::Columns;
use super::columns::Row;
use super::schema::Table;
use super::{
    ControlRow, FlowRow, FlowSummary, HopRow, LinkRow, LinkSummary, RunResult, TableError, Unwritten, csv,
};

/// Collects rows from an engine and writes them in batches.
///
/// Rows of one table keep their order. [`TableWriter::finish`] completes the files; without it an
/// IPC file has no index. A failed write, for example on a full disk, does not end the run: the
/// file stays incomplete, and [`RunResult::unwritten`] lists it.
pub struct TableWriter {
    flows: Stream,
    links: Stream,
    control: Stream,
    hops: Stream,
    summary: Stream,
    link_summary: Stream,
    rates_only: bool,
}

impl TableWriter {
    /// Returns a writer to all of `outputs`. Creates the folder, and overwrites existing files.
    ///
    /// # Errors
    /// A file or the folder cannot be created, or `outputs` has Parquet in a build without it.
    pub fn new(outputs: &Outputs) -> Result<TableWriter, TableError> {
        if let Some(dir) = &outputs.dir {
            std::fs::create_dir_all(dir).map_err(|e| TableError::io("create", dir, e))?;
        }
        Ok(TableWriter {
            flows: Stream::new(Table::Flows, outputs)?,
            links: Stream::new(Table::Links, outputs)?,
            control: Stream::new(Table::Control, outputs)?,
            hops: Stream::new(Table::Hops, outputs)?,
            summary: Stream::new(Table::Summary, outputs)?,
            link_summary: Stream::new(Table::LinkSummary, outputs)?,
            rates_only: outputs.rates_only,
        })
    }

    /// True if rows of [`Table::Flows`] need only a time, a flow and a rate.
    pub fn keeps_rates_only(&self) -> bool {
        self.rates_only
    }

    /// Adds a row to [`Table::Flows`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn flow(&mut self, row: &FlowRow<'_>) -> Result<(), TableError> {
        self.flows.push(row)
    }

    /// Adds rows to [`Table::Flows`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn flows(&mut self, rows: &[FlowRow<'_>]) -> Result<(), TableError> {
        self.flows.push_all(rows, |row| *row)
    }

    /// Adds a row to [`Table::Links`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn link(&mut self, row: &LinkRow<'_>) -> Result<(), TableError> {
        self.links.push(row)
    }

    /// Adds a row to [`Table::Control`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn control(&mut self, row: &ControlRow<'_>) -> Result<(), TableError> {
        self.control.push(row)
    }

    /// Adds a row to [`Table::Hops`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn hop(&mut self, row: &HopRow<'_>) -> Result<(), TableError> {
        self.hops.push(row)
    }

    /// Adds a row to [`Table::Summary`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn flow_summary(&mut self, row: &FlowSummary<'_>) -> Result<(), TableError> {
        self.summary.push(row)
    }

    /// Adds rows to [`Table::Summary`]: `row` of each of `items`.
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn flow_summaries<'a, T>(
        &mut self,
        items: &'a [T],
        row: impl Fn(&'a T) -> FlowSummary<'a>,
    ) -> Result<(), TableError> {
        self.summary.push_all(items, row)
    }

    /// Adds a row to [`Table::LinkSummary`].
    ///
    /// # Errors
    /// A full batch could not be built.
    pub fn link_summary(&mut self, row: &LinkSummary<'_>) -> Result<(), TableError> {
        self.link_summary.push(row)
    }

    /// Writes the remaining rows and closes the files. Returns the tables that are kept in memory
    /// ([`Outputs::memory`], [`Outputs::summaries`]); others are empty.
    ///
    /// # Errors
    /// The last batch could not be built.
    pub fn finish(self, variant: impl Into<String>) -> Result<RunResult, TableError> {
        let mut unwritten = Vec::new();
        Ok(RunResult {
            variant: variant.into(),
            flows: self.flows.finish(&mut unwritten)?,
            links: self.links.finish(&mut unwritten)?,
            control: self.control.finish(&mut unwritten)?,
            hops: self.hops.finish(&mut unwritten)?,
            summary: self.summary.finish(&mut unwritten)?,
            link_summary: self.link_summary.finish(&mut unwritten)?,
            unwritten,
            ..RunResult::default()
        })
    }
}

/// Destinations of the rows. The default drops all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// The folder of the files; `None` writes no files.
    pub dir: Option<PathBuf>,
    /// Write `flows.csv`, `links.csv`, `control.csv`, `hops.csv`, `summary.csv` and
    /// `link_summary.csv`.
    pub csv: bool,
    /// Write `flows.arrow` and so on: Arrow IPC files, also known as Feather version 2.
    pub ipc: bool,
    /// Write `flows.parquet` and so on; needs the feature `parquet`.
    pub parquet: bool,
    /// Keep all batches in memory; the summary of a large run keeps only its main columns.
    pub memory: bool,
    /// Keep the tables with one row for each flow or link in memory, independently of the others.
    pub summaries: bool,
    /// Keep only time, flow and rate of each row of [`Table::Flows`]. A comparison with theory
    /// needs no more, and it takes a third of the memory.
    pub rates_only: bool,
}

impl Outputs {
    /// Returns outputs that keep everything in memory and write no file.
    pub fn memory() -> Outputs {
        Outputs { memory: true, ..Outputs::default() }
    }

    /// Returns outputs that write CSV and Arrow IPC files to `dir` and keep nothing in memory.
    pub fn files(dir: impl Into<PathBuf>) -> Outputs {
        Outputs { dir: Some(dir.into()), csv: true, ipc: true, ..Outputs::default() }
    }
}

/// The outputs of one table.
struct Stream {
    /// `None` if the rows have no destination.
    columns: Option<Columns>,
    files: Vec<TableFile>,
    memory: Option<Kept>,
    unwritten: Vec<Unwritten>,
}

/// Batches in memory.
struct Kept {
    batches: Vec<RecordBatch>,
    rows: usize,
    /// The columns of a row beyond [`MOST_WHOLE_ROWS`]; empty for all of them.
    core: &'static [&'static str],
}

impl Kept {
    fn push(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        let whole = |rows| self.core.is_empty() || rows <= MOST_WHOLE_ROWS;
        let was_whole = whole(self.rows);
        self.rows += batch.num_rows();
        if whole(self.rows) {
            self.batches.push(batch);
            return Ok(());
        }
        if was_whole {
            for batch in &mut self.batches {
                *batch = core_of(batch, self.core)?;
            }
        }
        self.batches.push(core_of(&batch, self.core)?);
        Ok(())
    }
}

/// The columns `core` of `batch`, in its order.
fn core_of(batch: &RecordBatch, core: &[&str]) -> Result<RecordBatch, ArrowError> {
    let fields = batch.schema_ref().fields().iter().enumerate();
    let indices: Vec<usize> =
        fields.filter(|(_, field)| core.contains(&field.name().as_str())).map(|(i, _)| i).collect();
    batch.project(&indices)
}

impl Stream {
    fn new(table: Table, outputs: &Outputs) -> Result<Stream, TableError> {
        let mut files = Vec::new();
        if let Some(dir) = &outputs.dir {
            if outputs.csv {
                files.push(TableFile::csv(table, &dir.join(format!("{}.csv", table.name())))?);
            }
            if outputs.ipc {
                files.push(TableFile::ipc(table, &dir.join(format!("{}.arrow", table.name())))?);
            }
            if outputs.parquet {
                files.push(TableFile::parquet(table, &dir.join(format!("{}.parquet", table.name())))?);
            }
        }
        let summary = matches!(table, Table::Summary | Table::LinkSummary);
        let core = if table == Table::Summary { SUMMARY_CORE } else { &[] };
        let memory = (outputs.memory || outputs.summaries && summary).then(|| Kept {
            batches: Vec::new(),
            rows: 0,
            core,
        });
        let wanted = |column: &str| {
            !(outputs.rates_only && table == Table::Flows)
                || ["time_s", "flow", "rate_mbps"].contains(&column)
        };
        let columns = (memory.is_some() || !files.is_empty()).then(|| Columns::new(table, wanted));
        Ok(Stream { columns, files, memory, unwritten: Vec::new() })
    }

    fn push<R: Row + Copy>(&mut self, row: &R) -> Result<(), TableError> {
        self.push_all(std::slice::from_ref(row), |row| *row)
    }

    /// Adds `row` of each of `items`.
    fn push_all<'a, T, R: Row>(
        &mut self,
        mut items: &'a [T],
        row: impl Fn(&'a T) -> R,
    ) -> Result<(), TableError> {
        while let (Some(columns), false) = (&mut self.columns, items.is_empty()) {
            let (now, later) = items.split_at(items.len().min(BATCH_ROWS - columns.rows()));
            columns.push(now.iter().map(&row));
            items = later;
            if columns.rows() == BATCH_ROWS {
                self.flush(BATCH_ROWS)?;
            }
        }
        Ok(())
    }

    /// Writes a batch of the rows so far; about `next` rows will follow.
    fn flush(&mut self, next: usize) -> Result<(), TableError> {
        let Some(columns) = self.columns.as_mut().filter(|c| c.rows() > 0) else { return Ok(()) };
        let batch = columns.take(next)?;
        let unwritten = &mut self.unwritten;
        self.files.retain_mut(|file| match file.write(&batch) {
            Ok(()) => true,
            Err(error) => {
                unwritten.push(Unwritten::new(&file.path, error));
                false
            }
        });
        match &mut self.memory {
            Some(kept) => kept.push(batch).map_err(|e| columns.error(&e)),
            None => Ok(()),
        }
    }

    fn finish(mut self, unwritten: &mut Vec<Unwritten>) -> Result<Vec<RecordBatch>, TableError> {
        self.flush(0)?;
        unwritten.append(&mut self.unwritten);
        for file in self.files {
            let path = file.path.clone();
            unwritten.extend(file.finish().err().map(|error| Unwritten::new(&path, error)));
        }
        Ok(self.memory.map_or(Vec::new(), |kept| kept.batches))
    }
}

struct TableFile {
    path: PathBuf,
    format: Format,
}

enum Format {
    Csv(BufWriter<File>),
    Ipc(Box<FileWriter<BufWriter<File>>>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::arrow::ArrowWriter<BufWriter<File>>>),
}

impl TableFile {
    fn csv(table: Table, path: &Path) -> Result<TableFile, TableError> {
        let mut out = create(path)?;
        csv::write_header(&mut out, table).map_err(|e| TableError::io("write", path, e))?;
        Ok(TableFile { path: path.to_path_buf(), format: Format::Csv(out) })
    }

    fn ipc(table: Table, path: &Path) -> Result<TableFile, TableError> {
        // New names extend the dictionary: the format cannot replace one.
        let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
        let writer = FileWriter::try_new_with_options(create(path)?, &table.schema(), options)
            .map_err(|e| TableError::format("write", path, e))?;
        Ok(TableFile { path: path.to_path_buf(), format: Format::Ipc(Box::new(writer)) })
    }

    #[cfg(feature = "parquet")]
    fn parquet(table: Table, path: &Path) -> Result<TableFile, TableError> {
        let properties = parquet::file::properties::WriterProperties::builder()
            .set_compression(parquet::basic::Compression::SNAPPY)
            .build();
        let writer = parquet::arrow::ArrowWriter::try_new(create(path)?, table.schema(), Some(properties))
            .map_err(|e| TableError::format("write", path, e))?;
        Ok(TableFile { path: path.to_path_buf(), format: Format::Parquet(Box::new(writer)) })
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(_: Table, _: &Path) -> Result<TableFile, TableError> {
        Err(TableError::NoParquet)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), TableError> {
        let path = &self.path;
        match &mut self.format {
            Format::Csv(out) => csv::write_batch(out, batch).map_err(|e| TableError::io("write", path, e)),
            Format::Ipc(out) => out.write(batch).map_err(|e| TableError::format("write", path, e)),
            #[cfg(feature = "parquet")]
            Format::Parquet(out) => out.write(batch).map_err(|e| TableError::format("write", path, e)),
        }
    }

    fn finish(self) -> Result<(), TableError> {
        let path = self.path;
        match self.format {
            Format::Csv(mut out) => out.flush().map_err(|e| TableError::io("write", &path, e)),
            Format::Ipc(mut out) => {
                out.finish().map_err(|e| TableError::format("write", &path, e))?;
                out.get_mut().flush().map_err(|e| TableError::io("write", &path, e))
            }
            #[cfg(feature = "parquet")]
            Format::Parquet(out) => {
                let mut file = out.into_inner().map_err(|e| TableError::format("write", &path, e))?;
                file.flush().map_err(|e| TableError::io("write", &path, e))
            }
        }
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, TableError> {
    File::create(path).map(BufWriter::new).map_err(|e| TableError::io("create", path, e))
}

/// Rows of a batch: enough to make its overhead small, few enough that it takes less than a
/// megabyte.
const BATCH_ROWS: usize = 4096;
/// Largest number of rows of the flow summary kept in memory with all columns, some 200 bytes each.
const MOST_WHOLE_ROWS: usize = 1 << 17;
/// Columns of the flow summary kept in memory beyond that number, some 45 bytes a row. Files have
/// all columns.
const SUMMARY_CORE: &[&str] = &["flow", "start_s", "fct_s", "size_bytes", "rate_mbps", "ideal_mbps"];

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;

    /// A separate folder for each test, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let dir = std::env::temp_dir().join(format!("tollway-tables-{name}-{}", std::process::id()));
            Folder(dir)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn fill(writer: &mut TableWriter, intervals: usize) {
        for i in 0..intervals {
            let time_s = (i + 1) as f64 * 0.1;
            // New names extend the dictionaries from batch to batch.
            let late = format!("late.{}", i / 1000);
            for flow in ["f.1", "f,2", &late] {
                let rtt_ms = (i % 3 > 0).then_some(100.0 + i as f64 / 3.0);
                let row = FlowRow { time_s, flow, rate_mbps: 0.1 + 0.2, rtt_ms, ..FlowRow::default() };
                writer.flow(&row).unwrap();
            }
            writer.link(&LinkRow { time_s, link: "b", drops: i as u64, ..LinkRow::default() }).unwrap();
        }
        writer
            .flow_summary(&FlowSummary {
                flow: "f.1",
                law: "xcp",
                size_bytes: Some(9),
                ..FlowSummary::default()
            })
            .unwrap();
        writer.link_summary(&LinkSummary { link: "b", ..LinkSummary::default() }).unwrap();
    }

    #[test]
    fn files_read_back_as_what_memory_holds() {
        let folder = Folder::new("round-trip");
        let mut writer = TableWriter::new(&Outputs { memory: true, ..Outputs::files(&folder.0) }).unwrap();
        fill(&mut writer, 5000);
        let kept = writer.finish("xcp").unwrap();
        let read = RunResult::read(&folder.0, "xcp").unwrap();
        assert_eq!(kept.flows.len(), 4);
        for (a, b) in [(&kept.flows, &read.flows), (&kept.links, &read.links), (&kept.summary, &read.summary)]
        {
            let csv = |batches: &[RecordBatch]| {
                let mut text = Vec::new();
                batches.iter().for_each(|batch| csv::write_batch(&mut text, batch).unwrap());
                String::from_utf8(text).unwrap()
            };
            assert!(!a.is_empty());
            assert_eq!(csv(a), csv(b));
        }
    }

    #[test]
    fn csv_is_exact_quoted_and_empty_for_null() {
        let folder = Folder::new("csv");
        let mut writer = TableWriter::new(&Outputs::files(&folder.0)).unwrap();
        fill(&mut writer, 2);
        assert!(writer.finish("").unwrap().flows.is_empty());
        let text = std::fs::read_to_string(folder.0.join("flows.csv")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "time_s,flow,rate_mbps,goodput_mbps,cwnd_packets,rtt_ms,pacing_mbps,in_flight_packets,retransmissions,spending,price",
                "0.1,f.1,0.30000000000000004,0,0,,,0,0,,",
                "0.1,\"f,2\",0.30000000000000004,0,0,,,0,0,,",
            ]
        );
        assert_eq!(lines[4], "0.2,f.1,0.30000000000000004,0,0,100.33333333333333,,0,0,,");
    }

    #[test]
    fn many_summaries_keep_their_main_columns() {
        let kept = |rows: usize| {
            let mut writer = TableWriter::new(&Outputs::memory()).unwrap();
            for i in 0..rows {
                let fct_s = Some(i as f64);
                writer
                    .flow_summary(&FlowSummary { flow: "f", law: "xcp", fct_s, ..FlowSummary::default() })
                    .unwrap();
            }
            writer.finish("").unwrap().summary
        };
        let (few, many) = (kept(MOST_WHOLE_ROWS), kept(MOST_WHOLE_ROWS + 1));
        assert!(few.iter().all(|batch| batch.column_by_name("law").is_some()));
        assert_eq!(many.iter().map(RecordBatch::num_rows).sum::<usize>(), MOST_WHOLE_ROWS + 1);
        for (few, many) in few.iter().zip(&many) {
            let names: Vec<&str> = many.schema_ref().fields().iter().map(|f| f.name().as_str()).collect();
            assert_eq!(names, SUMMARY_CORE);
            assert_eq!(many.column_by_name("fct_s"), few.column_by_name("fct_s"));
        }
    }

    #[test]
    fn rates_alone_are_kept_as_they_are() {
        let batches = |rates_only| {
            let mut writer = TableWriter::new(&Outputs { rates_only, ..Outputs::memory() }).unwrap();
            fill(&mut writer, 3);
            writer.finish("").unwrap()
        };
        let (all, few) = (batches(false), batches(true));
        assert_eq!(
            few.flows[0].schema().fields().iter().map(|f| f.name()).collect::<Vec<_>>(),
            ["time_s", "flow", "rate_mbps"]
        );
        for field in few.flows[0].schema().fields() {
            assert_eq!(few.flows[0].column_by_name(field.name()), all.flows[0].column_by_name(field.name()));
        }
        assert_eq!((few.links, few.summary), (all.links, all.summary));
    }

    #[test]
    fn missing_numbers_stay_missing_before_and_after_those_there_are() {
        let mut writer = TableWriter::new(&Outputs::memory()).unwrap();
        let rows = 2 * BATCH_ROWS + 10;
        let has = |i: usize| i > BATCH_ROWS + 7 && !i.is_multiple_of(3);
        for i in 0..rows {
            let row = FlowRow { flow: "f", rtt_ms: has(i).then_some(i as f64), ..FlowRow::default() };
            writer.flow(&row).unwrap();
        }
        let kept = writer.finish("").unwrap().flows;
        let cells = kept.iter().flat_map(|batch| {
            let column: &arrow_array::Float64Array = batch.column_by_name("rtt_ms").unwrap().as_primitive();
            column.iter().collect::<Vec<_>>()
        });
        let expected = (0..rows).map(|i| has(i).then_some(i as f64));
        assert!(cells.eq(expected));
    }

    #[test]
    fn errors_name_the_path() {
        let folder = Folder::new("errors");
        std::fs::create_dir_all(folder.0.join("flows.csv")).unwrap();
        let error = TableWriter::new(&Outputs::files(&folder.0)).err().unwrap().to_string();
        assert!(error.starts_with("cannot create ") && error.contains("flows.csv"), "{error}");
        let error = RunResult::read(&folder.0.join("nowhere"), "").unwrap_err().to_string();
        assert!(error.starts_with("cannot open ") && error.contains("nowhere"), "{error}");

        let folder = Folder::new("schema");
        let mut writer = TableWriter::new(&Outputs::files(&folder.0)).unwrap();
        fill(&mut writer, 2);
        writer.finish("").unwrap();
        let error = Table::Flows.read_ipc(&folder.0.join("links.arrow")).unwrap_err().to_string();
        assert!(error.contains("links.arrow is not a table of flows: it has no column `flow`"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_refused_or_read_and_no_panic() {
        let folder = Folder::new("damage");
        let mut writer = TableWriter::new(&Outputs::files(&folder.0)).unwrap();
        fill(&mut writer, 5);
        writer.finish("").unwrap();
        for table in Table::ALL {
            let path = folder.0.join(format!("{}.arrow", table.name()));
            let whole = std::fs::read(&path).unwrap();
            assert!(table.read_from(std::io::Cursor::new(&whole), &path).is_ok());
            for at in 0..whole.len() {
                assert!(table.read_from(std::io::Cursor::new(&whole[..at]), &path).is_err());
                for byte in [0, 0x80, 0xff, whole[at] ^ 4] {
                    let mut damaged = whole.clone();
                    damaged[at] = byte;
                    let _ = table.read_from(std::io::Cursor::new(&damaged), &path);
                }
            }
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_reads_back() {
        let folder = Folder::new("parquet");
        let outputs = Outputs { dir: Some(folder.0.clone()), parquet: true, ..Outputs::default() };
        let mut writer = TableWriter::new(&outputs).unwrap();
        fill(&mut writer, 3000);
        writer.finish("").unwrap();
        let file = File::open(folder.0.join("flows.parquet")).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)
            .unwrap()
            .build()
            .unwrap();
        assert_eq!(reader.map(|b| b.unwrap().num_rows()).sum::<usize>(), 9000);
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn parquet_is_refused_with_a_remedy() {
        let folder = Folder::new("no-parquet");
        let outputs = Outputs { dir: Some(folder.0.clone()), parquet: true, ..Outputs::default() };
        assert!(TableWriter::new(&outputs).err().unwrap().to_string().contains("feature `parquet`"));
    }
}
