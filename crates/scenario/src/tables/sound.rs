//! Checks of an Arrow file's structure. The Arrow library trusts a file's offsets and lengths, and
//! panics if they are damaged.

use std::io::{self, Read, Seek, SeekFrom};

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{Block, MessageHeader, RecordBatch, root_as_footer, root_as_message};
use arrow_schema::DataType;

/// Checks the footer and the head of every batch, not the data.
///
/// # Errors
/// A description of the damage.
pub(super) fn check(file: &mut (impl Read + Seek)) -> Result<(), String> {
    let cannot = |error: io::Error| error.to_string();
    let len = file.seek(SeekFrom::End(0)).map_err(cannot)?;
    let mut end = [0; END as usize];
    read(file, len.checked_sub(END).ok_or(CUT)?, &mut end).map_err(cannot)?;
    let footer_len = read_footer_length(end).map_err(|_| CUT)? as u64;
    let footer_at = len.checked_sub(END + footer_len).ok_or(CUT)?;
    let mut footer = vec![0; footer_len as usize];
    read(file, footer_at, &mut footer).map_err(cannot)?;
    let footer = root_as_footer(&footer).map_err(|_| damaged("footer"))?;
    let schema = footer.schema().ok_or_else(|| damaged("footer"))?;
    let schema = try_fb_to_schema(schema).map_err(|_| damaged("footer"))?;
    if schema.fields().iter().any(|field| widths(field.data_type()).is_empty()) {
        return Err(FOREIGN.into());
    }
    let rows: Vec<i64> =
        schema.fields().iter().flat_map(|field| widths(field.data_type())).copied().collect();
    let mut head = Vec::new();
    let blocks = [(footer.dictionaries(), TEXT), (footer.recordBatches(), rows.as_slice())];
    for (blocks, widths) in blocks {
        for block in blocks.into_iter().flatten() {
            let (at, head_len, body_len) = lies_within(block, footer_at).ok_or_else(|| damaged("footer"))?;
            head.resize(head_len, 0);
            read(file, at, &mut head).map_err(cannot)?;
            is_sound(&head, body_len, widths).ok_or_else(|| damaged("batch"))?;
        }
    }
    Ok(())
}

fn read(file: &mut (impl Read + Seek), at: u64, into: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(into)
}

/// The offset of a block, the length of its head, and that of its body; `None` if it is not before
/// `end`.
fn lies_within(block: &Block, end: u64) -> Option<(u64, usize, i64)> {
    let at = u64::try_from(block.offset()).ok()?;
    let head = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    let after = at.checked_add(head)?.checked_add(body)?;
    (after <= end).then_some((at, head as usize, block.bodyLength()))
}

/// Bytes of an element in each of a column's buffers; empty for types that no table uses.
fn widths(kind: &DataType) -> &'static [i64] {
    match kind {
        DataType::Dictionary(..) => &[1, 4],
        DataType::Utf8 => TEXT,
        DataType::Float64 | DataType::UInt64 => &[1, 8],
        _ => &[],
    }
}

/// Returns `Some` if a batch's buffers lie within its body and fit elements of these widths.
fn is_sound(head: &[u8], body_len: i64, widths: &[i64]) -> Option<()> {
    let message = match head.strip_prefix(&CONTINUATION) {
        Some(rest) => rest.get(4..)?,
        None => head.get(4..)?,
    };
    let message = root_as_message(message).ok()?;
    let batch: RecordBatch<'_> = match message.header_type() {
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch()?.data()?,
        MessageHeader::RecordBatch => message.header_as_record_batch()?,
        _ => return None,
    };
    // Tollway's files are never compressed.
    let plain = batch.compression().is_none() && batch.length() >= 0;
    let mut nodes = batch.nodes()?.iter();
    let rows =
        nodes.all(|node| node.length() == batch.length() && (0..=node.length()).contains(&node.null_count()));
    let lies =
        |at: i64, len: i64| at >= 0 && len >= 0 && at.checked_add(len).is_some_and(|end| end <= body_len);
    let buffers = batch.buffers()?;
    let all = buffers.iter().all(|buffer| lies(buffer.offset(), buffer.length()));
    let whole = buffers.iter().zip(widths).all(|(buffer, width)| buffer.length() % width == 0);
    (plain && rows && all && whole && buffers.len() == widths.len()).then_some(())
}

fn damaged(what: &str) -> String {
    format!("the file is damaged: a {what} has an impossible value")
}

const CUT: &str = "the file is truncated, or not an Arrow file";
const FOREIGN: &str = "it has columns of types that no result table has";
/// Size of the footer's length and the magic word.
const END: u64 = 10;
/// Widths of a text column's buffers: validity, offsets, characters.
const TEXT: &[i64] = &[1, 4, 1];
const CONTINUATION: [u8; 4] = [0xff; 4];
