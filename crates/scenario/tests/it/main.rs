//! Whole scenarios, from their text to the numbers in the tables.

mod effects;
