//! Tokenizers and chat templates behind a C ABI (text/freshet_text.h).
//!
//! No call panics or unwinds into its caller: a panic becomes an error.

mod chat;
mod confined;
mod ffi;
mod methods;
mod python;
mod stream;
mod template;
mod tokenizer;
