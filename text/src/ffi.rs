//! The C ABI. text/freshet_text.h describes every function.

use std::panic::{self, AssertUnwindSafe};
use std::slice;
use std::sync::{Arc, Once};

use crate::chat;
use crate::confined;
use crate::stream::StreamDecoder;
use crate::template::{ChatTemplate, RenderLimits, Variables};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

/// Of a conversation: messages, members, list items and commas in texts.
const MAX_VALUES: usize = 500_000;

/// An owned array. Empty arrays have no allocation.
#[repr(C)]
pub struct Array<T> {
    data: *mut T,
    size: usize,
}

impl<T> Array<T> {
    fn new(items: Vec<T>) -> Self {
        let size = items.len();
        let data = Box::into_raw(items.into_boxed_slice()).cast();
        Self { data, size }
    }

    /// # Safety
    /// The array was made by `new` and is freed once.
    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(slice::from_raw_parts_mut(self.data, self.size)));
        }
    }
}

type Bytes = Array<u8>;
type Ids = Array<u32>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RenderOptions {
    continue_final: bool,
    now_seconds: i64,
    fuel: u64,
    output_bytes: usize,
}

/// # Safety
/// `data` points to `size` readable items, or `size` is 0.
unsafe fn input<'a, T>(data: *const T, size: usize) -> &'a [T] {
    match size {
        0 => &[],
        _ => slice::from_raw_parts(data, size),
    }
}

/// # Safety
/// As for `input`.
unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, String> {
    std::str::from_utf8(input(data, size))
        .map_err(|error| format!("text is not UTF-8 at byte {}", error.valid_up_to()))
}

/// Runs `call` and stores its result in `out`, or its error or panic in `error`.
fn answer<T>(out: *mut T, error: *mut Bytes, call: impl FnOnce() -> Result<T, String>) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| panic::set_hook(Box::new(|_| {})));
    let result = panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str);
        let message = message.or(payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Err(format!("internal error: {message}"))
    });
    // SAFETY: the caller passes writable places.
    unsafe {
        match result {
            Ok(value) => out.write(value),
            Err(message) => {
                error.write(Bytes::new(message.into_bytes()));
                return false;
            }
        }
    }
    true
}

#[no_mangle]
pub unsafe extern "C" fn freshet_text_free_bytes(bytes: Bytes) {
    bytes.free();
}

#[no_mangle]
pub unsafe extern "C" fn freshet_text_free_ids(ids: Ids) {
    ids.free();
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_parse(
    json: *const u8,
    size: usize,
    out: *mut *mut Arc<TextTokenizer>,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let tokenizer = TextTokenizer::parse(input(json, size))?;
        Ok(Box::into_raw(Box::new(Arc::new(tokenizer))))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_free(tokenizer: *mut Arc<TextTokenizer>) {
    drop(Box::from_raw(tokenizer));
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_encode(
    tokenizer: *const Arc<TextTokenizer>,
    data: *const u8,
    size: usize,
    plain_special: bool,
    add_special: bool,
    out: *mut Ids,
    error: *mut Bytes,
) -> bool {
    let special = special_tokens(plain_special);
    answer(out, error, || {
        Ok(Ids::new((*tokenizer).encode(text(data, size)?, special, add_special)?))
    })
}

fn special_tokens(plain: bool) -> SpecialTokens {
    match plain {
        true => SpecialTokens::Plain,
        false => SpecialTokens::Recognized,
    }
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_decode(
    tokenizer: *const Arc<TextTokenizer>,
    ids: *const u32,
    size: usize,
    skip_special: bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let text = (*tokenizer).decode(input(ids, size), skip_special)?;
        Ok(Bytes::new(text.into_bytes()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_vocab_size(tokenizer: *const Arc<TextTokenizer>) -> u32 {
    (*tokenizer).vocab_size()
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_token_id(
    tokenizer: *const Arc<TextTokenizer>,
    data: *const u8,
    size: usize,
) -> i64 {
    let id = text(data, size).ok().and_then(|token| (*tokenizer).token_id(token));
    id.map_or(-1, i64::from)
}

#[no_mangle]
pub extern "C" fn freshet_stream_new(skip_special: bool) -> *mut StreamDecoder {
    Box::into_raw(Box::new(StreamDecoder::new(skip_special)))
}

#[no_mangle]
pub unsafe extern "C" fn freshet_stream_free(stream: *mut StreamDecoder) {
    drop(Box::from_raw(stream));
}

#[no_mangle]
pub unsafe extern "C" fn freshet_stream_push(
    stream: *mut StreamDecoder,
    tokenizer: *const Arc<TextTokenizer>,
    id: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || Ok(Bytes::new((*stream).push(&*tokenizer, id)?.into_bytes())))
}

#[no_mangle]
pub unsafe extern "C" fn freshet_stream_finish(
    stream: *mut StreamDecoder,
    tokenizer: *const Arc<TextTokenizer>,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || Ok(Bytes::new((*stream).finish(&*tokenizer)?.into_bytes())))
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_parse(
    source: *const u8,
    size: usize,
    out: *mut *mut Arc<ChatTemplate>,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let source = text(source, size)?.to_owned();
        let template = confined::run(move || ChatTemplate::parse(&source))?;
        Ok(Box::into_raw(Box::new(Arc::new(template))))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_free(template: *mut Arc<ChatTemplate>) {
    drop(Box::from_raw(template));
}

impl RenderOptions {
    fn limits(&self) -> RenderLimits {
        RenderLimits { fuel: self.fuel, output_bytes: self.output_bytes }
    }

    fn now(&self) -> chrono::NaiveDateTime {
        chrono::DateTime::from_timestamp(self.now_seconds, 0).unwrap_or_default().naive_utc()
    }
}

/// Calls `work` on a confined thread with the variables of a JSON object. The members of its
/// `kwargs` become variables too.
///
/// # Safety
/// As for `input`.
unsafe fn with_variables<T: Send + 'static>(
    variables: *const u8,
    size: usize,
    work: impl FnOnce(Variables) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let json = input(variables, size).to_vec();
    // An upper bound of the number of values, each of which takes far more bytes than its text.
    let values = json.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
    if values > MAX_VALUES {
        return Err(format!("the conversation has more than {MAX_VALUES} values"));
    }
    confined::run(move || {
        let parsed = serde_json::from_slice(&json);
        let mut variables: Variables = parsed.map_err(|error| error.to_string())?;
        if let Some(serde_json::Value::Object(kwargs)) = variables.remove("kwargs") {
            variables.extend(kwargs);
        }
        work(variables)
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_render(
    template: *const Arc<ChatTemplate>,
    variables: *const u8,
    size: usize,
    options: RenderOptions,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let template = Arc::clone(&*template);
        let text = with_variables(variables, size, move |variables| {
            template.render(variables, options.continue_final, options.now(), options.limits())
        })?;
        Ok(Bytes::new(text.into_bytes()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_encode(
    template: *const Arc<ChatTemplate>,
    tokenizer: *const Arc<TextTokenizer>,
    variables: *const u8,
    size: usize,
    options: RenderOptions,
    out: *mut Ids,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let (template, tokenizer) = (Arc::clone(&*template), Arc::clone(&*tokenizer));
        let ids = with_variables(variables, size, move |variables| {
            let (now, limits) = (options.now(), options.limits());
            chat::encode(&tokenizer, &template, variables, options.continue_final, now, limits)
        })?;
        Ok(Ids::new(ids))
    })
}
