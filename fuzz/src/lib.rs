//! What the fuzz targets run; tests of the crates replay the corpus through the same functions.

pub mod codecs;
pub mod inputs;
pub mod overlay;
pub mod packets;
pub mod policies;
pub mod hosts;
pub mod scenarios;
pub mod words;
